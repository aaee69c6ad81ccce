/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the algorithms that cuBLASLt proposes for a product, on the product's own
 * operands but with a result of its own, so that nothing in the step changes.
 */
#include "backend/cuda/gemm/gemm.h"

/* Timed repetitions per algorithm. */
enum { RUNS = 3 };

/* What all trials of one product share. */
struct trial {
    const struct gemm_lt *g;
    const struct gemm *p;
    void *result, *workspace;
    cudaEvent_t begin, end;
};

static bool run(struct cuda_state *s, const struct trial *t,
                const cublasLtMatmulAlgo_t *algo)
{
    /* beta 0: the operand c is not read, whatever is in the trial's result */
    const float one = 1.0f, zero = 0.0f;

    return cublasLtMatmul(s->blas->lt, t->g->product, &one, t->p->b, t->g->first,
                          t->p->a, t->g->second, &zero, t->result, t->g->result,
                          t->result, t->g->result, algo, t->workspace,
                          CUDA_GEMM_WORKSPACE, s->now) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of RUNS products, after one to warm up; negative: it cannot run. */
static float time_of(struct cuda_state *s, const struct trial *t,
                     const cublasLtMatmulAlgo_t *algo)
{
    float ms = -1.0f;
    bool good = run(s, t, algo) && CHECK(s, cudaEventRecord(t->begin, s->now));

    for (int i = 0; good && i < RUNS; i++)
        good = run(s, t, algo);
    if (!good || !CHECK(s, cudaEventRecord(t->end, s->now)) ||
        !CHECK(s, cudaEventSynchronize(t->end)) ||
        !CHECK(s, cudaEventElapsedTime(&ms, t->begin, t->end)))
        return -1.0f;
    return ms;
}

int gemm_fastest(struct cuda_state *s, const struct gemm_lt *g, const struct gemm *p,
                 const cublasLtMatmulHeuristicResult_t *found, int count,
                 void *workspace)
{
    struct trial t = { g, p, NULL, workspace, NULL, NULL };
    float best = -1.0f, ms;
    int fastest = 0;

    /* as large as c with its gaps: algorithms may differ in how they store */
    t.result = cuda_scratch(s, (size_t)(p->m * p->ldc) * accel_dtype_bytes(p->c_type));
    if (t.result && CHECK(s, cudaEventCreate(&t.begin)) &&
        CHECK(s, cudaEventCreate(&t.end)))
        for (int i = 0; i < count; i++) {
            ms = time_of(s, &t, &found[i].algo);
            /* ties go to the earlier proposal, which cuBLASLt ranks higher */
            if (ms >= 0.0f && (best < 0.0f || ms < best)) {
                best = ms;
                fastest = i;
            }
        }
    if (t.end)
        cudaEventDestroy(t.end);
    if (t.begin)
        cudaEventDestroy(t.begin);
    cuda_scratch_free(s, t.result);
    return fastest;
}
