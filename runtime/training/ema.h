/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving averages of weights (accel_ema).
 */
#ifndef ACCEL_TRAINING_EMA_H
#define ACCEL_TRAINING_EMA_H

#include "handle/run.h"

/* After a step of the optimizer that was taken. Not collective. */
void averaging_step(struct accel_optim *o);
/* run_ready for calls that change or save the weights; they are refused while the
 * averages are in their place. */
accel_status_t run_trains(accel_t *run, const char *call, accel_error_t *err);

#endif
