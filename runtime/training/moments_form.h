/* SPDX-License-Identifier: Apache-2.0
 *
 * The format that optimizer state is kept in.
 */
#ifndef ACCEL_TRAINING_MOMENTS_FORM_H
#define ACCEL_TRAINING_MOMENTS_FORM_H

#include "handle/run.h"

enum moments_choice moments_choice_of(accel_moments_t form);
/* The format of the optimizer's state; for the program's own ones, float32. */
accel_moments_t moments_form(const struct accel_optim *o);

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* forms_out[i]: the format of the state of optimizer i of the run. */
void moments_own(const accel_t *run, accel_moments_t forms_out[ACCEL_MAX_OPTIMS]);
/* The same for the checkpoint with trainer state `text`. A0999: the text names an
 * unknown one. */
accel_status_t moments_find(const accel_t *run, const char *dir, const char *text,
                            accel_moments_t forms_out[ACCEL_MAX_OPTIMS],
                            accel_error_t *err);
/* Rank 0 warns about what a load from another format loses. */
void moments_warn(const accel_t *run, const accel_moments_t theirs[ACCEL_MAX_OPTIMS]);

#endif
