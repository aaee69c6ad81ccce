/* SPDX-License-Identifier: Apache-2.0
 *
 * A product by cuBLASLt with nothing around it: what the backend's products are
 * measured against. In: the struct of the backend's product; operands of one type, or
 * of 8 bit, whose scales are 1.
 */
#include <cublasLt.h>
#include <stdlib.h>

#include "tests/bench/gpu/gpu.h"

#define WORKSPACE ((size_t)32 << 20)

struct bare {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algo;
    void *workspace;
};

static cudaDataType_t type_of(accel_dtype_t t)
{
    return t == ACCEL_BF16     ? CUDA_R_16BF
           : t == ACCEL_F8E4M3 ? CUDA_R_8F_E4M3
           : t == ACCEL_F8E5M2 ? CUDA_R_8F_E5M2
                               : CUDA_R_32F;
}

/* Stored by rows, so described by columns: transposed, and b first. */
static bool describe(struct bare *b, const struct gemm *p)
{
    cublasOperation_t first = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int8_t fast = p->fast;

    return !cublasLtMatmulDescCreate(&b->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !cublasLtMatmulDescSetAttribute(b->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                           &first, sizeof(first)) &&
           !cublasLtMatmulDescSetAttribute(b->product, CUBLASLT_MATMUL_DESC_TRANSB,
                                           &second, sizeof(second)) &&
           !cublasLtMatmulDescSetAttribute(b->product, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                           &fast, sizeof(fast)) &&
           !cublasLtMatrixLayoutCreate(&b->first, type_of(p->b_type),
                                       (uint64_t)(p->trans_b ? p->k : p->n),
                                       (uint64_t)(p->trans_b ? p->n : p->k), p->ldb) &&
           !cublasLtMatrixLayoutCreate(&b->second, type_of(p->a_type),
                                       (uint64_t)(p->trans_a ? p->m : p->k),
                                       (uint64_t)(p->trans_a ? p->k : p->m), p->lda) &&
           !cublasLtMatrixLayoutCreate(&b->result, type_of(p->c_type), (uint64_t)p->n,
                                       (uint64_t)p->m, p->ldc);
}

static bool find(struct bare *b)
{
    cublasLtMatmulHeuristicResult_t found;
    cublasLtMatmulPreference_t preference;
    uint64_t bytes = WORKSPACE;
    int count = 0;
    bool good;

    if (cublasLtMatmulPreferenceCreate(&preference))
        return false;
    good = !cublasLtMatmulPreferenceSetAttribute(
               preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
               sizeof(bytes)) &&
           !cublasLtMatmulAlgoGetHeuristic(b->lt, b->product, b->first, b->second,
                                           b->result, b->result, preference, 1, &found,
                                           &count) &&
           count == 1;
    if (good)
        b->algo = found.algo;
    cublasLtMatmulPreferenceDestroy(preference);
    return good;
}

struct bare *bare_new(const struct gemm *p)
{
    struct bare *b = calloc(1, sizeof(*b));

    if (b && !cublasLtCreate(&b->lt) && !cudaMalloc(&b->workspace, WORKSPACE) &&
        describe(b, p) && find(b))
        return b;
    bare_free(b);
    return NULL;
}

bool bare_run(struct bare *b, const struct gemm *p, cudaStream_t stream)
{
    const float one = 1.0f, beta = p->add ? 1.0f : 0.0f;

    return !cublasLtMatmul(b->lt, b->product, &one, p->b, b->first, p->a, b->second,
                           &beta, p->c, b->result, p->c, b->result, &b->algo,
                           b->workspace, WORKSPACE, stream);
}

void bare_free(struct bare *b)
{
    if (!b)
        return;
    if (b->result)
        cublasLtMatrixLayoutDestroy(b->result);
    if (b->second)
        cublasLtMatrixLayoutDestroy(b->second);
    if (b->first)
        cublasLtMatrixLayoutDestroy(b->first);
    if (b->product)
        cublasLtMatmulDescDestroy(b->product);
    if (b->lt)
        cublasLtDestroy(b->lt);
    cudaFree(b->workspace);
    free(b);
}
