/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of one element, for C and CUDA alike: what every backend must compute the
 * same way is written down once. Static inline functions of floats; no memory, no loops.
 */
#ifndef ACCEL_BACKEND_MATHS_H
#define ACCEL_BACKEND_MATHS_H

#include <math.h>

#include "backend/backend.h"

#ifdef __CUDACC__
#define ACCEL_MATHS static __host__ __device__ __forceinline__
#else
#define ACCEL_MATHS static inline __attribute__((always_inline))
#endif

/* ---- one element of an optimizer step; constants: backend.h ------------------------------ */

ACCEL_MATHS void maths_adamw(float *p, float *m, float *v, float g,
                             const struct adamw_step *k)
{
    float gi = g * k->grad_scale;
    float mi = *m * k->beta1 + gi * k->one_minus_beta1;
    float vi = *v * k->beta2 + gi * gi * k->one_minus_beta2;

    *m = mi;
    *v = vi;
    *p = *p * k->decay - k->rate * mi / (sqrtf(vi) * k->root_scale + k->eps);
}

ACCEL_MATHS void maths_sgd(float *p, float g, const struct sgd_step *k)
{
    *p = *p - k->lr * (g * k->grad_scale + *p * k->decay);
}

ACCEL_MATHS void maths_sgd_momentum(float *p, float *m, float g,
                                    const struct sgd_step *k)
{
    float gi = g * k->grad_scale + *p * k->decay;
    float mi = *m * k->momentum + gi;

    *m = mi;
    *p = *p - k->lr * (gi * k->own + mi * k->mixed);
}

ACCEL_MATHS void maths_lion(float *p, float *m, float g, const struct lion_step *k)
{
    float gi = g * k->grad_scale;
    float mixed = *m * k->beta1 + gi * k->one_minus_beta1;
    float sign = (float)(mixed > 0.0f) - (float)(mixed < 0.0f);

    *m = *m * k->beta2 + gi * k->one_minus_beta2;
    *p = *p * k->decay - k->lr * sign;
}

#endif
