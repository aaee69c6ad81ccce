/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of gpt2, llama and bert: what is taken, what is refused and with which
 * words, what is written comes back; the table of published sizes.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/huggingface/hf_config.h"
#include "tests/tap.h"

#define GPT2                                                                           \
    "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":4,\"n_embd\":32,"                \
    "\"n_positions\":64,\"vocab_size\":97"
#define LLAMA                                                                          \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"      \
    "\"hidden_size\":32,\"intermediate_size\":48,\"vocab_size\":97,"                   \
    "\"max_position_embeddings\":64"
#define BERT                                                                           \
    "\"model_type\":\"bert\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"       \
    "\"hidden_size\":32,\"intermediate_size\":48,\"vocab_size\":97,"                   \
    "\"max_position_embeddings\":64"
#define LLAMA3                                                                         \
    "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"                 \
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192"

static accel_gpt2_t gpt2;
static accel_llama_t llama;
static accel_bert_t bert;

static accel_status_t parse(const char *text, accel_error_t *err)
{
    size_t n = strlen(text);

    memset(err, 0, sizeof(*err));
    memset(&gpt2, 0, sizeof(gpt2));
    memset(&llama, 0, sizeof(llama));
    memset(&bert, 0, sizeof(bert));
    if (strstr(text, "\"llama\""))
        return hf_llama_parse(text, n, "config.json", &llama, err);
    if (strstr(text, "\"bert\""))
        return hf_bert_parse(text, n, "config.json", &bert, err);
    return hf_gpt2_parse(text, n, "config.json", &gpt2, err);
}

static void test_gpt2(void)
{
    accel_error_t err;

    tap_is_int(parse("{" GPT2 "}", &err), ACCEL_OK, "gpt2: sizes alone %s", err.text);
    tap_ok(gpt2.layers == 2 && gpt2.heads == 4 && gpt2.width == 32 &&
               gpt2.context == 64 && gpt2.vocab == 97 && gpt2.hidden == 0,
           "its sizes");
    tap_ok(gpt2.resid_dropout == 0.1f && gpt2.embd_dropout == 0.1f &&
               gpt2.attn_dropout == 0.1f && gpt2.norm_eps == 1e-5f &&
               gpt2.activation == ACCEL_ACT_GELU,
           "the class's own values for what is absent");
    tap_is_int(parse("{" GPT2 ",\"n_inner\":50,\"resid_pdrop\":0,\"embd_pdrop\":0.25,"
                     "\"attn_pdrop\":0.5,\"layer_norm_epsilon\":1e-6,\"n_ctx\":7,"
                     "\"activation_function\":\"gelu\",\"summary_type\":{\"x\":[1]},"
                     "\"scale_attn_weights\":true,\"use_cache\":false}",
                     &err),
               ACCEL_OK, "gpt2: all of it %s", err.text);
    tap_ok(gpt2.hidden == 50 && gpt2.resid_dropout == 0 && gpt2.embd_dropout == 0.25f &&
               gpt2.attn_dropout == 0.5f && gpt2.norm_eps == 1e-6f &&
               gpt2.activation == ACCEL_ACT_GELU_ERF,
           "its values");
}

static void test_llama(void)
{
    accel_error_t err;

    tap_is_int(parse("{" LLAMA "}", &err), ACCEL_OK, "llama: sizes alone %s", err.text);
    tap_ok(llama.layers == 2 && llama.heads == 4 && llama.kv_heads == 4 &&
               llama.width == 32 && llama.head_width == 8 && llama.hidden == 48 &&
               llama.vocab == 97 && llama.context == 64 && !llama.tied &&
               llama.norm_eps == 1e-6f && llama.rope.theta == 10000 &&
               llama.rope.kind == ACCEL_ROPE_PLAIN && llama.attn_dropout == 0 &&
               llama.activation == ACCEL_ACT_SILU && !llama.attention_bias,
           "and the class's own values");
    tap_is_int(parse("{" LLAMA ",\"num_key_value_heads\":2,\"head_dim\":16,"
                     "\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,"
                     "\"tie_word_embeddings\":true,\"attention_bias\":true,"
                     "\"mlp_bias\":true,\"attention_dropout\":0.5,"
                     "\"rope_scaling\":{" LLAMA3 "}}",
                     &err),
               ACCEL_OK, "llama: all of it %s", err.text);
    tap_ok(llama.kv_heads == 2 && llama.head_width == 16 && llama.norm_eps == 1e-5f &&
               llama.rope.theta == 500000 && llama.rope.kind == ACCEL_ROPE_LLAMA3 &&
               llama.rope.factor == 8 && llama.rope.low_freq_factor == 1 &&
               llama.rope.high_freq_factor == 4 && llama.tied &&
               llama.rope.original_context == 8192 && llama.attention_bias &&
               llama.mlp_bias && llama.attn_dropout == 0.5f,
           "its values");
    tap_ok(!parse("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":2e5," LLAMA3 "}}",
                  &err) &&
               llama.rope.theta == 2e5f && llama.rope.kind == ACCEL_ROPE_LLAMA3,
           "rope_parameters %s", err.text);
    tap_ok(!parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
                  &err) &&
               llama.rope.kind == ACCEL_ROPE_LINEAR && llama.rope.factor == 2,
           "linear positions by their older name %s", err.text);
    tap_ok(!parse("{" LLAMA ",\"rope_scaling\":null,\"rope_parameters\":"
                  "{\"rope_type\":\"default\",\"rope_theta\":5000.0}}",
                  &err) &&
               llama.rope.kind == ACCEL_ROPE_PLAIN && llama.rope.theta == 5000,
           "plain ones %s", err.text);
}

static void test_bert(void)
{
    accel_error_t err;

    tap_is_int(parse("{" BERT "}", &err), ACCEL_OK, "bert: sizes alone %s", err.text);
    tap_ok(bert.layers == 2 && bert.heads == 4 && bert.width == 32 &&
               bert.hidden == 48 && bert.vocab == 97 && bert.context == 64 &&
               bert.types == 2 && bert.norm_eps == 1e-12f &&
               bert.hidden_dropout == 0.1f && bert.attn_dropout == 0.1f &&
               bert.classifier_dropout == 0.1f && bert.head == ACCEL_BERT_NONE &&
               bert.activation == ACCEL_ACT_GELU_ERF,
           "and the class's own values");
    tap_ok(!parse("{" BERT ",\"architectures\":[\"BertForMaskedLM\"]}", &err) &&
               bert.head == ACCEL_BERT_MASKED_LM,
           "a masked language model %s", err.text);
    tap_ok(!parse("{" BERT ",\"architectures\":[\"BertForSequenceClassification\"],"
                  "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},"
                  "\"hidden_dropout_prob\":0.3,\"classifier_dropout\":null,"
                  "\"type_vocab_size\":1}",
                  &err) &&
               bert.head == ACCEL_BERT_CLASSIFY && bert.labels == 3 &&
               bert.classifier_dropout == 0.3f && bert.types == 1,
           "a classifier %s", err.text);
}

static const struct {
    const char *text, *problem;
    int message;
} bad[] = {
    { "", "not valid JSON", 640 },
    { "[]", "not a JSON object", 640 },
    { "{\"a\":1,\"a\":2}", "duplicate", 640 },
    { "{}", "model_type is missing", 640 },
    { "{\"model_type\":1}", "model_type is 1", 640 },
    { "{\"model_type\":\"t5\"}", "model_type is t5, not gpt2", 642 },
    { "{\"model_type\":\"a\\u0001\xc3\xa4\"}", "model_type is a???, not gpt2", 642 },
    { "{" GPT2 ",\"n_inner\":0}", "n_inner is 0, not", 640 },
    { "{" GPT2 ",\"n_inner\":-3}", "n_inner is -3, not", 640 },
    { "{" GPT2 ",\"n_inner\":12.0}", "n_inner is 12.0, not", 640 },
    { "{" GPT2 ",\"n_inner\":536870912}", "n_inner is 536870912, not", 640 },
    { "{" GPT2 ",\"n_inner\":99999999999999999999}", "not valid JSON", 640 },
    { "{" GPT2 ",\"n_inner\":\"48\"}", "n_inner is \"48\", not", 640 },
    { "{" GPT2 ",\"resid_pdrop\":1}", "resid_pdrop is 1, not", 640 },
    { "{" GPT2 ",\"attn_pdrop\":-0.5}", "attn_pdrop is -0.5, not", 640 },
    { "{" GPT2 ",\"layer_norm_epsilon\":0}", "layer_norm_epsilon is 0, not", 640 },
    { "{" GPT2 ",\"activation_function\":\"mish\"}",
      "activation_function: \"mish\" is not supported", 641 },
    { "{" GPT2 ",\"scale_attn_weights\":false}",
      "scale_attn_weights: false is not supported", 641 },
    { "{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}",
      "scale_attn_by_inverse_layer_idx: true is not supported", 641 },
    { "{" GPT2 ",\"add_cross_attention\":true}", "add_cross_attention: true", 641 },
    { "{" GPT2 ",\"add_cross_attention\":1}", "add_cross_attention is 1, not", 640 },
    { "{" GPT2 ",\"tie_word_embeddings\":false}", "tie_word_embeddings: false", 641 },
    { "{" GPT2 ",\"quantization_config\":{\"bits\":4}}",
      "quantization_config: {\"bits\":4} is not supported", 641 },
    { "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":5,\"n_embd\":32,"
      "\"n_positions\":64,\"vocab_size\":97}",
      "n_embd 32 is not a multiple of n_head 5", 640 },
    { "{" LLAMA ",\"num_key_value_heads\":3}", "num_key_value_heads 3", 640 },
    { "{" LLAMA ",\"head_dim\":7}", "head_dim 7", 640 },
    { "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}}",
      "rope_type: \"yarn\" is not supported", 641 },
    { "{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}}",
      "type: \"dynamic\" is not supported", 641 },
    { "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "factor is missing", 640 },
    { "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "factor is 0",
      640 },
    { "{" LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor: 0.5", 641 },
    { "{" LLAMA ",\"rope_scaling\":{" LLAMA3 ",\"partial_rotary_factor\":0.5}}",
      "partial_rotary_factor: 0.5", 641 },
    { "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2.0,"
      "\"low_freq_factor\":4.0,\"original_max_position_embeddings\":64}}",
      "high_freq_factor 4 is not above low_freq_factor 4", 640 },
    { "{" LLAMA ",\"rope_scaling\":7}", "rope_scaling is 7, not an object", 640 },
    { "{" LLAMA ",\"hidden_act\":\"gelu_10\"}", "hidden_act: \"gelu_10\"", 641 },
    { "{" BERT ",\"position_embedding_type\":\"relative_key\"}",
      "position_embedding_type: \"relative_key\" is not supported", 641 },
    { "{" BERT ",\"is_decoder\":true}", "is_decoder: true is not supported", 641 },
    { "{" BERT ",\"architectures\":\"BertModel\"}", "architectures is \"BertModel\"",
      640 },
    { "{" BERT ",\"architectures\":[\"BertForSequenceClassification\"],"
      "\"problem_type\":\"regression\"}",
      "problem_type: \"regression\"", 641 },
    { "{" BERT ",\"architectures\":[\"BertForSequenceClassification\"],"
      "\"id2label\":{\"0\":\"a\"}}",
      "id2label: {\"0\":\"a\"} is not supported", 641 },
};

static void test_bad(void)
{
    accel_error_t err;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        bool refused = parse(bad[i].text, &err) != ACCEL_OK;

        tap_ok(refused && err.message == bad[i].message &&
                   strstr(err.text, bad[i].problem) && !gpt2.layers && !llama.layers &&
                   !bert.layers && strcmp(err.where, "config.json") == 0,
               "%d: %s", err.message, err.text);
    }
}

/* ---- the rules of transformers ----------------------------------------------------- */

static double number(const json_t *want, const char *key, double otherwise)
{
    const json_t *v = json_object_get(want, key);

    return v ? json_number_value(v) : otherwise;
}

/* Of the model that was read last: what is there is what is wanted? */
static bool as_wanted(const json_t *want, const char *type)
{
    const bool is_gpt2 = !strcmp(type, "gpt2"), is_llama = !strcmp(type, "llama");
    const char *kind = json_string_value(json_object_get(want, "kind"));
    const struct {
        const char *key;
        double have;
    } all[] = {
        { "layers", is_gpt2    ? gpt2.layers
                    : is_llama ? llama.layers
                               : bert.layers },
        { "heads", is_gpt2    ? gpt2.heads
                   : is_llama ? llama.heads
                              : bert.heads },
        { "width", is_gpt2    ? gpt2.width
                   : is_llama ? llama.width
                              : bert.width },
        { "context", is_gpt2    ? gpt2.context
                     : is_llama ? llama.context
                                : bert.context },
        { "vocab", is_gpt2    ? gpt2.vocab
                   : is_llama ? llama.vocab
                              : bert.vocab },
        { "hidden", is_llama ? llama.hidden : bert.hidden },
        { "kv_heads", llama.kv_heads },
        { "head_width", llama.head_width },
        { "theta", llama.rope.theta },
        { "factor", llama.rope.factor },
        { "original", llama.rope.original_context },
        { "types", bert.types },
        { "labels", bert.labels },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++)
        if (number(want, all[i].key, all[i].have) != all[i].have) {
            tap_diag("%s is %g", all[i].key, all[i].have);
            return false;
        }
    return !kind || llama.rope.kind == (!strcmp(kind, "linear")   ? ACCEL_ROPE_LINEAR
                                        : !strcmp(kind, "llama3") ? ACCEL_ROPE_LLAMA3
                                                                  : ACCEL_ROPE_PLAIN);
}

/* Keys that say the same thing, and keys that are absent (rules.py). */
static void test_rules(void)
{
    const char *src = getenv("ACCEL_SRC");
    char path[4096];
    accel_error_t err;
    json_t *rules;

    snprintf(path, sizeof(path), "%s/tests/data/weights/rules.json", src ? src : ".");
    rules = json_load_file(path, 0, NULL);
    tap_ok(json_array_size(rules) >= 39, "%s is read", path);
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *rule = json_array_get(rules, i),
                     *config = json_object_get(rule, "config");
        char *text = json_dumps(config, JSON_COMPACT);

        tap_ok(!parse(text, &err) &&
                   as_wanted(json_object_get(rule, "want"),
                             json_string_value(json_object_get(config, "model_type"))),
               "%s %s", text, err.text);
        free(text);
    }
    json_decref(rules);
}

/* ---- written and read again ------------------------------------------------------ */

static void test_round_trip(void)
{
    accel_gpt2_t g = { .layers = 2,
                       .heads = 4,
                       .width = 32,
                       .context = 64,
                       .vocab = 97,
                       .hidden = 128,
                       .resid_dropout = 0.1f,
                       .embd_dropout = 0.3f,
                       .attn_dropout = 0.123456789f,
                       .norm_eps = 1e-5f,
                       .activation = ACCEL_ACT_RELU };
    accel_llama_t l;
    accel_bert_t b = { .layers = 2,
                       .heads = 4,
                       .width = 32,
                       .hidden = 48,
                       .vocab = 97,
                       .context = 64,
                       .types = 3,
                       .norm_eps = 1e-12f,
                       .hidden_dropout = 0.1f,
                       .classifier_dropout = 0.2f,
                       .activation = ACCEL_ACT_GELU,
                       .head = ACCEL_BERT_CLASSIFY,
                       .labels = 5 };
    accel_error_t err = { 0 };
    char *text = NULL;

    tap_ok(!hf_gpt2_format(&g, "bfloat16", &text, &err) && !parse(text, &err) &&
               !memcmp(&g, &gpt2, sizeof(g)),
           "gpt2: written and read again %s", err.text);
    tap_ok(text && strstr(text, "\"layer_norm_epsilon\": 1e-5") &&
               strstr(text, "\"bfloat16\"") && strstr(text, "GPT2LMHeadModel"),
           "the shortest decimals, dtype and class");
    free(text);
    text = NULL;
    for (int kind = 0; kind < 3; kind++) {
        tap_ok(!accel_llama_preset("llama-3.1-8b", &l, &err) &&
                   !parse("{" LLAMA "}", &err),
               "llama");
        l.rope.kind = (accel_rope_kind_t)kind;
        if (kind < 2)
            l.rope.low_freq_factor = l.rope.high_freq_factor =
                (float)(l.rope.original_context = 0);
        if (kind == 0)
            l.rope.factor = 0;
        l.attention_bias = kind == 1;
        l.activation = ACCEL_ACT_SILU;
        tap_ok(!hf_llama_format(&l, "float32", &text, &err) && !parse(text, &err) &&
                   !memcmp(&l, &llama, sizeof(l)),
               "llama: written and read again %s", err.text);
        free(text);
        text = NULL;
    }
    for (int head = 0; head < 3; head++) {
        b.head = (accel_bert_head_t)head;
        b.labels = head == ACCEL_BERT_CLASSIFY ? 5 : 0;
        tap_ok(!hf_bert_format(&b, "float16", &text, &err) && !parse(text, &err) &&
                   !memcmp(&b, &bert, sizeof(b)),
               "bert: written and read again %s", err.text);
        free(text);
        text = NULL;
    }
}

/* Parameters by the sizes alone, in millions. */
static double gpt2_millions(const accel_gpt2_t *m)
{
    double c = m->width;

    return (c * (m->vocab + m->context) + m->layers * (12 * c * c + 13 * c) + 2 * c) /
           1e6;
}

static double llama_millions(const accel_llama_t *m)
{
    double c = m->width, kv = (double)m->kv_heads * m->head_width;
    double layer = 2 * c * m->heads * m->head_width + 2 * c * kv + 3 * c * m->hidden;

    return ((m->tied ? 1 : 2) * c * m->vocab + m->layers * (layer + 2 * c) + c) / 1e6;
}

static void test_presets(void)
{
    static const struct {
        const char *name;
        double millions;
    } g[] = { { "gpt2", 124.44 },
              { "gpt2-124M", 124.44 },
              { "gpt2-medium", 354.82 },
              { "gpt2-large", 774.03 },
              { "gpt2-xl", 1557.61 } },
      l[] = { { "tinyllama-1.1b", 1100.05 },   { "llama-2-7b", 6738.42 },
              { "llama-2-13b", 13015.86 },     { "llama-2-70b", 68976.65 },
              { "llama-3-8b", 8030.26 },       { "llama-3-70b", 70553.71 },
              { "llama-3.1-405b", 405853.39 }, { "llama-3.2-1b", 1235.81 },
              { "llama-3.2-3b", 3212.75 } };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(g); i++)
        tap_is_close(accel_gpt2_preset(g[i].name, &gpt2, &err) ? 0
                                                               : gpt2_millions(&gpt2),
                     g[i].millions, 1e-5, "%s", g[i].name);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(l); i++)
        tap_is_close(
            accel_llama_preset(l[i].name, &llama, &err) ? 0 : llama_millions(&llama),
            l[i].millions, 1e-5, "%s", l[i].name);
    tap_ok(!accel_bert_preset("bert-large-cased", &bert, &err) && bert.hidden == 4096 &&
               bert.vocab == 28996,
           "bert-large-cased");
    tap_ok(accel_gpt2_preset("gpt2", NULL, &err) == ACCEL_EINVAL &&
               strstr(err.text, "model 'gpt2' have no place"),
           "%s", err.text);
    tap_ok(accel_llama_preset("llama-2-7b", NULL, &err) == ACCEL_EINVAL &&
               strstr(err.text, "model 'llama-2-7b' have no place"),
           "%s", err.text);
    tap_ok(accel_bert_preset(NULL, NULL, &err) == ACCEL_EINVAL &&
               strstr(err.text, "model '' have no place"),
           "%s", err.text);
    tap_ok(accel_gpt2_preset("gpt2-medum", &gpt2, &err) == ACCEL_EINVAL &&
               strstr(err.hint, "gpt2-medium"),
           "%s: %s", err.text, err.hint);
    tap_ok(accel_llama_preset("llama3-8b", &llama, &err) == ACCEL_EINVAL &&
               strstr(err.hint, "llama-3-8b"),
           "%s: %s", err.text, err.hint);
    tap_ok(accel_bert_preset("roberta", &bert, &err) == ACCEL_EINVAL &&
               strstr(err.hint, "bert-base-uncased"),
           "%s: %s", err.text, err.hint);
    tap_is_int(accel_bert_preset(NULL, &bert, &err), ACCEL_EINVAL, "no name");
}

static void test_files(void)
{
    char dir[] = "/tmp/accel-hf.XXXXXX", path[64];
    accel_error_t err = { 0 };
    FILE *f;

    if (!mkdtemp(dir))
        abort();
    tap_ok(accel_gpt2_read_config(dir, &gpt2, &err) == ACCEL_ENOENT &&
               strstr(err.where, "/config.json"),
           "none there: %s: %s", err.where, err.text);
    tap_is_int(accel_gpt2_read_config(NULL, &gpt2, &err), ACCEL_ENOENT, "no path");
    snprintf(path, sizeof(path), "%s/config.json", dir);
    f = fopen(path, "we");
    if (!f || fputs("{" GPT2 "}", f) < 0 || fclose(f))
        abort();
    gpt2.layers = 0;
    tap_ok(!accel_gpt2_read_config(dir, &gpt2, &err) && gpt2.layers == 2,
           "a directory");
    gpt2.layers = 0;
    tap_ok(!accel_gpt2_read_config(path, &gpt2, &err) && gpt2.layers == 2, "a file");
    tap_is_int(accel_bert_read_config(path, &bert, &err), ACCEL_EMISMATCH, "%s",
               "another model");
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    test_gpt2();
    test_llama();
    test_bert();
    test_bad();
    test_rules();
    test_round_trip();
    test_presets();
    test_files();
    return tap_done();
}
