/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes config.json by the keys of a family, so that transformers loads the weights
 * stored with it. In: a config or a model. Out: text; never a file.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/family.h"
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

/* The value of a key; NULL: the key is not written, or memory ran out. */
static json_t *key_value(const struct model_key *k, const accel_model_config_t *c)
{
    const void *at = (const char *)c + k->at;

    switch (k->kind) {
    case MODEL_SIZE:
        return json_integer(*(const int *)at);
    case MODEL_DROPOUT:
    case MODEL_EPS:
        return real(*(const float *)at);
    case MODEL_FLAG:
        return json_boolean(*(const int *)at);
    case MODEL_ACTIVATION:
        return json_string(hf_activation_name(*(const accel_activation_t *)at));
    case MODEL_ROPE:
        return real(c->rope.theta > 0 ? c->rope.theta : 10000);
    case MODEL_ONLY:
        return k->written ? json_boolean(k->otherwise != 0) : NULL;
    case MODEL_ONLY_WORD:
        return k->written ? json_string(k->word) : NULL;
    }
    return NULL;
}

/* A field of 0 means the library's default, which is written out: that of transformers
 * may differ. A key that is not there shows that memory ran out. */
static json_t *config_object(const struct model_family *f,
                             const accel_model_config_t *given, const char *dtype)
{
    accel_model_config_t c = *given;
    size_t want = 3, i = 0;
    json_t *o;

    model_config_fill(f, &c);
    while (f->architectures[i].head != c.head)
        i++;
    o = json_pack("{s:[s], s:s, s:s}", "architectures", f->architectures[i].name,
                  "model_type", f->type, "torch_dtype", dtype);
    for (const struct model_key *k = f->keys; k->key; k++) {
        const bool rule = k->kind == MODEL_ONLY || k->kind == MODEL_ONLY_WORD;

        if (!rule || k->written)
            json_object_set_new(o, k->key, key_value(k, &c));
        want += !rule || k->written;
        if (k->kind == MODEL_ROPE)
            json_object_set_new(o, "rope_scaling", rope_scaling(&c.rope));
        want += k->kind == MODEL_ROPE;
    }
    if (json_object_size(o) < want) {
        json_decref(o);
        return NULL;
    }
    if (f->write)
        f->write(o, &c);
    return o;
}

accel_status_t hf_config_format(const accel_model_config_t *config, const char *dtype,
                                char **text_out, accel_error_t *err)
{
    json_t *o = config_object(model_family_find(config->model_type), config, dtype);
    char *text =
        o ? json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9))
          : NULL;

    json_decref(o);
    if (!text)
        return accel_fail_nomem(err, "the text of config.json", 4096);
    *text_out = text;
    return ACCEL_OK;
}

/* The state of a root of the library's models begins with the config. */
accel_status_t hf_config_text(const accel_module_t *root, const char *dtype,
                              char **text_out, accel_error_t *err)
{
    *text_out = NULL;
    return model_family_of(root) ? hf_config_format(root->state, dtype, text_out, err)
                                 : ACCEL_OK;
}

accel_status_t hf_config_line(const accel_module_t *root, const char *from,
                              char **line_out, accel_error_t *err)
{
    char *text = NULL;
    json_t *o;
    accel_status_t st = hf_config_text(root, "float32", &text, err);

    *line_out = NULL;
    if (st || !text)
        return st;
    o = json_loads(text, 0, NULL);
    free(text);
    /* the key by which transformers, too, says where a model comes from; a path that is
     * not UTF-8 is left out */
    if (from)
        json_object_set_new(o, "_name_or_path", json_string(from));
    *line_out = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_SORT_KEYS |
                                  JSON_REAL_PRECISION(9));
    json_decref(o);
    return *line_out ? ACCEL_OK
                     : accel_fail_nomem(err, "the text of config.json", 4096);
}
