/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the program that get gradients.
 */
#ifndef ACCEL_LOOP_GRADIENT_HOOKS_H
#define ACCEL_LOOP_GRADIENT_HOOKS_H

#include "handle/run.h"

/* Calls the program's hooks with the optimizer's gradients of this step. Not
 * collective. */
accel_status_t hooks_call(accel_t *run, int optim, accel_error_t *err);
/* Frees the copies of the patterns. */
void hooks_free(accel_t *run);

#endif
