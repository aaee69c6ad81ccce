/* SPDX-License-Identifier: Apache-2.0
 *
 * The micro-kernels of tile.h: a block of rows x lanes of the result stays in
 * registers while k runs. AVX-512: 8 x 32, AVX2: 6 x 16, else plain C. They take no
 * memory, and control flow never depends on the values.
 */
#include "backend/cpu/gemm/tile.h"

#include <math.h>

#include "numbers/bf16.h"

#define TILE_INLINE static inline __attribute__((always_inline))

/* Both need FMA. A build without clones (ACCEL_NO_MULTIVERSION) has only the plain
 * code. */
#if defined(__x86_64__) && !defined(ACCEL_NO_MULTIVERSION)
#include <immintrin.h>
#define TILE_X86 1
#else
#define TILE_X86 0
#endif

#if TILE_X86
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))

/* rows x (16 * vectors) elements from row r and column j of c. `rows`, `vectors` and
 * `by_row` are constants of the caller: the loops unroll, and each layout of a has its
 * own copy. by_row: consecutive rows of a are adjacent (a_row is 1). */
AVX512 TILE_INLINE void block512(const struct tile *t, int64_t r, int64_t j,
                                 const int rows, const int vectors, const int by_row)
{
    /* a advances by one column of k, b by one row; lda is from one row of a to the next
     */
    const float *a = t->a + r * (by_row ? 1 : t->a_row), *b = t->b + j;
    const int64_t step = by_row ? t->a_col : 1, lda = by_row ? 1 : t->a_row;
    float *c = t->c + r * t->ldc + j;
    __m512 acc[8][2];

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            acc[i][v] =
                t->add ? _mm512_loadu_ps(c + i * t->ldc + 16 * v) : _mm512_setzero_ps();
    for (int64_t k = 0; k < t->k; k++, a += step, b += t->ldb) {
        __m512 x[2];

#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            x[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            /* one broadcast of a feeds `vectors` multiply-adds */
            __m512 s = _mm512_set1_ps(a[i * lda]);

#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                acc[i][v] = _mm512_fmadd_ps(s, x[v], acc[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(c + i * t->ldc + 16 * v, acc[i][v]);
}

/* All rows of one column block: eights, then a four, then singles. The order of k is
 * the same in each, so the cut does not change bits. */
AVX512 TILE_INLINE void rows512(const struct tile *t, int64_t j, const int vectors,
                                const int by_row)
{
    int64_t r = 0;

    for (; r + 8 <= t->m; r += 8)
        block512(t, r, j, 8, vectors, by_row);
    if (t->m - r >= 4) {
        block512(t, r, j, 4, vectors, by_row);
        r += 4;
    }
    for (; r < t->m; r++)
        block512(t, r, j, 1, vectors, by_row);
}

/* Column blocks of 32, then of 16. */
AVX512 TILE_INLINE void product512(const struct tile *t, const int by_row)
{
    int64_t j = 0;

    /* n is a multiple of 16, so one narrow block may be left */
    for (; j + 32 <= t->n; j += 32)
        rows512(t, j, 2, by_row);
    for (; j < t->n; j += 16)
        rows512(t, j, 1, by_row);
}

AVX512 static void tile_avx512(const struct tile *t)
{
    if (t->a_row == 1)
        product512(t, 1);
    else
        product512(t, 0);
}

/* As block512, rows x 16: with 16 registers, 6 rows take 12 sums, 2 of b and 1 of a. */
AVX2 TILE_INLINE void block256(const struct tile *t, int64_t r, int64_t j,
                               const int rows, const int by_row)
{
    const float *a = t->a + r * (by_row ? 1 : t->a_row), *b = t->b + j;
    const int64_t step = by_row ? t->a_col : 1, lda = by_row ? 1 : t->a_row;
    float *c = t->c + r * t->ldc + j;
    __m256 low[6], high[6];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        low[i] = t->add ? _mm256_loadu_ps(c + i * t->ldc) : _mm256_setzero_ps();
        high[i] = t->add ? _mm256_loadu_ps(c + i * t->ldc + 8) : _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < t->k; k++, a += step, b += t->ldb) {
        __m256 x = _mm256_loadu_ps(b), y = _mm256_loadu_ps(b + 8);

#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m256 s = _mm256_set1_ps(a[i * lda]);

            low[i] = _mm256_fmadd_ps(s, x, low[i]);
            high[i] = _mm256_fmadd_ps(s, y, high[i]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        _mm256_storeu_ps(c + i * t->ldc, low[i]);
        _mm256_storeu_ps(c + i * t->ldc + 8, high[i]);
    }
}

AVX2 TILE_INLINE void product256(const struct tile *t, const int by_row)
{
    for (int64_t j = 0; j < t->n; j += TILE_LANES) {
        int64_t r = 0;

        for (; r + 6 <= t->m; r += 6)
            block256(t, r, j, 6, by_row);
        if (t->m - r >= 4) {
            block256(t, r, j, 4, by_row);
            r += 4;
        }
        for (; r < t->m; r++)
            block256(t, r, j, 1, by_row);
    }
}

AVX2 static void tile_avx2(const struct tile *t)
{
    if (t->a_row == 1)
        product256(t, 1);
    else
        product256(t, 0);
}
#endif

/* The same chains with fmaf, which is exact everywhere, if slow where it is a call. */
static void tile_generic(const struct tile *t)
{
    for (int64_t r = 0; r < t->m; r++)
        for (int64_t j = 0; j < t->n; j += TILE_LANES) {
            float *c = t->c + r * t->ldc + j, acc[TILE_LANES] = { 0 };

            for (int i = 0; t->add && i < TILE_LANES; i++)
                acc[i] = c[i];
            for (int64_t k = 0; k < t->k; k++) {
                const float *b = t->b + k * t->ldb + j;
                float s = t->a[r * t->a_row + k * t->a_col];

                for (int i = 0; i < TILE_LANES; i++)
                    acc[i] = fmaf(s, b[i], acc[i]);
            }
            memcpy(c, acc, sizeof(acc));
        }
}

enum tile_isa tile_isa(void)
{
#if TILE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return TILE_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return TILE_AVX2;
#endif
    return TILE_GENERIC;
}

void tile_product(enum tile_isa isa, const struct tile *t)
{
#if TILE_X86
    if (isa == TILE_AVX512) {
        tile_avx512(t);
        return;
    }
    if (isa == TILE_AVX2) {
        tile_avx2(t);
        return;
    }
#endif
    (void)isa;
    tile_generic(t);
}
