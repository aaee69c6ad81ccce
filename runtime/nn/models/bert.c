/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT: an encoder with normalisation after each part, and learned positions and
 * segments. Devlin et al., "BERT" (2019). Heads for masked words and for classes of a
 * sequence. B: sequences, T: positions, C: width.
 */
#include "nn/models/bert.h"

#include <stdio.h>

#include "nn/models/layers.h"
#include "ops/ops.h"

#define DEVIATION 0.02f /* of initial weights: initializer_range of config.json */

/* One encoder layer; `attended` is the projection behind the heads. */
struct layer_part {
    accel_module_t *query, *key, *value, *attended, *norm, *up, *down, *norm2;
    const accel_bert_t *cfg;
};

/* State of the root module. */
struct bert {
    accel_bert_t cfg;
    accel_module_t *words, *positions, *types, *norm, *first, *last;
    /* head for masked words: dense and norm, and the bias of each word */
    accel_module_t *transform, *transform_norm;
    accel_tensor_t *bias;
    /* head for classes */
    accel_module_t *pooler, *classifier;
};

/* in: x [B, T, C], mask int32 [B, T] (0: the position is padding). Residuals are added
 * before the norm (post-normalisation), unlike GPT-2. */
static accel_tensor_t *layer_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct layer_part *p = accel_module_state(m);
    const accel_bert_t *c = p->cfg;
    accel_tensor_t *x = n == 2 ? in[0] : NULL, *y;
    const accel_attention_t o = { .heads = c->heads,
                                  .mask = n == 2 ? in[1] : NULL,
                                  .dropout = c->attn_dropout };

    y = accel_attention(layer_call(p->query, x), layer_call(p->key, x),
                        layer_call(p->value, x), &o);
    y = accel_dropout(layer_call(p->attended, y), c->hidden_dropout);
    x = layer_call(p->norm, accel_add(x, y));
    y = layer_call(p->down, layer_call(p->up, x));
    y = accel_dropout(y, c->hidden_dropout);
    return layer_call(p->norm2, accel_add(x, y));
}

/* The mean loss of masked words, or with targets NULL their logits [B, T, vocab]. The
 * output weight is that of the word embedding (tied). */
static accel_tensor_t *masked_lm(const struct bert *r, accel_tensor_t *x,
                                 accel_tensor_t *targets)
{
    accel_tensor_t *words = layer_weight(r->words);

    x = layer_call(r->transform_norm, layer_call(r->transform, x));
    return targets ? accel_cross_entropy(x, words, r->bias, targets, NULL)
                   : accel_linear(x, words, r->bias, ACCEL_ACT_NONE);
}

/* The mean loss of the labels [B], or with labels NULL the logits [B, labels]. Position
 * 0 ([CLS]) speaks for the whole sequence. */
static accel_tensor_t *classify(const struct bert *r, accel_tensor_t *x,
                                accel_tensor_t *labels)
{
    const int64_t dims[] = { -1, r->cfg.width };

    x = accel_reshape(accel_slice(x, 1, 0, 1), 2, dims);
    x = accel_dropout(layer_call(r->pooler, x), r->cfg.classifier_dropout);
    x = layer_call(r->classifier, x);
    return labels ? accel_cross_entropy(x, NULL, NULL, labels, NULL) : x;
}

/* in: ids, types and mask, int32 [B, T]; with a head the targets too, int32 [B, T] for
 * masked words, [B] for classes. Without a head the result is [B, T, C]. */
static accel_tensor_t *root_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct bert *r = accel_module_state(m);
    accel_tensor_t *x, *labels = n == 4 ? in[3] : NULL;

    if (n < 3 || n > 4 || (n == 4 && r->cfg.head == ACCEL_BERT_NONE))
        return graph_fail(m->g, A0605, "bert",
                          "pass {ids, types, mask}, and with a head the targets",
                          "the model does not take %d inputs", n);
    x = accel_embedding(in[0], layer_weight(r->words), layer_weight(r->positions));
    x = accel_add(x, layer_call(r->types, in[1]));
    x = accel_dropout(layer_call(r->norm, x), r->cfg.hidden_dropout);
    for (accel_module_t *c = r->first;; c = c->next) {
        x = accel_call(c, (accel_tensor_t *[]){ x, in[2] }, 2);
        if (c == r->last)
            break;
    }
    if (r->cfg.head == ACCEL_BERT_MASKED_LM)
        return masked_lm(r, x, labels);
    return r->cfg.head == ACCEL_BERT_CLASSIFY ? classify(r, x, labels) : x;
}

static const accel_class_t layer_class = { "BertLayer", layer_forward,
                                           sizeof(struct layer_part) };
static const accel_class_t root_class = { "BertModel", root_forward,
                                          sizeof(struct bert) };

/* Every linear layer of BERT has a bias. */
static accel_module_t *dense(accel_module_t *parent, const char *name, int64_t out,
                             int64_t in, accel_activation_t act)
{
    return layer_linear(parent, name, out, in, LAYER_BIAS, DEVIATION, act);
}

/* Names below the layer hold dots, as in Hugging Face's files; there is no module for
 * "attention" or "output" alone. */
static accel_module_t *encoder_new(accel_module_t *root, const accel_bert_t *c,
                                   int layer)
{
    int64_t w = c->width;
    struct layer_part *p;
    accel_module_t *m;
    char name[48];

    snprintf(name, sizeof(name), "bert.encoder.layer.%d", layer);
    m = layer_new(root, &layer_class, name);
    p = accel_module_state(m);
    if (!p)
        return NULL;
    p->cfg = c;
    p->query = dense(m, "attention.self.query", w, w, ACCEL_ACT_NONE);
    p->key = dense(m, "attention.self.key", w, w, ACCEL_ACT_NONE);
    p->value = dense(m, "attention.self.value", w, w, ACCEL_ACT_NONE);
    p->attended = dense(m, "attention.output.dense", w, w, ACCEL_ACT_NONE);
    p->norm = layer_layernorm(m, "attention.output.LayerNorm", w, c->norm_eps);
    p->up = dense(m, "intermediate.dense", c->hidden, w, c->activation);
    p->down = dense(m, "output.dense", w, c->hidden, ACCEL_ACT_NONE);
    p->norm2 = layer_layernorm(m, "output.LayerNorm", w, c->norm_eps);
    return m;
}

/* The head that the config asks for, if any. The tied names are those under which
 * Hugging Face stores the decoder. */
static void heads_new(accel_module_t *m, struct bert *r)
{
    const accel_bert_t *c = &r->cfg;
    int64_t w = c->width, vocab = c->vocab;

    if (c->head == ACCEL_BERT_MASKED_LM) {
        r->transform = dense(m, "cls.predictions.transform.dense", w, w, c->activation);
        r->transform_norm =
            layer_layernorm(m, "cls.predictions.transform.LayerNorm", w, c->norm_eps);
        r->bias = accel_param(m, "cls.predictions.bias", 1, &vocab,
                              (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
        accel_tie(m, "cls.predictions.decoder.weight", layer_weight(r->words));
        accel_tie(m, "cls.predictions.decoder.bias", r->bias);
    }
    if (c->head == ACCEL_BERT_CLASSIFY) {
        r->pooler = dense(m, "bert.pooler.dense", w, w, ACCEL_ACT_TANH);
        r->classifier = dense(m, "classifier", c->labels, w, ACCEL_ACT_NONE);
    }
}

/* The encoder layers are children of the root one after the other: root_forward walks
 * them from `first` to `last`. */
static void build(accel_module_t *m, struct bert *r)
{
    const accel_bert_t *c = &r->cfg;

    r->words = layer_embedding(m, "bert.embeddings.word_embeddings", c->vocab, c->width,
                               DEVIATION);
    r->positions = layer_embedding(m, "bert.embeddings.position_embeddings", c->context,
                                   c->width, DEVIATION);
    r->types = layer_embedding(m, "bert.embeddings.token_type_embeddings", c->types,
                               c->width, DEVIATION);
    r->norm = layer_layernorm(m, "bert.embeddings.LayerNorm", c->width, c->norm_eps);
    r->first = r->last = encoder_new(m, c, 0);
    for (int i = 1; i < c->layers; i++)
        r->last = encoder_new(m, c, i);
    heads_new(m, r);
}

/* Replaces the zeros of the config; norm_eps is BERT's 1e-12. */
static accel_bert_t with_defaults(accel_bert_t c)
{
    if (!c.types)
        c.types = 2;
    if (!c.labels)
        c.labels = 2;
    if (!(c.norm_eps > 0))
        c.norm_eps = 1e-12f;
    if (c.activation == ACCEL_ACT_NONE)
        c.activation = ACCEL_ACT_GELU_ERF;
    return c;
}

/* After the defaults: what is still not positive was given wrongly. */
static accel_status_t bert_check(const accel_bert_t *c, accel_error_t *err)
{
    if (c->layers < 1 || c->heads < 1 || c->width < 1 || c->hidden < 1 ||
        c->vocab < 1 || c->context < 1 || c->types < 1 || c->labels < 1)
        return accel_fail(err, A0612, "use at least 1 for every size",
                          "bert: invalid sizes: layers %d, heads %d, width %d, hidden "
                          "%d, vocab %d, context %d, types %d, labels %d",
                          c->layers, c->heads, c->width, c->hidden, c->vocab,
                          c->context, c->types, c->labels);
    if (c->width % c->heads)
        return accel_fail(err, A0612, "choose a width that is a multiple of the heads",
                          "bert: width %d is not a multiple of %d heads", c->width,
                          c->heads);
    return ACCEL_OK;
}

/* An error of a builder stays in the graph; layer_tree looks for it at the end. */
accel_module_t *bert_new(struct graph *g, const accel_bert_t *cfg, accel_error_t *err)
{
    accel_bert_t c = cfg ? with_defaults(*cfg) : (accel_bert_t){ 0 };
    accel_module_t *m;
    struct bert *r;

    if (!cfg) {
        accel_fail(err, A0612, "pass a struct accel_bert", "bert: the sizes are NULL");
        return NULL;
    }
    if (bert_check(&c, err))
        return NULL;
    m = nn_module_new(g, &root_class, NULL, "");
    r = accel_module_state(m);
    if (r) {
        r->cfg = c;
        build(m, r);
    }
    return layer_tree(g, m, err);
}

const accel_bert_t *bert_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct bert *)model->state)->cfg;
}
