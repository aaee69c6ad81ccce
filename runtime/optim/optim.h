/* SPDX-License-Identifier: Apache-2.0
 *
 * optim/: what the optimizer does in a step: its constants and the clip factor. Numbers
 * in, numbers out; the arrays are left to the backend's kernels. Never communicates,
 * never allocates. Beside it: schedule.h (the rate of a step), accumulate.h (when there
 * is a step), averages.h (moving and local averages of weights).
 */
#ifndef ACCEL_OPTIM_OPTIM_H
#define ACCEL_OPTIM_OPTIM_H

#include "backend/device.h"

/* Replaces the zeros of `o` that mean "default" (accel.h). Idempotent. */
accel_optimizer_t optim_defaults(accel_optimizer_t o);
/* ACCEL_EINVAL naming the field that is out of range. Accepts `o` with or
 * without defaults. */
accel_status_t optim_check(const accel_optimizer_t *o, accel_error_t *err);

/* Arrays kept per trained element, m and v of struct update_span: their names in
 * checkpoints ("exp_avg"), *count_out of them (0, 1 or 2). Static. */
const char *const *optim_state_names(const accel_optimizer_t *o, int *count_out);
/* Is array k of them an average of squares, which are never negative? */
bool optim_state_is_square(const accel_optimizer_t *o, int k);
/* The type of array k with ACCEL_MOMENTS_FP8. */
accel_dtype_t optim_scaled_type(const accel_optimizer_t *o, int k);
/* "adamw", "sgd", "sgd-momentum" or "lion": equal names have equal state. Static. */
const char *optim_name(const accel_optimizer_t *o);

/* What one parameter takes from the parameter groups. */
struct optim_param {
    float lr_scale, weight_decay;
    bool frozen;
    /* -1: in none */
    int group;
};
/* The first group whose glob matches the full name wins. Without a group, or where the
 * group leaves it open, only parameters of 2 or more dimensions decay. */
struct optim_param optim_param_of(const accel_optimizer_t *o, const char *name,
                                  int ndim);

/* Constants of step t = 1, 2, ... at learning rate lr, computed once, in double. `o`
 * with defaults; its own lr is not looked at. */
struct optim_step optim_step_of(const accel_optimizer_t *o, const struct optim_param *p,
                                float lr, int64_t t, float grad_scale);

/* The factor that brings a gradient of global norm sqrt(sumsq) down to `clip` (0:
 * never): 1 when the norm is within it. norm_out may be NULL. ACCEL_EINVAL, outputs
 * unset: `sumsq` is not finite. */
accel_status_t optim_clip(double sumsq, float clip, float *factor_out, double *norm_out,
                          accel_error_t *err);

#endif
