/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: fixed tiles, one single-threaded BLAS call each, OpenMP over the
 * tiles. Tiles follow from the shape alone, so the bits do not depend on the number of
 * threads. bfloat16 operands are multiplied by the processor's own instruction where
 * there is one; otherwise they are widened into per-thread float32 panels, block by
 * block of k. The epilogue (bias, activation, rounding) runs over the tile while it is
 * in cache.
 */
#include <cblas.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

enum { TILE_M = 512, TILE_N = 768, BLOCK_K = 512, MIN_TILE_N = 192, ENOUGH_TILES = 8 };

/* One thread's packing space: operands a and b of a block of k, and the float32
 * result. */
struct panels {
    float *a, *b, *c;
    bool bf16_products;
};

/* How c is cut into tiles, row-major. A tile is one task. */
struct cutting {
    int64_t m, n; /* size of a tile; the last ones are smaller */
    int64_t columns, tiles;
};

/* Room for a block of a, a block of b and a tile of c. bf16_gemm.c packs into the first
 * two. */
size_t gemm_panel_floats(void)
{
    return (size_t)TILE_M * BLOCK_K + (size_t)TILE_N * BLOCK_K +
           (size_t)TILE_M * TILE_N;
}

/* OpenBLAS takes int sizes; tiles are far smaller. */
void cpu_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
               float *c, int64_t ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
                trans_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a,
                (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* Returns the block [row, row+rows) x [col, col+cols) of a stored matrix as float32: in
 * place if it is float32 already, else widened into `panel`. */
static const float *view(const void *p, accel_dtype_t type, int64_t ld, int64_t row,
                         int64_t rows, int64_t col, int64_t cols, float *panel,
                         int64_t *ld_out)
{
    if (type == ACCEL_F32) {
        *ld_out = ld;
        return (const float *)p + row * ld + col;
    }
    for (int64_t r = 0; r < rows; r++)
        bf16_widen(panel + r * cols, (const bf16_t *)p + (row + r) * ld + col,
                   (size_t)cols);
    *ld_out = cols;
    return panel;
}

/* Bias, activation and rounding of one finished tile c[m, n] into its place at (i0,
 * j0). */
static void epilogue(const struct gemm *p, int64_t i0, int64_t j0, int64_t m, int64_t n,
                     const float *c, int64_t ldc)
{
    float bias[TILE_N];

    if (p->bias)
        cpu_load_row(bias, vm_at(p->bias, j0, p->bias_type), p->bias_type, n);
    for (int64_t r = 0; r < m; r++) {
        int64_t at = (i0 + r) * p->ldc + j0;

        if (p->act_grad) {
            cpu_slope_row(vm_to(p->c, at, p->c_type), vm_at(p->pre, at, p->c_type),
                          p->c_type, c + r * ldc, n, p->act);
            continue;
        }
        cpu_epilogue_row(vm_to(p->c, at, p->c_type),
                         p->pre ? vm_to(p->pre, at, p->c_type) : NULL, p->c_type,
                         c + r * ldc, p->bias ? bias : NULL, n, p->act, p->add);
    }
}

/* The product of one tile, written or added to c. Without widening, one BLAS call takes
 * all of k; with it, blocks of k that fit the panels. */
static void multiply(const struct gemm *p, const struct panels *panels, int64_t i0,
                     int64_t j0, int64_t m, int64_t n, float *c, int64_t ldc, bool add)
{
    /* a float32 operand beside a bfloat16 one is used where it is */
    bool widen = p->a_type != ACCEL_F32 || p->b_type != ACCEL_F32;
    int64_t step = widen ? BLOCK_K : p->k;

    for (int64_t k0 = 0; k0 < p->k; k0 += step) {
        int64_t k = p->k - k0 < step ? p->k - k0 : step, lda, ldb;
        const float *a =
            p->trans_a ? view(p->a, p->a_type, p->lda, k0, k, i0, m, panels->a, &lda)
                       : view(p->a, p->a_type, p->lda, i0, m, k0, k, panels->a, &lda);
        const float *b =
            p->trans_b ? view(p->b, p->b_type, p->ldb, j0, n, k0, k, panels->b, &ldb)
                       : view(p->b, p->b_type, p->ldb, k0, k, j0, n, panels->b, &ldb);

        /* BLAS adds over k in an order of its own, which depends on m, n and k only */
        cpu_sgemm(p->trans_a, p->trans_b, m, n, k, 1.0f, a, lda, b, ldb,
                  add || k0 > 0 ? 1.0f : 0.0f, c, ldc);
    }
}

/* Tile number t: product, then epilogue if there is anything to do in it. */
static void tile(const struct gemm *p, const struct cutting *cut,
                 const struct panels *panels, int64_t t)
{
    /* tiles of one row of tiles follow each other: they share a, which stays in the
     * cache */
    int64_t i0 = t / cut->columns * cut->m, j0 = t % cut->columns * cut->n;
    int64_t m = p->m - i0 < cut->m ? p->m - i0 : cut->m;
    int64_t n = p->n - j0 < cut->n ? p->n - j0 : cut->n;
    /* A float32 result is computed in place, and added to there. */
    bool direct = p->c_type == ACCEL_F32, add = direct && p->add;
    int64_t ldc = direct ? p->ldc : TILE_N;
    float *c = direct ? (float *)p->c + i0 * p->ldc + j0 : panels->c;

    if (panels->bf16_products && p->a_type == ACCEL_BF16 && p->b_type == ACCEL_BF16)
        cpu_bf16_tile(p, i0, j0, m, n, c, ldc, add, panels->a, panels->b);
    else
        multiply(p, panels, i0, j0, m, n, c, ldc, add);
    /* a float32 result without bias and activation is complete */
    if (!direct || p->bias || p->act != ACCEL_ACT_NONE)
        epilogue(p, i0, j0, m, n, c, ldc);
}

/* Large tiles pack the operands less often, but small products need enough tiles for
 * all cores. Strips of 16 rows keep the last tile about as large as the others. */
static struct cutting cut_of(const struct gemm *p)
{
    int64_t rows = (p->m + TILE_M - 1) / TILE_M;
    struct cutting cut = { .m = (p->m + rows - 1) / rows, .n = TILE_N };

    /* m is split evenly, not into full tiles and a small rest */
    cut.m = (cut.m + 15) / 16 * 16;
    /* narrower tiles while there are fewer than 8 */
    while (cut.n > MIN_TILE_N && rows * ((p->n + cut.n - 1) / cut.n) < ENOUGH_TILES)
        cut.n /= 2;
    cut.columns = (p->n + cut.n - 1) / cut.n;
    cut.tiles = (p->m + cut.m - 1) / cut.m * cut.columns;
    return cut;
}

/* c [m, n] = op(a) op(b) with all that struct gemm adds to it. */
void cpu_gemm(const struct backend *be, const struct gemm *p)
{
    const struct cpu_state *s = be->state;
    struct cutting cut;

    /* k 0 comes only with add (struct gemm): nothing to add */
    if (!p->m || !p->n || !p->k)
        return;
    /* a is stored [k, m]: its column sums are op(a)'s sums over k */
    if (p->row_sums)
        cpu_column_sum(be, p->row_sums, p->a, p->a_type, p->k, p->m, p->lda);
    if (cpu_gemv_fits(p)) {
        cpu_gemv(be, p);
        return;
    }
    cut = cut_of(p);
#pragma omp parallel num_threads(be->threads) if (p->m * p->n * p->k >                 \
                                                  CPU_ALONE_PRODUCTS)
    {
        struct panels panels = { .bf16_products = s->bf16_products };

        panels.a = s->panels + gemm_panel_floats() * (size_t)omp_get_thread_num();
        panels.b = panels.a + (size_t)TILE_M * BLOCK_K;
        panels.c = panels.b + (size_t)TILE_N * BLOCK_K;
        /* OpenBLAS follows the OpenMP setting of the calling task; in a team of one it
         * would start threads of its own. Only this region's setting changes. */
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < cut.tiles; t++)
            tile(p, &cut, &panels, t);
    }
}
