/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products on cuBLASLt. Operands of two types are brought to float32; what an
 * epilogue cannot do, gemm_finish does. One algorithm per key for the whole run, by
 * default cuBLASLt's first proposal: two runs on the same kind of device give the same
 * bits.
 */
#include "backend/cuda/gemm.h"
#include "common/env_names.h"

#include <stdio.h>
#include <stdlib.h>

/* Algorithms that are timed when tuning. */
enum { CANDIDATES = 8 };

/* EXECUTION_FAILED may stem from work queued earlier, any other code from this call. */
bool gemm_lt_ok(struct cuda_state *s, cublasStatus_t status, const char *call)
{
    const char *why = cublasLtGetStatusString(status);

    return status == CUBLAS_STATUS_SUCCESS ||
           (status == CUBLAS_STATUS_EXECUTION_FAILED ? cuda_breaks(s, call, why)
                                                     : cuda_fails(s, call, why));
}

/* The workspace of the queue in use. Products of two queues run side by side, so each
 * queue has its own. */
static void *workspace_of(struct cuda_state *s)
{
    int q = 0;

    /* few queues: a search is as fast as keeping the number */
    while (q < QUEUE_COUNT - 1 && s->stream[q] != s->now)
        q++;
    if (!s->blas->workspace[q] && !s->failed) {
        if (s->be.alloc(&s->be, MEMORY_WORK, CUDA_GEMM_WORKSPACE,
                        &s->blas->workspace[q], NULL))
            cuda_lacks(s, MEMORY_WORK, CUDA_GEMM_WORKSPACE);
    }
    return s->blas->workspace[q];
}

/* Chooses the algorithm of a key, once. No timing while a step is recorded: the trials
 * would become part of it. */
static void search(struct cuda_state *s, struct gemm_lt *g, const struct gemm *p,
                   void *workspace)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0, pick = 0;
    /* so a key that first occurs in a recording keeps the first proposal */
    bool tune = s->blas->tune && !s->end_recording;
    cublasStatus_t status;

    if (!gemm_lt_ok(s, gemm_lt_preference(&g->key, CUDA_GEMM_WORKSPACE, &preference),
                    "cublasLtMatmulPreferenceCreate"))
        return;
    status = cublasLtMatmulAlgoGetHeuristic(s->blas->lt, g->product, g->first,
                                            g->second, g->result, g->result, preference,
                                            tune ? CANDIDATES : 1, found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    g->searched = true;
    g->found = status == CUBLAS_STATUS_SUCCESS && count > 0 &&
               found[0].state == CUBLAS_STATUS_SUCCESS;
    if (!g->found)
        return;
    if (tune && count > 1)
        pick = gemm_fastest(s, g, p, found, count, workspace);
    g->algo = found[pick].algo;
}

bool gemm_product(struct cuda_state *s, const struct gemm *p, uint8_t fused)
{
    /* sizes, strides, types, alignments and epilogue: what an algorithm depends on */
    const struct gemm_key key = gemm_key_of(p, fused);
    const float one = 1.0f, beta = p->add ? 1.0f : 0.0f;
    void *workspace = workspace_of(s);
    cublasStatus_t status;
    struct gemm_lt *g;

    if (s->failed)
        return false;
    g = gemm_table_get(&s->blas->table, &key, &status);
    if (!g)
        return gemm_lt_ok(s, status, "cublasLtMatmulDescCreate");
    if (!gemm_lt_ok(s, gemm_lt_vectors(g, p), "cublasLtMatmulDescSetAttribute"))
        return false;
    if (!g->searched)
        search(s, g, p, workspace);
    if (!g->found || s->failed)
        return false;
    /* b first: row-major c = a b is column-major c^T = b^T a^T, and no operand is
     * transposed in memory */
    status = cublasLtMatmul(s->blas->lt, g->product, &one, p->b, g->first, p->a,
                            g->second, &beta, p->c, g->result, p->c, g->result,
                            &g->algo, workspace, CUDA_GEMM_WORKSPACE, s->now);
    /* proposed, yet refused */
    if (fused && status == CUBLAS_STATUS_NOT_SUPPORTED) {
        g->found = false;
        return false;
    }
    return gemm_lt_ok(s, status, "cublasLtMatmul");
}

static void no_algorithm(struct cuda_state *s, const struct gemm *p)
{
    char why[96];

    snprintf(why, sizeof(why), "no algorithm for a product of [%lld, %lld] and %lld",
             (long long)p->m, (long long)p->n, (long long)p->k);
    if (!s->failed)
        cuda_fails(s, "cublasLtMatmulAlgoGetHeuristic", why);
}

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

/* Groups of rows through float32 sums, for results that one of our kernels rounds. */
static bool rounded(struct cuda_state *s, const struct gemm *p)
{
    const size_t row_bytes = (size_t)p->n * sizeof(float);
    const int64_t rows = wide_rows(s, p);
    struct gemm part = *p, end = *p;
    bool good = true;
    void *sums;

    sums = cuda_scratch(s, (size_t)rows * row_bytes);
    part.c = sums;
    part.c_type = ACCEL_F32;
    part.ldc = p->n;
    part.add = false;
    for (int64_t r = 0; good && r < p->m; r += rows) {
        /* row r of op(a): a column where a is stored transposed */
        const int64_t in = r * (p->trans_a ? 1 : p->lda), out = r * p->ldc;

        part.m = end.m = p->m - r < rows ? p->m - r : rows;
        part.a = (const char *)p->a + in * (int64_t)accel_dtype_bytes(p->a_type);
        end.c = (char *)p->c + out * (int64_t)accel_dtype_bytes(p->c_type);
        if (p->pre)
            end.pre = (char *)p->pre + out * (int64_t)accel_dtype_bytes(p->c_type);
        good = gemm_product(s, &part, GEMM_PLAIN);
        if (good)
            gemm_finish(s, &end, sums, ACCEL_F32, p->n, true);
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
        no_algorithm(s, p);
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
    return gemm_lt_ok(s, cublasLtCreate(&g->lt), "cublasLtCreate") && workspace_of(s);
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
