/* SPDX-License-Identifier: Apache-2.0
 *
 * Products as cuBLASLt sees them: descriptors made from a key, and the table of the
 * keys seen in this run with each one's algorithm. Nothing here needs a device or a
 * driver.
 */
#ifndef ACCEL_BACKEND_CUDA_GEMM_LT_H
#define ACCEL_BACKEND_CUDA_GEMM_LT_H

#include <cublasLt.h>

#include "backend/cuda/gemm/gemm_key.h"

/* Has the library that this is built with scales of blocks? */
#define GEMM_HAS_BLOCKS (CUBLAS_VERSION >= 120900)

/* cuBLASLt is column-major: c [m, n] by rows is c^T [n, m] by columns, the product of
 * op(b)^T and op(a)^T. So b comes first, and a bias of n is one per row there. */
struct gemm_lt {
    struct gemm_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result; /* b, a, c */
    /* searched: cuBLASLt was asked; found: it has an algorithm for the key */
    bool searched, found;
    cublasLtMatmulAlgo_t algo;
};

struct gemm_table {
    /* open addressing; slots is a power of two, at most half full */
    struct gemm_lt **slot;
    size_t slots, used;
};

/* Sets the key and the descriptors only. */
cublasStatus_t gemm_lt_open(struct gemm_lt *g, const struct gemm_key *key);
void gemm_lt_close(struct gemm_lt *g);
/* Sets the vectors of this call, as far as the key has them, and the scales of 8-bit
 * operands. For GEMM_SUMS the sums, which the product writes, take the place of a bias.
 */
cublasStatus_t gemm_lt_vectors(struct gemm_lt *g, const struct gemm *p);
/* The constraints under which an algorithm for the key is searched for. */
cublasStatus_t gemm_lt_preference(const struct gemm_key *key, size_t workspace,
                                  cublasLtMatmulPreference_t *out);

/* Returns the entry of a key, made if it is new. NULL and *status: it could not be
 * made. The table owns it. */
struct gemm_lt *gemm_table_get(struct gemm_table *t, const struct gemm_key *key,
                               cublasStatus_t *status);
void gemm_table_close(struct gemm_table *t);

#endif
