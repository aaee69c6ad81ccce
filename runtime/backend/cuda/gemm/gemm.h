/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the matrix products share: what cuda_state.blas points to.
 */
#ifndef ACCEL_BACKEND_CUDA_GEMM_H
#define ACCEL_BACKEND_CUDA_GEMM_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/gemm_lt.h"
#include "backend/cuda_sizes.h"

struct cuda_blas {
    cublasLtHandle_t lt;
    /* one for each queue that has multiplied; NULL: none yet */
    void *workspace[QUEUE_COUNT];
    struct gemm_table table;
    /* time the proposed algorithms instead of taking the first (ACCEL_CUDA_TUNE) */
    bool tune;
    bool forward_plain,
        back_plain;     /* no epilogues: own kernels do all but the product */
    bool widening_told; /* isa has named a product of gemm_in_bf16 */
};

/* gemm_product.cu. Keeps the first failure, as cuda_ok does. False: this call
 * failed. */
bool gemm_lt_ok(struct cuda_state *s, cublasStatus_t status, const char *call);
/* The workspace of the queue in use; NULL after a failure. */
void *gemm_workspace(struct cuda_state *s);
/* c (+)= op(a) op(b) plus what `fused` names, for operands of one type or 8-bit ones.
 * False: cuBLASLt has no algorithm for it, or something failed. Plain products of 8
 * bits without one are made by gemm_in_bf16. */
bool gemm_product(struct cuda_state *s, const struct gemm *p, uint8_t fused);
/* All that may be why a product has no algorithm. */
void gemm_text(const struct gemm *p, char *out, size_t len);
/* Fails for want of an algorithm. */
void gemm_lacks(struct cuda_state *s, const struct gemm *p);
/* gemm_fp8.cu: the plain product, its operands times their scales rounded to bfloat16,
 * in which powers of two are exact. Says so once. */
bool gemm_in_bf16(struct cuda_state *s, const struct gemm *p);
/* gemm_tune.cu: index of the fastest of the algorithms, by the device's clock. */
int gemm_fastest(struct cuda_state *s, const struct gemm_lt *g, const struct gemm *p,
                 const cublasLtMatmulHeuristicResult_t *found, int count,
                 void *workspace);
/* gemm_finish.cu: c = act(sum + bias), rounded, and the value before; or c += sum; or c
 * = sum * act'(pre). Sums have type `type` and `ld` elements between rows; they may be
 * c. */
void gemm_finish(struct cuda_state *s, const struct gemm *p, const void *sum,
                 accel_dtype_t type, int64_t ld, bool with_bias);

#endif
