/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds and runs the blocks of a transformer (see blocks.h). In: a family's table and
 * a config. Out: modules with the model's names and classes. Knows no particular model
 * and no embedding. B: sequences, T: positions.
 */
#include "models/blocks.h"

#include <math.h>
#include <stdio.h>

/* ---- forward --------------------------------------------------------------------- */

/* Projection i (queries, keys, values) of x. Positions go on from the cache; keys enter
 * the cache rotated. */
static accel_tensor_t *block_project(const struct block *b, int i, accel_tensor_t *x)
{
    const accel_model_config_t *c = b->all->config;

    x = layer_call(b->in[i], x);
    if (!b->all->table->rotary || i == 2)
        return x;
    return accel_rope(x, i ? c->kv_heads : c->heads, &c->rope, b->all->cache);
}

/* accel_attention splits a joint projection itself. */
static accel_tensor_t *block_attend(const struct block *b, accel_tensor_t *x,
                                    accel_tensor_t *mask)
{
    const struct block_table *t = b->all->table;
    const accel_model_config_t *c = b->all->config;
    const accel_attention_t o = { .bytes = sizeof(o),
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .causal = t->causal,
                                  .mask = mask,
                                  .dropout = c->attn_dropout,
                                  .cache = b->all->cache,
                                  .layer = b->layer };
    int count = b->in[1] ? 3 : 1;
    accel_tensor_t *part[3] = { NULL };

    for (int i = 0; i < count; i++) {
        int at = t->attention.values_first ? count - 1 - i : i;

        part[at] = block_project(b, at, x);
    }
    x = accel_attention(part[0], part[1], part[2], &o);
    return accel_dropout(layer_call(b->out, x), c->resid_dropout);
}

/* The activation is fused into the product with the gate, or into the first layer. */
static accel_tensor_t *block_expand(const struct block *b, accel_tensor_t *x)
{
    const accel_model_config_t *c = b->all->config;
    accel_tensor_t *gate = b->gate ? layer_call(b->gate, x) : NULL;

    x = layer_call(b->up, x);
    if (b->gate)
        x = accel_gated(gate, x, c->activation);
    return accel_dropout(layer_call(b->down, x), c->resid_dropout);
}

/* The parts as modules: each works on its block, which is its parent. An input too many
 * or too few is the op's error, as that of a NULL. */
accel_tensor_t *block_attention_forward(accel_module_t *m, accel_tensor_t *const *in,
                                        int n)
{
    const struct block *b = accel_module_state(m->parent);
    bool masked = b->all->table->masked, good = n == 1 + masked;

    return block_attend(b, good ? in[0] : NULL, good && masked ? in[1] : NULL);
}

accel_tensor_t *block_mlp_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    return block_expand(accel_module_state(m->parent), n == 1 ? in[0] : NULL);
}

/* One part of the block with its norm and residual: part 0 is the attention, 1 the
 * MLP. */
static accel_tensor_t *block_part(const struct block *b, int part, accel_tensor_t *x,
                                  accel_tensor_t *mask)
{
    bool post = b->all->table->post_norm;
    accel_tensor_t *y = post ? x : layer_call(b->norm[part], x);

    if (part == 0)
        y = b->attention ? accel_call(b->attention, (accel_tensor_t *[]){ y, mask },
                                      1 + b->all->table->masked)
                         : block_attend(b, y, mask);
    else
        y = b->mlp ? layer_call(b->mlp, y) : block_expand(b, y);
    y = accel_add(x, y);
    return post ? layer_call(b->norm[part], y) : y;
}

accel_tensor_t *block_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct block *b = accel_module_state(m);
    bool masked = b->all->table->masked, good = n == 1 + masked;
    accel_tensor_t *mask = good && masked ? in[1] : NULL;

    return block_part(b, 1, block_part(b, 0, good ? in[0] : NULL, mask), mask);
}

/* The blocks stand between `first` and `last` among the children of the root. The mask
 * is an input of each, not a part of the state: a block that is computed again after
 * the forward needs it then. */
accel_tensor_t *blocks_call(const struct blocks *all, accel_tensor_t *x,
                            accel_tensor_t *mask)
{
    for (accel_module_t *m = all->first;; m = m->next) {
        x = accel_call(m, (accel_tensor_t *[]){ x, mask }, 1 + all->table->masked);
        if (m == all->last)
            return x;
    }
}

/* ---- build ----------------------------------------------------------------------- */

/* After the defaults: what is still not positive was given wrongly. Below the bound,
 * all sizes made from the width of the heads fit an int32_t. */
static accel_status_t blocks_fit(const struct block_table *t,
                                 const accel_model_config_t *c, accel_error_t *err)
{
    const char *model = c->model_type;
    const struct layer_size sizes[] = {
        { "layers", c->layers },      { "heads", c->heads },
        { "key heads", c->kv_heads }, { "head width", c->head_width },
        { "width", c->width },        { "hidden", c->hidden },
    };
    accel_status_t st;

    ACCEL_CHECK(st, layer_sizes_check(model, sizes, ACCEL_ARRAY_SIZE(sizes), err));
    if (c->head_width > INT32_MAX / 4 / c->heads)
        return accel_fail(err, A0612, "choose fewer or narrower heads",
                          "%s: %d heads of %d are too wide", model, c->heads,
                          c->head_width);
    if (c->heads % c->kv_heads)
        return accel_fail(
            err, A0612, "choose a number of heads that is a multiple of the key heads",
            "%s: %d heads are not a multiple of %d key heads", model, c->heads,
            c->kv_heads);
    if (t->rotary && c->head_width % 2)
        return accel_fail(err, A0612, "choose an even head width",
                          "%s: rotary positions need an even head width, not %d", model,
                          c->head_width);
    return ACCEL_OK;
}

accel_status_t blocks_check(const struct block_table *t, accel_model_config_t *c,
                            accel_error_t *err)
{
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->head_width && c->heads > 0) {
        if (c->width % c->heads)
            return accel_fail(err, A0612,
                              "choose a width that is a multiple of the heads",
                              "%s: width %d is not a multiple of %d heads",
                              c->model_type, c->width, c->heads);
        c->head_width = c->width / c->heads;
    }
    return blocks_fit(t, c, err);
}

/* Of the projections into the residual stream. */
static float residual_deviation(const struct blocks *all)
{
    return all->table->residual_scaled
               ? LAYER_DEVIATION / sqrtf(2.0f * (float)all->config->layers)
               : LAYER_DEVIATION;
}

/* Widths: heads * head_width for queries, kv_heads * head_width for keys and values.
 * head_width need not be width / heads. */
static void block_attention_new(accel_module_t *m, struct block *b)
{
    const struct block_table *t = b->all->table;
    const accel_model_config_t *c = b->all->config;
    const char *const name[] = { t->attention.q, t->attention.k, t->attention.v };
    const enum layer_bias qkv = c->attention_bias ? LAYER_BIAS : t->attention.qkv_bias,
                          out = c->attention_bias ? LAYER_BIAS : t->attention.out_bias;
    int64_t q = (int64_t)c->heads * c->head_width,
            kv = (int64_t)c->kv_heads * c->head_width;
    bool joint = !t->attention.k;

    if (t->attention.name)
        m = b->attention = layer_new(m, t->attention.cls, t->attention.name);
    for (int i = 0; i < (joint ? 1 : 3); i++)
        b->in[i] = layer_linear(m, name[i],
                                joint ? q + 2 * kv
                                : i   ? kv
                                      : q,
                                c->width, qkv, LAYER_DEVIATION, ACCEL_ACT_NONE);
    b->out = layer_linear(m, t->attention.out, c->width, q, out,
                          residual_deviation(b->all), ACCEL_ACT_NONE);
}

/* With a gate the activation is applied to that, else to the first layer. */
static void block_mlp_new(accel_module_t *m, struct block *b)
{
    const struct block_table *t = b->all->table;
    const accel_model_config_t *c = b->all->config;
    const enum layer_bias bias = c->mlp_bias ? LAYER_BIAS : t->mlp.bias;

    if (t->mlp.name)
        m = b->mlp = layer_new(m, t->mlp.cls, t->mlp.name);
    if (t->mlp.gate)
        b->gate = layer_linear(m, t->mlp.gate, c->hidden, c->width, bias,
                               LAYER_DEVIATION, ACCEL_ACT_NONE);
    b->up = layer_linear(m, t->mlp.up, c->hidden, c->width, bias, LAYER_DEVIATION,
                         t->mlp.gate ? ACCEL_ACT_NONE : c->activation);
    b->down = layer_linear(m, t->mlp.down, c->width, c->hidden, bias,
                           residual_deviation(b->all), ACCEL_ACT_NONE);
}

static void block_norm_new(accel_module_t *m, struct block *b, int part)
{
    const struct block_table *t = b->all->table;
    const accel_model_config_t *c = b->all->config;

    b->norm[part] = t->norm(m, t->norms[part], c->width, c->norm_eps);
}

/* Parameters are declared in the order of the forward: a norm stands where it runs. */
static accel_module_t *block_new(accel_module_t *root, const struct blocks *all,
                                 int layer)
{
    const struct block_table *t = all->table;
    struct block *b;
    accel_module_t *m;
    char name[64];

    snprintf(name, sizeof(name), "%s%d", t->path, layer);
    m = layer_new(root, t->cls, name);
    b = accel_module_state(m);
    if (!b)
        return NULL;
    b->all = all;
    b->layer = layer;
    if (!t->post_norm)
        block_norm_new(m, b, 0);
    block_attention_new(m, b);
    block_norm_new(m, b, !t->post_norm);
    block_mlp_new(m, b);
    if (t->post_norm)
        block_norm_new(m, b, 1);
    return m;
}

void blocks_new(accel_module_t *root, struct blocks *all)
{
    all->first = all->last = block_new(root, all, 0);
    for (int i = 1; i < all->config->layers; i++)
        all->last = block_new(root, all, i);
}
