/* SPDX-License-Identifier: Apache-2.0
 *
 * A causal language model from two tables: embedding, blocks, a final norm and a head,
 * tied or separate. Forward, loss, positions and the cache for generation are here; a
 * model's file gives its sizes, its names and what only it has.
 *
 * A new model writes: a state that begins with struct decoder and keeps the config; one
 * class for the root, the block and each part, named as in Hugging Face's code; the
 * defaults of its config; the two tables. Qwen2 is Llama with biases only on queries,
 * keys and values:
 *
 *     struct qwen2 {
 *         struct decoder decoder;
 *         accel_qwen2_t cfg;
 *     };
 *
 *     static const accel_class_t root_class = { "Qwen2ForCausalLM", decoder_forward,
 *                                               sizeof(struct qwen2) };
 *     static const accel_class_t layer_class = { "Qwen2DecoderLayer", block_forward,
 *                                                sizeof(struct block) };
 *     static const accel_class_t attention_class = { "Qwen2Attention",
 *                                                    block_attention_forward, 0 };
 *     static const accel_class_t mlp_class = { "Qwen2MLP", block_mlp_forward, 0 };
 *
 *     accel_module_t *qwen2_new(struct graph *g, const accel_qwen2_t *cfg,
 *                               accel_error_t *err)
 *     {
 *         accel_qwen2_t c = qwen2_defaults(*cfg);
 *         const struct decoder_table decoder = { .model = "qwen2",
 *                                                .vocab = c.vocab,
 *                                                .context = c.context,
 *                                                .tokens = "model.embed_tokens",
 *                                                .norm = "model.norm",
 *                                                .head = "lm_head",
 *                                                .tied = c.tied };
 *         const struct block_table blocks = {
 *             .cls = &layer_class,
 *             .path = "model.layers.",
 *             ...                          sizes, norms and rope as in llama.c
 *             .attention = { "self_attn", &attention_class, .q = "q_proj",
 *                            .k = "k_proj", .v = "v_proj", .out = "o_proj",
 *                            .qkv_bias = LAYER_BIAS },
 *             .mlp = { "mlp", &mlp_class, .gate = "gate_proj", .up = "up_proj",
 *                      .down = "down_proj", .act = ACCEL_ACT_SILU }
 *         };
 *         accel_module_t *m = decoder_new(g, &root_class, &decoder, &blocks, err);
 *
 *         if (m)
 *             ((struct qwen2 *)accel_module_state(m))->cfg = c;
 *         return m;
 *     }
 *
 * Then register it in accel_models.h, run/model.c (its config and accel_NAME_new),
 * any.c (its name) and models/huggingface/ (config.json, names in files), and give
 * test_decoder.c a row with its ops. For what the tables cannot express, add a member
 * in blocks.h, so that the next model has it too.
 */
#ifndef ACCEL_NN_MODELS_DECODER_H
#define ACCEL_NN_MODELS_DECODER_H

#include "models/blocks.h"
#include "models/causal.h"

/* A decoder's own table, besides that of its blocks. Names are full and static. */
struct decoder_table {
    /* messages begin with it */
    const char *model;
    int vocab, context;
    /* the embedding of tokens; that of positions, NULL: the blocks handle positions */
    const char *tokens, *positions;
    float embd_dropout;
    /* the final norm, of the blocks' kind */
    const char *norm;
    /* the head or, if it is tied, the second name of the embedding; NULL: none */
    const char *head;
    /* the embedding of tokens is the head */
    bool tied;
};

/* Begins the state of a root whose class has decoder_forward. Only decoder.c uses its
 * members. */
struct decoder {
    struct decoder_table table;
    struct blocks blocks;
    /* positions and head: NULL where there are none */
    accel_module_t *tokens, *positions, *norm, *head;
};

/* in: ids [B, T], and targets [B, T] for the mean loss. With ids alone the result is
 * the logits of the last position, float32 [B, vocab], which have no backward. */
accel_tensor_t *decoder_forward(accel_module_t *m, accel_tensor_t *const *in, int n);
/* Checks the sizes of both tables and builds the tree, which the caller frees with
 * nn_module_free. The tables are copied. NULL and `err` on failure. */
accel_module_t *decoder_new(struct graph *g, const accel_class_t *cls,
                            const struct decoder_table *table,
                            const struct block_table *blocks, accel_error_t *err);
/* Fills the table for accel_generate. False: `model` is not the root of a decoder. */
bool decoder_causal(const accel_module_t *model, struct causal *causal_out);

#endif
