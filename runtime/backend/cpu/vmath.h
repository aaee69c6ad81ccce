/* SPDX-License-Identifier: Apache-2.0
 *
 * Building blocks of the CPU kernels, inlined into functions marked ACCEL_MULTIVERSION:
 * sums over 16 explicit lanes, loads and stores of any storage type. The order of
 * every operation is fixed here and in backend/maths.h, so that generic, AVX2 and
 * AVX-512 code give the same bits.
 */
#ifndef ACCEL_BACKEND_CPU_VMATH_H
#define ACCEL_BACKEND_CPU_VMATH_H

#include "backend/maths.h"
#include "numbers/bf16.h"
#include "common/common.h"
#include "numbers/minifloat.h"

#define VM_INLINE static inline __attribute__((always_inline))
#define VM_LANES  16

typedef float vm_lanes __attribute__((vector_size(4 * VM_LANES)));

/* Element i of an array of type `t`, which is a constant of the caller: the branches
 * disappear and the loop vectorizes. */
VM_INLINE float vm_load(const void *p, int64_t i, const accel_dtype_t t)
{
    return t == ACCEL_BF16  ? bf16_to_f32(((const bf16_t *)p)[i])
           : t == ACCEL_F16 ? f16_to_f32(((const f16_t *)p)[i])
                            : ((const float *)p)[i];
}

VM_INLINE void vm_store(void *p, int64_t i, float v, const accel_dtype_t t)
{
    if (t == ACCEL_BF16)
        ((bf16_t *)p)[i] = f32_to_bf16(v);
    else if (t == ACCEL_F16)
        ((f16_t *)p)[i] = f32_to_f16(v);
    else
        ((float *)p)[i] = v;
}

/* f(..., t) with the run-time type as the constant t: f is compiled once per type. */
#define VM_BY_TYPE(type, f, ...)                                                       \
    do {                                                                               \
        switch (type) {                                                                \
        case ACCEL_BF16:                                                               \
            f(__VA_ARGS__, ACCEL_BF16);                                                \
            break;                                                                     \
        case ACCEL_F16:                                                                \
            f(__VA_ARGS__, ACCEL_F16);                                                 \
            break;                                                                     \
        default:                                                                       \
            f(__VA_ARGS__, ACCEL_F32);                                                 \
            break;                                                                     \
        }                                                                              \
    } while (0)

/* The address of element i, for arrays of any storage type. */
static inline const void *vm_at(const void *p, int64_t i, accel_dtype_t t)
{
    return (const char *)p + i * (t == ACCEL_F32 ? 4 : t == ACCEL_I8 ? 1 : 2);
}

static inline void *vm_to(void *p, int64_t i, accel_dtype_t t)
{
    return (char *)p + i * (t == ACCEL_F32 ? 4 : 2);
}

/* Adds the lanes of a sum, always in this tree. */
VM_INLINE float vm_total(const float lane[VM_LANES])
{
    float a[8], b[4];

    for (int i = 0; i < 8; i++)
        a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* Sum of EXPR(i), i in [0, n), 16 lanes; EXPR is an expression in `i`. Element i goes
 * to lane i mod 16 whatever n is; the tail fills the first lanes. */
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
