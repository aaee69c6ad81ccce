/* SPDX-License-Identifier: Apache-2.0
 *
 * optim/: what the optimizer does in a step: its constants, the learning-rate schedule and
 * the clip factor. Numbers in, numbers out; the arrays are the backend's kernels' business.
 * Never communicates, never allocates.
 */
#ifndef ACCEL_OPTIM_OPTIM_H
#define ACCEL_OPTIM_OPTIM_H

#include "backend/backend.h"

/* Replaces the zeros of `o` that mean "default" (accel.h). Idempotent. */
accel_adamw_t optim_adamw_defaults(accel_adamw_t o);

/* Constants of step t = 1, 2, ... at learning rate lr. `o` with or without defaults. */
struct adamw_step adamw_step_of(const accel_adamw_t *o, float lr, int64_t t,
                                float grad_scale);

/* Learning rate of step 1 .. steps: linear from peak/warmup up to peak over `warmup`
 * steps, then half a cosine from peak down to peak/10, reached at the last step. */
float optim_lr(float peak, int64_t warmup, int64_t steps, int64_t step);

/* Factor that brings a gradient of global norm sqrt(sumsq) down to `clip` (0: never):
 * 1 when the norm is within it. `sumsq` not finite: ACCEL_EINVAL with a text that says so
 * and outputs unset. norm_out may be NULL. */
accel_status_t optim_clip(double sumsq, float clip, float *factor_out, double *norm_out,
                          accel_error_t *err);

#endif
