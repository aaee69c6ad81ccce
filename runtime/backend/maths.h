/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of one element, for C and CUDA alike. What every backend must compute
 * identically is written once: activations and their derivatives, the dropout mask,
 * optimizer steps. Static inline functions of floats; no memory, no loops, no libm but
 * sqrt.
 */
#ifndef ACCEL_BACKEND_MATHS_H
#define ACCEL_BACKEND_MATHS_H

#include <math.h>
#include <string.h>

#include "backend/operands.h"
#include "numbers/minifloat.h"
#include "numbers/rng.h"

/* ---- exp and activations --------------------------------------------------------- */

/* exp(x) to about 2 ulp on [-87, 88]; clamped outside. x = n ln 2 + r, |r| <= ln2 / 2.
 * libm's exp differs between hosts and devices, and the compiler cannot vectorize it.
 */
NUMBERS_INLINE float maths_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float shifted, n, r, p, scale;
    int32_t bits;

    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    shifted = x * 1.44269504f + magic;
    n = shifted - magic;
    /* ln 2 in two parts: n times the first is exact, so r loses no digits */
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    /* Horner; the coefficients are Cephes's expf */
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    memcpy(&bits, &shifted, sizeof(bits));
    /* The integer sits in the low bits of `shifted`; 2^n is built from it. */
    bits = (int32_t)((uint32_t)(bits - 0x4b400000 + 127) << 23);
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

/* exp(x) on all of float32, infinite and 0 where that is: a square, since maths_exp
 * ends before. */
NUMBERS_INLINE float maths_exp_all(float x)
{
    float root = maths_exp(0.5f * x);

    return root * root;
}

/* log(x) to about 1 ulp; -infinity at 0, NaN below. x = m 2^e, m from sqrt(1/2) to
 * sqrt(2). */
NUMBERS_INLINE float maths_log(float x)
{
    const uint32_t root_half = 0x3f3504f3;
    /* a subnormal number has its exponent in the fraction */
    float v = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float e = x < 1.17549435e-38f ? -23.0f : 0.0f, r, q, p;
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    bits -= root_half;
    e += (float)((int32_t)bits >> 23);
    bits = (bits & 0x7fffff) + root_half;
    memcpy(&r, &bits, sizeof(r));
    r -= 1.0f;
    q = r * r;
    /* Horner; the coefficients are Cephes's logf */
    p = 7.0376836292e-2f;
    p = p * r - 1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r - 1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r - 1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r - 2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    p = p * r * q - e * 2.12194440e-4f - 0.5f * q;
    p = p + r + e * 0.693359375f;
    p = x > 3.402823466e38f ? x : p;
    return x > 0.0f ? p : x == 0.0f ? -INFINITY : NAN;
}

/* log(1 + e), e from 0 to 1, without the digits that 1 + e loses (Kahan). */
NUMBERS_INLINE float maths_log1p(float e)
{
    float u = 1.0f + e, kept = u - 1.0f;

    return kept > 0.0f ? maths_log(u) * (e / kept) : e;
}

/* 1 / (1 + exp(-x)), 0 below -87. Small results keep their relative accuracy, which
 * 1 + tanh would lose: GELU and SiLU are x times a sigmoid for that reason. */
NUMBERS_INLINE float maths_sigmoid(float x)
{
    float s = 1.0f / (1.0f + maths_exp(-x));

    return x < -87.0f ? 0.0f : s;
}

/* Clamps x where a derivative has reached its limit anyway, so that products of large
 * numbers stay finite. */
NUMBERS_INLINE float maths_clamp(float x, float limit)
{
    x = x < -limit ? -limit : x;
    return x > limit ? limit : x;
}

/* d/dx of x sigmoid(u(x)), given u and du/dx. 1 - s is exp(-u) s, without cancellation.
 */
NUMBERS_INLINE float maths_swish_grad(float x, float u, float du)
{
    float e = maths_exp(-u), s = 1.0f / (1.0f + e);

    return s + x * (e * s) * s * du;
}

/* GELU, tanh form: 0.5 x (1 + tanh(u)) = x sigmoid(2 u),
 * 2 u = sqrt(8 / pi) (x + 0.044715 x^3). */
NUMBERS_INLINE float maths_gelu(float x)
{
    return x * maths_sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
}

/* Beyond |x| = 20 the derivative is 0 or 1 in float32; x^3 would overflow far out. */
NUMBERS_INLINE float maths_gelu_grad(float x)
{
    float u;

    x = maths_clamp(x, 20.0f);
    u = 1.5957691216f * (x + 0.044715f * x * x * x);
    return maths_swish_grad(x, u, 1.5957691216f * (1.0f + 0.134145f * x * x));
}

/* Upper tail of the normal distribution at a >= 0, divided by e = exp(-a^2 / 2): a
 * polynomial in t = 1 / (1 + 0.35 a), fitted for the smallest relative error on [0, 14]
 * (3e-8). */
NUMBERS_INLINE float maths_tail(float a)
{
    float t = 1.0f / (1.0f + 0.35f * a), p = -2.914600633e-2f;

    p = p * t + 1.439720541e-1f;
    p = p * t - 2.557149529e-1f;
    p = p * t + 1.591749191e-1f;
    p = p * t - 2.311031148e-2f;
    p = p * t + 1.055081859e-1f;
    p = p * t + 1.198328286e-1f;
    p = p * t + 1.398618668e-1f;
    p = p * t + 1.396214068e-1f;
    return p * t;
}

/* Phi(x), the normal distribution, given e = exp(-x^2 / 2). */
NUMBERS_INLINE float maths_normal(float x, float e)
{
    float tail = e * maths_tail(x < 0.0f ? -x : x);

    return x < 0.0f ? tail : 1.0f - tail;
}

/* GELU, exact form: x Phi(x) = 0.5 x (1 + erf(x / sqrt 2)). */
NUMBERS_INLINE float maths_gelu_erf(float x)
{
    return x * maths_normal(x, maths_exp(-0.5f * x * x));
}

/* Phi(x) + x phi(x); 0.3989... is 1 / sqrt(2 pi). */
NUMBERS_INLINE float maths_gelu_erf_grad(float x)
{
    float e;

    x = maths_clamp(x, 20.0f);
    e = maths_exp(-0.5f * x * x);
    return maths_normal(x, e) + x * e * 0.3989422804f;
}

/* SiLU (swish): x sigmoid(x). u(x) = x, so its derivative is maths_swish_grad with du
 * 1. */
NUMBERS_INLINE float maths_silu(float x)
{
    return x * maths_sigmoid(x);
}

NUMBERS_INLINE float maths_silu_grad(float x)
{
    x = maths_clamp(x, 100.0f);
    return maths_swish_grad(x, x, 1.0f);
}

/* NaN stays NaN: the comparison is written that way round. */
NUMBERS_INLINE float maths_relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}

NUMBERS_INLINE float maths_relu_grad(float x)
{
    return x > 0.0f ? 1.0f : 0.0f;
}

/* A polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel. */
NUMBERS_INLINE float maths_tanh(float x)
{
    float q = x * x, p = 2.1869488536e-2f;
    float far = 1.0f - 2.0f / (maths_exp(2.0f * maths_clamp(x, 20.0f)) + 1.0f);

    /* x - x^3 / 3 + 2 x^5 / 15 - 17 x^7 / 315 + 62 x^9 / 2835 */
    p = p * q - 5.3968253968e-2f;
    p = p * q + 1.3333333333e-1f;
    p = p * q - 3.3333333333e-1f;
    return q < 0.0625f ? x + x * q * p : far;
}

/* s (1 - s); 1 - s is exp(-x) s. */
NUMBERS_INLINE float maths_sigmoid_grad(float x)
{
    float e = maths_exp(-x), s = 1.0f / (1.0f + e);

    return e * s * s;
}

/* act(x); NONE is the identity. */
NUMBERS_INLINE float maths_act(float x, accel_activation_t act)
{
    switch (act) {
    case ACCEL_ACT_GELU:
        return maths_gelu(x);
    case ACCEL_ACT_GELU_ERF:
        return maths_gelu_erf(x);
    case ACCEL_ACT_SILU:
        return maths_silu(x);
    case ACCEL_ACT_RELU:
        return maths_relu(x);
    case ACCEL_ACT_RELU2:
        return maths_relu(x) * maths_relu(x);
    case ACCEL_ACT_TANH:
        return maths_tanh(x);
    case ACCEL_ACT_SIGMOID:
        return maths_sigmoid(x);
    case ACCEL_ACT_EXP:
        return maths_exp_all(x);
    case ACCEL_ACT_LOG:
        return maths_log(x);
    case ACCEL_ACT_NONE:
        break;
    }
    return x;
}

/* d act(x) / dx. That of RELU at 0 is 0. */
NUMBERS_INLINE float maths_act_grad(float x, accel_activation_t act)
{
    switch (act) {
    case ACCEL_ACT_GELU:
        return maths_gelu_grad(x);
    case ACCEL_ACT_GELU_ERF:
        return maths_gelu_erf_grad(x);
    case ACCEL_ACT_SILU:
        return maths_silu_grad(x);
    case ACCEL_ACT_RELU:
        return maths_relu_grad(x);
    case ACCEL_ACT_RELU2:
        return 2.0f * maths_relu(x);
    case ACCEL_ACT_TANH:
        return 1.0f - maths_tanh(x) * maths_tanh(x);
    case ACCEL_ACT_SIGMOID:
        return maths_sigmoid_grad(x);
    case ACCEL_ACT_EXP:
        return maths_exp_all(x);
    case ACCEL_ACT_LOG:
        return 1.0f / x;
    case ACCEL_ACT_NONE:
        break;
    }
    return 1.0f;
}

/* ---- losses of a pair of numbers ------------------------------------------------- */

/* SQUARE: (x - y)^2. LOGIT: binary cross-entropy of logit x and probability y,
 * -y log(s) - (1 - y) log(1 - s) with s = sigmoid(x), so written that nothing
 * overflows. */
NUMBERS_INLINE float maths_pair(float x, float y, enum pair_loss loss)
{
    float far = x < 0.0f ? -x : x;

    if (loss == PAIR_SQUARE)
        return (x - y) * (x - y);
    return (x < 0.0f ? 0.0f : x) - x * y + maths_log1p(maths_exp(-far));
}

/* Its derivative by x, or by y. LOGIT by x: s - y as s (1 - y) - (1 - s) y, which
 * cancels nothing where y is 0 or 1. */
NUMBERS_INLINE float maths_pair_grad(float x, float y, enum pair_loss loss, bool by_y)
{
    float e, near, far;

    if (loss == PAIR_SQUARE)
        return 2.0f * (by_y ? y - x : x - y);
    if (by_y)
        return -x;
    e = maths_exp(x < 0.0f ? x : -x);
    near = 1.0f / (1.0f + e);
    far = e * near;
    return x < 0.0f ? far * (1.0f - y) - near * y : near * (1.0f - y) - far * y;
}

/* ---- dropout --------------------------------------------------------------------- */

/* One draw of a forward. Which elements stay follows from the seed of the run, the
 * number of the draw within the forward, and the element's number counted over all
 * samples of the run. The rank or thread that computes an element does not matter. */
struct mask {
    uint64_t seed, stream;
    /* run-wide number of the first element */
    uint64_t first;
    /* an element is dropped when its random word is below this: p 2^32 */
    uint32_t threshold;
    /* factor of the elements that stay: 1 / (1 - p) */
    float scale;
};

/* Random streams of masks start here, away from those of initial values and sample
 * orders. */
#define MATHS_MASK_STREAM ((uint64_t)0x6d61736b << 32)

/* The factors, 0 or `scale`, of elements 4 block .. 4 block + 3 of the draw. One call
 * of the generator gives four words, so kernels work in fours. */
NUMBERS_INLINE void maths_mask(const struct mask *m, uint64_t block, float keep[4])
{
    uint32_t word[4];

    rng_block(m->seed, m->stream, block, word);
    for (int i = 0; i < 4; i++)
        keep[i] = word[i] < m->threshold ? 0.0f : m->scale;
}

/* ---- one element of an optimizer step; constants in operands.h ------------------- */

/* AdamW. Bias correction is folded into rate and root_scale; eps is added after the
 * correction, and the decay is decoupled. Loshchilov and Hutter 2019: p = p (1 - lr wd)
 * - lr m_hat / (sqrt(v_hat) + eps). */
NUMBERS_INLINE void maths_adamw(float *p, float *m, float *v, float g,
                                const struct adamw_step *k)
{
    float gi = g * k->grad_scale;
    float mi = *m * k->beta1 + gi * k->one_minus_beta1;
    float vi = *v * k->beta2 + gi * gi * k->one_minus_beta2;

    *m = mi;
    *v = vi;
    *p = *p * k->decay - k->rate * mi / (sqrtf(vi) * k->root_scale + k->eps);
}

/* SGD without momentum: weight decay is part of the gradient. */
NUMBERS_INLINE void maths_sgd(float *p, float g, const struct sgd_step *k)
{
    *p = *p - k->lr * (g * k->grad_scale + *p * k->decay);
}

/* SGD with momentum, as torch: m = momentum m + g. Step with m, or with g + momentum m
 * for Nesterov. */
NUMBERS_INLINE void maths_sgd_momentum(float *p, float *m, float g,
                                       const struct sgd_step *k)
{
    float gi = g * k->grad_scale + *p * k->decay;
    float mi = *m * k->momentum + gi;

    *m = mi;
    *p = *p - k->lr * (gi * k->own + mi * k->mixed);
}

/* Lion: steps by the sign of a blend with beta1, then updates m with beta2. The sign of
 * 0 is 0. Chen et al. 2023. */
NUMBERS_INLINE void maths_lion(float *p, float *m, float g, const struct lion_step *k)
{
    float gi = g * k->grad_scale;
    float mixed = *m * k->beta1 + gi * k->one_minus_beta1;
    float sign = (float)(mixed > 0.0f) - (float)(mixed < 0.0f);

    *m = *m * k->beta2 + gi * k->one_minus_beta2;
    *p = *p * k->decay - k->lr * sign;
}

#endif
