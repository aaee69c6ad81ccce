/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a config.json by key. In: JSON text. Out: numbers within their ranges, and
 * words.
 */
#ifndef ACCEL_MODELS_HF_JSON_H
#define ACCEL_MODELS_HF_JSON_H

#include "common/common.h"

/* An object whose values are taken by key. The first problem stays in `status` and
 * err; later calls do nothing and return harmless values. */
struct hf_json {
    /* owned, unless it came from hf_json_object */
    struct json_t *object;
    const char *where;
    accel_error_t *err;
    accel_status_t status;
};
/* Parses text[len]. hf_json_close is allowed even after a failure. */
accel_status_t hf_json_open(struct hf_json *j, const char *text, size_t len,
                            const char *where, accel_error_t *err);
void hf_json_close(struct hf_json *j);
/* Is the key present? A key whose value is null counts as absent, here and below. */
bool hf_json_has(const struct hf_json *j, const char *key);
/* A whole number from 1 to INT32_MAX / 4, so that sums of a few fit an int. `otherwise`
 * when absent; if `otherwise` is 0, the key must be present. */
int hf_json_size(struct hf_json *j, const char *key, int otherwise);
/* A number, min <= value < max; `otherwise` when absent. */
float hf_json_real(struct hf_json *j, const char *key, double otherwise, double min,
                   double max);
/* true or false; `otherwise` when absent. */
bool hf_json_bool(struct hf_json *j, const char *key, bool otherwise);
/* A text owned by j; `otherwise` when absent, which may be NULL. */
const char *hf_json_text(struct hf_json *j, const char *key, const char *otherwise);
/* Notes that the value of the key asks for a computation that is not supported. */
void hf_json_refuse(struct hf_json *j, const char *key, const char *hint);
/* Refuses sizes of which a is no multiple of b. */
void hf_json_multiple(struct hf_json *j, const char *a, int a_value, const char *b,
                      int b_value);
/* The activation that the key names; `otherwise` is the name when absent. */
accel_activation_t hf_json_activation(struct hf_json *j, const char *key,
                                      const char *otherwise);
/* The activation of a name of transformers; ACCEL_ACT_NONE: there is none. And the name
 * that is written for one; static. NULL: none. */
accel_activation_t hf_activation(const char *name);
const char *hf_activation_name(accel_activation_t act);
/* The object of `key`, sharing err and status with j as of now; the caller copies
 * status back. False when absent. Not to be closed. */
bool hf_json_object(struct hf_json *j, const char *key, struct hf_json *object_out);
/* s made fit for a message: printable, and cut to fit buf[len]. Returns buf. */
const char *hf_json_shown(const char *s, char *buf, size_t len);
/* Number of members of the object of `key`; 0 when absent. */
int hf_json_members(struct hf_json *j, const char *key);
/* Is `word` in the list of texts of `key`? */
bool hf_json_lists(struct hf_json *j, const char *key, const char *word);

#endif
