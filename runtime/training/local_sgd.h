/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD: ranks step by themselves and meet every few steps.
 */
#ifndef ACCEL_TRAINING_LOCAL_SGD_H
#define ACCEL_TRAINING_LOCAL_SGD_H

#include "handle/run.h"

/* What this rank's gradients are clipped by: `sumsq`, that of all ranks, or its own
 * where each steps by itself. One that is not finite is that of all. */
double local_sgd_sumsq(const struct accel_optim *o, double sumsq);
/* An optimizer has stepped. */
void local_sgd_stepped(accel_t *run);
/* Makes the weights, and with `state` what is kept beside them, the same on all ranks.
 * Does nothing where they are. Collective. A0986: in a micro-batch. */
accel_status_t local_sgd_meet(accel_t *run, bool state, accel_error_t *err);
/* At the end of an iteration: when a mean is due, or it is the last. Collective. */
accel_status_t local_sgd_end_step(accel_t *run, bool last, accel_error_t *err);

#endif
