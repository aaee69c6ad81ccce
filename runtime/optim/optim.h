/* SPDX-License-Identifier: Apache-2.0
 *
 * optim/: AdamW on flat float32 ranges, the learning-rate schedule and the clip factor.
 * Pure arithmetic: in go arrays and numbers, out come updated arrays and numbers. Never
 * communicates, never allocates; the same bits for any thread count and any ISA.
 */
#ifndef ACCEL_OPTIM_OPTIM_H
#define ACCEL_OPTIM_OPTIM_H

#include "common/common.h"

/* One step's constants, computed once in double from the options. */
struct adamw_step {
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float rate;       /* lr / (1 - beta1^t) */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float decay;      /* 1 - lr * weight_decay: factor on decayed parameters */
    float grad_scale; /* applied to every gradient first (clipping) */
};

/* Replaces the zeros of `o` that mean "default" (accel.h). Idempotent. */
accel_adamw_t optim_adamw_defaults(accel_adamw_t o);

/* Constants of step t = 1, 2, ... at learning rate lr. `o` with or without defaults. */
struct adamw_step adamw_step_of(const accel_adamw_t *o, float lr, int64_t t,
                                float grad_scale);

/* Decoupled weight decay, then Adam, in place over p[n], m[n] and v[n] with gradients
 * g[n]:  p *= decay (if `decayed`);  m, v: running means of g and g*g;
 *        p -= rate * m / (sqrt(v) * root_scale + eps).
 * The arrays must not overlap. Threads (OpenMP) share the range. */
void adamw_update(float *p, float *m, float *v, const float *g, size_t n, bool decayed,
                  const struct adamw_step *k);

/* Sum of g[n] squared: double, in an order that depends on n only. */
double optim_sumsq(const float *g, size_t n);

/* Learning rate of step 1 .. steps: linear from peak/warmup up to peak over `warmup`
 * steps, then half a cosine from peak down to peak/10, reached at the last step. */
float optim_lr(float peak, int64_t warmup, int64_t steps, int64_t step);

/* Factor that brings a gradient of global norm sqrt(sumsq) down to `clip` (0: never):
 * 1 when the norm is within it. `sumsq` not finite: ACCEL_EINVAL with a text that says so
 * and outputs unset. norm_out may be NULL. */
accel_status_t optim_clip(double sumsq, float clip, float *factor_out, double *norm_out,
                          accel_error_t *err);

#endif
