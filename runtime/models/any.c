/* SPDX-License-Identifier: Apache-2.0
 *
 * One interface to several kinds of models (see any.h). In: a name. Out: its sizes and
 * its tree.
 */
#include "models/any.h"

#include <string.h>
#include <sys/stat.h>

#include "models/bert.h"
#include "models/gpt2.h"
#include "models/llama.h"

/* The file says what it is: a reader that finds another model_type returns
 * ACCEL_EMISMATCH, and the next one is tried. Other errors are final. */
static accel_status_t read_config(const char *path, struct model_shape *shape_out,
                                  accel_error_t *err)
{
    accel_error_t why = { 0 };
    accel_status_t st = accel_gpt2_read_config(path, &shape_out->gpt2, &why);

    shape_out->kind = MODEL_GPT2;
    if (st == ACCEL_EMISMATCH) {
        shape_out->kind = MODEL_LLAMA;
        st = accel_llama_read_config(path, &shape_out->llama, &why);
    }
    if (st == ACCEL_EMISMATCH) {
        shape_out->kind = MODEL_BERT;
        st = accel_bert_read_config(path, &shape_out->bert, &why);
    }
    if (st == ACCEL_EMISMATCH)
        return accel_fail_at(err, A0644, path, "use a gpt2, llama or bert model",
                             "accel does not support the model_type of config.json");
    if (st != ACCEL_OK && err)
        *err = why;
    return st;
}

/* The order matters only for a name that holds two of the words. */
static accel_status_t find_preset(const char *name, struct model_shape *shape_out,
                                  accel_error_t *err)
{
    if (strstr(name, "llama")) {
        shape_out->kind = MODEL_LLAMA;
        return accel_llama_preset(name, &shape_out->llama, err);
    }
    if (strstr(name, "bert")) {
        shape_out->kind = MODEL_BERT;
        return accel_bert_preset(name, &shape_out->bert, err);
    }
    if (strstr(name, "gpt")) {
        shape_out->kind = MODEL_GPT2;
        return accel_gpt2_preset(name, &shape_out->gpt2, err);
    }
    return accel_fail(err, A0644,
                      "give a name like gpt2, llama-3-8b or bert-base-uncased, or a "
                      "directory with a config.json",
                      "there is no model '%.64s'", name);
}

accel_status_t model_shape_open(const char *name, struct model_shape *shape_out,
                                accel_error_t *err)
{
    struct stat sb;

    memset(shape_out, 0, sizeof(*shape_out));
    if (strchr(name, '/') || stat(name, &sb) == 0)
        return read_config(name, shape_out, err);
    return find_preset(name, shape_out, err);
}

struct model_sizes model_sizes_of(const struct model_shape *m)
{
    const accel_gpt2_t *g = &m->gpt2;
    const accel_llama_t *l = &m->llama;
    const accel_bert_t *b = &m->bert;

    if (m->kind == MODEL_GPT2)
        return (struct model_sizes){ g->layers, g->heads, g->width, g->context,
                                     g->vocab };
    if (m->kind == MODEL_LLAMA)
        return (struct model_sizes){ l->layers, l->heads, l->width, l->context,
                                     l->vocab };
    return (struct model_sizes){ b->layers, b->heads, b->width, b->context, b->vocab };
}

/* 0 keeps what is there. */
static void change(int *value, int given)
{
    if (given)
        *value = given;
}

/* part[kind] in the order of `given`. */
void model_resize(struct model_shape *m, const struct model_sizes *s)
{
    accel_gpt2_t *g = &m->gpt2;
    accel_llama_t *l = &m->llama;
    accel_bert_t *b = &m->bert;
    int *const part[][5] = {
        { &g->layers, &g->heads, &g->width, &g->context, &g->vocab },
        { &l->layers, &l->heads, &l->width, &l->context, &l->vocab },
        { &b->layers, &b->heads, &b->width, &b->context, &b->vocab },
    };
    const int given[] = { s->layers, s->heads, s->width, s->context, s->vocab };

    for (int i = 0; i < 5; i++)
        change(part[m->kind][i], given[i]);
    /* What follows from width and heads is worked out again: 0 lets the defaults fill
     * in the width of heads. */
    if (!s->width && !s->heads)
        return;
    l->head_width = 0;
    if (l->kv_heads && l->heads % l->kv_heads)
        l->kv_heads = l->heads;
    if (s->width)
        b->hidden = 4 * s->width;
}

/* ids and targets; BERT has {ids, types, mask, targets}, where the label of a whole
 * sequence has no dimension besides the batch. */
int model_fields(const struct model_shape *m, int seq, accel_field_t fields_out[4])
{
    int n = m->kind == MODEL_BERT ? 4 : 2;

    for (int i = 0; i < n; i++)
        fields_out[i] = (accel_field_t){ ACCEL_I32, 1, { seq } };
    if (m->kind == MODEL_BERT && m->bert.head == ACCEL_BERT_CLASSIFY)
        fields_out[3] = (accel_field_t){ ACCEL_I32, 0, { 0 } };
    return n;
}

accel_module_t *model_new(struct graph *g, const struct model_shape *m,
                          accel_error_t *err)
{
    switch (m->kind) {
    case MODEL_GPT2:
        return gpt2_new(g, &m->gpt2, err);
    case MODEL_LLAMA:
        return llama_new(g, &m->llama, err);
    default:
        return bert_new(g, &m->bert, err);
    }
}
