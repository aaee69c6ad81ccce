/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes config.json from the structs of accel.h, so that transformers loads the
 * weights stored with it. In: a struct. Out: text; never a file.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/huggingface/hf_config.h"

/* The double whose shortest decimal is that of the float: 1e-05, not 9.99999975e-06. */
static json_t *real(float v)
{
    char text[32];

    /* 9 digits tell any two floats apart, so the loop finds one */
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v)
            break;
    }
    return json_real(strtod(text, NULL));
}

/* The object as indented text, and the object freed. A NULL object means that memory
 * ran out while it was made. */
static accel_status_t hf_finish_text(json_t *o, char **text_out, accel_error_t *err)
{
    char *text =
        o ? json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9))
          : NULL;

    json_decref(o);
    if (!text)
        return accel_fail_nomem(err, "the text of config.json", 4096);
    *text_out = text;
    return ACCEL_OK;
}

/* A field of 0 means the library's default, which is written out: that of
 * transformers may differ. */
accel_status_t hf_gpt2_format(const accel_gpt2_t *m, const char *dtype, char **text_out,
                              accel_error_t *err)
{
    json_t *o = json_pack(
        "{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:s, s:b}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "torch_dtype", dtype,
        "n_layer", m->layers, "n_head", m->heads, "n_embd", m->width, "n_inner",
        m->hidden ? m->hidden : 4 * m->width, "n_positions", m->context, "vocab_size",
        m->vocab, "resid_pdrop", real(m->resid_dropout), "embd_pdrop",
        real(m->embd_dropout), "attn_pdrop", real(m->attn_dropout),
        "layer_norm_epsilon", real(m->norm_eps > 0 ? m->norm_eps : 1e-5f),
        "activation_function",
        hf_activation_name(m->activation ? m->activation : ACCEL_ACT_GELU),
        "tie_word_embeddings", 1);

    return hf_finish_text(o, text_out, err);
}

/* All versions of transformers read this key; rope_parameters only new ones. */
static json_t *rope_scaling(const accel_rope_t *r)
{
    if (r->kind == ACCEL_ROPE_LINEAR)
        return json_pack("{s:s, s:s, s:o}", "rope_type", "linear", "type", "linear",
                         "factor", real(r->factor));
    if (r->kind == ACCEL_ROPE_LLAMA3)
        return json_pack("{s:s, s:o, s:o, s:o, s:i}", "rope_type", "llama3", "factor",
                         real(r->factor), "low_freq_factor", real(r->low_freq_factor),
                         "high_freq_factor", real(r->high_freq_factor),
                         "original_max_position_embeddings", r->original_context);
    /* no scaling: the key is there, and null */
    return json_null();
}

accel_status_t hf_llama_format(const accel_llama_t *m, const char *dtype,
                               char **text_out, accel_error_t *err)
{
    json_t *o = json_pack(
        "{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, "
        "s:s, s:b, s:b, s:b}",
        "architectures", "LlamaForCausalLM", "model_type", "llama", "torch_dtype",
        dtype, "num_hidden_layers", m->layers, "num_attention_heads", m->heads,
        "num_key_value_heads", m->kv_heads ? m->kv_heads : m->heads, "hidden_size",
        m->width, "head_dim", m->head_width ? m->head_width : m->width / m->heads,
        "intermediate_size", m->hidden, "vocab_size", m->vocab,
        "max_position_embeddings", m->context, "rms_norm_eps",
        real(m->norm_eps > 0 ? m->norm_eps : 1e-6f), "rope_theta",
        real(m->rope.theta > 0 ? m->rope.theta : 10000), "rope_scaling",
        rope_scaling(&m->rope), "attention_dropout", real(m->attn_dropout),
        "hidden_act",
        hf_activation_name(m->activation ? m->activation : ACCEL_ACT_SILU),
        "tie_word_embeddings", m->tied, "attention_bias", m->attention_bias, "mlp_bias",
        m->mlp_bias);

    return hf_finish_text(o, text_out, err);
}

/* id2label, {"0": "LABEL_0", ...}: transformers takes the number of labels from it. */
static json_t *labels(int n)
{
    json_t *o = json_object();
    char key[16], value[32];

    for (int i = 0; o && i < n; i++) {
        snprintf(key, sizeof(key), "%d", i);
        snprintf(value, sizeof(value), "LABEL_%d", i);
        json_object_set_new(o, key, json_string(value));
    }
    return o;
}

accel_status_t hf_bert_format(const accel_bert_t *m, const char *dtype, char **text_out,
                              accel_error_t *err)
{
    static const char *const classes[] = {
        [ACCEL_BERT_NONE] = "BertModel",
        [ACCEL_BERT_MASKED_LM] = "BertForMaskedLM",
        [ACCEL_BERT_CLASSIFY] = "BertForSequenceClassification",
    };
    json_t *o = json_pack(
        "{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:s, "
        "s:s, s:b}",
        "architectures", classes[m->head], "model_type", "bert", "torch_dtype", dtype,
        "num_hidden_layers", m->layers, "num_attention_heads", m->heads, "hidden_size",
        m->width, "intermediate_size", m->hidden, "vocab_size", m->vocab,
        "max_position_embeddings", m->context, "type_vocab_size",
        m->types ? m->types : 2, "layer_norm_eps",
        real(m->norm_eps > 0 ? m->norm_eps : 1e-12f), "hidden_dropout_prob",
        real(m->hidden_dropout), "attention_probs_dropout_prob", real(m->attn_dropout),
        "classifier_dropout", real(m->classifier_dropout), "hidden_act",
        hf_activation_name(m->activation ? m->activation : ACCEL_ACT_GELU_ERF),
        "position_embedding_type", "absolute", "tie_word_embeddings", 1);

    /* without it transformers would build a head of two labels */
    if (o && m->head == ACCEL_BERT_CLASSIFY)
        json_object_set_new(o, "id2label", labels(m->labels ? m->labels : 2));
    return hf_finish_text(o, text_out, err);
}
