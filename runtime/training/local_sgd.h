/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD: ranks step on their own and average their weights every few steps.
 */
#ifndef ACCEL_TRAINING_LOCAL_SGD_H
#define ACCEL_TRAINING_LOCAL_SGD_H

#include "handle/run.h"

/* The sum of squares that this rank's gradients are clipped by: `sumsq`, which is that
 * of all ranks, or the rank's own where each rank steps on its own. If `sumsq` is not
 * finite, it counts for every rank. */
double local_sgd_sumsq(const struct accel_optim *o, double sumsq);
/* Call this when an optimizer has stepped. */
void local_sgd_stepped(accel_t *run);
/* Averages the weights, and with `state` what is kept beside them, so that they are the
 * same on all ranks. Does nothing where they already are. Collective. A0986: inside a
 * micro-batch. */
accel_status_t local_sgd_meet(accel_t *run, bool state, accel_error_t *err);
/* Call this at the end of an iteration. Averages when that is due, or if the iteration
 * is the last. Collective. */
accel_status_t local_sgd_end_step(accel_t *run, bool last, accel_error_t *err);

#endif
