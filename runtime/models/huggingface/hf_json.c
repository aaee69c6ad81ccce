/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a config.json by key. In: JSON text. Out: numbers within their ranges, and
 * words. A value of the wrong type, or one that cannot be computed with, is one error
 * that gives key and value.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/lfs_pointer.h"
#include "models/huggingface/hf_json.h"

/* the largest size; its text is in hf_json_size */
#define SIZE_MAX_VALUE (INT32_MAX / 4)

/* The file may hold anything, terminals react to control characters. */
const char *hf_json_shown(const char *s, char *buf, size_t len)
{
    size_t n = 0;

    for (; s[n] && n + 1 < len; n++)
        buf[n] = (unsigned char)s[n] < 0x20 || (unsigned char)s[n] > 0x7e ? '?' : s[n];
    buf[n] = '\0';
    return buf;
}

/* A value as JSON text, printable and cut to fit buf[len]. */
static const char *value_text(const json_t *v, char *buf, size_t len)
{
    /* 9 digits, as many as a float has */
    char *text =
        v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9))
          : NULL;

    hf_json_shown(text ? text : "nothing", buf, len);
    free(text);
    return buf;
}

accel_status_t hf_json_open(struct hf_json *j, const char *text, size_t len,
                            const char *where, accel_error_t *err)
{
    json_error_t e;
    char buf[128];

    *j = (struct hf_json){ .where = where, .err = err };
    /* a key that is there twice has no one value */
    j->object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!j->object && is_lfs_pointer(text, len))
        j->status =
            accel_fail_at(err, A0640, where, LFS_POINTER_CURE, LFS_POINTER_TEXT);
    else if (!j->object)
        j->status = accel_fail_at(err, A0640, where, "copy or download the file again",
                                  "not valid JSON, line %d: %s", e.line,
                                  hf_json_shown(e.text, buf, sizeof(buf)));
    else if (!json_is_object(j->object))
        j->status = accel_fail_at(err, A0640, where, "give the config.json of a model",
                                  "not a JSON object");
    if (j->status)
        hf_json_close(j);
    return j->status;
}

/* Also right when the opening failed. */
void hf_json_close(struct hf_json *j)
{
    json_decref(j->object);
    j->object = NULL;
}

/* The value of a key, borrowed; NULL when absent, null, or after an error. */
static json_t *get(const struct hf_json *j, const char *key)
{
    /* after a problem everything is absent: no second message */
    json_t *v = j->status ? NULL : json_object_get(j->object, key);

    return json_is_null(v) ? NULL : v;
}

/* Files write null for "the default". */
bool hf_json_has(const struct hf_json *j, const char *key)
{
    return get(j, key) != NULL;
}

/* Notes that a value is not what is wanted. */
static void bad_value(struct hf_json *j, const char *key, const char *wanted)
{
    char value[96];

    if (!j->status)
        j->status = accel_fail_at(
            j->err, A0640, j->where, "copy or download the file again",
            "%s is %s, not %s", key,
            value_text(json_object_get(j->object, key), value, sizeof(value)), wanted);
}

/* 1 after an error: callers divide by sizes. */
int hf_json_size(struct hf_json *j, const char *key, int otherwise)
{
    json_t *v = get(j, key);
    json_int_t n = json_integer_value(v);

    if (!v && otherwise)
        return otherwise;
    if (!v && !j->status)
        j->status =
            accel_fail_at(j->err, A0640, j->where, "copy or download the file again",
                          "the key %s is missing", key);
    if (!j->status && (!json_is_integer(v) || n < 1 || n > SIZE_MAX_VALUE))
        bad_value(j, key, "a whole number from 1 to 536870911");
    return j->status ? 1 : (int)n;
}

float hf_json_real(struct hf_json *j, const char *key, double otherwise, double min,
                   double max)
{
    json_t *v = get(j, key);
    double n = json_number_value(v);
    char wanted[64];

    if (!v)
        return (float)otherwise;
    text_format(wanted, sizeof(wanted), "a number from %g to below %g", min, max);
    /* written so that not a number is refused */
    if (!json_is_number(v) || !(n >= min && n < max))
        bad_value(j, key, wanted);
    return j->status ? (float)otherwise : (float)n;
}

bool hf_json_bool(struct hf_json *j, const char *key, bool otherwise)
{
    json_t *v = get(j, key);

    if (v && !json_is_boolean(v))
        bad_value(j, key, "true or false");
    return v ? json_is_true(v) : otherwise;
}

/* Lives as long as the object of j. */
const char *hf_json_text(struct hf_json *j, const char *key, const char *otherwise)
{
    json_t *v = get(j, key);

    if (v && !json_is_string(v))
        bad_value(j, key, "text");
    return v && !j->status ? json_string_value(v) : otherwise;
}

/* Message A0641: the file is right, the library cannot do it. */
void hf_json_refuse(struct hf_json *j, const char *key, const char *hint)
{
    char value[96];

    if (!j->status)
        j->status = accel_fail_at(
            j->err, A0641, j->where, hint, "%s: %s is not supported", key,
            value_text(json_object_get(j->object, key), value, sizeof(value)));
}

void hf_json_multiple(struct hf_json *j, const char *a, int a_value, const char *b,
                      int b_value)
{
    if (!j->status && a_value % b_value)
        j->status =
            accel_fail_at(j->err, A0640, j->where, "copy or download the file again",
                          "%s %d is not a multiple of %s %d", a, a_value, b, b_value);
}

/* names of activations in transformers; of several names of a form
 * the first is written */
static const struct {
    const char *name;
    accel_activation_t act;
} activations[] = {
    { "gelu_new", ACCEL_ACT_GELU },        { "gelu_pytorch_tanh", ACCEL_ACT_GELU },
    { "gelu_fast", ACCEL_ACT_GELU },       { "gelu", ACCEL_ACT_GELU_ERF },
    { "gelu_python", ACCEL_ACT_GELU_ERF }, { "silu", ACCEL_ACT_SILU },
    { "swish", ACCEL_ACT_SILU },           { "relu", ACCEL_ACT_RELU },
    { "relu2", ACCEL_ACT_RELU2 },
};

accel_activation_t hf_activation(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(activations); i++)
        if (strcmp(activations[i].name, name) == 0)
            return activations[i].act;
    return ACCEL_ACT_NONE;
}

accel_activation_t hf_json_activation(struct hf_json *j, const char *key,
                                      const char *otherwise)
{
    accel_activation_t act = hf_activation(hf_json_text(j, key, otherwise));

    if (act == ACCEL_ACT_NONE)
        hf_json_refuse(j, key, "use gelu_new, gelu, silu, relu or relu2");
    return act;
}

const char *hf_activation_name(accel_activation_t act)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(activations); i++)
        if (activations[i].act == act)
            return activations[i].name;
    return NULL;
}

/* A copy of the struct with another object: the caller must hand the status back. */
bool hf_json_object(struct hf_json *j, const char *key, struct hf_json *object_out)
{
    json_t *v = get(j, key);

    if (v && !json_is_object(v))
        bad_value(j, key, "an object");
    *object_out = *j;
    object_out->object = v;
    return v && !j->status;
}

int hf_json_members(struct hf_json *j, const char *key)
{
    struct hf_json in;

    return hf_json_object(j, key, &in) ? (int)json_object_size(in.object) : 0;
}

bool hf_json_lists(struct hf_json *j, const char *key, const char *word)
{
    json_t *v = get(j, key), *item;
    size_t i;

    if (v && !json_is_array(v))
        bad_value(j, key, "a list");
    /* entries that are no texts are passed over */
    json_array_foreach(v, i, item) if (json_is_string(item) &&
                                       strcmp(json_string_value(item), word) ==
                                           0) return true;
    return false;
}
