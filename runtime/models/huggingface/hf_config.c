/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads config.json of gpt2, llama and bert. Keys that change the computation are
 * accepted or refused; if such a key may be absent, its default is that of the model's
 * class in transformers. All other keys are ignored. Never looks at weights.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/huggingface/hf_config.h"

/* a config.json has a few KiB; a file beyond this is something else */
#define FILE_MAX_BYTES (16 << 20)
/* the hint of most refusals */
#define PLAIN "use a model without it"

/* Opens the text and checks that its model_type is `type`. */
static accel_status_t open_typed(struct hf_json *j, const char *text, size_t len,
                                 const char *type, const char *where,
                                 accel_error_t *err)
{
    accel_status_t st = hf_json_open(j, text, len, where, err);
    const char *found;
    char shown[40];

    if (st)
        return st;
    /* a missing type and a wrong one have different messages */
    found = hf_json_text(j, "model_type", NULL);
    if (!j->status && !found)
        j->status = accel_fail_at(err, A0640, where, "give the config.json of a model",
                                  "the key model_type is missing");
    if (!j->status && strcmp(found, type) != 0)
        j->status = accel_fail_at(err, A0642, where,
                                  "use the functions of that model, if accel has them",
                                  "model_type is %s, not %s",
                                  hf_json_shown(found, shown, sizeof(shown)), type);
    hf_json_absent(j, "quantization_config", "use weights that are not quantised");
    return j->status;
}

/* Notes that a size is no multiple of another one. */
static accel_status_t misfit(struct hf_json *j, const char *a, int a_value,
                             const char *b, int b_value)
{
    if (!j->status)
        j->status =
            accel_fail_at(j->err, A0640, j->where, "copy or download the file again",
                          "%s %d is not a multiple of %s %d", a, a_value, b, b_value);
    return j->status;
}

/* Ends a parse function: `out` is set only on success. */
#define FINISH(j, m, out)                                                              \
    do {                                                                               \
        if (!(j).status)                                                               \
            *(out) = (m);                                                              \
        hf_json_close(&(j));                                                           \
        return (j).status;                                                             \
    } while (0)

/* A size of GPT-2, which has a name of its own and the general one. transformers takes
 * the general one where both are there. */
static int gpt2_size(struct hf_json *j, const char *general, const char *own,
                     int otherwise)
{
    return hf_json_size(j, hf_json_has(j, general) ? general : own, otherwise);
}

accel_status_t hf_gpt2_parse(const char *text, size_t len, const char *where,
                             accel_gpt2_t *model_out, accel_error_t *err)
{
    accel_gpt2_t m = { 0 };
    struct hf_json j;

    if (!open_typed(&j, text, len, "gpt2", where, err)) {
        m.layers = gpt2_size(&j, "num_hidden_layers", "n_layer", 12);
        m.heads = gpt2_size(&j, "num_attention_heads", "n_head", 12);
        m.width = gpt2_size(&j, "hidden_size", "n_embd", 768);
        /* old files have n_ctx only */
        m.context =
            gpt2_size(&j, "max_position_embeddings",
                      hf_json_has(&j, "n_positions") ? "n_positions" : "n_ctx", 1024);
        m.vocab = hf_json_size(&j, "vocab_size", 50257);
        /* null, which is usual, means 4 x width: hidden stays 0 */
        if (hf_json_has(&j, "n_inner"))
            m.hidden = hf_json_size(&j, "n_inner", 0);
        m.resid_dropout = hf_json_real(&j, "resid_pdrop", 0.1, 0, 1);
        m.embd_dropout = hf_json_real(&j, "embd_pdrop", 0.1, 0, 1);
        m.attn_dropout = hf_json_real(&j, "attn_pdrop", 0.1, 0, 1);
        m.norm_eps = hf_json_real(&j, "layer_norm_epsilon", 1e-5, 1e-30, 1);
        m.activation = hf_json_activation(&j, "activation_function", "gelu_new");
        /* features that change the computation and that this library lacks */
        hf_json_only(&j, "scale_attn_weights", true, PLAIN);
        hf_json_only(&j, "scale_attn_by_inverse_layer_idx", false, PLAIN);
        hf_json_only(&j, "add_cross_attention", false, PLAIN);
        hf_json_only(&j, "tie_word_embeddings", true,
                     "use a model whose head is tied to its embedding");
        /* a head takes an equal part of the width */
        if (!j.status && m.width % m.heads)
            misfit(&j, "n_embd", m.width, "n_head", m.heads);
    }
    FINISH(j, m, model_out);
}

/* ---- llama ----------------------------------------------------------------------- */

/* `in` is the object of rope_scaling, or of rope_parameters; `context` is that of the
 * model. */
static void take_rope(struct hf_json *in, int context, accel_rope_t *rope)
{
    const char *key = hf_json_has(in, "rope_type") ? "rope_type" : "type";
    const char *kind = hf_json_text(in, key, "default");

    rope->theta = hf_json_real(in, "rope_theta", rope->theta, 1, 1e30);
    if (strcmp(kind, "default") == 0)
        return;
    if (strcmp(kind, "linear") != 0 && strcmp(kind, "llama3") != 0) {
        hf_json_refuse(in, key, "use a model with plain, linear or llama3 positions");
        return;
    }
    /* "linear" or "llama3", told apart by their second letter */
    rope->kind = *kind == 'l' && kind[1] == 'i' ? ACCEL_ROPE_LINEAR : ACCEL_ROPE_LLAMA3;
    /* 0 is no valid factor: it shows that the key is absent */
    rope->factor = hf_json_real(in, "factor", 0, 1e-9, 1e9);
    if (!in->status && !hf_json_has(in, "factor"))
        hf_json_size(in, "factor", 0); /* reports that it is missing */
    if (rope->kind == ACCEL_ROPE_LINEAR)
        return;
    rope->low_freq_factor = hf_json_real(in, "low_freq_factor", 1, 1e-9, 1e9);
    rope->high_freq_factor = hf_json_real(in, "high_freq_factor", 4, 1e-9, 1e9);
    rope->original_context =
        hf_json_size(in, "original_max_position_embeddings", context);
    if (!in->status && rope->high_freq_factor <= rope->low_freq_factor)
        in->status = accel_fail_at(
            in->err, A0640, in->where, "copy or download the file again",
            "high_freq_factor %g is not above low_freq_factor %g",
            (double)rope->high_freq_factor, (double)rope->low_freq_factor);
}

/* Rotary positions. Newer versions of transformers write rope_parameters, older ones
 * rope_scaling and rope_theta. Where both are there, transformers takes rope_scaling
 * and nothing of rope_parameters. What the one taken leaves out stands beside it. */
static void read_rope(struct hf_json *j, int context, accel_rope_t *rope)
{
    const char *key =
        hf_json_members(j, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    static const char partial[] = "partial_rotary_factor";
    struct hf_json in;
    bool inside;

    rope->theta = hf_json_real(j, "rope_theta", 10000, 1, 1e30);
    inside = hf_json_object(j, key, &in);
    if (inside)
        take_rope(&in, context, rope);
    if (inside && hf_json_real(&in, partial, 1, 0, 1e9) != 1)
        hf_json_refuse(&in, partial, PLAIN);
    /* the object has a status of its own: hand it back */
    j->status = in.status;
    if (!(inside && hf_json_has(&in, partial)) &&
        hf_json_real(j, partial, 1, 0, 1e9) != 1)
        hf_json_refuse(j, partial, PLAIN);
}

/* Absent kv heads mean one per head; an absent head width divides the width. */
accel_status_t hf_llama_parse(const char *text, size_t len, const char *where,
                              accel_llama_t *model_out, accel_error_t *err)
{
    accel_llama_t m = { 0 };
    struct hf_json j;

    if (!open_typed(&j, text, len, "llama", where, err)) {
        m.layers = hf_json_size(&j, "num_hidden_layers", 32);
        m.heads = hf_json_size(&j, "num_attention_heads", 32);
        /* absent: one per head, plain multi-head attention */
        m.kv_heads = hf_json_size(&j, "num_key_value_heads", m.heads);
        m.width = hf_json_size(&j, "hidden_size", 4096);
        if (!j.status && !hf_json_has(&j, "head_dim") && m.width % m.heads)
            misfit(&j, "hidden_size", m.width, "num_attention_heads", m.heads);
        m.head_width =
            hf_json_size(&j, "head_dim", m.width >= m.heads ? m.width / m.heads : 0);
        m.hidden = hf_json_size(&j, "intermediate_size", 11008);
        m.vocab = hf_json_size(&j, "vocab_size", 32000);
        m.context = hf_json_size(&j, "max_position_embeddings", 2048);
        m.norm_eps = hf_json_real(&j, "rms_norm_eps", 1e-6, 1e-30, 1);
        read_rope(&j, m.context, &m.rope);
        m.attn_dropout = hf_json_real(&j, "attention_dropout", 0, 0, 1);
        m.activation = hf_json_activation(&j, "hidden_act", "silu");
        m.tied = hf_json_bool(&j, "tie_word_embeddings", false);
        m.attention_bias = hf_json_bool(&j, "attention_bias", false);
        m.mlp_bias = hf_json_bool(&j, "mlp_bias", false);
        if (!j.status && m.heads % m.kv_heads)
            misfit(&j, "num_attention_heads", m.heads, "num_key_value_heads",
                   m.kv_heads);
        if (!j.status && m.head_width % 2)
            misfit(&j, "head_dim", m.head_width, "the pairs of the rotation,", 2);
    }
    FINISH(j, m, model_out);
}

/* ---- bert ------------------------------------------------------------------------ */

/* BERT's head, from the class in `architectures`; none of those named here: no head. */
static void read_head(struct hf_json *j, accel_bert_t *m)
{
    static const char key[] = "architectures";
    const char *problem;

    if (hf_json_lists(j, key, "BertForMaskedLM") ||
        hf_json_lists(j, key, "BertForPreTraining")) {
        m->head = ACCEL_BERT_MASKED_LM;
        hf_json_only(j, "tie_word_embeddings", true,
                     "use a model whose head is tied to its embedding");
    }
    if (!hf_json_lists(j, key, "BertForSequenceClassification"))
        return;
    m->head = ACCEL_BERT_CLASSIFY;
    /* transformers makes new names where there are not num_labels of them */
    m->labels = hf_json_members(j, "id2label");
    m->labels = hf_json_size(j, "num_labels", m->labels ? m->labels : 2);
    problem = hf_json_text(j, "problem_type", "single_label_classification");
    /* several labels per sequence would need another loss */
    if (strcmp(problem, "single_label_classification") != 0)
        hf_json_refuse(j, "problem_type", "use a model of one label per sequence");
    /* one label would mean regression, another loss */
    if (!j->status && m->labels < 2)
        hf_json_refuse(j, hf_json_has(j, "num_labels") ? "num_labels" : "id2label",
                       "one label means regression; use two or more");
}

accel_status_t hf_bert_parse(const char *text, size_t len, const char *where,
                             accel_bert_t *model_out, accel_error_t *err)
{
    accel_bert_t m = { 0 };
    const char *positions;
    struct hf_json j;

    if (!open_typed(&j, text, len, "bert", where, err)) {
        m.layers = hf_json_size(&j, "num_hidden_layers", 12);
        m.heads = hf_json_size(&j, "num_attention_heads", 12);
        m.width = hf_json_size(&j, "hidden_size", 768);
        m.hidden = hf_json_size(&j, "intermediate_size", 3072);
        m.vocab = hf_json_size(&j, "vocab_size", 30522);
        m.context = hf_json_size(&j, "max_position_embeddings", 512);
        m.types = hf_json_size(&j, "type_vocab_size", 2);
        m.norm_eps = hf_json_real(&j, "layer_norm_eps", 1e-12, 1e-30, 1);
        m.hidden_dropout = hf_json_real(&j, "hidden_dropout_prob", 0.1, 0, 1);
        m.attn_dropout = hf_json_real(&j, "attention_probs_dropout_prob", 0.1, 0, 1);
        /* null means the dropout of the hidden layers */
        m.classifier_dropout =
            hf_json_real(&j, "classifier_dropout", (double)m.hidden_dropout, 0, 1);
        m.activation = hf_json_activation(&j, "hidden_act", "gelu");
        /* relative positions would need another attention */
        positions = hf_json_text(&j, "position_embedding_type", "absolute");
        if (strcmp(positions, "absolute") != 0)
            hf_json_refuse(&j, "position_embedding_type",
                           "use a model with absolute positions");
        hf_json_only(&j, "is_decoder", false, PLAIN);
        hf_json_only(&j, "add_cross_attention", false, PLAIN);
        read_head(&j, &m);
        if (!j.status && m.width % m.heads)
            misfit(&j, "hidden_size", m.width, "num_attention_heads", m.heads);
    }
    FINISH(j, m, model_out);
}

/* ---- files ----------------------------------------------------------------------- */

/* Text of the config.json that `path` is, or that lies in directory `path`.
 * *text_out is one malloc; where[where_len] gets the file's name. O_NONBLOCK:
 * a pipe must not hang. */
static accel_status_t read_file(const char *path, char *where, size_t where_len,
                                char **text_out, size_t *len_out, accel_error_t *err)
{
    struct stat sb;
    size_t n = 0;
    ssize_t got = 1;
    bool in_dir;
    int fd;

    *text_out = NULL;
    /* a directory stands for the config.json in it */
    in_dir = path && stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
    snprintf(where, where_len, "%s%s", path ? path : "", in_dir ? "/config.json" : "");
    fd = path ? open(where, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return accel_fail_at(err, A0643, where,
                             "give the config.json of a model, or its directory",
                             "cannot open: %s", path ? strerror(errno) : "no path");
    if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_size <= FILE_MAX_BYTES)
        *text_out = malloc((size_t)sb.st_size + 1);
    /* a file that shrinks meanwhile ends early, and its text will not parse */
    while (*text_out && got > 0 && n < (size_t)sb.st_size) {
        got = read(fd, *text_out + n, (size_t)sb.st_size - n);
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (*text_out && got >= 0) {
        *len_out = n;
        return ACCEL_OK;
    }
    free(*text_out);
    return accel_fail_at(err, A0640, where,
                         "give the config.json of a model, or its directory",
                         "not a readable regular file of at most 16 MiB");
}

accel_status_t hf_config_type(const char *path, char *buf, size_t len,
                              accel_error_t *err)
{
    char where[PATH_MAX], *text;
    struct hf_json j = { 0 };
    size_t bytes;
    accel_status_t st = read_file(path, where, sizeof(where), &text, &bytes, err);

    if (st)
        return st;
    st = hf_json_open(&j, text, bytes, where, err);
    if (st == ACCEL_OK) {
        snprintf(buf, len, "%s", hf_json_text(&j, "model_type", ""));
        st = j.status;
    }
    hf_json_close(&j);
    free(text);
    return st;
}

/* The body of the public functions, which differ in the parser only. */
#define READ_CONFIG(parse)                                                             \
    char where[PATH_MAX], *text;                                                       \
    size_t len;                                                                        \
    accel_status_t st;                                                                 \
                                                                                       \
    if (!out)                                                                          \
        return accel_fail(err, A0640, "pass the address of the model's struct",        \
                          "out is NULL");                                              \
    st = read_file(path, where, sizeof(where), &text, &len, err);                      \
    if (st)                                                                            \
        return st;                                                                     \
    st = parse(text, len, where, out, err);                                            \
    free(text);                                                                        \
    return st

accel_status_t accel_gpt2_read_config(const char *path, accel_gpt2_t *out,
                                      accel_error_t *err)
{
    READ_CONFIG(hf_gpt2_parse);
}

accel_status_t accel_llama_read_config(const char *path, accel_llama_t *out,
                                       accel_error_t *err)
{
    READ_CONFIG(hf_llama_parse);
}

accel_status_t accel_bert_read_config(const char *path, accel_bert_t *out,
                                      accel_error_t *err)
{
    READ_CONFIG(hf_bert_parse);
}
