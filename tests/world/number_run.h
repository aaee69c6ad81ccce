/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of two models of one number each, "a" and "b": the loss is w * x, so that the
 * gradient is x. Their ranks are those of open_world, or there is one.
 */
#ifndef ACCEL_TESTS_NUMBER_RUN_H
#define ACCEL_TESTS_NUMBER_RUN_H

#include "handle/run.h"

struct number_run {
    accel_t *run;
    accel_module_t *a, *b; /* from 2 and 3 on */
    accel_optim_t *oa, *ob;
    accel_error_t err;
};

/* A config of `world` ranks on `nodes` nodes. 0: written. */
int number_config(const char *path, int world, int nodes, const char *strategy,
                  bool save);
/* Opens the run and makes the models; number_open also adds them, with an optimizer
 * each, plain SGD of rate 1. */
accel_status_t number_models(struct number_run *k, const char *config);
accel_status_t number_open(struct number_run *k, const char *config);
/* Begins a micro-batch; does a backward of m, whose gradient is x; both. */
accel_status_t number_begin(struct number_run *k);
accel_status_t number_push(struct number_run *k, accel_module_t *m, float x);
accel_status_t number_micro(struct number_run *k, accel_module_t *m, float x);
/* The model's number, by a forward of 1. Collective. */
float number_of(struct number_run *k, accel_module_t *m);

#endif
