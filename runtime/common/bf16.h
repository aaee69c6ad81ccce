/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16 <-> float32: scalar rule and whole arrays.
 * bfloat16 is the upper half of a float32; narrowing rounds to nearest even and keeps NaN
 * quiet. Arrays use the widest vectors the CPU has; every ISA gives the same bits.
 */
#ifndef ACCEL_COMMON_BF16_H
#define ACCEL_COMMON_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compiles a function once per ISA and picks at load time. Functions so marked must not
 * depend on the order of float additions or on contraction (-ffp-contract=off). GCC only:
 * clones of clang 14 called from another file do not link; it builds the plain code. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&    \
    !defined(__SANITIZE_THREAD__) && !defined(ACCEL_NO_MULTIVERSION)
#define ACCEL_MULTIVERSION __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define ACCEL_MULTIVERSION
#endif

/* nvcc builds the scalar rule for both sides. */
#ifdef __CUDACC__
#define BF16_INLINE static inline __host__ __device__
#else
#define BF16_INLINE static inline
#endif

typedef uint16_t bf16_t;

BF16_INLINE float bf16_to_f32(bf16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

/* Without a branch: one would keep the loops around it from being vectorised. */
BF16_INLINE bf16_t f32_to_bf16(float f)
{
    uint32_t u, nan, rounded;

    memcpy(&u, &f, sizeof(u));
    nan = 0u - (uint32_t)((u & 0x7fffffffu) > 0x7f800000u);
    rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (bf16_t)((rounded & ~nan) | ((u >> 16 | 0x40) & nan));
}

#ifdef __cplusplus
extern "C" {
#endif
void bf16_widen(float *dst, const bf16_t *src, size_t n);
/* dst may start at the same address as src (element i is read before it is overwritten). */
void bf16_narrow(bf16_t *dst, const float *src, size_t n);
#ifdef __cplusplus
}
#endif

#endif
