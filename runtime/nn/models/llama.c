/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama: RMSNorm before each part, rotary positions, grouped keys and values, a gated
 * MLP. Touvron et al., "LLaMA" (2023); the grouped heads and the scaled rotation of
 * Llama 3 are those of Hugging Face's config.json. Linear weights are [out, in].
 */
#include "nn/models/llama.h"

#include <stdio.h>

#include "nn/models/layers.h"
#include "ops/ops.h"

#define DEVIATION 0.02f /* of initial weights: initializer_range of config.json */

/* State of "self_attn". */
struct attention_part {
    accel_module_t *q, *k, *v, *o;
    const struct llama *root;
    int layer;
};

/* State of "mlp". */
struct mlp_part {
    accel_module_t *gate, *up, *down;
    accel_activation_t act;
};

/* State of "model.layers.N". */
struct layer_part {
    accel_module_t *norm, *attention, *norm2, *mlp;
};

/* State of the root module. */
struct llama {
    accel_llama_t cfg;
    /* embedding, first layer, final norm; head: NULL where it is tied */
    accel_module_t *tokens, *first, *norm, *head;
    /* of the forward that runs; NULL: none. Layers find it through `root`. */
    accel_kv_t *cache;
};

/* x [B, T, C]. Queries and keys are rotated by their position, which goes on from the
 * cache; keys enter the cache rotated. */
static accel_tensor_t *attention_forward(accel_module_t *m, accel_tensor_t *const *in,
                                         int n)
{
    const struct attention_part *p = accel_module_state(m);
    const struct llama *root = p->root;
    const accel_llama_t *c = &root->cfg;
    const accel_attention_t o = { .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .causal = 1,
                                  .dropout = c->attn_dropout,
                                  .cache = root->cache,
                                  .layer = p->layer };
    accel_tensor_t *x = n == 1 ? in[0] : NULL, *q, *k, *v;

    q = accel_rope(layer_call(p->q, x), c->heads, &c->rope, root->cache);
    k = accel_rope(layer_call(p->k, x), c->kv_heads, &c->rope, root->cache);
    v = layer_call(p->v, x);
    return layer_call(p->o, accel_attention(q, k, v, &o));
}

/* down(act(gate(x)) * up(x)), the product and the activation in one op. */
static accel_tensor_t *mlp_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct mlp_part *p = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? in[0] : NULL, *gate = layer_call(p->gate, x);

    return layer_call(p->down, accel_gated(gate, layer_call(p->up, x), p->act));
}

/* Pre-normalisation: the residual stream itself is never normalised. */
static accel_tensor_t *layer_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct layer_part *p = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? in[0] : NULL;

    x = accel_add(x, layer_call(p->attention, layer_call(p->norm, x)));
    return accel_add(x, layer_call(p->mlp, layer_call(p->norm2, x)));
}

/* in: ids [B, T], and targets [B, T] for the loss. The head is lm_head, or the
 * embedding where the config ties them. */
static accel_tensor_t *root_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct llama *r = accel_module_state(m);
    accel_tensor_t *x, *head = layer_weight(r->head ? r->head : r->tokens);

    if (n < 1 || n > 2)
        return graph_fail(m->g, A0605, "llama", "pass {ids, targets}",
                          "the model takes 1 or 2 inputs, not %d", n);
    x = layer_call(r->tokens, in[0]);
    for (accel_module_t *c = r->first; c != r->norm; c = c->next)
        x = layer_call(c, x);
    x = layer_call(r->norm, x);
    return n == 2 ? accel_cross_entropy(x, head, NULL, in[1], NULL)
                  : op_last_logits(x, head);
}

static const accel_class_t attention_class = { "LlamaAttention", attention_forward,
                                               sizeof(struct attention_part) };
static const accel_class_t mlp_class = { "LlamaMLP", mlp_forward,
                                         sizeof(struct mlp_part) };
static const accel_class_t layer_class = { "LlamaDecoderLayer", layer_forward,
                                           sizeof(struct layer_part) };
static const accel_class_t root_class = { "LlamaForCausalLM", root_forward,
                                          sizeof(struct llama) };

/* Widths: heads * head_width for queries, kv_heads * head_width for keys and values.
 * head_width need not be width / heads. */
static accel_module_t *attention_new(accel_module_t *parent, const struct llama *root,
                                     int layer)
{
    const accel_llama_t *c = &root->cfg;
    accel_module_t *m = layer_new(parent, &attention_class, "self_attn");
    struct attention_part *p = accel_module_state(m);
    int64_t q = (int64_t)c->heads * c->head_width,
            kv = (int64_t)c->kv_heads * c->head_width;
    enum layer_bias bias = c->attention_bias ? LAYER_BIAS : LAYER_PLAIN;

    if (!p)
        return NULL;
    p->root = root;
    p->layer = layer;
    p->q = layer_linear(m, "q_proj", q, c->width, bias, DEVIATION, ACCEL_ACT_NONE);
    p->k = layer_linear(m, "k_proj", kv, c->width, bias, DEVIATION, ACCEL_ACT_NONE);
    p->v = layer_linear(m, "v_proj", kv, c->width, bias, DEVIATION, ACCEL_ACT_NONE);
    p->o = layer_linear(m, "o_proj", c->width, q, bias, DEVIATION, ACCEL_ACT_NONE);
    return m;
}

static accel_module_t *mlp_new(accel_module_t *parent, const accel_llama_t *c)
{
    accel_module_t *m = layer_new(parent, &mlp_class, "mlp");
    struct mlp_part *p = accel_module_state(m);
    enum layer_bias bias = c->mlp_bias ? LAYER_BIAS : LAYER_PLAIN;

    if (!p)
        return NULL;
    p->act = c->activation;
    p->gate = layer_linear(m, "gate_proj", c->hidden, c->width, bias, DEVIATION,
                           ACCEL_ACT_NONE);
    p->up = layer_linear(m, "up_proj", c->hidden, c->width, bias, DEVIATION,
                         ACCEL_ACT_NONE);
    p->down = layer_linear(m, "down_proj", c->width, c->hidden, bias, DEVIATION,
                           ACCEL_ACT_NONE);
    return m;
}

/* The class name ends in "Layer": that makes each one a unit (wrap.c). */
static accel_module_t *decoder_new(accel_module_t *parent, const struct llama *root,
                                   int layer)
{
    const accel_llama_t *c = &root->cfg;
    struct layer_part *p;
    accel_module_t *m;
    char name[48];

    snprintf(name, sizeof(name), "model.layers.%d", layer);
    m = layer_new(parent, &layer_class, name);
    p = accel_module_state(m);
    if (!p)
        return NULL;
    p->norm = layer_rmsnorm(m, "input_layernorm", c->width, c->norm_eps);
    p->attention = attention_new(m, root, layer);
    p->norm2 = layer_rmsnorm(m, "post_attention_layernorm", c->width, c->norm_eps);
    p->mlp = mlp_new(m, c);
    return m;
}

/* Replaces the zeros of the config: as many key heads as heads, no wider than width. */
static accel_llama_t with_defaults(accel_llama_t c)
{
    if (!c.kv_heads)
        c.kv_heads = c.heads;
    if (!c.head_width && c.heads > 0)
        c.head_width = c.width / c.heads;
    if (!(c.norm_eps > 0))
        c.norm_eps = 1e-6f;
    if (c.activation == ACCEL_ACT_NONE)
        c.activation = ACCEL_ACT_SILU;
    return c;
}

/* After the defaults. 4 * heads * head_width stays below 2^31, as do the sizes made
 * from it. */
static accel_status_t llama_check(const accel_llama_t *c, accel_error_t *err)
{
    if (c->layers < 1 || c->heads < 1 || c->width < 1 || c->hidden < 1 ||
        c->vocab < 1 || c->context < 1 || c->head_width < 1 || c->kv_heads < 1 ||
        c->head_width > INT32_MAX / 4 / c->heads)
        return accel_fail(err, A0612, "use at least 1 for every size",
                          "llama: invalid sizes: layers %d, heads %d of %d, key heads "
                          "%d, width %d, hidden %d, vocab %d, context %d",
                          c->layers, c->heads, c->head_width, c->kv_heads, c->width,
                          c->hidden, c->vocab, c->context);
    if (c->heads % c->kv_heads)
        return accel_fail(
            err, A0612, "choose a number of heads that is a multiple of the key heads",
            "llama: %d heads are not a multiple of %d key heads", c->heads,
            c->kv_heads);
    if (c->head_width % 2)
        return accel_fail(err, A0612, "choose an even head width",
                          "llama: rotary positions need an even head width, not %d",
                          c->head_width);
    return ACCEL_OK;
}

/* Layers stand between `first` and `norm` among the children: root_forward walks them
 * there. A tied head is a second name of the embedding. */
static void build(accel_module_t *m, struct llama *r)
{
    const accel_llama_t *c = &r->cfg;

    r->tokens = layer_embedding(m, "model.embed_tokens", c->vocab, c->width, DEVIATION);
    r->first = decoder_new(m, r, 0);
    for (int i = 1; i < c->layers; i++)
        decoder_new(m, r, i);
    r->norm = layer_rmsnorm(m, "model.norm", c->width, c->norm_eps);
    if (!c->tied)
        r->head = layer_linear(m, "lm_head", c->vocab, c->width, LAYER_PLAIN, DEVIATION,
                               ACCEL_ACT_NONE);
    else
        accel_tie(m, "lm_head.weight", layer_weight(r->tokens));
}

/* An error of a builder stays in the graph; layer_tree looks for it at the end. */
accel_module_t *llama_new(struct graph *g, const accel_llama_t *cfg, accel_error_t *err)
{
    accel_llama_t c = cfg ? with_defaults(*cfg) : (accel_llama_t){ 0 };
    accel_module_t *m;
    struct llama *r;

    if (!cfg) {
        accel_fail(err, A0612, "pass a struct accel_llama",
                   "llama: the sizes are NULL");
        return NULL;
    }
    if (llama_check(&c, err))
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
    struct llama *r = accel_module_state(model);
    accel_tensor_t *y;

    r->cache = cache;
    y = accel_call(model, &ids, 1);
    r->cache = NULL;
    return y;
}

bool llama_causal(const accel_module_t *model, struct causal *causal_out)
{
    const accel_llama_t *c = llama_config(model);

    if (!c)
        return false;
    *causal_out = (struct causal){ .vocab = c->vocab,
                                   .context = c->context,
                                   .layers = c->layers,
                                   .kv_heads = c->kv_heads,
                                   .head_width = c->head_width,
                                   .logits = logits };
    return true;
}

const accel_llama_t *llama_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct llama *)model->state)->cfg;
}
