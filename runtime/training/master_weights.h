/* SPDX-License-Identifier: Apache-2.0
 *
 * The dtype of master weights and gradients.
 */
#ifndef ACCEL_TRAINING_MASTER_WEIGHTS_H
#define ACCEL_TRAINING_MASTER_WEIGHTS_H

#include "handle/run.h"

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* The dtype of the masters in the checkpoint with trainer state `text`. A0999: the text
 * names an unknown one. */
accel_status_t masters_find(const char *dir, const char *text, accel_dtype_t *type_out,
                            accel_error_t *err);
/* Rank 0 warns about what a load from another dtype loses. part: only of weights. */
void masters_warn(const accel_t *run, accel_dtype_t theirs, bool part);

#endif
