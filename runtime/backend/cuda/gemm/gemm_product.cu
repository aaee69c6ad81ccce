/* SPDX-License-Identifier: Apache-2.0
 *
 * One product by cuBLASLt, with its epilogue. One algorithm per key for the whole run,
 * by default cuBLASLt's first proposal: two runs on the same kind of device give the
 * same bits. What has no algorithm is said: false, or where 8-bit operands can be
 * widened, a product in bfloat16.
 */
#include "backend/cuda/gemm/gemm.h"

#include <stdio.h>

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

/* Products of two queues run side by side, so each queue has its own. */
void *gemm_workspace(struct cuda_state *s)
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

/* The entry of a product's key: sizes, strides, types, alignments and epilogue, what an
 * algorithm depends on. NULL after a failure. */
static struct gemm_lt *entry_of(struct cuda_state *s, const struct gemm *p,
                                uint8_t fused)
{
    const struct gemm_key key = gemm_key_of(p, fused);
    cublasStatus_t status;
    struct gemm_lt *g = gemm_table_get(&s->blas->table, &key, &status);

    if (!g)
        gemm_lt_ok(s, status, "cublasLtMatmulDescCreate");
    return g && gemm_lt_ok(s, gemm_lt_vectors(g, p), "cublasLtMatmulDescSetAttribute")
               ? g
               : NULL;
}

/* The number of algorithms that cuBLASLt proposes, at most `most`. */
static int propose(struct cuda_state *s, struct gemm_lt *g,
                   cublasLtMatmulHeuristicResult_t *found, int most)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status;
    int count = 0;

    if (!gemm_lt_ok(s, gemm_lt_preference(&g->key, CUDA_GEMM_WORKSPACE, &preference),
                    "cublasLtMatmulPreferenceCreate"))
        return 0;
    status = cublasLtMatmulAlgoGetHeuristic(s->blas->lt, g->product, g->first,
                                            g->second, g->result, g->result, preference,
                                            most, found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    return status == CUBLAS_STATUS_SUCCESS && count > 0 &&
                   found[0].state == CUBLAS_STATUS_SUCCESS
               ? count
               : 0;
}

/* The same product, with the value before its GELU saved where it is not, and not saved
 * where it is: the evaluation's beside the training's. */
static struct gemm_lt *twin_of(struct cuda_state *s, const struct gemm *p,
                               uint8_t fused)
{
    struct gemm twin = *p;

    /* an address as aligned as those that are saved to; only searched for */
    twin.pre = p->pre ? NULL : gemm_workspace(s);
    return fused & GEMM_GELU ? entry_of(s, &twin, fused ^ GEMM_PRE) : NULL;
}

/* Both are fused, or neither: a GELU of the library and one of our own kernels would
 * make an evaluation round in another way than the training. */
static bool twin_found(struct cuda_state *s, const struct gemm *p, uint8_t fused)
{
    cublasLtMatmulHeuristicResult_t found[1];
    struct gemm_lt *twin = twin_of(s, p, fused);

    return !twin || (twin->searched ? twin->found : propose(s, twin, found, 1) > 0);
}

/* Chooses the algorithm of a key, once. No timing while a step is recorded: the trials
 * would become part of it. */
static void search(struct cuda_state *s, struct gemm_lt *g, const struct gemm *p,
                   uint8_t fused, void *workspace)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count, pick = 0;
    /* so a key that first occurs in a recording keeps the first proposal */
    bool tune = s->blas->tune && !s->end_recording;

    count = propose(s, g, found, tune ? CANDIDATES : 1);
    g->searched = true;
    g->found = count && twin_found(s, p, fused);
    if (!g->found || s->failed)
        return;
    if (tune && count > 1)
        pick = gemm_fastest(s, g, p, found, count, workspace);
    g->algo = found[pick].algo;
}

/* Proposed, yet refused: as if it had not been. */
static void forget(struct cuda_state *s, struct gemm_lt *g, const struct gemm *p,
                   uint8_t fused)
{
    struct gemm_lt *twin = twin_of(s, p, fused);

    g->found = false;
    if (twin) {
        twin->searched = true;
        twin->found = false;
    }
}

/* False: there is no algorithm, or something failed. */
static bool multiply(struct cuda_state *s, const struct gemm *p, uint8_t fused)
{
    const float one = 1.0f, beta = p->add ? 1.0f : 0.0f;
    void *workspace = gemm_workspace(s);
    struct gemm_lt *g = s->failed ? NULL : entry_of(s, p, fused);
    cublasStatus_t status;

    if (g && !g->searched)
        search(s, g, p, fused, workspace);
    if (!g || !g->found || s->failed)
        return false;
    /* b first: row-major c = a b is column-major c^T = b^T a^T, and no operand is
     * transposed in memory */
    status = cublasLtMatmul(s->blas->lt, g->product, &one, p->b, g->first, p->a,
                            g->second, &beta, p->c, g->result, p->c, g->result,
                            &g->algo, workspace, CUDA_GEMM_WORKSPACE, s->now);
    /* there is another way then */
    if ((fused || gemm_is_fp8(p->a_type)) && (status == CUBLAS_STATUS_NOT_SUPPORTED ||
                                              status == CUBLAS_STATUS_INVALID_VALUE)) {
        forget(s, g, p, fused);
        return false;
    }
    return gemm_lt_ok(s, status, "cublasLtMatmul");
}

bool gemm_product(struct cuda_state *s, const struct gemm *p, uint8_t fused)
{
    return multiply(s, p, fused) ||
           (!s->failed && !fused && gemm_is_fp8(p->a_type) && gemm_in_bf16(s, p));
}

static const char *type_name(accel_dtype_t type)
{
    return type == ACCEL_F32      ? "float32"
           : type == ACCEL_BF16   ? "bfloat16"
           : type == ACCEL_F16    ? "float16"
           : type == ACCEL_F8E4M3 ? "e4m3"
                                  : "e5m2";
}

void gemm_text(const struct gemm *p, char *out, size_t len)
{
    static const char *const scales[] = { "", " in lines", " in squares", " in tiles" };
    const struct gemm_key key = gemm_key_of(p, GEMM_PLAIN);

    snprintf(out, len,
             "%s%s%s x %s%s%s to %s, m %lld, n %lld, k %lld, rows of %lld, %lld, %lld, "
             "aligned to %d, %d, %d",
             type_name(p->a_type), scales[key.blocks_a],
             p->trans_a ? " transposed" : "", type_name(p->b_type),
             scales[key.blocks_b], p->trans_b ? " transposed" : "",
             type_name(p->c_type), (long long)p->m, (long long)p->n, (long long)p->k,
             (long long)p->lda, (long long)p->ldb, (long long)p->ldc, 1 << key.align_a,
             1 << key.align_b, 1 << key.align_c);
}

void gemm_lacks(struct cuda_state *s, const struct gemm *p)
{
    char text[144], why[160];

    gemm_text(p, text, sizeof(text));
    snprintf(why, sizeof(why), "no algorithm: %s", text);
    if (!s->failed)
        cuda_fails(s, "cublasLtMatmulAlgoGetHeuristic", why);
}
