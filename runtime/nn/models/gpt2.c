/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2: embedding, blocks of attention and MLP with pre-normalisation, tied head.
 * Parameters are named as in Hugging Face's checkpoints, but linear weights are [out,
 * in]. B: sequences, T: positions, C: width.
 */
#include "nn/models/gpt2.h"

#include <math.h>
#include <stdio.h>

#include "nn/models/layers.h"
#include "ops/ops.h"

#define DEVIATION 0.02f /* of initial weights: initializer_range of config.json */

/* State of the root module. */
struct gpt2 {
    /* defaults filled in */
    accel_gpt2_t cfg;
    /* embeddings of words and positions, first block, final norm */
    accel_module_t *wte, *wpe, *first, *norm;
    /* of the forward that runs; NULL: none. Blocks find it through `root`. */
    accel_kv_t *cache;
};

/* State of "attn"; qkv is one product [3 C, C]. */
struct attention_part {
    accel_module_t *qkv, *out;
    const struct gpt2 *root;
    int layer;
};

/* State of "mlp". */
struct mlp_part {
    accel_module_t *up, *down;
    const accel_gpt2_t *cfg;
};

/* State of "h.N": norm, attention, norm, MLP, each half with a residual. */
struct block_part {
    accel_module_t *norm, *attention, *norm2, *mlp;
};

/* x [B, T, C]. accel_attention splits the joint projection itself (k and v NULL). */
static accel_tensor_t *attention_forward(accel_module_t *m, accel_tensor_t *const *in,
                                         int n)
{
    const struct attention_part *p = accel_module_state(m);
    const accel_gpt2_t *c = &p->root->cfg;
    const accel_attention_t o = { .heads = c->heads,
                                  .causal = 1,
                                  .dropout = c->attn_dropout,
                                  .cache = p->root->cache,
                                  .layer = p->layer };
    accel_tensor_t *x = n == 1 ? in[0] : NULL;

    x = accel_attention(layer_call(p->qkv, x), NULL, NULL, &o);
    return accel_dropout(layer_call(p->out, x), c->resid_dropout);
}

/* The activation is fused into the first product. */
static accel_tensor_t *mlp_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct mlp_part *p = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? in[0] : NULL;

    x = layer_call(p->down, layer_call(p->up, x));
    return accel_dropout(x, p->cfg->resid_dropout);
}

/* Norms come before each part, so the residual stream itself is never normalised. */
static accel_tensor_t *block_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct block_part *p = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? in[0] : NULL;

    x = accel_add(x, layer_call(p->attention, layer_call(p->norm, x)));
    return accel_add(x, layer_call(p->mlp, layer_call(p->norm2, x)));
}

/* in: ids [B, T], and targets [B, T] for the loss. Positions go on from the cache. The
 * head is the word embedding; unit 0 is gathered again for it. */
static accel_tensor_t *root_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct gpt2 *r = accel_module_state(m);
    accel_tensor_t *x, *head = layer_weight(r->wte);

    if (n < 1 || n > 2)
        return graph_fail(m->g, A0605, "gpt2", "pass {ids, targets}",
                          "the model takes 1 or 2 inputs, not %d", n);
    x = op_embedding(in[0], head, layer_weight(r->wpe), accel_kv_length(r->cache));
    x = accel_dropout(x, r->cfg.embd_dropout);
    for (accel_module_t *c = r->first; c != r->norm; c = c->next)
        x = layer_call(c, x);
    x = layer_call(r->norm, x);
    return n == 2 ? accel_cross_entropy(x, head, NULL, in[1], NULL)
                  : op_last_logits(x, head);
}

static const accel_class_t attention_class = { "GPT2Attention", attention_forward,
                                               sizeof(struct attention_part) };
static const accel_class_t mlp_class = { "GPT2MLP", mlp_forward,
                                         sizeof(struct mlp_part) };
static const accel_class_t block_class = { "GPT2Block", block_forward,
                                           sizeof(struct block_part) };
static const accel_class_t root_class = { "GPT2", root_forward, sizeof(struct gpt2) };

/* Each block adds twice to the residual stream. Scaling down the projections that do
 * keeps its variance at the start. */
static float residual_deviation(const accel_gpt2_t *c)
{
    return DEVIATION / sqrtf(2.0f * (float)c->layers);
}

/* NULL parents go through: after a failure each builder returns NULL. */
static accel_module_t *attention_new(accel_module_t *parent, const struct gpt2 *root,
                                     int layer)
{
    const accel_gpt2_t *c = &root->cfg;
    accel_module_t *m = layer_new(parent, &attention_class, "attn");
    struct attention_part *p = accel_module_state(m);

    if (!p)
        return NULL;
    p->root = root;
    p->layer = layer;
    p->qkv = layer_linear(m, "c_attn", 3 * (int64_t)c->width, c->width, LAYER_BIAS,
                          DEVIATION, ACCEL_ACT_NONE);
    p->out = layer_linear(m, "c_proj", c->width, c->width, LAYER_BIAS,
                          residual_deviation(c), ACCEL_ACT_NONE);
    return m;
}

static accel_module_t *mlp_new(accel_module_t *parent, const accel_gpt2_t *c)
{
    accel_module_t *m = layer_new(parent, &mlp_class, "mlp");
    struct mlp_part *p = accel_module_state(m);

    if (!p)
        return NULL;
    p->cfg = c;
    p->up = layer_linear(m, "c_fc", c->hidden, c->width, LAYER_BIAS, DEVIATION,
                         c->activation);
    p->down = layer_linear(m, "c_proj", c->width, c->hidden, LAYER_BIAS,
                           residual_deviation(c), ACCEL_ACT_NONE);
    return m;
}

/* The class name ends in "Block": that makes each one a unit (wrap.c). */
static accel_module_t *block_new(accel_module_t *parent, const struct gpt2 *root,
                                 int layer)
{
    const accel_gpt2_t *c = &root->cfg;
    struct block_part *p;
    accel_module_t *m;
    char name[32];

    snprintf(name, sizeof(name), "h.%d", layer);
    m = layer_new(parent, &block_class, name);
    p = accel_module_state(m);
    if (!p)
        return NULL;
    p->norm = layer_layernorm(m, "ln_1", c->width, c->norm_eps);
    p->attention = attention_new(m, root, layer);
    p->norm2 = layer_layernorm(m, "ln_2", c->width, c->norm_eps);
    p->mlp = mlp_new(m, c);
    return m;
}

/* Replaces the zeros of the config. A width too large to multiply is left
 * for gpt2_check. */
static accel_gpt2_t with_defaults(accel_gpt2_t c)
{
    if (!c.hidden && c.width <= INT32_MAX / 4)
        c.hidden = 4 * c.width;
    if (!(c.norm_eps > 0))
        c.norm_eps = 1e-5f;
    if (c.activation == ACCEL_ACT_NONE)
        c.activation = ACCEL_ACT_GELU;
    return c;
}

/* After the defaults: what is still not positive was given wrongly. */
static accel_status_t gpt2_check(const accel_gpt2_t *c, accel_error_t *err)
{
    if (c->layers < 1 || c->heads < 1 || c->width < 1 || c->context < 1 ||
        c->vocab < 1 || c->width > INT32_MAX / 4 || c->hidden < 1)
        return accel_fail(
            err, A0612, "use at least 1 for every size",
            "gpt2: invalid sizes: layers %d, heads %d, width %d, context %d, vocab %d",
            c->layers, c->heads, c->width, c->context, c->vocab);
    if (c->width % c->heads)
        return accel_fail(err, A0612, "choose a width that is a multiple of the heads",
                          "gpt2: width %d is not a multiple of %d heads", c->width,
                          c->heads);
    return ACCEL_OK;
}

/* Blocks stand between `first` and `norm` among the children: root_forward walks
 * them there. */
static void build(accel_module_t *m, struct gpt2 *r)
{
    const accel_gpt2_t *c = &r->cfg;

    r->wte = layer_embedding(m, "wte", c->vocab, c->width, DEVIATION);
    r->wpe = layer_embedding(m, "wpe", c->context, c->width, DEVIATION);
    r->first = block_new(m, r, 0);
    for (int i = 1; i < c->layers; i++)
        block_new(m, r, i);
    r->norm = layer_layernorm(m, "ln_f", c->width, c->norm_eps);
}

/* An error of a builder stays in the graph; layer_tree looks for it at the end. */
accel_module_t *gpt2_new(struct graph *g, const accel_gpt2_t *cfg, accel_error_t *err)
{
    accel_gpt2_t c = cfg ? with_defaults(*cfg) : (accel_gpt2_t){ 0 };
    accel_module_t *m;
    struct gpt2 *r;

    if (!cfg) {
        accel_fail(err, A0612, "pass a struct accel_gpt2", "gpt2: the sizes are NULL");
        return NULL;
    }
    if (gpt2_check(&c, err))
        return NULL;
    m = nn_module_new(g, &root_class, NULL, "");
    r = accel_module_state(m);
    if (r) {
        r->cfg = c;
        build(m, r);
    }
    return layer_tree(g, m, err);
}

/* The cache is set for one call only, so that training never sees it. */
static accel_tensor_t *logits(accel_module_t *model, accel_tensor_t *ids,
                              accel_kv_t *cache)
{
    struct gpt2 *r = accel_module_state(model);
    accel_tensor_t *y;

    r->cache = cache;
    y = accel_call(model, &ids, 1);
    r->cache = NULL;
    return y;
}

bool gpt2_causal(const accel_module_t *model, struct causal *causal_out)
{
    const accel_gpt2_t *c = gpt2_config(model);

    if (!c)
        return false;
    *causal_out = (struct causal){ .vocab = c->vocab,
                                   .context = c->context,
                                   .layers = c->layers,
                                   .kv_heads = c->heads,
                                   .head_width = c->width / c->heads,
                                   .logits = logits };
    return true;
}

const accel_gpt2_t *gpt2_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct gpt2 *)model->state)->cfg;
}
