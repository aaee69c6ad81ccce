/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernels an attention call goes to: a function of shapes, addresses and the
 * version of cuDNN, without asking a device. Every path gives the same result up to
 * rounding; they differ in speed.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_PATH_H
#define ACCEL_BACKEND_CUDA_ATTENTION_PATH_H

#include <string.h>

#include "backend/cuda_sizes.h"

/* queries, and keys, of a tile of our own kernels */
#define ATTN_TILE 64
/* before 9.0.0, keys had to come in multiples of 64 */
#define DNN_VERSION_LEAST 90000

enum attn_path {
    ATTN_PLAIN,  /* float32 products, any width */
    ATTN_DECODE, /* one query, keys in parts */
    ATTN_MMA,    /* tensor cores */
    ATTN_CUDNN,
    ATTN_PATHS
};

/* ACCEL_CUDA_ATTENTION: what the choice is limited to, for comparison: words, between
 * commas. Each one leaves out cuDNN. */
enum {
    ATTN_OWN = 1,   /* own kernels */
    ATTN_SYNC = 2,  /* those without wgmma */
    ATTN_FIVE = 4,  /* five products wherever they fit, not where they pay */
    ATTN_SEVEN = 8, /* never five products */
};

/* The words of a list, as a sum; unknown ones count as none. */
static inline unsigned attn_forms_named(const char *list)
{
    static const char *const names[] = { "own", "mma", "five", "seven" };
    unsigned forms = 0;

    while (list && *list) {
        const size_t length = strcspn(list, ",");

        for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
            if (length == strlen(names[i]) && !strncmp(list, names[i], length))
                forms |= 1u << i;
        list += length + (list[length] == ',');
    }
    return forms;
}

/* Can 8 16-bit elements of a row be read at once (16 bytes)? */
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

/* Do our own kernels on tensor cores apply? bfloat16 or float16, heads of 8, 16, ...
 * 128 elements, and a scale above 0, as the maximum of scores is taken before they are
 * scaled. `g` is NULL for the forward. */
static inline bool attn_mma_fits(const struct attention *p,
                                 const struct attention_grads *g)
{
    return (p->type == ACCEL_BF16 || p->type == ACCEL_F16) && p->head_width % 8 == 0 &&
           p->head_width <= 128 && p->scale > 0.0f && attn_inputs_aligned(p) &&
           (!g || attn_aligned(g->dout, 0, 0, 0));
}

/* Do our kernels with wgmma apply to a forward that attn_mma_fits, on a device of
 * capability `compute`? Tensor maps hold places and sizes of 32 bits, strides that are
 * positive and below 2^40 bytes; a grid has fewer than 2^31 blocks. */
static inline bool attn_wgmma_fits(const struct attention *p, int compute)
{
    const struct heads *in[3] = { &p->q, &p->k, &p->v };
    const int64_t most = (int64_t)1 << 30, stride = (int64_t)1 << 39;

    if (compute != 90 || (p->head_width != 64 && p->head_width != 128) ||
        p->batch < 1 || p->queries < 1 || p->keys < 1 || p->queries > most ||
        p->keys > most || p->batch * p->heads * (p->queries / 128 + 1) > most)
        return false;
    for (int i = 0; i < 3; i++)
        if (in[i]->row < 1 || in[i]->row >= stride || in[i]->head < 1 ||
            in[i]->head >= stride || in[i]->sample < 1 || in[i]->sample >= stride)
            return false;
    return true;
}

/* Does cuDNN apply? Version 90000 is 9.0.0, 0: none. Not with dropout, whose bits
 * differ, nor where a query may see no key, whose lse differs. It writes gradients and
 * cannot add. */
static inline bool attn_dnn_fits(const struct attention *p,
                                 const struct attention_grads *g, size_t version)
{
    const struct heads_out *to[3] = { g ? &g->dq : NULL, g ? &g->dk : NULL,
                                      g ? &g->dv : NULL };

    if (version < DNN_VERSION_LEAST || p->type != ACCEL_BF16 ||
        p->head_width % 8 != 0 || p->head_width > 256 || p->dropout > 0.0f ||
        p->lengths || p->mask || (p->causal && p->offset != 0) || p->queries < 2 ||
        p->keys < 1 || p->batch < 1 || !attn_inputs_aligned(p))
        return false;
    for (int i = 0; g && i < 3; i++)
        if (!to[i]->data || to[i]->add ||
            !attn_aligned(to[i]->data, to[i]->sample, to[i]->row, to[i]->head))
            return false;
    return !g || (attn_aligned(g->dout, 0, 0, 0) && attn_aligned(g->out, 0, 0, 0));
}

/* In this order: one query per sample, cuDNN, our tensor-core kernels, plain
 * float32. */
static inline enum attn_path attn_path_of(const struct attention *p,
                                          const struct attention_grads *g,
                                          size_t version)
{
    if (!g && cuda_attention_decodes(p))
        return ATTN_DECODE;
    if (attn_dnn_fits(p, g, version))
        return ATTN_CUDNN;
    return attn_mma_fits(p, g) ? ATTN_MMA : ATTN_PLAIN;
}

#endif
