/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling.
 */
#ifndef ACCEL_TRAINING_LOSS_SCALE_H
#define ACCEL_TRAINING_LOSS_SCALE_H

#include "handle/run.h"

/* Is the loss scaled, and from where on? A0995: not like that. */
accel_status_t loss_scale_begin(accel_t *run, accel_error_t *err);
/* Tells the shards, once there are some and after a resume. */
void loss_scale_apply(accel_t *run);
/* An optimizer's gradients of all ranks: are some not finite? */
void loss_scale_found(accel_t *run, bool overflow);
/* Moves the scale after the optimizers' steps. False: it is of no use any more. The
 * same on all ranks; not collective. */
bool loss_scale_end_step(accel_t *run);

/* ---- in the texts of checkpoints ------------------------------------------------- */

void scaler_put_rule(const accel_t *run, struct strbuf *b);
void scaler_put_progress(const accel_t *run, struct strbuf *b);
/* A0996: the trainer state `text` of checkpoint `dir` has an unreadable one. */
accel_status_t scaler_find(const accel_t *run, const char *dir, const char *text,
                           accel_error_t *err);
void scaler_take_progress(accel_t *run, const char *text);

#endif
