/* SPDX-License-Identifier: Apache-2.0
 *
 * One tile of a product of bfloat16 matrices, with the instruction that multiplies
 * pairs of bfloat16 and adds in float32 (AVX512_BF16). In: strips of both operands,
 * packed here as pairs along k. Out: a float32 tile. Called only where the processor
 * has the instruction. Every element is summed over k in one order, whatever tile it
 * lies in.
 */
#include "backend/cpu/cpu.h"
#include "common/bf16.h"

#ifdef CPU_BF16_PRODUCTS
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* STRIP_M x STRIP_N results stay in 28 of the 32 registers. DEPTH is chosen so that the
 * packed rows of a whole tile stay in the second-level cache. */
enum { STRIP_M = 14, STRIP_N = 32, DEPTH = 512, PAIRS = DEPTH / 2 };

/* A packed strip of rows, with room for the tail that its last store writes past the
 * end. */
enum { STRIP = STRIP_M * PAIRS + 16 };

bool cpu_has_bf16_products(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

/* Mask of the first n lanes of 16; n may be negative or larger. */
INLINE __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

/* Transposes 16 x 16 numbers of 32 bits: interleave by 32, by 64, then by 128 bits. */
INLINE void transpose(__m512i r[16])
{
    __m512i t[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        int at = i / 4 * 8 + i % 4;

        t[at] = _mm512_shuffle_i32x4(r[at], r[at + 4], 0x88);
        t[at + 4] = _mm512_shuffle_i32x4(r[at], r[at + 4], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    }
}

/* Packs `n` <= width rows of k contiguous elements each as [k / 2][width] pairs. It
 * stores whole vectors: what they write past a row of pairs is overwritten by the next
 * row or strip. An odd k is padded with zeros. */
INLINE void pack_rows(uint32_t *to, const bf16_t *from, int64_t ld, int64_t n,
                      int64_t k, const int width)
{
    for (int64_t p = 0; p < k; p += 32) {
        /* masked loads: elements behind the row are not touched, and count as zero */
        __mmask32 part = k - p >= 32 ? ~0u : (1u << (k - p)) - 1;
        /* 32 elements are 16 pairs; the last group may have fewer */
        int64_t pairs = k - p >= 32 ? 16 : (k - p + 1) / 2;

        for (int c = 0; c < width; c += 16) {
            const bf16_t *at = from + c * ld + p;
            __m512i r[16];

#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                r[i] = c + i < n ? _mm512_maskz_loadu_epi16(part, at + i * ld)
                                 : _mm512_setzero_si512();
            transpose(r);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (i < pairs)
                    _mm512_storeu_si512(to + (p / 2 + i) * width + c, r[i]);
        }
    }
}

/* Packs k rows of n <= width contiguous elements as [k / 2][width] pairs; stores as
 * above. */
INLINE void pack_columns(uint32_t *to, const bf16_t *from, int64_t ld, int64_t n,
                         int64_t k, const int width)
{
    for (int64_t p = 0; p < k; p += 2) {
        for (int c = 0; c < width; c += 16) {
            const bf16_t *at = from + p * ld + c;
            __mmask16 part = first(n - c);
            __m256i low = _mm256_maskz_loadu_epi16(part, at), high;

            /* a pair is rows p and p + 1 of one column */
            high = p + 1 < k ? _mm256_maskz_loadu_epi16(part, at + ld)
                             : _mm256_setzero_si256();
            _mm512_storeu_si512(
                to + p / 2 * width + c,
                _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
        }
    }
}

/* Packs all strips of a tile. Columns are packed 16 rows at a time over all strips,
 * because the next strip starts on the cache lines where this one ended. */
TARGET static void pack_a(uint32_t *to, bool columns, const bf16_t *from, int64_t ld,
                          int64_t m, int64_t k)
{
    for (int64_t k0 = 0; columns && k0 < k; k0 += 16)
        for (int64_t i = 0; i < m; i += STRIP_M)
            pack_columns(to + i / STRIP_M * STRIP + k0 / 2 * STRIP_M,
                         from + k0 * ld + i, ld, m - i < STRIP_M ? m - i : STRIP_M,
                         k - k0 < 16 ? k - k0 : 16, STRIP_M);
    for (int64_t i = 0; !columns && i < m; i += STRIP_M)
        pack_rows(to + i / STRIP_M * STRIP, from + i * ld, ld,
                  m - i < STRIP_M ? m - i : STRIP_M, k, STRIP_M);
}

/* One strip of b; the tile's loop packs the next one when it gets there. */
TARGET static void pack_b(uint32_t *to, bool columns, const bf16_t *from, int64_t ld,
                          int64_t n, int64_t k)
{
    if (columns)
        pack_columns(to, from, ld, n, k, STRIP_N);
    else
        pack_rows(to, from, ld, n, k, STRIP_N);
}

/* c[m <= STRIP_M, n <= STRIP_N] (+)= strip of a times strip of b, over `pairs` pairs of
 * k. All STRIP_M rows are computed, only m x n are stored. */
TARGET static void strips(const uint32_t *a, const uint32_t *b, int64_t pairs, float *c,
                          int64_t ldc, int64_t m, int64_t n, bool add)
{
    /* 28 sums, 2 vectors of b and one broadcast of a: 31 of 32 registers */
    __m512 sum[STRIP_M][2];
    __mmask16 left = first(n), right = first(n - 16);

#pragma GCC unroll 14
    for (int i = 0; i < STRIP_M; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + p * STRIP_N);
        __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + p * STRIP_N + 16);

#pragma GCC unroll 14
        for (int i = 0; i < STRIP_M; i++) {
            /* a pair of a, the same in all lanes */
            __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[p * STRIP_M + i]);

            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < STRIP_M; i++) {
        float *row = c + i * ldc;

        if (i >= m)
            break;
        /* a later block of k, or c += : added once per block, not per element of k */
        if (add) {
            sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(left, row));
            sum[i][1] =
                _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(right, row + 16));
        }
        _mm512_mask_storeu_ps(row, left, sum[i][0]);
        _mm512_mask_storeu_ps(row + 16, right, sum[i][1]);
    }
}

void cpu_bf16_tile(const struct gemm *p, int64_t i0, int64_t j0, int64_t m, int64_t n,
                   float *c, int64_t ldc, bool add, float *a_panel, float *b_panel)
{
    uint32_t *pa = (uint32_t *)(void *)a_panel, *pb = (uint32_t *)(void *)b_panel;
    const bf16_t *a = p->a, *b = p->b;

    /* blocks of k in order: the sum of an element depends on k alone */
    for (int64_t k0 = 0; k0 < p->k; k0 += DEPTH) {
        int64_t k = p->k - k0 < DEPTH ? p->k - k0 : DEPTH;

        pack_a(pa, p->trans_a, p->trans_a ? a + k0 * p->lda + i0 : a + i0 * p->lda + k0,
               p->lda, m, k);
        for (int64_t j = 0; j < n; j += STRIP_N) {
            int64_t cols = n - j < STRIP_N ? n - j : STRIP_N;

            pack_b(pb, !p->trans_b,
                   p->trans_b ? b + (j0 + j) * p->ldb + k0 : b + k0 * p->ldb + j0 + j,
                   p->ldb, cols, k);
            for (int64_t i = 0; i < m; i += STRIP_M)
                strips(pa + i / STRIP_M * STRIP, pb, (k + 1) / 2, c + i * ldc + j, ldc,
                       m - i < STRIP_M ? m - i : STRIP_M, cols, add || k0 > 0);
        }
    }
}

#else

bool cpu_has_bf16_products(void)
{
    return false;
}

void cpu_bf16_tile(const struct gemm *p, int64_t i0, int64_t j0, int64_t m, int64_t n,
                   float *c, int64_t ldc, bool add, float *a_panel, float *b_panel)
{
    (void)p, (void)i0, (void)j0, (void)m, (void)n;
    (void)c, (void)ldc, (void)add, (void)a_panel, (void)b_panel;
}

#endif
