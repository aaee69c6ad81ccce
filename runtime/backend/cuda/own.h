/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels take by themselves while they run, beside operands and scratch that callers
 * hand in. The kernels ask these functions, and so does the plan: both count the same.
 * Shapes in, bytes out; for C and C++, without a toolkit.
 */
#ifndef ACCEL_BACKEND_CUDA_OWN_H
#define ACCEL_BACKEND_CUDA_OWN_H

#include "backend/cuda/attention_path.h"
#include "backend/cuda/gemm_key.h"
#include "backend/cuda_sizes.h"

/* All that is smaller than this is not counted: parts of sums over columns, rows and spans,
 * a widened bias. The room has it in any case. */
#define CUDA_OWN_LEAST ((size_t)4 << 20)
#define CUDA_OWN_ALIGN ((size_t)256)
/* The backward of cuDNN that gives the same bits every time keeps a matrix of scores in
 * bfloat16: as long as it is small, that is faster than the own kernels. */
#define CUDA_DNN_MOST ((size_t)256 << 20)

static inline size_t cuda_own_round(size_t bytes)
{
    return (bytes + CUDA_OWN_ALIGN - 1) / CUDA_OWN_ALIGN * CUDA_OWN_ALIGN;
}

/* Rows at a time of a product that goes through float32 sums. */
static inline int64_t gemm_wide_rows(const struct gemm *p)
{
    int64_t rows = (int64_t)(CUDA_GEMM_WIDE / ((size_t)p->n * sizeof(float)));

    return rows < 1 ? 1 : rows > p->m ? p->m : rows;
}

/* Elements from the first one of stored rows to the last. */
static inline int64_t gemm_stored(int64_t rows, int64_t cols, int64_t ld)
{
    return rows ? (rows - 1) * ld + cols : 0;
}

/* Elements of a and b, as they are stored. */
static inline int64_t gemm_stored_a(const struct gemm *p)
{
    return gemm_stored(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda);
}

static inline int64_t gemm_stored_b(const struct gemm *p)
{
    return gemm_stored(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb);
}

/* A bfloat16 operand beside a float32 one is widened. */
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

/* Ids in their order, with their rows. */
static inline size_t cuda_embed_grad_own_bytes(int64_t rows)
{
    return cuda_own_round((size_t)rows * 5 * sizeof(int32_t));
}

/* cuDNN's workspace where none can be asked: its matrix of scores. */
static inline size_t cuda_attention_own_guess(const struct attention *p,
                                              const struct attention_grads *g)
{
    size_t scores = (size_t)(p->batch * p->heads) * (size_t)(p->queries * p->keys) * 2;

    if (!g || scores > CUDA_DNN_MOST || !attn_dnn_fits(p, g, DNN_VERSION_LEAST))
        return 0;
    return cuda_own_round(scores);
}

#endif
