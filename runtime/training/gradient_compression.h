/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD: sums of gradients as products of thin matrices.
 */
#ifndef ACCEL_TRAINING_GRADIENT_COMPRESSION_H
#define ACCEL_TRAINING_GRADIENT_COMPRESSION_H

#include "handle/run.h"

/* A0990: not together with local SGD. */
accel_status_t compression_check(const accel_t *run, accel_error_t *err);
/* What the units of the run need for it. */
accel_status_t compression_plan(const accel_t *run, struct plan_input *in,
                                accel_error_t *err);

/* ---- in the texts of checkpoints ------------------------------------------------- */

void compression_put_rule(const accel_t *run, struct strbuf *b);
/* How many sums each optimizer has been through. */
void compression_put_progress(const accel_t *run, struct strbuf *b);
/* A0991: the trainer state `text` of checkpoint `dir` is of another rule. */
accel_status_t compression_find(const accel_t *run, const char *dir, const char *text,
                                accel_error_t *err);
void compression_take_progress(accel_t *run, const char *text);

#endif
