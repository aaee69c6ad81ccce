/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16 <-> float32: the rule for one number, and whole arrays.
 * bfloat16 is the upper half of a float32. Narrowing rounds to nearest even and
 * makes NaN quiet. Arrays use the widest vectors that the CPU has; every ISA gives
 * the same bits.
 */
#ifndef ACCEL_NUMBERS_BF16_H
#define ACCEL_NUMBERS_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compiles a function once per ISA; the loader picks one. Functions marked so must not
 * depend on the order of float additions or on contraction (-ffp-contract=off). GCC
 * only: clang 14's clones do not link when called from another file, so it builds the
 * plain code. The sanitizers get the plain code, too. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&    \
    !defined(__SANITIZE_THREAD__) && !defined(ACCEL_NO_MULTIVERSION)
#define ACCEL_MULTIVERSION __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define ACCEL_MULTIVERSION
#endif

/* nvcc builds the rule for one number for host and device. */
#ifdef __CUDACC__
#define BF16_INLINE static inline __host__ __device__
#else
#define BF16_INLINE static inline
#endif

typedef uint16_t bf16_t;

/* Exact. */
BF16_INLINE float bf16_to_f32(bf16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

/* Has no branch, because one would keep the loops around it from being vectorised: both
 * the rounded value and the quiet NaN are computed, and a mask selects. */
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
/* dst[n] from src[n]; they must not overlap. */
void bf16_widen(float *dst, const bf16_t *src, size_t n);
/* dst[n] from src[n]. dst may start at the same address as src: element i is read
 * before it is overwritten. */
void bf16_narrow(bf16_t *dst, const float *src, size_t n);
#ifdef __cplusplus
}
#endif

#endif
