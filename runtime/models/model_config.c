/* SPDX-License-Identifier: Apache-2.0
 *
 * The config of a model of any family. In: a name, or a program's config. Out: a
 * config, or a tree of modules.
 */
#include "models/model_config.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/sized.h"
#include "models/family.h"
#include "models/huggingface/hf_config.h"

/* names of one family's published models, at most */
#define MOST_PRESETS 32
#define CONFIG_SIZED SIZED(accel_model_config_t, head)

accel_status_t model_config_take(const accel_model_config_t *given,
                                 accel_model_config_t *config_out, accel_error_t *err)
{
    if (!given)
        return accel_fail(err, A0612, "pass an accel_model_config_t",
                          "the model's config is NULL");
    return sized_read(CONFIG_SIZED, config_out, given, err);
}

static accel_status_t unsupported(const char *type, accel_error_t *err)
{
    char cure[128], list[96];

    snprintf(cure, sizeof(cure), "use a %s model",
             model_family_list(MODEL_TYPES, list, sizeof(list)));
    return accel_fail(err, A0644, cure, "accel does not support the model_type '%.64s'",
                      type);
}

#define MEMBER(name)                                                                   \
    {                                                                                  \
#name, offsetof(accel_model_config_t, name)                                    \
    }

/* Members that not all families have, each of four bytes. Of `rope` the two that give
 * the others a meaning. */
static const struct {
    const char *name;
    size_t at;
} members[] = {
    MEMBER(kv_heads),     MEMBER(head_width),    MEMBER(rope.theta),
    MEMBER(rope.kind),    MEMBER(resid_dropout), MEMBER(embd_dropout),
    MEMBER(attn_dropout), MEMBER(tied),          MEMBER(classifier_dropout),
    MEMBER(mlp_bias),     MEMBER(types),         MEMBER(attention_bias),
    MEMBER(labels),
};

/* Is the member a value of config.json? Labels are where there are several heads. */
static bool family_has(const struct model_family *f, size_t at)
{
    const size_t rope = offsetof(accel_model_config_t, rope);

    if (at == offsetof(accel_model_config_t, labels))
        return f->architectures[1].name != NULL;
    if (at >= rope && at < rope + sizeof(accel_rope_t))
        at = rope;
    for (const struct model_key *k = f->keys; k->key; k++)
        if (k->at == at)
            return true;
    return false;
}

/* A member that the family does not have would change nothing, silently. */
static accel_status_t config_alien(const struct model_family *f,
                                   const accel_model_config_t *c, accel_error_t *err)
{
    static const char zero[4];
    bool head = false;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(f->architectures); i++)
        head |= f->architectures[i].name && f->architectures[i].head == c->head;
    if (!head)
        return accel_fail(err, A0612, "leave it 0", "%s: the family has no head %d",
                          f->type, (int)c->head);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(members); i++)
        if (memcmp((const char *)c + members[i].at, zero, sizeof(zero)) != 0 &&
            !family_has(f, members[i].at))
            return accel_fail(err, A0612, "leave it 0",
                              "%s: %s is set, which the family does not have", f->type,
                              members[i].name);
    return ACCEL_OK;
}

/* The error for a name that no family has. `f`: the family that the name is for; NULL:
 * none. The hint has the nearest name, else all of them. */
static accel_status_t unknown(const struct model_family *f, const char *name,
                              accel_error_t *err)
{
    const char *names[MOST_PRESETS], *near;
    char hint[256], list[128];
    size_t n = 0, used;

    if (!f) {
        snprintf(hint, sizeof(hint),
                 "give a name like %s, or a directory with a config.json",
                 model_family_list(MODEL_EXAMPLES, list, sizeof(list)));
        return accel_fail(err, A0644, hint, "there is no model '%.64s'", name);
    }
    for (; n < MOST_PRESETS && f->presets[n].name; n++)
        names[n] = f->presets[n].name;
    near = suggest_nearest(name, names, n);
    used = near ? (size_t)snprintf(hint, sizeof(hint), "did you mean %s?", near)
                : (size_t)snprintf(hint, sizeof(hint), "there are");
    for (size_t i = 0; !near && i < n && used < sizeof(hint); i++)
        used += (size_t)snprintf(hint + used, sizeof(hint) - used, " %s", names[i]);
    return accel_fail(err, A0644, hint, "there is no %s model '%.64s'", f->type, name);
}

/* `only`: the one family to look in; NULL: all. */
static accel_status_t find_preset(const char *name, const struct model_family *only,
                                  accel_model_config_t *config_out, accel_error_t *err)
{
    const struct model_family *f, *like = only;

    for (size_t i = 0; (f = model_family_at(i)) != NULL; i++) {
        if (only && f != only)
            continue;
        for (const struct model_preset *p = f->presets; p->name; p++)
            if (strcmp(p->name, name) == 0) {
                *config_out = p->config;
                config_out->model_type = f->type;
                return ACCEL_OK;
            }
        if (!like && strstr(name, f->word))
            like = f;
    }
    return unknown(like, name, err);
}

accel_status_t model_config_open(const char *name, accel_model_config_t *config,
                                 accel_error_t *err)
{
    const char *type = config->model_type;
    const struct model_family *only = model_family_find(type);
    accel_model_config_t c = { 0 };
    accel_status_t st;
    struct stat sb;

    if (!name)
        return accel_fail(err, A0644, "give a name or a directory",
                          "no model is named");
    if (type && !only)
        return unsupported(type, err);
    st = strchr(name, '/') || stat(name, &sb) == 0 ? hf_config_read(name, type, &c, err)
                                                   : find_preset(name, only, &c, err);
    c.bytes = config->bytes;
    if (st == ACCEL_OK)
        *config = c;
    return st;
}

/* 0 keeps what is there. */
static void change(int *value, int given)
{
    if (given)
        *value = given;
}

void model_config_resize(accel_model_config_t *c, const accel_model_config_t *given)
{
    const struct model_family *f = model_family_find(c->model_type);

    change(&c->layers, given->layers);
    change(&c->heads, given->heads);
    change(&c->width, given->width);
    change(&c->context, given->context);
    change(&c->vocab, given->vocab);
    /* What follows from width and heads is worked out again: 0 lets the defaults fill
     * in the width of heads. */
    if (!given->width && !given->heads)
        return;
    c->head_width = 0;
    if (c->kv_heads && c->heads % c->kv_heads)
        c->kv_heads = c->heads;
    if (given->width && f && f->hidden_per_width)
        c->hidden = f->hidden_per_width * c->width;
}

/* ---- trees ----------------------------------------------------------------------- */

/* The targets come last; the label of a whole sequence has no dimension besides the
 * batch. */
int model_fields(const accel_model_config_t *c, int seq, accel_field_t fields_out[4])
{
    const int n = model_family_find(c->model_type)->inputs;

    for (int i = 0; i < n; i++)
        fields_out[i] = (accel_field_t){ ACCEL_I32, 1, { seq } };
    if (c->head == ACCEL_HEAD_CLASSIFY)
        fields_out[n - 1] = (accel_field_t){ ACCEL_I32, 0, { 0 } };
    return n;
}

accel_module_t *model_new(struct graph *g, const accel_model_config_t *config,
                          accel_error_t *err)
{
    const struct model_family *f = model_family_find(config->model_type);
    accel_model_config_t c = *config;

    if (!f)
        unsupported(c.model_type ? c.model_type : "", err);
    if (!f || config_alien(f, config, err) != ACCEL_OK)
        return NULL;
    c.model_type = f->type;
    model_config_fill(f, &c);
    return f->build(g, f, &c, err);
}

accel_status_t accel_model_config(const char *name, accel_model_config_t *config,
                                  accel_error_t *err)
{
    accel_model_config_t c;
    accel_status_t st;

    if (!config)
        return accel_fail(err, A0644, "pass the address of an accel_model_config_t",
                          "the sizes of model '%.64s' have no place", name ? name : "");
    ACCEL_CHECK(st, model_config_take(config, &c, err));
    ACCEL_CHECK(st, model_config_open(name, &c, err));
    sized_write(CONFIG_SIZED, config, &c);
    return ACCEL_OK;
}
