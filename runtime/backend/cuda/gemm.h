/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the matrix products share: the state behind cuda_state.blas.
 */
#ifndef ACCEL_BACKEND_CUDA_GEMM_H
#define ACCEL_BACKEND_CUDA_GEMM_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm_lt.h"
#include "backend/cuda_sizes.h"

struct cuda_blas {
    cublasLtHandle_t lt;
    void *workspace[QUEUE_COUNT]; /* of each queue that has multiplied */
    struct gemm_table table;
    bool tune; /* algorithms are timed, not only asked for */
    bool forward_plain,
        back_plain; /* no epilogues: own kernels do all but the product */
};

/* Keeps the first failure, as cuda_ok does. */
bool gemm_lt_ok(struct cuda_state *s, cublasStatus_t status, const char *call);
/* c (+)= op(a) op(b) and what `fused` says, for operands of one type. False: cuBLASLt has
 * no algorithm for it, or something failed. */
bool gemm_product(struct cuda_state *s, const struct gemm *p, uint8_t fused);
/* gemm_tune.cu: the fastest of the algorithms by the device's clock. */
int gemm_fastest(struct cuda_state *s, const struct gemm_lt *g, const struct gemm *p,
                 const cublasLtMatmulHeuristicResult_t *found, int count,
                 void *workspace);
/* gemm_finish.cu: c = act(sum + bias), rounded, and the value before; or c += sum; or
 * c = sum * act'(pre). Sums in `type` with `ld` elements between rows; they may be c. */
void gemm_finish(struct cuda_state *s, const struct gemm *p, const void *sum,
                 accel_dtype_t type, int64_t ld, bool with_bias);

#endif
