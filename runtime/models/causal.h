/* SPDX-License-Identifier: Apache-2.0
 *
 * What generation needs to know about a model, and the sampling of a token.
 * decoder_causal fills struct causal.
 */
#ifndef ACCEL_NN_MODELS_CAUSAL_H
#define ACCEL_NN_MODELS_CAUSAL_H

#include "nn/nn.h"

/* A model that predicts the next token. */
struct causal {
    int vocab, context;
    /* sizes of the cache of keys and values */
    int layers, kv_heads, head_width;
    /* ids int32 [1, T] are the positions after those in the cache. Returns the logits
     * of the last one, float32 [1, vocab]. Appends to the cache, does not advance it.
     * NULL: sticky error. */
    accel_tensor_t *(*logits)(accel_module_t *model, accel_tensor_t *ids,
                              accel_kv_t *cache);
};

/* Samples one token from logits[vocab] as `o` says, with u in [0, 1). rank[vocab] is
 * working memory of the caller. Tokens are taken in order of likelihood, equally likely
 * ones by number. -1: a logit is NaN or infinite, or all are minus infinity. */
int32_t causal_draw(const float *logits, int vocab, const accel_sampling_t *o, double u,
                    int32_t *rank);

#endif
