/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests that open whole runs share: a config and a small model with its data.
 */
#ifndef ACCEL_TESTS_RUN_NET_H
#define ACCEL_TESTS_RUN_NET_H

#include "accel.h"
#include "tests/unit/open_world.h"

/* Writes PATH.yaml: copies, or FSDP with that strategy, each Linear a unit; `more` are
 * further lines, or NULL. False: it cannot be written. */
bool run_net_config(const char *path, const char *strategy, int world, int nodes,
                    const char *more);

/* ---- a small model: relu, two layers, the second without bias -------------------- */

enum { NET_IN = 3, NET_HIDDEN = 5, NET_SAMPLES = 8 };

/* All its parameters. */
struct net_values {
    float first[NET_HIDDEN][NET_IN], bias[NET_HIDDEN], last[1][NET_HIDDEN];
};

accel_module_t *run_net_new(accel_t *run);
/* Element i of the samples of a rank that has `batch` of them, [batch][NET_IN]. */
float run_net_sample(int step, int rank, int batch, int i);
/* Backward of the mean of (net(by * x) - 1)^2 over this rank's samples of a step; all
 * ranks together have NET_SAMPLES. */
accel_status_t run_net_push(accel_t *run, accel_module_t *net, int step, float by,
                            accel_error_t *err);
/* All values, on all ranks. Collective. */
accel_status_t run_net_read(accel_t *run, struct net_values *to, accel_error_t *err);
float run_net_distance(const struct net_values *a, const struct net_values *b);

#endif
