/* SPDX-License-Identifier: Apache-2.0
 *
 * The form that master weights and gradients are kept in.
 */
#ifndef ACCEL_TRAINING_MASTER_WEIGHTS_H
#define ACCEL_TRAINING_MASTER_WEIGHTS_H

#include "handle/run.h"

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* The type of masters in the checkpoint with that text. A0999: its word is none. */
accel_status_t masters_find(const char *dir, const char *text, accel_dtype_t *type_out,
                            accel_error_t *err);
/* Rank 0 warns of what a load with another type loses. part: of weights alone. */
void masters_warn(const accel_t *run, accel_dtype_t theirs, bool part);

#endif
