/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT: an encoder with normalisation after each part, and learned positions and
 * segments. Devlin et al., "BERT" (2019). Heads for masked words and for classes of a
 * sequence. B: sequences, T: positions, C: width.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "models/blocks.h"
#include "models/family.h"
#include "ops/ops.h"

/* State of the root module. */
struct bert {
    accel_model_config_t cfg;
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

    if (n < 3 || n > 4 || (n == 4 && r->cfg.head == ACCEL_HEAD_BASE))
        return graph_fail(m->g, A0605, "bert",
                          "pass {ids, types, mask}, and with a head the targets",
                          "the model does not take %d inputs", n);
    x = accel_embedding(in[0], layer_weight(r->words), layer_weight(r->positions));
    x = accel_add(x, layer_call(r->types, in[1]));
    x = accel_dropout(layer_call(r->norm, x), r->cfg.resid_dropout);
    x = blocks_call(&r->layers, x, in[2]);
    if (r->cfg.head == ACCEL_HEAD_MASKED_LM)
        return bert_masked_lm(r, x, labels);
    return r->cfg.head == ACCEL_HEAD_CLASSIFY ? bert_classify(r, x, labels) : x;
}

LAYER_CLASS(root_class, "BertModel", bert_forward, sizeof(struct bert));
LAYER_CLASS(layer_class, "BertLayer", block_forward, sizeof(struct block));

/* Every linear layer of BERT has a bias. */
static accel_module_t *bert_dense(accel_module_t *parent, const char *name, int64_t out,
                                  int64_t in, accel_activation_t act)
{
    return layer_linear(parent, name, out, in, LAYER_BIAS, LAYER_DEVIATION, act);
}

/* Names below the layer hold dots, as in Hugging Face's files; there is no module for
 * "attention" or "output" alone. */
static const struct block_table layers = {
    .cls = &layer_class,
    .path = "bert.encoder.layer.",
    .masked = true,
    .post_norm = true,
    .norm = layer_layernorm,
    .norms = { "attention.output.LayerNorm", "output.LayerNorm" },
    .attention = { .q = "attention.self.query",
                   .k = "attention.self.key",
                   .v = "attention.self.value",
                   .out = "attention.output.dense",
                   .qkv_bias = LAYER_BIAS,
                   .out_bias = LAYER_BIAS,
                   .values_first = true },
    .mlp = { .up = "intermediate.dense", .down = "output.dense", .bias = LAYER_BIAS },
};

/* The head that the config asks for, if any. The tied names are those under which
 * Hugging Face stores the decoder. */
static void bert_heads_new(accel_module_t *m, struct bert *r)
{
    const accel_model_config_t *c = &r->cfg;
    int64_t w = c->width, vocab = c->vocab;

    if (c->head == ACCEL_HEAD_MASKED_LM) {
        r->transform =
            bert_dense(m, "cls.predictions.transform.dense", w, w, c->activation);
        r->transform_norm =
            layer_layernorm(m, "cls.predictions.transform.LayerNorm", w, c->norm_eps);
        r->bias = accel_param(m, "cls.predictions.bias", 1, &vocab,
                              (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
        accel_tie(m, "cls.predictions.decoder.weight", layer_weight(r->words));
        accel_tie(m, "cls.predictions.decoder.bias", r->bias);
    }
    if (c->head == ACCEL_HEAD_CLASSIFY) {
        r->pooler = bert_dense(m, "bert.pooler.dense", w, w, ACCEL_ACT_TANH);
        r->classifier = bert_dense(m, "classifier", c->labels, w, ACCEL_ACT_NONE);
    }
}

static void bert_fill(accel_model_config_t *c)
{
    if (!c->types)
        c->types = 2;
    if (!c->labels)
        c->labels = 2;
}

static void bert_modules_new(accel_module_t *m, struct bert *r)
{
    const accel_model_config_t *c = &r->cfg;

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

/* The layers' sizes are checked with their table, the others here. An error of a
 * builder stays in the graph; layer_tree looks for it at the end. */
static accel_module_t *bert_build(struct graph *g, const struct model_family *f,
                                  accel_model_config_t *c, accel_error_t *err)
{
    const struct layer_size sizes[] = {
        { "vocab", c->vocab },
        { "context", c->context },
        { "types", c->types },
        { "labels", c->labels },
    };
    accel_module_t *m;
    struct bert *r;

    if (blocks_check(f->blocks, c, err) ||
        layer_sizes_check(f->type, sizes, ACCEL_ARRAY_SIZE(sizes), err))
        return NULL;
    m = nn_module_new(g, f->root, NULL, "");
    r = accel_module_state(m);
    if (r) {
        r->cfg = *c;
        r->layers = (struct blocks){ .table = f->blocks, .config = &r->cfg };
        bert_modules_new(m, r);
    }
    return layer_tree(g, m, err);
}

/* ---- config.json ----------------------------------------------------------------- */

static const struct model_key keys[] = {
    MODEL_KEY("num_hidden_layers", MODEL_SIZE, layers, 12),
    MODEL_KEY("num_attention_heads", MODEL_SIZE, heads, 12),
    MODEL_KEY("hidden_size", MODEL_SIZE, width, 768),
    MODEL_KEY("intermediate_size", MODEL_SIZE, hidden, 3072),
    MODEL_KEY("vocab_size", MODEL_SIZE, vocab, 30522),
    MODEL_KEY("max_position_embeddings", MODEL_SIZE, context, 512),
    MODEL_KEY("type_vocab_size", MODEL_SIZE, types, 2),
    MODEL_KEY("layer_norm_eps", MODEL_EPS, norm_eps, 1e-12),
    MODEL_KEY("hidden_dropout_prob", MODEL_DROPOUT, resid_dropout, 0.1),
    MODEL_KEY("attention_probs_dropout_prob", MODEL_DROPOUT, attn_dropout, 0.1),
    /* null means the dropout of the hidden layers */
    MODEL_KEY("classifier_dropout", MODEL_DROPOUT, classifier_dropout, 0,
              .like = offsetof(accel_model_config_t, resid_dropout)),
    MODEL_KEY("hidden_act", MODEL_ACTIVATION, activation, 0, .word = "gelu"),
    /* relative positions would need another attention */
    { .key = "position_embedding_type",
      .kind = MODEL_ONLY_WORD,
      .word = "absolute",
      .written = true,
      .cure = "use a model with absolute positions" },
    { .key = "is_decoder", .kind = MODEL_ONLY },
    { .key = "add_cross_attention", .kind = MODEL_ONLY },
    { .key = "tie_word_embeddings",
      .kind = MODEL_ONLY,
      .otherwise = true,
      .written = true,
      .head = ACCEL_HEAD_MASKED_LM,
      .cure = "use a model whose head is tied to its embedding" },
    { .key = NULL },
};

/* The labels of a classifier. */
static void bert_read(struct hf_json *j, accel_model_config_t *c)
{
    const char *problem;

    if (c->head == ACCEL_HEAD_CLASSIFY) {
        /* transformers makes new names where there are not num_labels of them */
        c->labels = hf_json_members(j, "id2label");
        c->labels = hf_json_size(j, "num_labels", c->labels ? c->labels : 2);
        problem = hf_json_text(j, "problem_type", "single_label_classification");
        /* several labels per sequence would need another loss */
        if (strcmp(problem, "single_label_classification") != 0)
            hf_json_refuse(j, "problem_type", "use a model of one label per sequence");
        /* one label would mean regression, another loss */
        if (!j->status && c->labels < 2)
            hf_json_refuse(j, hf_json_has(j, "num_labels") ? "num_labels" : "id2label",
                           "one label means regression; use two or more");
    }
    hf_json_multiple(j, "hidden_size", c->width, "num_attention_heads", c->heads);
}

/* id2label, {"0": "LABEL_0", ...}: transformers takes the number of labels from it.
 * Without it, it would build a head of two. */
static void bert_write(json_t *o, const accel_model_config_t *c)
{
    json_t *labels = c->head == ACCEL_HEAD_CLASSIFY ? json_object() : NULL;
    char key[16], value[32];

    for (int i = 0; labels && i < c->labels; i++) {
        snprintf(key, sizeof(key), "%d", i);
        snprintf(value, sizeof(value), "LABEL_%d", i);
        json_object_set_new(labels, key, json_string(value));
    }
    json_object_set_new(o, "id2label", labels);
}

/* ---- the row --------------------------------------------------------------------- */

#define SIZES(l, h, w, words)                                                          \
    {                                                                                  \
        .layers = l, .heads = h, .width = w, .hidden = 4 * w, .vocab = words,          \
        .context = 512, .types = 2, .norm_eps = 1e-12f, .head = ACCEL_HEAD_MASKED_LM   \
    }

static const struct model_preset presets[] = {
    { "bert-base-uncased", SIZES(12, 12, 768, 30522) },
    { "bert-base-cased", SIZES(12, 12, 768, 28996) },
    { "bert-large-uncased", SIZES(24, 16, 1024, 30522) },
    { "bert-large-cased", SIZES(24, 16, 1024, 28996) },
    { .name = NULL },
};

/* Heads and pooler may be missing: pre-trained files are the usual start for a new
 * classifier. */
const struct model_family bert_family = {
    .type = "bert",
    .word = "bert",
    .example = "bert-base-uncased",
    .architectures = { { "BertModel", ACCEL_HEAD_BASE },
                       { "BertForMaskedLM", ACCEL_HEAD_MASKED_LM },
                       { "BertForPreTraining", ACCEL_HEAD_MASKED_LM },
                       { "BertForSequenceClassification", ACCEL_HEAD_CLASSIFY } },
    .keys = keys,
    .presets = presets,
    .names = { .prefix = "bert.",
               .params_have_it = true,
               .heads = { "cls.", "classifier." },
               .optional = { "cls.", "classifier.", "pooler." },
               .buffers = { "embeddings.position_ids" },
               .tied = { { "cls.predictions.decoder.weight",
                           "embeddings.word_embeddings.weight" },
                         { "cls.predictions.decoder.bias", "cls.predictions.bias" } },
               .gamma = true },
    .root = &root_class,
    .blocks = &layers,
    .inputs = 4,
    .hidden_per_width = 4,
    .fill = bert_fill,
    .read = bert_read,
    .write = bert_write,
    .build = bert_build,
};
