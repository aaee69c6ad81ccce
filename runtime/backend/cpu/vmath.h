/* SPDX-License-Identifier: Apache-2.0
 *
 * Building blocks of the CPU kernels, inlined into functions marked ACCEL_MULTIVERSION:
 * exp by polynomial, sums over 16 explicit lanes, loads and stores of either storage
 * type. The order of every operation is written down here, so that generic, AVX2 and
 * AVX-512 code give the same bits.
 */
#ifndef ACCEL_BACKEND_CPU_VMATH_H
#define ACCEL_BACKEND_CPU_VMATH_H

#include "common/bf16.h"

#define VM_INLINE static inline __attribute__((always_inline))
#define VM_LANES  16

typedef float vm_lanes __attribute__((vector_size(4 * VM_LANES)));

/* exp(x) to about 2 ulp on [-87, 88]; clamped outside. x = n ln 2 + r, |r| <= ln2 / 2. */
VM_INLINE float vm_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float shifted, n, r, p, scale;
    int32_t bits;

    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    shifted = x * 1.44269504f + magic;
    n = shifted - magic;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
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

/* Absolute error about 1e-7; enough for GELU, which multiplies by x. */
VM_INLINE float vm_tanh(float x)
{
    return 1.0f - 2.0f / (vm_exp(2.0f * x) + 1.0f);
}

VM_INLINE float vm_gelu(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);

    return 0.5f * x * (1.0f + vm_tanh(u));
}

VM_INLINE float vm_gelu_grad(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    float t = vm_tanh(u);
    float du = 0.7978845608f * (1.0f + 0.134145f * x * x);

    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du;
}

VM_INLINE float vm_load(const void *p, int64_t i, const int bf)
{
    return bf ? bf16_to_f32(((const bf16_t *)p)[i]) : ((const float *)p)[i];
}

VM_INLINE void vm_store(void *p, int64_t i, float v, const int bf)
{
    if (bf)
        ((bf16_t *)p)[i] = f32_to_bf16(v);
    else
        ((float *)p)[i] = v;
}

/* p + i elements. */
static inline const void *vm_at(const void *p, int64_t i, accel_dtype_t t)
{
    return (const char *)p + i * (t == ACCEL_BF16 ? 2 : 4);
}

static inline void *vm_to(void *p, int64_t i, accel_dtype_t t)
{
    return (char *)p + i * (t == ACCEL_BF16 ? 2 : 4);
}

/* The lanes of a sum, always combined in this tree. */
VM_INLINE float vm_total(const float lane[VM_LANES])
{
    float a[8], b[4];

    for (int i = 0; i < 8; i++)
        a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* Sum of EXPR(i), i in [0, n), 16 lanes; EXPR is an expression in `i`. */
#define VM_SUM(out, n, EXPR)                                                           \
    do {                                                                               \
        float lane_[VM_LANES] = { 0 };                                                 \
        int64_t i_ = 0, n_ = (n);                                                      \
                                                                                       \
        for (; i_ + VM_LANES <= n_; i_ += VM_LANES) {                                  \
            _Pragma("omp simd") for (int l_ = 0; l_ < VM_LANES; l_++)                  \
            {                                                                          \
                const int64_t i = i_ + l_;                                             \
                lane_[l_] = lane_[l_] + (EXPR);                                        \
            }                                                                          \
        }                                                                              \
        for (int l_ = 0; i_ + l_ < n_; l_++) {                                         \
            const int64_t i = i_ + l_;                                                 \
            lane_[l_] = lane_[l_] + (EXPR);                                            \
        }                                                                              \
        (out) = vm_total(lane_);                                                       \
    } while (0)

#endif
