/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernels an attention is given to: a function of shapes, addresses and the version
 * of cuDNN, no device asked. Every path gives the same result; they differ in speed.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_PATH_H
#define ACCEL_BACKEND_CUDA_ATTENTION_PATH_H

#include "backend/cuda_sizes.h"

enum attn_path {
    ATTN_PLAIN,  /* float32 products, any width */
    ATTN_DECODE, /* one query, keys in parts */
    ATTN_MMA,    /* tensor cores */
    ATTN_CUDNN,
    ATTN_PATHS
};

/* Can 8 elements of a row be read at once? */
static inline bool attn_aligned(const void *data, int64_t sample, int64_t row,
                                int64_t head)
{
    return (uintptr_t)data % 16 == 0 && sample % 8 == 0 && row % 8 == 0 &&
           head % 8 == 0;
}

static inline bool attn_inputs_aligned(const struct attention *p)
{
    return attn_aligned(p->q.data, p->q.sample, p->q.row, p->q.head) &&
           attn_aligned(p->k.data, p->k.sample, p->k.row, p->k.head) &&
           attn_aligned(p->v.data, p->v.sample, p->v.row, p->v.head);
}

/* Own kernels on tensor cores: bfloat16, heads of 8, 16, ... 128 elements. `g` is NULL for
 * the forward. */
static inline bool attn_mma_fits(const struct attention *p,
                                 const struct attention_grads *g)
{
    return p->type == ACCEL_BF16 && p->head_width % 8 == 0 && p->head_width <= 128 &&
           attn_inputs_aligned(p) && (!g || attn_aligned(g->dout, 0, 0, 0));
}

#endif
