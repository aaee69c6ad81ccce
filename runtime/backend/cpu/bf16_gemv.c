/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of two bfloat16 matrices multiplied on the instruction that bf16_gemm.c uses: two
 * threads of one core share its units, and with fewer instructions they wait for memory
 * alone. In: a few rows of a, any of b. Out: float32 sums. Called only where the processor
 * has the instruction.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#ifdef CPU_BF16_PRODUCTS
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { PAIRED = 32, STEP = 4 * PAIRED };

/* Four sums side by side, so that no addition waits for the one before. */
struct sums {
    __m512 a, b, c, d;
};

INLINE void add(__m512 *sum, const bf16_t *a, __m512i b)
{
    *sum = _mm512_dpbf16_ps(*sum, (__m512bh)_mm512_loadu_si512(a), (__m512bh)b);
}

/* Elements [i, k): the last ones, without reading behind them. */
INLINE void add_rest(struct sums *s, const bf16_t *a, const bf16_t *b, int64_t i,
                     int64_t k)
{
    for (; i < k; i += PAIRED) {
        __mmask32 in = k - i >= PAIRED ? ~0U : (1U << (k - i)) - 1;

        s->a = _mm512_dpbf16_ps(s->a, (__m512bh)_mm512_maskz_loadu_epi16(in, a + i),
                                (__m512bh)_mm512_maskz_loadu_epi16(in, b + i));
    }
}

INLINE float total(const struct sums *s)
{
    float lane[VM_LANES];

    _mm512_storeu_ps(
        lane, _mm512_add_ps(_mm512_add_ps(s->a, s->b), _mm512_add_ps(s->c, s->d)));
    return vm_total(lane);
}

/* One or two rows of a with one of b. */
INLINE void dots(float *out, int64_t stride, const bf16_t *a, int64_t lda, const int m,
                 const bf16_t *b, int64_t k)
{
    const __m512 zero = _mm512_setzero_ps();
    struct sums s = { zero, zero, zero, zero }, t = s;
    const bf16_t *second = a + lda;
    int64_t i = 0;

    for (; i + STEP <= k; i += STEP) {
        __m512i w = _mm512_loadu_si512(b + i);
        __m512i x = _mm512_loadu_si512(b + i + PAIRED);
        __m512i y = _mm512_loadu_si512(b + i + 2 * PAIRED);
        __m512i z = _mm512_loadu_si512(b + i + 3 * PAIRED);

        add(&s.a, a + i, w);
        add(&s.b, a + i + PAIRED, x);
        add(&s.c, a + i + 2 * PAIRED, y);
        add(&s.d, a + i + 3 * PAIRED, z);
        if (m == 1)
            continue;
        add(&t.a, second + i, w);
        add(&t.b, second + i + PAIRED, x);
        add(&t.c, second + i + 2 * PAIRED, y);
        add(&t.d, second + i + 3 * PAIRED, z);
    }
    add_rest(&s, a, b, i, k);
    out[0] = total(&s);
    if (m == 1)
        return;
    add_rest(&t, second, b, i, k);
    out[stride] = total(&t);
}

TARGET void cpu_bf16_dots(float *out, int64_t stride, const bf16_t *a, int64_t lda,
                          int64_t m, const bf16_t *b, int64_t ldb, int64_t rows,
                          int64_t k)
{
    for (int64_t j = 0; j < rows; j++) {
        int64_t r = 0;

        for (; r + 2 <= m; r += 2)
            dots(out + r * stride + j, stride, a + r * lda, lda, 2, b + j * ldb, k);
        if (r < m)
            dots(out + r * stride + j, stride, a + r * lda, lda, 1, b + j * ldb, k);
    }
}

#else

void cpu_bf16_dots(float *out, int64_t stride, const bf16_t *a, int64_t lda, int64_t m,
                   const bf16_t *b, int64_t ldb, int64_t rows, int64_t k)
{
    (void)out, (void)stride, (void)a, (void)lda, (void)m;
    (void)b, (void)ldb, (void)rows, (void)k;
}

#endif
