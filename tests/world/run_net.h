/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests that open whole runs share: a config and a small model with its data.
 */
#ifndef ACCEL_TESTS_RUN_NET_H
#define ACCEL_TESTS_RUN_NET_H

#include "accel.h"
#include "common/common.h"
#include "tests/world/open_world.h"

/* Writes PATH.yaml: copies, or FSDP with that strategy, each Linear a unit; `more` are
 * further lines, or NULL. Ends the test with a SKIP where it cannot. */
void run_net_config(const char *path, const char *strategy, int world, int nodes,
                    const char *more);
/* The same, and a life of the run: forked ranks that do fn, which must return 0. */
struct net_world {
    int world, nodes;
    const char *strategy, *more;
};
void run_net_life(const char *path, const struct net_world *w,
                  int (*fn)(struct boot *b, void *arg), void *arg);
/* Opens the run of PATH.yaml with one thread. log: NULL, or where its lines go. */
accel_status_t run_net_run(accel_t **run_out, const char *path, accel_log_f log,
                           void *log_user, accel_error_t *err);
/* An error with that code, a text that contains `text`, and a hint. Clears it. */
bool run_net_says(accel_error_t *err, enum message code, const char *text);

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

/* ---- runs of it, with SGD of momentum 0.5 ---------------------------------------- */

enum { NET_STEPS = 7, NET_SEED = 5 };

/* Zeros; the caller closes `run`, also after an error. */
struct net_run {
    accel_t *run;
    accel_module_t *net;
    accel_optim_t *optim;
};

/* Opens the run of PATH.yaml and gives it the model. */
accel_status_t run_net_begin(struct net_run *k, const char *path, accel_error_t *err);
/* The same with an optimizer; then prepares it for NET_STEPS steps, with checkpoints in
 * the folder PATH. */
accel_status_t run_net_open(struct net_run *k, const char *path, float rate,
                            accel_error_t *err);
accel_status_t run_net_prepare(const struct net_run *k, const char *path,
                               accel_error_t *err);
/* An error unless the prepared run's shards take what its plan says. */
accel_status_t run_net_as_planned(const accel_t *run, accel_error_t *err);
/* Batch, backward and step. */
accel_status_t run_net_step(const struct net_run *k, int step, accel_error_t *err);

/* ---- the same in plain C, all parameters in one array ---------------------------- */

enum { NET_NUMBERS = sizeof(struct net_values) / sizeof(float) };

/* Gradients of what run_net_push does backward, of one rank's samples. */
void run_net_gradient(const float *w, int step, int rank, int batch, float *out);
/* Gradients with a norm above `clip` are scaled down to it; 0: none. */
void run_net_update(float *w, const float *gradient, float *velocity, float rate,
                    float clip);
/* Elements from .. to - 1 of each rank become their mean. */
void run_net_mean(float (*x)[NET_NUMBERS], int world, int from, int to);

#endif
