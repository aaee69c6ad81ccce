/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling.
 */
#ifndef ACCEL_TRAINING_LOSS_SCALE_H
#define ACCEL_TRAINING_LOSS_SCALE_H

#include "handle/run.h"

/* Tells the shards the scale: once they exist, and after a resume. */
void loss_scale_apply(accel_t *run);
/* An optimizer has checked its gradients; overflow: some rank's are not finite. */
void loss_scale_found(accel_t *run, bool overflow);
/* Updates the scale after the optimizers' steps. False: the scale is too small to be of
 * use. The same on all ranks; not collective. */
bool loss_scale_end_step(accel_t *run);

#endif
