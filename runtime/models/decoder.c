/* SPDX-License-Identifier: Apache-2.0
 *
 * What all causal language models share (see decoder.h). In: the tables of a family.
 * Out: its tree, and its forward. Knows no model by name.
 */
#include "models/decoder.h"

#include <stdio.h>

#include "ops/ops.h"

/* Positions go on from the cache. Learned ones are added in the same op; otherwise the
 * blocks rotate by them. */
static accel_tensor_t *decoder_embed(const struct decoder *d, accel_tensor_t *ids)
{
    accel_dtype_t outer;
    accel_tensor_t *x;

    if (d->positions) {
        ids = nn_types_enter(d->tokens, ids, &outer);
        x = op_embedding(ids, layer_weight(d->tokens), layer_weight(d->positions),
                         accel_kv_length(d->blocks.cache));
        x = nn_types_leave(d->tokens, x, outer);
    } else {
        x = layer_call(d->tokens, ids);
    }
    return accel_dropout(x, d->config.embd_dropout);
}

/* A tied head is the embedding: its unit is gathered again for it. */
accel_tensor_t *decoder_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct decoder *d = accel_module_state(m);
    accel_module_t *head = d->head ? d->head : d->tokens;
    accel_dtype_t outer;
    accel_tensor_t *x;

    if (n < 1 || n > 2)
        return graph_fail(m->g, A0605, d->config.model_type, "pass {ids, targets}",
                          "the model takes 1 or 2 inputs, not %d", n);
    x = blocks_call(&d->blocks, decoder_embed(d, in[0]), NULL);
    x = nn_types_enter(head, layer_call(d->norm, x), &outer);
    /* losses and logits are float32 in any case */
    x = n == 2 ? accel_cross_entropy(x, layer_weight(head), NULL, in[1], NULL)
               : op_last_logits(x, layer_weight(head));
    nn_types_leave(head, NULL, outer);
    return x;
}

/* Modules are declared in the order of the forward. A tied head is a second name of
 * the embedding, where the model's files have one. */
static void decoder_build(accel_module_t *m, struct decoder *d)
{
    const struct decoder_table *t = d->table;
    const accel_model_config_t *c = &d->config;
    char name[64];

    d->tokens = layer_embedding(m, t->tokens, c->vocab, c->width, LAYER_DEVIATION);
    if (t->positions)
        d->positions =
            layer_embedding(m, t->positions, c->context, c->width, LAYER_DEVIATION);
    blocks_new(m, &d->blocks);
    d->norm = d->blocks.table->norm(m, t->norm, c->width, c->norm_eps);
    if (!t->tied && !c->tied) {
        d->head = layer_linear(m, t->head, c->vocab, c->width, LAYER_PLAIN,
                               LAYER_DEVIATION, ACCEL_ACT_NONE);
    } else if (t->head) {
        snprintf(name, sizeof(name), "%s.weight", t->head);
        accel_tie(m, name, layer_weight(d->tokens));
    }
}

/* An error of a builder stays in the graph; layer_tree looks for it at the end. */
accel_module_t *decoder_new(struct graph *g, const struct model_family *f,
                            accel_model_config_t *c, accel_error_t *err)
{
    const struct layer_size sizes[] = { { "vocab", c->vocab },
                                        { "context", c->context } };
    struct decoder *d;
    accel_module_t *m;

    if (blocks_check(f->blocks, c, err) ||
        layer_sizes_check(f->type, sizes, ACCEL_ARRAY_SIZE(sizes), err))
        return NULL;
    m = nn_module_new(g, f->root, NULL, "");
    d = accel_module_state(m);
    if (d) {
        d->config = *c;
        d->table = f->decoder;
        d->blocks = (struct blocks){ .table = f->blocks, .config = &d->config };
        decoder_build(m, d);
    }
    return layer_tree(g, m, err);
}

/* The cache is set for one call only, so that training never sees it. */
static accel_tensor_t *decoder_logits(accel_module_t *model, accel_tensor_t *ids,
                                      accel_kv_t *cache)
{
    struct decoder *d = accel_module_state(model);
    accel_tensor_t *y;

    d->blocks.cache = cache;
    y = accel_call(model, &ids, 1);
    d->blocks.cache = NULL;
    return y;
}

/* A decoder is known by its forward, whatever its class. */
bool decoder_causal(const accel_module_t *model, struct causal *causal_out)
{
    const struct decoder *d;

    if (!model || model->cls->forward != decoder_forward)
        return false;
    d = model->state;
    *causal_out = (struct causal){ .vocab = d->config.vocab,
                                   .context = d->config.context,
                                   .layers = d->config.layers,
                                   .kv_heads = d->config.kv_heads,
                                   .head_width = d->config.head_width,
                                   .logits = decoder_logits };
    return true;
}
