/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of a transformer, built from a table: attention and MLP, each with a norm
 * and a residual. A model gives its sizes, its names and the kind of each part; the
 * forwards here do the rest. decoder.h adds embedding and head for causal models; an
 * encoder calls the blocks from its own forward.
 */
#ifndef ACCEL_NN_MODELS_BLOCKS_H
#define ACCEL_NN_MODELS_BLOCKS_H

#include "models/layers.h"

/* What a family's blocks are; the config has their sizes. Names are relative to the
 * module that holds them, may contain dots, and are static, as are classes. What is
 * left out is 0: no module, no bias. */
struct block_table {
    /* The class of a block; "...Block" or "...Layer" makes each one a unit (wrap.c). */
    const accel_class_t *cls;
    /* "h.": the number of the block follows */
    const char *path;
    /* causal: each position sees itself and those before it; otherwise each sees all.
     * masked: the blocks take {x, mask}; the mask hides some. */
    bool causal, masked;
    /* The norm follows the residual. Otherwise a norm precedes each part,
     * and the residual stream itself is never normalised. */
    bool post_norm;
    /* layer_layernorm or layer_rmsnorm; norms[0]: the attention's, norms[1]: the
     * MLP's */
    accel_module_t *(*norm)(accel_module_t *parent, const char *name, int64_t width,
                            float eps);
    const char *norms[2];
    /* queries and keys are rotated by their position */
    bool rotary;
    /* The initial weights of the two projections into the residual stream have the
     * deviation LAYER_DEVIATION / sqrt(2 * layers). */
    bool residual_scaled;
    struct {
        /* NULL: the block itself holds the layers */
        const char *name;
        const accel_class_t *cls;
        /* k and v NULL: q is one matmul for all three, side by side */
        const char *q, *k, *v, *out;
        /* of every model of the family; attention_bias of the config adds both */
        enum layer_bias qkv_bias, out_bias;
        /* The matmuls run in the order v, k, q, not q, k, v. Gradients of x are added
         * up in the reverse order, and the bits of the sum depend on it. */
        bool values_first;
    } attention;
    struct {
        /* as above */
        const char *name;
        const accel_class_t *cls;
        /* gate NULL: down(act(up)). Otherwise down(act(gate) * up). */
        const char *gate, *up, *down;
        enum layer_bias bias;
    } mlp;
};

/* All blocks of a model, in the state of its root. */
struct blocks {
    const struct block_table *table;
    const accel_model_config_t *config;
    accel_module_t *first, *last;
    /* that of the running forward; NULL: none */
    accel_kv_t *cache;
};

/* State of one block. Only blocks.c uses its members; models need its size. */
struct block {
    const struct blocks *all;
    int layer;
    /* the parts that are separate modules, else NULL */
    accel_module_t *attention, *mlp;
    accel_module_t *norm[2];
    /* queries, keys, values; in[0] is all three if the others are NULL */
    accel_module_t *in[3], *out;
    accel_module_t *gate, *up, *down;
};

/* The forwards of a model's classes: of a block (state: struct block), and of its two
 * parts (no state). x [B, T, width], and with `masked` mask int32 [B, T], 0:
 * padding. */
accel_tensor_t *block_forward(accel_module_t *m, accel_tensor_t *const *in, int n);
accel_tensor_t *block_attention_forward(accel_module_t *m, accel_tensor_t *const *in,
                                        int n);
accel_tensor_t *block_mlp_forward(accel_module_t *m, accel_tensor_t *const *in, int n);

/* Fills in the heads of keys and values and the width of heads, and checks the sizes:
 * ACCEL_EINVAL. */
accel_status_t blocks_check(const struct block_table *t, accel_model_config_t *c,
                            accel_error_t *err);
/* Builds the blocks under `root`; `all`, with table and config, lies in the state of
 * the root. Failures are sticky. */
void blocks_new(accel_module_t *root, struct blocks *all);
/* Runs them on x [B, T, width] one after the other. mask: NULL without `masked`. NULL:
 * sticky error. */
accel_tensor_t *blocks_call(const struct blocks *all, accel_tensor_t *x,
                            accel_tensor_t *mask);

#endif
