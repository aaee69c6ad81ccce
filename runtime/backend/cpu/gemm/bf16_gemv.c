/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of rows of two bfloat16 matrices, with the instruction of panels_bf16.c.
 * Two threads of a core share its units; with fewer instructions they wait for
 * memory alone. In: a few rows of a, any of b. Out: float32 sums. Called only where the
 * processor has the instruction.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#ifdef CPU_BF16_PRODUCTS
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef bf16_t number;

/* Elements per instruction, and per round of the loop: two instructions. */
enum { PAIRED = 32, STEP = 2 * PAIRED };

/* Two independent sums, so that no addition waits for the previous one. */
struct sums {
    __m512 a, b;
};

/* sum += 32 products: each of the 16 lanes adds a pair. */
INLINE void add(__m512 *sum, const bf16_t *a, const bf16_t *b)
{
    *sum = _mm512_dpbf16_ps(*sum, (__m512bh)_mm512_loadu_si512(a),
                            (__m512bh)_mm512_loadu_si512(b));
}

/* Adds the last elements, [i, k), without reading past them. */
INLINE void add_rest(struct sums *s, const bf16_t *a, const bf16_t *b, int64_t i,
                     int64_t k)
{
    for (; i < k; i += PAIRED) {
        /* masked: a row may end at the end of a page */
        __mmask32 in = k - i >= PAIRED ? ~0U : (1U << (k - i)) - 1;

        s->a = _mm512_dpbf16_ps(s->a, (__m512bh)_mm512_maskz_loadu_epi16(in, a + i),
                                (__m512bh)_mm512_maskz_loadu_epi16(in, b + i));
    }
}

/* Both sums, added in the tree of vm_total as everywhere. */
INLINE float total(const struct sums *s)
{
    float lane[VM_LANES];

    _mm512_storeu_ps(lane, _mm512_add_ps(s->a, s->b));
    return vm_total(lane);
}

/* Two dot products, a . b and a2 . b2, that share one operand, which is loaded once.
 * out2 NULL: the first one alone. */
INLINE void dots(float *out, float *out2, const bf16_t *a, const bf16_t *a2,
                 const void *of_b, const void *of_b2, int64_t k,
                 const accel_dtype_t type)
{
    const bf16_t *b = of_b, *b2 = of_b2;
    const __m512 zero = _mm512_setzero_ps();
    struct sums s = { zero, zero }, t = s;
    int64_t i = 0;

    (void)type;
    for (; i + STEP <= k; i += STEP) {
        add(&s.a, a + i, b + i);
        add(&s.b, a + i + PAIRED, b + i + PAIRED);
        if (!out2)
            continue;
        add(&t.a, a2 + i, b2 + i);
        add(&t.b, a2 + i + PAIRED, b2 + i + PAIRED);
    }
    add_rest(&s, a, b, i, k);
    *out = total(&s);
    if (!out2)
        return;
    add_rest(&t, a2, b2, i, k);
    *out2 = total(&t);
}

#include "backend/cpu/gemm/gemv_rows.h"

TARGET void cpu_bf16_dots(float *out, int64_t stride, const bf16_t *a, int64_t lda,
                          int64_t m, const bf16_t *b, int64_t ldb, int64_t rows,
                          int64_t k)
{
    few_rows(out, stride, a, lda, m, b, ldb * (int64_t)sizeof(*b), rows, k, ACCEL_BF16);
}

#else

void cpu_bf16_dots(float *out, int64_t stride, const bf16_t *a, int64_t lda, int64_t m,
                   const bf16_t *b, int64_t ldb, int64_t rows, int64_t k)
{
    (void)out, (void)stride, (void)a, (void)lda, (void)m;
    (void)b, (void)ldb, (void)rows, (void)k;
}

#endif
