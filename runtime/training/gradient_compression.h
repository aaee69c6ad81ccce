/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD: sums of gradients as products of thin matrices.
 */
#ifndef ACCEL_TRAINING_GRADIENT_COMPRESSION_H
#define ACCEL_TRAINING_GRADIENT_COMPRESSION_H

#include "handle/run.h"

/* What the units of the run need for it. */
accel_status_t compression_plan(const accel_t *run, struct plan_input *in,
                                accel_error_t *err);

#endif
