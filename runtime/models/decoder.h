/* SPDX-License-Identifier: Apache-2.0
 *
 * A causal language model from two tables and a config: embedding, blocks, a final norm
 * and a head, tied or separate. Forward, loss, positions and the cache for generation
 * are here. For what the tables cannot express, add a member, so that the next family
 * has it too.
 */
#ifndef ACCEL_NN_MODELS_DECODER_H
#define ACCEL_NN_MODELS_DECODER_H

#include "models/blocks.h"
#include "models/causal.h"
#include "models/family.h"

/* A decoder's own table, besides that of its blocks. Names are full and static. */
struct decoder_table {
    /* the embedding of tokens; that of positions, NULL: the blocks handle positions */
    const char *tokens, *positions;
    /* the final norm, of the blocks' kind */
    const char *norm;
    /* the head or, if it is tied, the second name of the embedding; NULL: none */
    const char *head;
    /* the embedding of tokens is the head, whatever `tied` of the config says */
    bool tied;
};

/* State of a root whose class has decoder_forward. */
struct decoder {
    accel_model_config_t config;
    const struct decoder_table *table;
    struct blocks blocks;
    /* positions and head: NULL where there are none */
    accel_module_t *tokens, *positions, *norm, *head;
};

/* in: ids [B, T], and targets [B, T] for the mean loss. With ids alone the result is
 * the logits of the last position, float32 [B, vocab], which have no backward. */
accel_tensor_t *decoder_forward(accel_module_t *m, accel_tensor_t *const *in, int n);
/* `build` of every family of decoders (family.h). */
accel_module_t *decoder_new(struct graph *g, const struct model_family *f,
                            accel_model_config_t *c, accel_error_t *err);
/* Fills the table for accel_generate. False: `model` is not the root of a decoder. */
bool decoder_causal(const accel_module_t *model, struct causal *causal_out);

#endif
