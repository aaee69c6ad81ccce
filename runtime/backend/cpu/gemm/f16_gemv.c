/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of a few float32 rows with rows of float16, which the processor's own
 * conversion (F16C) widens on the way: the clones of gemv.c lack it. Sums have the bits
 * of gemv.c: 2 x 16 lanes, here as four vectors of 8. In: a few rows of a, any of b.
 * Out: float32 sums.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#if defined(__x86_64__) && !defined(ACCEL_NO_MULTIVERSION)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef float number;

enum { WIDTH = 8, VECTORS = 4, STEP = VECTORS * WIDTH };

struct sums {
    __m256 v[VECTORS];
};

bool cpu_has_f16_dots(void)
{
    return f16_has_instruction() && __builtin_cpu_supports("avx2");
}

/* A product, then a sum: both are rounded, as in gemv.c. */
INLINE void add_f16(struct sums *s, const float *a, const __m256 b[VECTORS])
{
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++)
        s->v[i] =
            _mm256_add_ps(s->v[i], _mm256_mul_ps(_mm256_loadu_ps(a + i * WIDTH), b[i]));
}

INLINE void load_f16(__m256 b[VECTORS], const f16_t *from)
{
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++)
        b[i] = _mm256_cvtph_ps(
            _mm_loadu_si128((const __m128i *)(const void *)(from + i * WIDTH)));
}

/* The total, with elements [i, k) after the last whole vectors added. */
INLINE float total_f16(const struct sums *s, const float *a, const f16_t *b, int64_t i,
                       int64_t k)
{
    float lane[VM_LANES];

    _mm256_storeu_ps(lane, _mm256_add_ps(s->v[0], s->v[2]));
    _mm256_storeu_ps(lane + WIDTH, _mm256_add_ps(s->v[1], s->v[3]));
    for (; i < k; i++)
        lane[i % VM_LANES] += a[i] * f16_to_f32(b[i]);
    return vm_total(lane);
}

/* Two dot products, a . b and a2 . b2, that share one operand, which is loaded once.
 * out2 NULL: the first one alone. */
INLINE void dots(float *out, float *out2, const float *a, const float *a2,
                 const void *b, const void *b2, int64_t k, const accel_dtype_t t)
{
    const __m256 zero = _mm256_setzero_ps();
    struct sums s = { { zero, zero, zero, zero } }, s2 = s;
    int64_t i = 0;

    (void)t;
    for (; i + STEP <= k; i += STEP) {
        __m256 x[VECTORS];

        load_f16(x, (const f16_t *)b + i);
        add_f16(&s, a + i, x);
        if (!out2)
            continue;
        if (b2 != b)
            load_f16(x, (const f16_t *)b2 + i);
        add_f16(&s2, a2 + i, x);
    }
    *out = total_f16(&s, a, b, i, k);
    if (out2)
        *out2 = total_f16(&s2, a2, b2, i, k);
}

#include "backend/cpu/gemm/gemv_rows.h"

TARGET void cpu_f16_dots(float *out, int64_t stride, const float *a, int64_t lda,
                         int64_t m, const f16_t *b, int64_t ldb, int64_t rows,
                         int64_t k)
{
    few_rows(out, stride, a, lda, m, b, ldb * (int64_t)sizeof(*b), rows, k, ACCEL_F16);
}

#else

bool cpu_has_f16_dots(void)
{
    return false;
}

void cpu_f16_dots(float *out, int64_t stride, const float *a, int64_t lda, int64_t m,
                  const f16_t *b, int64_t ldb, int64_t rows, int64_t k)
{
    (void)out, (void)stride, (void)a, (void)lda, (void)m;
    (void)b, (void)ldb, (void)rows, (void)k;
}

#endif
