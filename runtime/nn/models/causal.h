/* SPDX-License-Identifier: Apache-2.0
 *
 * What generation needs to know of a model, and the drawing of a token. Each causal model
 * has a function that fills struct causal; generation.c lists them.
 */
#ifndef ACCEL_NN_MODELS_CAUSAL_H
#define ACCEL_NN_MODELS_CAUSAL_H

#include "nn/nn.h"

struct causal {
    int vocab, context;
    int layers, kv_heads, head_width; /* of the cache */
    /* ids int32 [1, T], the positions after those in the cache -> logits float32
     * [1, vocab] of the last one. Appends to the cache, does not advance it. NULL: sticky
     * error. */
    accel_tensor_t *(*logits)(accel_module_t *model, accel_tensor_t *ids,
                              accel_kv_t *cache);
};

/* Draws from logits[vocab] as `o` says, with u in [0, 1); rank[vocab] is working memory. The
 * likelier token, then the smaller one, goes first. -1: a logit is no number, or all are
 * minus infinity. */
int32_t causal_draw(const float *logits, int vocab, const accel_sampling_t *o, double u,
                    int32_t *rank);

#endif
