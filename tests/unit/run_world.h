/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs (accel_open to accel_close) on forked ranks: accel_open takes the bootstrap
 * of the fork instead of looking for one. Link with -Wl,--wrap of boot_open, boot_leave
 * and boot_free ($(run_wrap)).
 */
#ifndef ACCEL_TESTS_RUN_WORLD_H
#define ACCEL_TESTS_RUN_WORLD_H

#include "accel.h"
#include "tests/unit/fork_world.h"

/* Runs opened from here on belong to b; leave when the run is closed. */
void run_world_enter(struct boot *b);
void run_world_leave(void);
/* Writes PATH.yaml: copies, or FSDP with that strategy, each Linear a unit; `more` are
 * further lines, or NULL. False: it cannot be written. */
bool run_world_config(const char *path, const char *strategy, int world, int nodes,
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
