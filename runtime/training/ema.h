/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving averages of weights (accel_ema).
 */
#ifndef ACCEL_TRAINING_EMA_H
#define ACCEL_TRAINING_EMA_H

#include "handle/run.h"

/* Call this after each step that the optimizer took, not skipped. Not collective. */
void averaging_step(struct accel_optim *o);
/* run_ready for calls that change or save the weights. They are refused while the
 * averages have taken the place of the weights. */
accel_status_t run_trains(accel_t *run, const char *call, accel_error_t *err);

#endif
