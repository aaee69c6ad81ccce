/* SPDX-License-Identifier: Apache-2.0
 *
 * The array forms of the float16 conversions; one thread, any alignment. Eight numbers
 * per instruction where the processor has F16C, else minifloat.h in vectors, and in
 * both cases one number at a time at the end. AVX512_FP16 computes in float16, which
 * would round every sum; nothing here uses it.
 */
#include "numbers/f16.h"

#include "numbers/bf16.h"

#if defined(__x86_64__) && !defined(ACCEL_NO_MULTIVERSION)
#include <cpuid.h>
#include <immintrin.h>
#define F16_X86 1
#else
#define F16_X86 0
#endif

ACCEL_MULTIVERSION
static void widen_plain(float *restrict dst, const f16_t *restrict src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(src[i]);
}

/* Safe in place: results are half as long, so a store never reaches numbers that are
 * still to be loaded. */
ACCEL_MULTIVERSION
static void narrow_plain(f16_t *dst, const float *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_to_f16(src[i]);
}

#if F16_X86
#define F16C  __attribute__((target("avx,f16c")))
#define LANES 8

/* CPUID traps in virtual machines, so the answer is kept. Threads that ask at the same
 * time find the same. AVX stands for an operating system that saves its registers. */
bool f16_has_instruction(void)
{
    static int known; /* 0: not asked, 1: no, 2: yes */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    unsigned a, b, c, d;

    if (answer == 0) {
        __builtin_cpu_init();
        answer = __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) &&
                         (c & bit_F16C) != 0
                     ? 2
                     : 1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

/* Both return how many elements they have done: those of whole vectors. */
F16C static size_t widen_f16c(float *dst, const f16_t *src, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                      (const __m128i *)(const void *)(src + i))));
    return i;
}

/* rounds to nearest even, whatever MXCSR says */
F16C static size_t narrow_f16c(f16_t *dst, const float *src, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm_storeu_si128(
            (__m128i *)(void *)(dst + i),
            _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#else
bool f16_has_instruction(void)
{
    return false;
}
#endif

void f16_widen(float *dst, const f16_t *src, size_t n)
{
    size_t i = 0;

#if F16_X86
    if (f16_has_instruction())
        i = widen_f16c(dst, src, n);
#endif
    widen_plain(dst + i, src + i, n - i);
}

void f16_narrow(f16_t *dst, const float *src, size_t n)
{
    size_t i = 0;

#if F16_X86
    if (f16_has_instruction())
        i = narrow_f16c(dst, src, n);
#endif
    narrow_plain(dst + i, src + i, n - i);
}
