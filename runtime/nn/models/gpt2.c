/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2: embedding, blocks of attention and MLP with pre-normalisation, tied head.
 * Parameters are named as in Hugging Face's checkpoints; linear weights are [out, in].
 */
#include <math.h>
#include <stdio.h>

#include "nn/models/gpt2.h"
#include "ops/ops.h"

#define NORM_EPS 1e-5f

struct pair { /* weight and bias of a leaf */
    accel_tensor_t *weight, *bias;
    accel_activation_t act;
};

struct table {
    accel_tensor_t *weight;
};

struct children { /* of the inner modules, in the order of the forward */
    accel_module_t *part[4];
    int heads, layer;
};

struct root {
    accel_gpt2_t cfg;
    accel_module_t *wte, *wpe, *norm;
    accel_kv_t *cache; /* during gpt2_logits */
};

static accel_tensor_t *norm_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct pair *p = accel_module_state(m);

    return n == 1 ? accel_layernorm(in[0], p->weight, p->bias, NORM_EPS) : NULL;
}

static accel_tensor_t *linear_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    struct pair *p = accel_module_state(m);

    return n == 1 ? accel_linear(in[0], p->weight, p->bias, p->act) : NULL;
}

static accel_tensor_t *table_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct table *t = accel_module_state(m);

    return n == 1 ? accel_embedding(in[0], t->weight, NULL) : NULL;
}

static accel_tensor_t *attention_forward(accel_module_t *m, accel_tensor_t *const *in,
                                         int n)
{
    struct children *c = accel_module_state(m);
    const struct root *r = accel_module_state(m->parent->parent);
    accel_attention_t o = {
        .heads = c->heads, .causal = 1, .cache = r->cache, .layer = c->layer
    };
    accel_tensor_t *x = n == 1 ? accel_call(c->part[0], in, 1) : NULL;

    x = accel_attention(x, NULL, NULL, &o);
    return accel_call(c->part[1], &x, 1);
}

static accel_tensor_t *mlp_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct children *c = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? accel_call(c->part[0], in, 1) : NULL;

    return accel_call(c->part[1], &x, 1);
}

static accel_tensor_t *block_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct children *c = accel_module_state(m);
    accel_tensor_t *x = n == 1 ? in[0] : NULL, *y;

    y = accel_call(c->part[0], &x, 1);
    y = accel_call(c->part[1], &y, 1);
    x = accel_add(x, y);
    y = accel_call(c->part[2], &x, 1);
    y = accel_call(c->part[3], &y, 1);
    return accel_add(x, y);
}

static accel_tensor_t *root_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct root *r = accel_module_state(m);
    struct table *wte = accel_module_state(r->wte), *wpe = accel_module_state(r->wpe);
    accel_tensor_t *x;

    if (n < 1 || n > 2)
        return graph_fail(m->g, A0605, "gpt2", "pass {ids, targets}",
                          "the model takes 1 or 2 inputs, not %d", n);
    x = op_embedding(in[0], wte->weight, wpe->weight, accel_kv_length(r->cache));
    for (accel_module_t *c = r->wpe->next; c != r->norm; c = c->next)
        x = accel_call(c, &x, 1);
    x = accel_call(r->norm, &x, 1);
    return n == 2 ? accel_cross_entropy(x, wte->weight, NULL, in[1], NULL)
                  : op_last_logits(x, wte->weight);
}

static const accel_class_t norm_class = { "LayerNorm", norm_forward,
                                          sizeof(struct pair) };
static const accel_class_t linear_class = { "Linear", linear_forward,
                                            sizeof(struct pair) };
static const accel_class_t table_class = { "Embedding", table_forward,
                                           sizeof(struct table) };
static const accel_class_t attention_class = { "GPT2Attention", attention_forward,
                                               sizeof(struct children) };
static const accel_class_t mlp_class = { "GPT2MLP", mlp_forward,
                                         sizeof(struct children) };
static const accel_class_t block_class = { "GPT2Block", block_forward,
                                           sizeof(struct children) };
static const accel_class_t root_class = { "GPT2", root_forward, sizeof(struct root) };

/* The builders give NULL after the first failure, which stays in g->error. */
static accel_module_t *norm_new(accel_module_t *parent, const char *name, int64_t width)
{
    accel_module_t *m =
        parent ? nn_module_new(parent->g, &norm_class, parent, name) : NULL;
    struct pair *p = accel_module_state(m);

    if (!p)
        return NULL;
    p->weight =
        accel_param(m, "weight", 1, &width, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    p->bias = accel_param(m, "bias", 1, &width, (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    return m;
}

static accel_module_t *linear_new(accel_module_t *parent, const char *name, int64_t out,
                                  int64_t in, float deviation, accel_activation_t act)
{
    accel_module_t *m =
        parent ? nn_module_new(parent->g, &linear_class, parent, name) : NULL;
    struct pair *p = accel_module_state(m);

    if (!p)
        return NULL;
    p->weight = accel_param(m, "weight", 2, (int64_t[]){ out, in },
                            (accel_init_t){ ACCEL_INIT_NORMAL, deviation });
    p->bias = accel_param(m, "bias", 1, &out, (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    p->act = act;
    return m;
}

static accel_module_t *table_new(accel_module_t *parent, const char *name, int64_t rows,
                                 int64_t width)
{
    accel_module_t *m = nn_module_new(parent->g, &table_class, parent, name);
    struct table *t = accel_module_state(m);

    if (t)
        t->weight = accel_param(m, "weight", 2, (int64_t[]){ rows, width },
                                (accel_init_t){ ACCEL_INIT_NORMAL, 0.02f });
    return m;
}

static accel_module_t *pair_new(accel_module_t *parent, const accel_class_t *cls,
                                const char *name, struct children **state)
{
    accel_module_t *m = parent ? nn_module_new(parent->g, cls, parent, name) : NULL;

    *state = accel_module_state(m);
    return m;
}

static void block_new(accel_module_t *root, const accel_gpt2_t *cfg, int index)
{
    /* Each block adds twice to the residual stream: keep its variance at the start. */
    float residual = 0.02f / sqrtf(2.0f * (float)cfg->layers);
    int64_t c = cfg->width;
    struct children *block, *attention, *mlp;
    accel_module_t *m, *sub;
    char name[32];

    snprintf(name, sizeof(name), "h.%d", index);
    m = pair_new(root, &block_class, name, &block);
    if (!m)
        return;
    block->part[0] = norm_new(m, "ln_1", c);
    block->part[1] = sub = pair_new(m, &attention_class, "attn", &attention);
    if (sub) {
        attention->heads = cfg->heads;
        attention->layer = index;
        attention->part[0] = linear_new(sub, "c_attn", 3 * c, c, 0.02f, ACCEL_ACT_NONE);
        attention->part[1] = linear_new(sub, "c_proj", c, c, residual, ACCEL_ACT_NONE);
    }
    block->part[2] = norm_new(m, "ln_2", c);
    block->part[3] = sub = pair_new(m, &mlp_class, "mlp", &mlp);
    if (sub) {
        mlp->part[0] = linear_new(sub, "c_fc", 4 * c, c, 0.02f, ACCEL_ACT_GELU);
        mlp->part[1] = linear_new(sub, "c_proj", c, 4 * c, residual, ACCEL_ACT_NONE);
    }
}

static accel_status_t check(const accel_gpt2_t *cfg, accel_error_t *err)
{
    if (!cfg)
        return accel_fail(err, A0612, "pass a struct accel_gpt2",
                          "gpt2: no sizes given");
    if (cfg->layers < 1 || cfg->heads < 1 || cfg->width < 1 || cfg->context < 1 ||
        cfg->vocab < 1 || cfg->width > INT32_MAX / 4)
        return accel_fail(err, A0612, "every size must be at least 1",
                          "gpt2: layers %d, heads %d, width %d, context %d, vocab %d",
                          cfg->layers, cfg->heads, cfg->width, cfg->context,
                          cfg->vocab);
    if (cfg->width % cfg->heads)
        return accel_fail(err, A0612, "choose a multiple of the heads",
                          "gpt2: width %d cannot be cut into %d heads", cfg->width,
                          cfg->heads);
    if (cfg->resid_dropout != 0 || cfg->embd_dropout != 0 || cfg->attn_dropout != 0 ||
        (cfg->norm_eps != 0 && cfg->norm_eps != NORM_EPS) ||
        (cfg->hidden && cfg->hidden != 4 * cfg->width) ||
        (cfg->activation && cfg->activation != ACCEL_ACT_GELU))
        return accel_fail(err, A0606, "leave these members 0",
                          "gpt2: dropout, another epsilon, hidden width or activation");
    return ACCEL_OK;
}

accel_module_t *gpt2_new(struct graph *g, const accel_gpt2_t *cfg, accel_error_t *err)
{
    accel_module_t *m;
    struct root *r;

    if (check(cfg, err))
        return NULL;
    m = nn_module_new(g, &root_class, NULL, "");
    r = accel_module_state(m);
    if (r) {
        r->cfg = *cfg;
        r->wte = table_new(m, "wte", cfg->vocab, cfg->width);
        r->wpe = table_new(m, "wpe", cfg->context, cfg->width);
        for (int i = 0; i < cfg->layers; i++)
            block_new(m, cfg, i);
        r->norm = norm_new(m, "ln_f", cfg->width);
    }
    if (g->error.code) {
        if (err)
            *err = g->error;
        nn_module_free(m);
        return NULL;
    }
    return m;
}

static accel_tensor_t *gpt2_logits(accel_module_t *m, accel_tensor_t *ids,
                                   accel_kv_t *cache)
{
    struct root *r = accel_module_state(m);
    accel_tensor_t *y;

    r->cache = cache;
    y = accel_call(m, &ids, 1);
    r->cache = NULL;
    return y;
}

bool gpt2_causal(const accel_module_t *model, struct causal *out)
{
    const struct root *r = model ? model->state : NULL;

    if (!model || model->cls != &root_class)
        return false;
    *out = (struct causal){ .vocab = r->cfg.vocab,
                            .context = r->cfg.context,
                            .layers = r->cfg.layers,
                            .kv_heads = r->cfg.heads,
                            .head_width = r->cfg.width / r->cfg.heads,
                            .logits = gpt2_logits };
    return true;
}

const accel_gpt2_t *gpt2_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct root *)model->state)->cfg;
}
