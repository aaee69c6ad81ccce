/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT: an encoder with normalisation after each part, and learned positions and
 * segments. Devlin et al., "BERT" (2019). Heads for masked words and for classes of a
 * sequence. B: sequences, T: positions, C: width.
 */
#include "models/bert.h"

#include "models/blocks.h"
#include "ops/ops.h"

/* State of the root module. */
struct bert {
    accel_bert_t cfg;
    struct blocks layers;
    accel_module_t *words, *positions, *types, *norm;
    /* head for masked words: dense and norm, and the bias of each word */
    accel_module_t *transform, *transform_norm;
    accel_tensor_t *bias;
    /* head for classes */
    accel_module_t *pooler, *classifier;
};

/* The mean loss of masked words, or with targets NULL their logits [B, T, vocab]. The
 * output weight is that of the word embedding (tied). */
static accel_tensor_t *bert_masked_lm(const struct bert *r, accel_tensor_t *x,
                                      accel_tensor_t *targets)
{
    accel_tensor_t *words = layer_weight(r->words);

    x = layer_call(r->transform_norm, layer_call(r->transform, x));
    return targets ? accel_cross_entropy(x, words, r->bias, targets, NULL)
                   : accel_linear(x, words, r->bias, ACCEL_ACT_NONE);
}

/* The mean loss of the labels [B], or with labels NULL the logits [B, labels]. Position
 * 0 ([CLS]) speaks for the whole sequence. */
static accel_tensor_t *bert_classify(const struct bert *r, accel_tensor_t *x,
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
static accel_tensor_t *bert_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
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
    x = blocks_call(&r->layers, x, in[2]);
    if (r->cfg.head == ACCEL_BERT_MASKED_LM)
        return bert_masked_lm(r, x, labels);
    return r->cfg.head == ACCEL_BERT_CLASSIFY ? bert_classify(r, x, labels) : x;
}

static const accel_class_t root_class = { "BertModel", bert_forward,
                                          sizeof(struct bert) };
static const accel_class_t layer_class = { "BertLayer", block_forward,
                                           sizeof(struct block) };

/* Every linear layer of BERT has a bias. */
static accel_module_t *bert_dense(accel_module_t *parent, const char *name, int64_t out,
                                  int64_t in, accel_activation_t act)
{
    return layer_linear(parent, name, out, in, LAYER_BIAS, LAYER_DEVIATION, act);
}

/* Names below the layer hold dots, as in Hugging Face's files; there is no module for
 * "attention" or "output" alone. */
static struct block_table bert_layers(const accel_bert_t *c)
{
    return (struct block_table){
        .cls = &layer_class,
        .path = "bert.encoder.layer.",
        .layers = c->layers,
        .width = c->width,
        .hidden = c->hidden,
        .heads = c->heads,
        .masked = true,
        .post_norm = true,
        .norm = layer_layernorm,
        .norms = { "attention.output.LayerNorm", "output.LayerNorm" },
        .norm_eps = c->norm_eps,
        .attn_dropout = c->attn_dropout,
        .resid_dropout = c->hidden_dropout,
        .attention = { .q = "attention.self.query",
                       .k = "attention.self.key",
                       .v = "attention.self.value",
                       .out = "attention.output.dense",
                       .qkv_bias = LAYER_BIAS,
                       .out_bias = LAYER_BIAS,
                       .values_first = true },
        .mlp = { .up = "intermediate.dense",
                 .down = "output.dense",
                 .bias = LAYER_BIAS,
                 .act = c->activation },
    };
}

/* The head that the config asks for, if any. The tied names are those under which
 * Hugging Face stores the decoder. */
static void bert_heads_new(accel_module_t *m, struct bert *r)
{
    const accel_bert_t *c = &r->cfg;
    int64_t w = c->width, vocab = c->vocab;

    if (c->head == ACCEL_BERT_MASKED_LM) {
        r->transform =
            bert_dense(m, "cls.predictions.transform.dense", w, w, c->activation);
        r->transform_norm =
            layer_layernorm(m, "cls.predictions.transform.LayerNorm", w, c->norm_eps);
        r->bias = accel_param(m, "cls.predictions.bias", 1, &vocab,
                              (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
        accel_tie(m, "cls.predictions.decoder.weight", layer_weight(r->words));
        accel_tie(m, "cls.predictions.decoder.bias", r->bias);
    }
    if (c->head == ACCEL_BERT_CLASSIFY) {
        r->pooler = bert_dense(m, "bert.pooler.dense", w, w, ACCEL_ACT_TANH);
        r->classifier = bert_dense(m, "classifier", c->labels, w, ACCEL_ACT_NONE);
    }
}

static void bert_build(accel_module_t *m, struct bert *r)
{
    const accel_bert_t *c = &r->cfg;

    r->words = layer_embedding(m, "bert.embeddings.word_embeddings", c->vocab, c->width,
                               LAYER_DEVIATION);
    r->positions = layer_embedding(m, "bert.embeddings.position_embeddings", c->context,
                                   c->width, LAYER_DEVIATION);
    r->types = layer_embedding(m, "bert.embeddings.token_type_embeddings", c->types,
                               c->width, LAYER_DEVIATION);
    r->norm = layer_layernorm(m, "bert.embeddings.LayerNorm", c->width, c->norm_eps);
    blocks_new(m, &r->layers);
    bert_heads_new(m, r);
}

/* Replaces the zeros of the config; norm_eps is BERT's 1e-12. */
static accel_bert_t bert_defaults(accel_bert_t c)
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

/* The layers' sizes are checked with their table, the others here. An error of a
 * builder stays in the graph; layer_tree looks for it at the end. */
accel_module_t *bert_new(struct graph *g, const accel_bert_t *cfg, accel_error_t *err)
{
    accel_bert_t c = cfg ? bert_defaults(*cfg) : (accel_bert_t){ 0 };
    const struct layer_size sizes[] = {
        { "vocab", c.vocab },
        { "context", c.context },
        { "types", c.types },
        { "labels", c.labels },
    };
    struct block_table layers = bert_layers(&c);
    accel_module_t *m;
    struct bert *r;

    if (!cfg)
        return layer_unsized("bert", err);
    if (blocks_check("bert", &layers, err) ||
        layer_sizes_check("bert", sizes, ACCEL_ARRAY_SIZE(sizes), err))
        return NULL;
    m = nn_module_new(g, &root_class, NULL, "");
    r = accel_module_state(m);
    if (r) {
        r->cfg = c;
        r->layers.table = layers;
        bert_build(m, r);
    }
    return layer_tree(g, m, err);
}

const accel_bert_t *bert_config(const accel_module_t *model)
{
    if (!model || model->cls != &root_class)
        return NULL;
    return &((const struct bert *)model->state)->cfg;
}
