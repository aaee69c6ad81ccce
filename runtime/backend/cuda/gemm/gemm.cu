/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in terms of those that cuBLASLt makes (gemm_product.cu). Operands of
 * two types are brought to float32; what an epilogue cannot do, gemm_finish does.
 */
#include "backend/cuda/gemm/gemm.h"
#include "common/env_names.h"

#include <stdlib.h>

/* What follows a product into c. An activation or its slope alone, over rows without
 * gaps, is a kernel that moves packs; gemm_finish does the rest. */
static void finish(struct cuda_state *s, const struct gemm *p, bool with_bias)
{
    const bool flat = p->ldc == p->n && !p->add && !with_bias;

    if (flat && p->act_grad)
        s->be.act_grad(&s->be, p->c, false, p->c, p->pre, p->c_type, p->m * p->n,
                       p->act);
    else if (flat && !p->pre)
        s->be.act(&s->be, p->c, p->c, p->c_type, p->m * p->n, p->act, NULL);
    else
        gemm_finish(s, p, p->c, p->c_type, p->ldc, with_bias);
}

/* All rows at once, into c. False: the epilogue has no algorithm. */
static bool direct(struct cuda_state *s, const struct gemm *p, struct gemm_way way)
{
    struct gemm part = *p;
    /* what the epilogue does; the rest is gemm_finish's */
    const bool fused_bias = way.fused & GEMM_BIAS, fused_sums = way.fused & GEMM_SUMS;
    float *wide = NULL, *sums = NULL;
    bool good;

    /* the product overwrites them; sum_ends.cu adds them to row_sums */
    if (fused_sums)
        part.bias = sums = cuda_ends_room(s, p->m);
    /* the epilogue wants a float32 bias beside a float32 result */
    if (fused_bias && p->bias_type != p->c_type) {
        wide = (float *)cuda_scratch(s, (size_t)p->n * sizeof(*wide));
        s->be.widen(&s->be, wide, p->bias, p->bias_type, p->n);
        part.bias = wide;
    }
    good = gemm_product(s, &part, way.fused);
    if (good && fused_sums) {
        const struct cuda_end e = { p->row_sums, sums, 1, p->m, p->m };

        cuda_ends_add(s, &e);
    }
    if (fused_sums)
        cuda_ends_done(s, sums);
    cuda_scratch_free(s, wide);
    if (good && way.after)
        finish(s, p, p->bias && !fused_bias);
    return good;
}

/* Rows per pass of a product that goes through float32 sums; at least one. The other
 * half of a small workspace is left to a widened operand. */
static int64_t wide_rows(const struct cuda_state *s, const struct gemm *p)
{
    const size_t half = s->workspace.bytes / 2;
    const size_t bytes = half < CUDA_GEMM_WIDE ? half : CUDA_GEMM_WIDE;
    const int64_t rows = (int64_t)(bytes / ((size_t)p->n * sizeof(float)));

    return rows < 1 ? 1 : rows > p->m ? p->m : rows;
}

/* Columns per pass where blocks have scales. The scales of lines lie side by side over
 * all lines, so a pass has all lines of such an operand, as a is: it cuts b, whose
 * scales can be read from any block on. The workspace has no say, so bits do not depend
 * on its size. */
static int64_t wide_columns(const struct gemm *p)
{
    const int64_t row_bytes = gemm_rows(p) * (int64_t)sizeof(float);
    const int64_t blocks = (int64_t)CUDA_GEMM_WIDE / row_bytes / SCALE_TILE_LINES;
    const int64_t columns = (blocks ? blocks : 1) * SCALE_TILE_LINES;

    return columns > p->n || gemm_blocks(&p->b_blocks) == GEMM_LINES ? p->n : columns;
}

/* Element `at` of an array; NULL: there is none. */
static void *element(const void *array, int64_t at, size_t bytes)
{
    return array ? (char *)array + at * (int64_t)bytes : NULL;
}

/* The scales from line `line` on, a multiple of SCALE_TILE_LINES. */
static void *scales_from(const struct block_scales *s, int64_t line)
{
    if (!s->inverse)
        return NULL;
    if (s->tiles)
        return element(s->inverse, line / SCALE_TILE_LINES * s->tiles,
                       SCALE_TILE_BYTES);
    return element(s->inverse,
                   s->down ? line / s->width * s->col_step
                           : line / s->height * s->row_step,
                   sizeof(float));
}

/* The product from a row and a column on. Of scales, b's alone move. */
static struct gemm pass_of(const struct gemm *p, int64_t row, int64_t col)
{
    const int64_t out = row * p->ldc + col;
    struct gemm part = *p;

    /* row r of op(a): a column where a is stored transposed; b the other way round */
    part.a =
        element(p->a, row * (p->trans_a ? 1 : p->lda), accel_dtype_bytes(p->a_type));
    part.b =
        element(p->b, col * (p->trans_b ? p->ldb : 1), accel_dtype_bytes(p->b_type));
    part.b_blocks.inverse = scales_from(&p->b_blocks, col);
    part.bias = element(p->bias, col, accel_dtype_bytes(p->bias_type));
    part.c = element(p->c, out, accel_dtype_bytes(p->c_type));
    part.pre = element(p->pre, out, accel_dtype_bytes(p->c_type));
    part.m = p->m - row;
    part.n = p->n - col;
    return part;
}

/* Groups of rows, or of columns, through float32 sums, for results that one of our
 * kernels rounds. */
static bool rounded(struct cuda_state *s, const struct gemm *p)
{
    const bool blocks = p->a_blocks.inverse;
    const int64_t rows = blocks ? p->m : wide_rows(s, p);
    const int64_t columns = blocks ? wide_columns(p) : p->n;
    bool good = true;
    void *sums;

    sums = cuda_scratch(s, (size_t)((blocks ? gemm_rows(p) : rows) * columns) *
                               sizeof(float));
    for (int64_t r = 0; r < p->m; r += rows)
        for (int64_t c = 0; good && c < p->n; c += columns) {
            struct gemm end = pass_of(p, r, c), sum;

            end.m = end.m < rows ? end.m : rows;
            end.n = end.n < columns ? end.n : columns;
            sum = end;
            sum.m = gemm_rows(&end);
            sum.c = sums;
            sum.c_type = ACCEL_F32;
            sum.ldc = end.n;
            sum.add = false;
            good = gemm_product(s, &sum, GEMM_PLAIN);
            if (good)
                gemm_finish(s, &end, sums, ACCEL_F32, end.n, true);
        }
    cuda_scratch_free(s, sums);
    return good;
}

/* One product with operands of one type, in one of the ways of gemm_key.h. */
static bool multiply(struct cuda_state *s, const struct gemm *p, struct gemm_way way)
{
    if (!(way.wide ? rounded(s, p) : direct(s, p, way)))
        return false;
    /* a pass of its own where BGRADB does not apply */
    if (p->row_sums && !(way.fused & GEMM_SUMS))
        s->be.column_sum(&s->be, p->row_sums, p->a, p->a_type, p->k, p->m, p->lda);
    return true;
}

/* Widens a narrow operand: its stored elements, from the first row to the last with
 * the gaps between them, as float32 scratch. No op multiplies operands of two types, so
 * one that exceeds the workspace is not worth passes: it is allocated. */
static void *widened(struct cuda_state *s, const void *from, accel_dtype_t type,
                     int64_t rows, int64_t cols, int64_t ld)
{
    const int64_t n = rows ? (rows - 1) * ld + cols : 0;
    float *to = (float *)cuda_scratch(s, (size_t)n * sizeof(*to));

    if (to)
        s->be.widen(&s->be, to, from, type, n);
    return to;
}

/* Tries the fused way first, then the plain one, which every shape must have. */
void cuda_gemm(const struct backend *be, const struct gemm *p)
{
    struct cuda_state *s = cuda_state_of(be);
    struct gemm same = *p;
    struct gemm_way way;
    void *a = NULL, *b = NULL;

    if (!p->m || !p->n || !p->k || s->failed)
        return;
    if (p->a_type != ACCEL_F32 && p->b_type == ACCEL_F32)
        same.a = a = widened(s, p->a, p->a_type, p->trans_a ? p->k : p->m,
                             p->trans_a ? p->m : p->k, p->lda);
    if (p->b_type != ACCEL_F32 && p->a_type == ACCEL_F32)
        same.b = b = widened(s, p->b, p->b_type, p->trans_b ? p->n : p->k,
                             p->trans_b ? p->k : p->n, p->ldb);
    if (a || b)
        same.a_type = same.b_type = ACCEL_F32;
    way = gemm_way_of(&same);
    /* ACCEL_CUDA_EPILOGUES: for comparison, and for a library with a fault in one of
     * them */
    if (way.fused && (gemm_is_back(p) ? s->blas->back_plain : s->blas->forward_plain))
        way = gemm_way_plain(&same);
    if (!multiply(s, &same, way) && !s->failed &&
        !multiply(s, &same, gemm_way_plain(&same)))
        gemm_lacks(s, p);
    cuda_scratch_free(s, b);
    cuda_scratch_free(s, a);
}

bool cuda_gemm_open(struct cuda_state *s)
{
    const char *tune = getenv(ENV_CUDA_TUNE);
    const char *epilogues = getenv(ENV_CUDA_EPILOGUES);
    struct cuda_blas *g = (struct cuda_blas *)calloc(1, sizeof(*g));

    if (!g)
        return cuda_fails(s, "open",
                          "cannot allocate the state of the matrix products");
    s->blas = g;
    g->tune = tune && !strcmp(tune, "1");
    g->forward_plain = epilogues && !strcmp(epilogues, "none");
    g->back_plain = g->forward_plain || (epilogues && !strcmp(epilogues, "forward"));
    return gemm_lt_ok(s, cublasLtCreate(&g->lt), "cublasLtCreate") && gemm_workspace(s);
}

void cuda_gemm_close(struct cuda_state *s)
{
    if (!s->blas)
        return;
    gemm_table_close(&s->blas->table);
    for (int q = 0; q < QUEUE_COUNT; q++)
        s->be.free(&s->be, s->blas->workspace[q]);
    if (s->blas->lt)
        cublasLtDestroy(s->blas->lt);
    free(s->blas);
    s->blas = NULL;
}
