/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling.
 */
#ifndef ACCEL_TRAINING_LOSS_SCALE_H
#define ACCEL_TRAINING_LOSS_SCALE_H

#include "handle/run.h"

/* Tells the shards, once there are some and after a resume. */
void loss_scale_apply(accel_t *run);
/* An optimizer's gradients of all ranks: are some not finite? */
void loss_scale_found(accel_t *run, bool overflow);
/* Moves the scale after the optimizers' steps. False: it is of no use any more. The
 * same on all ranks; not collective. */
bool loss_scale_end_step(accel_t *run);

#endif
