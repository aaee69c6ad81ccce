/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD: gradients are reduced as products of low-rank matrices.
 */
#ifndef ACCEL_TRAINING_GRADIENT_COMPRESSION_H
#define ACCEL_TRAINING_GRADIENT_COMPRESSION_H

#include "handle/run.h"

/* Tells the plan what the units of the run need for it. */
accel_status_t compression_plan(const accel_t *run, struct plan_input *in,
                                accel_error_t *err);

#endif
