/* SPDX-License-Identifier: Apache-2.0
 *
 * Products as cuBLASLt sees them: descriptors made from a key, and the table of keys seen
 * in this run with the algorithm of each. Nothing here needs a device or a driver.
 */
#ifndef ACCEL_BACKEND_CUDA_GEMM_LT_H
#define ACCEL_BACKEND_CUDA_GEMM_LT_H

#include <cublasLt.h>

#include "backend/cuda/gemm_key.h"

/* cuBLASLt stores by columns: c of [m, n] by rows is c^T of [n, m] by columns, the product
 * of op(b)^T and op(a)^T. So b comes first, and a bias of n is one of the rows. */
struct gemm_lt {
    struct gemm_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result; /* b, a, c */
    bool searched, found; /* there is an algorithm for the key */
    cublasLtMatmulAlgo_t algo;
};

struct gemm_table {
    struct gemm_lt **slot; /* open addressing, a power of two, at most half full */
    size_t slots, used;
};

/* Only the key and the descriptors are set. */
cublasStatus_t gemm_lt_open(struct gemm_lt *g, const struct gemm_key *key);
void gemm_lt_close(struct gemm_lt *g);
/* The vectors of this call; NULL where the key has none. The sums of GEMM_SUMS, which the
 * product writes, are where a bias would be. */
cublasStatus_t gemm_lt_vectors(struct gemm_lt *g, const void *bias, void *pre);
/* How an algorithm for the key is to be looked for. */
cublasStatus_t gemm_lt_preference(const struct gemm_key *key, size_t workspace,
                                  cublasLtMatmulPreference_t *out);

/* The entry of a key, made when it is new. NULL and *status: it could not be made. */
struct gemm_lt *gemm_table_get(struct gemm_table *t, const struct gemm_key *key,
                               cublasStatus_t *status);
void gemm_table_close(struct gemm_table *t);

#endif
