/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of Hugging Face models: read into the structs of accel.h, and written
 * from them. In: text or a path. Out: a struct; never a model.
 */
#ifndef ACCEL_NN_MODELS_HF_CONFIG_H
#define ACCEL_NN_MODELS_HF_CONFIG_H

#include "common/common.h"

/* The text of a config.json; `where` names it in errors. Errors as
 * accel_*_read_config. */
accel_status_t hf_gpt2_parse(const char *text, size_t len, const char *where,
                             accel_gpt2_t *model_out, accel_error_t *err);
accel_status_t hf_llama_parse(const char *text, size_t len, const char *where,
                              accel_llama_t *model_out, accel_error_t *err);
accel_status_t hf_bert_parse(const char *text, size_t len, const char *where,
                             accel_bert_t *model_out, accel_error_t *err);

/* A config.json that the same transformers class reads back as this model; `dtype`,
 * "float32", is that of the weights beside it. *out is one malloc. */
accel_status_t hf_gpt2_format(const accel_gpt2_t *m, const char *dtype, char **text_out,
                              accel_error_t *err);
accel_status_t hf_llama_format(const accel_llama_t *m, const char *dtype,
                               char **text_out, accel_error_t *err);
accel_status_t hf_bert_format(const accel_bert_t *m, const char *dtype, char **text_out,
                              accel_error_t *err);

/* hf_json.c: values by key. The first problem stays in err, and later calls do
 * nothing. */
struct hf_json {
    struct json_t *object;
    const char *where;
    accel_error_t *err;
    accel_status_t status;
};
accel_status_t hf_json_open(struct hf_json *j, const char *text, size_t len,
                            const char *where, accel_error_t *err);
void hf_json_close(struct hf_json *j);
/* A key is absent when it is not there or null. */
bool hf_json_has(const struct hf_json *j, const char *key);
/* Value of `key` from 1 to INT32_MAX / 4; `otherwise` when absent, 0: it must be
 * there. */
int hf_json_size(struct hf_json *j, const char *key, int otherwise);
/* Value of `key`, min <= value < max. */
float hf_json_real(struct hf_json *j, const char *key, double otherwise, double min,
                   double max);
bool hf_json_bool(struct hf_json *j, const char *key, bool otherwise);
/* Owned by j; NULL when absent and `otherwise` is. */
const char *hf_json_text(struct hf_json *j, const char *key, const char *otherwise);
/* Refuses a computation that is not supported, with the value of the key. */
void hf_json_refuse(struct hf_json *j, const char *key, const char *hint);
/* Refuses `key` unless it is `wanted` or absent, which is the same. */
void hf_json_only(struct hf_json *j, const char *key, bool wanted, const char *hint);
/* Same, for what holds an object or a list when it is used. */
void hf_json_absent(struct hf_json *j, const char *key, const char *hint);
accel_activation_t hf_json_activation(struct hf_json *j, const char *key,
                                      const char *otherwise);
const char *hf_activation_name(accel_activation_t act);
/* The object of `key`, sharing err; false when absent. Not to be closed. */
bool hf_json_object(struct hf_json *j, const char *key, struct hf_json *object_out);
/* A text as it may stand in a message: printable, shorter than len. Returns buf. */
const char *hf_json_shown(const char *s, char *buf, size_t len);
/* How many members the object of `key` has; 0 when absent. */
int hf_json_members(struct hf_json *j, const char *key);
/* Is `word` in the list of texts of `key`? */
bool hf_json_lists(struct hf_json *j, const char *key, const char *word);

#endif
