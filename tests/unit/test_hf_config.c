/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of gpt2, llama and bert: what is taken, what is refused and with which
 * words, what is written comes back; the table of published sizes.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/family.h"
#include "models/huggingface/hf_config.h"
#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

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

static accel_model_config_t model; /* what was read last */

static accel_status_t parse_as(const char *text, const char *type, accel_error_t *err)
{
    memset(err, 0, sizeof(*err));
    memset(&model, 0, sizeof(model));
    return hf_config_parse(text, strlen(text), "config.json", type, &model, err);
}

static accel_status_t parse(const char *text, accel_error_t *err)
{
    return parse_as(text, NULL, err);
}

static void test_gpt2(void)
{
    accel_error_t err;

    tap_is_int(parse("{" GPT2 "}", &err), ACCEL_OK, "gpt2: sizes alone %s", err.text);
    tap_ok(model.layers == 2 && model.heads == 4 && model.width == 32 &&
               model.context == 64 && model.vocab == 97 && model.hidden == 0,
           "its sizes");
    tap_ok(model.resid_dropout == 0.1f && model.embd_dropout == 0.1f &&
               model.attn_dropout == 0.1f && model.norm_eps == 1e-5f &&
               model.activation == ACCEL_ACT_GELU,
           "the class's own values for what is absent");
    tap_is_int(parse("{" GPT2 ",\"n_inner\":50,\"resid_pdrop\":0,\"embd_pdrop\":0.25,"
                     "\"attn_pdrop\":0.5,\"layer_norm_epsilon\":1e-6,\"n_ctx\":7,"
                     "\"activation_function\":\"gelu\",\"summary_type\":{\"x\":[1]},"
                     "\"scale_attn_weights\":true,\"use_cache\":false}",
                     &err),
               ACCEL_OK, "gpt2: all of it %s", err.text);
    tap_ok(model.hidden == 50 && model.resid_dropout == 0 &&
               model.embd_dropout == 0.25f && model.attn_dropout == 0.5f &&
               model.norm_eps == 1e-6f && model.activation == ACCEL_ACT_GELU_ERF,
           "its values");
}

static void test_llama(void)
{
    accel_error_t err;

    tap_is_int(parse("{" LLAMA "}", &err), ACCEL_OK, "llama: sizes alone %s", err.text);
    tap_ok(model.layers == 2 && model.heads == 4 && model.kv_heads == 4 &&
               model.width == 32 && model.head_width == 8 && model.hidden == 48 &&
               model.vocab == 97 && model.context == 64 && !model.tied &&
               model.norm_eps == 1e-6f && model.rope.theta == 10000 &&
               model.rope.kind == ACCEL_ROPE_PLAIN && model.attn_dropout == 0 &&
               model.activation == ACCEL_ACT_SILU && !model.attention_bias,
           "and the class's own values");
    tap_is_int(parse("{" LLAMA ",\"num_key_value_heads\":2,\"head_dim\":16,"
                     "\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,"
                     "\"tie_word_embeddings\":true,\"attention_bias\":true,"
                     "\"mlp_bias\":true,\"attention_dropout\":0.5,"
                     "\"rope_scaling\":{" LLAMA3 "}}",
                     &err),
               ACCEL_OK, "llama: all of it %s", err.text);
    tap_ok(model.kv_heads == 2 && model.head_width == 16 && model.norm_eps == 1e-5f &&
               model.rope.theta == 500000 && model.rope.kind == ACCEL_ROPE_LLAMA3 &&
               model.rope.factor == 8 && model.rope.low_freq_factor == 1 &&
               model.rope.high_freq_factor == 4 && model.tied &&
               model.rope.original_context == 8192 && model.attention_bias &&
               model.mlp_bias && model.attn_dropout == 0.5f,
           "its values");
    tap_ok(!parse("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":2e5," LLAMA3 "}}",
                  &err) &&
               model.rope.theta == 2e5f && model.rope.kind == ACCEL_ROPE_LLAMA3,
           "rope_parameters %s", err.text);
}

static void test_bert(void)
{
    accel_error_t err;

    tap_is_int(parse("{" BERT "}", &err), ACCEL_OK, "bert: sizes alone %s", err.text);
    tap_ok(model.layers == 2 && model.heads == 4 && model.width == 32 &&
               model.hidden == 48 && model.vocab == 97 && model.context == 64 &&
               model.types == 2 && model.norm_eps == 1e-12f &&
               model.resid_dropout == 0.1f && model.attn_dropout == 0.1f &&
               model.classifier_dropout == 0.1f && model.head == ACCEL_HEAD_BASE &&
               model.activation == ACCEL_ACT_GELU_ERF,
           "and the class's own values");
    tap_ok(!parse("{" BERT ",\"architectures\":[\"BertForMaskedLM\"]}", &err) &&
               model.head == ACCEL_HEAD_MASKED_LM,
           "a masked language model %s", err.text);
    tap_ok(!parse("{" BERT ",\"architectures\":[\"BertForSequenceClassification\"],"
                  "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},"
                  "\"hidden_dropout_prob\":0.3,\"classifier_dropout\":null,"
                  "\"type_vocab_size\":1}",
                  &err) &&
               model.head == ACCEL_HEAD_CLASSIFY && model.labels == 3 &&
               model.classifier_dropout == 0.3f && model.types == 1,
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
    { "{\"model_type\":\"t5\"}", "does not support the model_type", 644 },
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
                   strstr(err.text, bad[i].problem) && !model.layers &&
                   strcmp(err.where, "config.json") == 0,
               "%d: %s", err.message, err.text);
    }
    tap_ok(parse_as("{" BERT "}", "gpt2", &err) == ACCEL_EMISMATCH, "another family");
    tap_is_str(err.text, "model_type is bert, not gpt2", "which");
    parse_as("{\"model_type\":\"a\\u0001\xc3\xa4\"}", "gpt2", &err);
    tap_is_str(err.text, "model_type is a???, not gpt2", "a type in plain characters");
}

/* ---- the rules of transformers ----------------------------------------------------- */

static double number(const json_t *want, const char *key, double otherwise)
{
    const json_t *v = json_object_get(want, key);

    return v ? json_number_value(v) : otherwise;
}

/* Of the model that was read last: what is there is what is wanted? */
static bool as_wanted(const json_t *want)
{
    const char *kind = json_string_value(json_object_get(want, "kind"));
    const struct {
        const char *key;
        double have;
    } all[] = {
        { "layers", model.layers },
        { "heads", model.heads },
        { "width", model.width },
        { "context", model.context },
        { "vocab", model.vocab },
        { "hidden", model.hidden },
        { "kv_heads", model.kv_heads },
        { "head_width", model.head_width },
        { "theta", model.rope.theta },
        { "factor", model.rope.factor },
        { "original", model.rope.original_context },
        { "types", model.types },
        { "labels", model.labels },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(all); i++)
        if (number(want, all[i].key, all[i].have) != all[i].have) {
            tap_diag("%s is %g", all[i].key, all[i].have);
            return false;
        }
    return !kind || model.rope.kind == (!strcmp(kind, "linear")   ? ACCEL_ROPE_LINEAR
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

        tap_ok(!parse(text, &err) && as_wanted(json_object_get(rule, "want")), "%s %s",
               text, err.text);
        free(text);
    }
    json_decref(rules);
}

/* ---- written and read again ------------------------------------------------------ */

/* As text of config.json; freed by the next call. */
static const char *written(const accel_model_config_t *m, const char *dtype)
{
    static char *text;
    accel_error_t err = { 0 };

    free(text);
    text = NULL;
    tap_ok(!hf_config_format(m, dtype, &text, &err) && !parse(text, &err) &&
               !memcmp(m, &model, sizeof(*m)),
           "%s: written and read again %s", m->model_type, err.text);
    return text;
}

static void test_round_trip(void)
{
    accel_model_config_t g = { .layers = 2,
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
    accel_model_config_t l = { 0 };
    accel_model_config_t b = { .layers = 2,
                               .heads = 4,
                               .width = 32,
                               .hidden = 48,
                               .vocab = 97,
                               .context = 64,
                               .types = 3,
                               .norm_eps = 1e-12f,
                               .resid_dropout = 0.1f,
                               .classifier_dropout = 0.2f,
                               .activation = ACCEL_ACT_GELU,
                               .labels = 5 };
    accel_error_t err = { 0 };
    const char *text;

    g.model_type = model_family_find("gpt2")->type;
    b.model_type = model_family_find("bert")->type;
    text = written(&g, "bfloat16");
    tap_ok(text && strstr(text, "\"layer_norm_epsilon\": 1e-5") &&
               strstr(text, "\"bfloat16\"") && strstr(text, "GPT2LMHeadModel"),
           "the shortest decimals, dtype and class");
    for (int kind = 0; kind < 3; kind++) {
        l.model_type = NULL;
        tap_ok(!model_config_open("llama-3.1-8b", &l, &err), "llama");
        l.rope.kind = (accel_rope_kind_t)kind;
        if (kind < 2)
            l.rope.low_freq_factor = l.rope.high_freq_factor =
                (float)(l.rope.original_context = 0);
        if (kind == 0)
            l.rope.factor = 0;
        l.attention_bias = kind == 1;
        l.activation = ACCEL_ACT_SILU;
        written(&l, "float32");
    }
    for (int head = 0; head < 3; head++) {
        static const char *const cls[] = { "\"BertModel\"", "\"BertForMaskedLM\"",
                                           "\"BertForSequenceClassification\"" };

        b.head = (accel_model_head_t)head;
        b.labels = head == ACCEL_HEAD_CLASSIFY ? 5 : 0;
        text = written(&b, "float16");
        tap_ok(text && strstr(text, cls[head]), "as a %s", cls[head]);
    }
}

/* Parameters by the sizes alone, in millions. */
static double millions(const accel_model_config_t *m)
{
    double c = m->width, kv = (double)m->kv_heads * m->head_width;
    double layer = 2 * c * m->heads * m->head_width + 2 * c * kv + 3 * c * m->hidden;

    if (!strcmp(m->model_type, "gpt2"))
        return (c * (m->vocab + m->context) + m->layers * (12 * c * c + 13 * c) +
                2 * c) /
               1e6;
    return ((m->tied ? 1 : 2) * c * m->vocab + m->layers * (layer + 2 * c) + c) / 1e6;
}

static void test_presets(void)
{
    static const struct {
        const char *name;
        double millions;
    } good[] = { { "gpt2", 124.44 },          { "gpt2-124M", 124.44 },
                 { "gpt2-medium", 354.82 },   { "gpt2-large", 774.03 },
                 { "gpt2-xl", 1557.61 },      { "tinyllama-1.1b", 1100.05 },
                 { "llama-2-7b", 6738.42 },   { "llama-2-13b", 13015.86 },
                 { "llama-2-70b", 68976.65 }, { "llama-3-8b", 8030.26 },
                 { "llama-3-70b", 70553.71 }, { "llama-3.1-405b", 405853.39 },
                 { "llama-3.2-1b", 1235.81 }, { "llama-3.2-3b", 3212.75 } };
    static const struct {
        const char *name, *type, *text, *hint;
    } wrong[] = {
        { "gpt2-medum", NULL, "no gpt2 model 'gpt2-medum'", "gpt2-medium" },
        { "llama3-8b", NULL, "no llama model 'llama3-8b'", "llama-3-8b" },
        { "roberta", NULL, "no bert model 'roberta'", "bert-base-uncased" },
        { "llama-2-7b", "bert", "no bert model 'llama-2-7b'", "bert-large-cased" },
        { "x", NULL, "no model 'x'", "gpt2, llama-3-8b or bert-base-uncased" },
        { "gpt2", "t5", "the model_type 't5'", "use a gpt2, llama or bert model" },
        { NULL, NULL, "no model is named", "a name or a directory" },
    };
    accel_model_config_t c = { .bytes = sizeof(c) };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(good); i++) {
        c.model_type = NULL;
        tap_is_close(accel_model_config(good[i].name, &c, &err) ? 0 : millions(&c),
                     good[i].millions, 1e-5, "%s", good[i].name);
    }
    c.model_type = "bert";
    tap_ok(!accel_model_config("bert-large-cased", &c, &err) && c.hidden == 4096 &&
               c.vocab == 28996 && c.head == ACCEL_HEAD_MASKED_LM,
           "bert-large-cased");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(wrong); i++) {
        c.model_type = wrong[i].type;
        tap_ok(accel_model_config(wrong[i].name, &c, &err) == ACCEL_EINVAL &&
                   strstr(err.text, wrong[i].text) && strstr(err.hint, wrong[i].hint),
               "%s: %s", err.text, err.hint);
    }
    tap_ok(accel_model_config("gpt2", NULL, &err) == ACCEL_EINVAL &&
               strstr(err.text, "model 'gpt2' have no place"),
           "%s", err.text);
}

/* A program of newer headers, one that says nothing, and one that is wrong. */
static void test_bytes(void)
{
    struct {
        accel_model_config_t config;
        long more;
    } newer = { .config = { .bytes = sizeof(newer) } };
    accel_model_config_t c = { 0 };
    accel_error_t err = { 0 };

    tap_ok(accel_model_config("gpt2", &c, &err) == ACCEL_EINVAL &&
               strstr(err.hint, "accel_model_config_t x = {.bytes = sizeof x"),
           "%s: %s", err.text, err.hint);
    tap_ok(!accel_model_config("gpt2", &newer.config, &err) &&
               newer.config.width == 768 && newer.config.bytes == sizeof(newer),
           "members that are not known and 0");
    newer.more = 1;
    newer.config.model_type = NULL;
    tap_ok(accel_model_config("gpt2", &newer.config, &err) == ACCEL_EUNSUPPORTED, "%s",
           err.text);
    c = (accel_model_config_t){ .bytes = offsetof(accel_model_config_t, head),
                                .head = ACCEL_HEAD_CLASSIFY };
    tap_ok(accel_model_config("bert-base-cased", &c, &err) == ACCEL_EINVAL &&
               c.layers == 0 && c.head == ACCEL_HEAD_CLASSIFY,
           "a size that no release had is refused, and nothing is written");
}

static void test_files(void)
{
    char dir[] = "/tmp/accel-hf.XXXXXX", path[64];
    accel_model_config_t c = { .bytes = sizeof(c) };
    accel_error_t err = { 0 };

    run_folder_new(dir);
    tap_ok(accel_model_config(dir, &c, &err) == ACCEL_ENOENT &&
               strstr(err.where, "/config.json"),
           "none there: %s: %s", err.where, err.text);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    run_folder_write(path, "{" GPT2 "}");
    tap_ok(!accel_model_config(dir, &c, &err) && c.layers == 2, "a directory");
    c.layers = 0;
    tap_ok(!accel_model_config(path, &c, &err) && c.layers == 2, "a file");
    c.model_type = "bert";
    tap_is_int(accel_model_config(path, &c, &err), ACCEL_EMISMATCH, "%s",
               "another model");
    run_folder_remove(dir);
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
    test_bytes();
    test_files();
    return tap_done();
}
