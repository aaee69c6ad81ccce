/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal workspace of kernels, beside operands and the scratch that callers pass. The
 * kernels call these functions and so does the plan, so both count the same. Shapes in,
 * bytes out; C and C++, without a toolkit.
 */
#ifndef ACCEL_BACKEND_CUDA_OWN_H
#define ACCEL_BACKEND_CUDA_OWN_H

#include "backend/cuda/attention_path.h"
#include "backend/cuda/gemm_key.h"
#include "backend/cuda_sizes.h"

/* Anything smaller is not counted: parts of sums over columns, rows and spans, a
 * widened bias. The room always includes this much. */
#define CUDA_OWN_LEAST ((size_t)4 << 20)
#define CUDA_OWN_ALIGN ((size_t)256)
/* cuDNN's reproducible backward keeps a matrix of scores in bfloat16. Up to this size
 * of the matrix it is faster than our own kernels. */
#define CUDA_DNN_MOST ((size_t)256 << 20)

/* cudaMalloc aligns to 256 as well: a piece of the room is as good as an allocation. */
static inline size_t cuda_own_round(size_t bytes)
{
    return (bytes + CUDA_OWN_ALIGN - 1) / CUDA_OWN_ALIGN * CUDA_OWN_ALIGN;
}

/* Rows per pass of a product that goes through float32 sums; at least one. */
static inline int64_t gemm_wide_rows(const struct gemm *p)
{
    int64_t rows = (int64_t)(CUDA_GEMM_WIDE / ((size_t)p->n * sizeof(float)));

    return rows < 1 ? 1 : rows > p->m ? p->m : rows;
}

/* Elements from the first to the last of stored rows, gaps included. */
static inline int64_t gemm_stored(int64_t rows, int64_t cols, int64_t ld)
{
    return rows ? (rows - 1) * ld + cols : 0;
}

/* Stored elements of a, and of b. */
static inline int64_t gemm_stored_a(const struct gemm *p)
{
    return gemm_stored(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda);
}

static inline int64_t gemm_stored_b(const struct gemm *p)
{
    return gemm_stored(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb);
}

/* Workspace of a product: a bfloat16 operand beside a float32 one is widened, and a
 * product that one of our kernels rounds needs its float32 sums. */
static inline size_t cuda_gemm_own_bytes(const struct gemm *p)
{
    struct gemm same = *p;
    size_t bytes = 0;

    if (!p->m || !p->n || !p->k)
        return 0;
    if (p->a_type != p->b_type) {
        const int64_t n = p->a_type == ACCEL_BF16 ? gemm_stored_a(p) : gemm_stored_b(p);

        same.a_type = same.b_type = ACCEL_F32;
        bytes = cuda_own_round((size_t)n * sizeof(float));
    }
    if (gemm_way_of(&same).wide)
        bytes +=
            cuda_own_round((size_t)gemm_wide_rows(p) * (size_t)p->n * sizeof(float));
    return bytes;
}

/* Workspace of the embedding's gradient: five int32 per row, the sorted ids with their
 * rows and what sorting them needs. */
static inline size_t cuda_embed_grad_own_bytes(int64_t rows)
{
    return cuda_own_round((size_t)rows * 5 * sizeof(int32_t));
}

/* cuDNN's workspace where there is no device to ask: its matrix of scores. */
static inline size_t cuda_attention_own_guess(const struct attention *p,
                                              const struct attention_grads *g)
{
    size_t scores = (size_t)(p->batch * p->heads) * (size_t)(p->queries * p->keys) * 2;

    if (!g || scores > CUDA_DNN_MOST || !attn_dnn_fits(p, g, DNN_VERSION_LEAST))
        return 0;
    return cuda_own_round(scores);
}

#endif
