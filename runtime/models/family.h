/* SPDX-License-Identifier: Apache-2.0
 *
 * A model family as data: one row for each. What is here serves all of them; only the
 * family's own file knows what the row says.
 */
#ifndef ACCEL_MODELS_FAMILY_H
#define ACCEL_MODELS_FAMILY_H

#include "models/huggingface/hf_json.h"
#include "models/huggingface/hf_names.h"
#include "nn/nn.h"

struct decoder_table;
struct block_table;

/* The kinds of values in config.json. */
enum model_key_kind {
    MODEL_SIZE,       /* int, at least 1; absent without a default: 0 */
    MODEL_DROPOUT,    /* float, from 0 to below 1 */
    MODEL_EPS,        /* float above 0; 0 in the config means the default, too */
    MODEL_FLAG,       /* int, true or false */
    MODEL_ACTIVATION, /* the default is its name; 0 in the config means it, too */
    MODEL_ROPE,       /* accel_rope_t, of several keys; `key` is rope_theta */
    MODEL_ONLY,       /* true or false: any other value than the default is refused */
    MODEL_ONLY_WORD,  /* the same of a text */
};

/* A key of config.json. A family ends its list with an empty row. */
struct model_key {
    const char *key;
    enum model_key_kind kind;
    /* offset of the member in accel_model_config_t; MODEL_ONLY: 0 */
    size_t at;
    /* the default of the family's class in transformers; `like`: offset of the member
     * whose value it is instead */
    double otherwise;
    const char *word;
    size_t like;
    /* other names of the key: taken before it, and when it is absent */
    const char *before, *after;
    /* MODEL_ONLY: read with this head only, 0: with any; the cure of the refusal, NULL:
     * a model without it; written, too */
    accel_model_head_t head;
    const char *cure;
    bool written;
};

/* A row of a value: what follows the default are more members. */
#define MODEL_KEY(name, of_kind, member, ...)                                          \
    {                                                                                  \
        .key = name, .kind = of_kind, .at = offsetof(accel_model_config_t, member),    \
        .otherwise = __VA_ARGS__                                                       \
    }

/* A published model. The family is filled in where it is found. */
struct model_preset {
    const char *name;
    accel_model_config_t config;
};

struct model_family {
    /* model_type of config.json; messages begin with it */
    const char *type;
    /* how users call it: a name that contains `word` is looked for among its presets;
     * one of them, for messages */
    const char *word, *example;
    /* Classes of transformers, `architectures` of config.json, and the head that each
     * has. The first with a head is written. */
    struct {
        const char *name;
        accel_model_head_t head;
    } architectures[4];
    const struct model_key *keys;
    /* ends with a row without a name */
    const struct model_preset *presets;
    struct hf_names names;
    /* class of the root, whose state begins with an accel_model_config_t */
    const accel_class_t *root;
    /* NULL: `build` has its own */
    const struct decoder_table *decoder;
    const struct block_table *blocks;
    /* inputs of a training forward, int32 [batch, tokens] each */
    int inputs;
    /* hidden = this * width when `accel plan` changes the width; 0: hidden stays */
    int hidden_per_width;
    /* Defaults that the keys do not have. NULL: there are none. */
    void (*fill)(accel_model_config_t *c);
    /* What the keys cannot say of config.json; NULL: nothing. */
    void (*read)(struct hf_json *j, accel_model_config_t *c);
    void (*write)(struct json_t *o, const accel_model_config_t *c);
    /* Builds the tree of `c`, whose defaults are filled in and whose sizes it checks;
     * decoder_new for every decoder. The caller frees it with nn_module_free. NULL and
     * `err` on failure. */
    accel_module_t *(*build)(struct graph *g, const struct model_family *f,
                             accel_model_config_t *c, accel_error_t *err);
};

/* All rows: a new family is a word here. */
#define MODEL_FAMILIES(ROW)        ROW(gpt2) ROW(llama) ROW(bert)
#define MODEL_FAMILY_DECLARE(name) extern const struct model_family name##_family;
MODEL_FAMILIES(MODEL_FAMILY_DECLARE)

/* family.c. The i-th family, from 0; NULL: no more. */
const struct model_family *model_family_at(size_t i);
/* The family of a model_type, and that of the root of a model; NULL: none. */
const struct model_family *model_family_find(const char *type);
const struct model_family *model_family_of(const accel_module_t *root);
/* Writes "a, b or c" to buf[len]: the model_types of all families, or a published model
 * of each. Returns buf. */
enum model_family_text { MODEL_TYPES, MODEL_EXAMPLES };
const char *model_family_list(enum model_family_text which, char *buf, size_t len);
/* Fills in the defaults of the family. */
void model_config_fill(const struct model_family *f, accel_model_config_t *c);

#endif
