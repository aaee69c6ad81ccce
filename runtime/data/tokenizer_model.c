/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary, the merges and the added tokens of tokenizer.json, read into the
 * tables of a tokenizer with the ids that the tokenizers library gives them. Never
 * accepts an id or a name twice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_json.h"

/* ---- vocabulary ------------------------------------------------------------------ */

/* Two passes: the largest id gives the size of the tables. */
static accel_status_t read_vocab(const struct json_reader *r, json_t *vocab,
                                 size_t merges, int32_t ids)
{
    const char *name;
    char shown[SHOWN];
    json_t *v;
    accel_status_t st;

    if (!json_is_object(vocab))
        return json_damaged(r, "model.vocab", " is not an object of names and ids");
    json_object_foreach(vocab, name, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

        if (id < 0 || id >= BPE_MAX_IDS)
            return accel_fail_at(
                r->err, A0714, r->path, "copy or create the file again",
                "model.vocab: '%s' has no id between 0 and %d",
                tokenizer_shown(name, strlen(name), shown, SHOWN), BPE_MAX_IDS - 1);
        if (id >= ids)
            ids = (int32_t)id + 1;
    }
    ACCEL_CHECK(st, bpe_init(&r->t->bpe, ids, json_object_size(vocab), merges, r->err));
    json_object_foreach(vocab, name, v)
    {
        ACCEL_CHECK(st, bpe_add_token(&r->t->bpe, name, strlen(name),
                                      (int32_t)json_integer_value(v), r->path, r->err));
    }
    return bpe_finish(&r->t->bpe, r->path, r->err);
}

/* ---- merges ---------------------------------------------------------------------- */

/* "left right" or ["left", "right"]; files have both. */
static accel_status_t add_merge(const struct json_reader *r, const json_t *merge,
                                uint32_t rank)
{
    const json_t *l = json_array_get(merge, 0), *h = json_array_get(merge, 1);
    const char *left = json_string_value(merge), *space;

    if (left) {
        space = strchr(left, ' ');
        if (space && !strchr(space + 1, ' '))
            return bpe_add_merge(&r->t->bpe, left, (size_t)(space - left), space + 1,
                                 strlen(space + 1), rank, r->path, r->err);
    } else if (json_array_size(merge) == 2 && json_is_string(l) && json_is_string(h)) {
        return bpe_add_merge(&r->t->bpe, json_string_value(l), json_string_length(l),
                             json_string_value(h), json_string_length(h), rank, r->path,
                             r->err);
    }
    return accel_fail_at(r->err, A0714, r->path, "copy or create the file again",
                         "model.merges[%" PRIu32 "] is not a pair of tokens", rank);
}

/* Refuses settings that would change the ids of a text and are not implemented. */
static accel_status_t check_model(const struct json_reader *r, const json_t *model)
{
    static const char *const affixes[] = { "continuing_subword_prefix",
                                           "end_of_word_suffix" };
    const json_t *type = json_object_get(model, "type"),
                 *dropout = json_object_get(model, "dropout");

    /* Files of 2020 have no type: the one with merges is BPE. */
    if (type ? !json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0
             : !json_is_array(json_object_get(model, "merges")))
        return json_unsupported(r, "model.type", "use a byte-level BPE tokenizer",
                                " is not BPE");
    if (dropout && !json_is_null(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return json_unsupported(r, "model.dropout", "set it to null",
                                " is set: the ids of a text would be random");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(affixes); i++) {
        const json_t *v = json_object_get(model, affixes[i]);
        char at[64];

        if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)))
            continue;
        snprintf(at, sizeof(at), "model.%s", affixes[i]);
        return json_unsupported(r, at, "use a byte-level BPE tokenizer",
                                " is set: byte-level BPE has none");
    }
    return ACCEL_OK;
}

json_int_t json_ids_end(const json_t *list, json_int_t end)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t id =
            json_integer_value(json_object_get(json_array_get(list, i), "id"));

        if (id >= end && id < BPE_MAX_IDS)
            end = id + 1;
    }
    return end;
}

/* The added tokens are counted first, since their ids have room in the same table. */
accel_status_t json_read_model(const struct json_reader *r)
{
    json_t *model = json_object_get(r->root, "model"),
           *merges = json_object_get(model, "merges"),
           *ignore = json_object_get(model, "ignore_merges");
    accel_status_t st;

    if (!json_is_object(model))
        return json_damaged(r, "model", " is not an object");
    ACCEL_CHECK(st, check_model(r, model));
    if (!json_is_array(merges))
        return json_damaged(r, "model.merges", " is not a list of pairs");
    if (ignore && !json_is_boolean(ignore))
        return json_damaged(r, "model.ignore_merges", " is not true or false");
    r->t->bpe.ignore_merges = json_is_true(ignore);
    st = read_vocab(r, json_object_get(model, "vocab"), json_array_size(merges),
                    (int32_t)json_ids_end(json_object_get(r->root, "added_tokens"), 0));
    for (size_t i = 0; i < json_array_size(merges) && !st; i++)
        st = add_merge(r, json_array_get(merges, i), (uint32_t)i);
    return st;
}

/* ---- added tokens ---------------------------------------------------------------- */

/* The place in the file is the number of the entry. */
static accel_status_t fail_added(const struct json_reader *r, size_t i,
                                 const char *what)
{
    return accel_fail_at(r->err, A0714, r->path, "copy or create the file again",
                         "added_tokens[%zu]%s", i, what);
}

/* The library gives the vocabulary's id, or the next free one; the file's must be
 * the same. */
static accel_status_t check_id(const struct json_reader *r, size_t i, const char *text,
                               json_int_t id, json_int_t next)
{
    const json_t *known = json_object_get(
        json_object_get(json_object_get(r->root, "model"), "vocab"), text);
    json_int_t want = known ? json_integer_value(known) : next;
    char shown[SHOWN];

    if (id == want && id < BPE_MAX_IDS)
        return ACCEL_OK;
    return accel_fail_at(r->err, A0714, r->path,
                         "save the tokenizer again with the library that wrote it",
                         "added_tokens[%zu] ('%s') has id %" JSON_INTEGER_FORMAT
                         ", where %" JSON_INTEGER_FORMAT " is expected",
                         i, tokenizer_shown(text, strlen(text), shown, SHOWN), id,
                         want);
}

/* "normalized" is true by default unless the token is special. */
static accel_status_t read_flags(const struct json_reader *r, size_t i, const json_t *j,
                                 struct added_token *t)
{
    const struct {
        const char *key;
        bool *out;
        bool otherwise;
    } flags[] = {
        { "single_word", &t->single_word, false },
        { "lstrip", &t->lstrip, false },
        { "rstrip", &t->rstrip, false },
        { "normalized", &t->late, !json_is_true(json_object_get(j, "special")) },
    };

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(flags); k++) {
        const json_t *v = json_object_get(j, flags[k].key);

        if (v && !json_is_boolean(v))
            return fail_added(r, i, ": a flag is not true or false");
        *flags[k].out = v ? json_is_true(v) : flags[k].otherwise;
    }
    return ACCEL_OK;
}

/* Adds the token to its set and its bytes to the tables, for decoding. */
static accel_status_t keep_added(const struct json_reader *r, struct added_token t,
                                 const char *text)
{
    struct added_set *s = &r->t->added[t.late];
    struct added_token *grown = realloc(s->token, (s->count + 1) * sizeof(*grown));

    if (grown)
        s->token = grown;
    t.text = malloc(t.bytes);
    if (!grown || !t.text) {
        free(t.text);
        return accel_fail_nomem(r->err, "added token", t.bytes);
    }
    memcpy(t.text, text, t.bytes);
    s->token[s->count++] = t;
    return bpe_add_raw(&r->t->bpe, text, t.bytes, t.id, r->path, r->err);
}

/* `next` starts behind the vocabulary, whose ids the library takes to be dense. */
accel_status_t json_read_added(const struct json_reader *r)
{
    const json_t *list = json_object_get(r->root, "added_tokens");
    json_int_t next = (json_int_t)json_object_size(
        json_object_get(json_object_get(r->root, "model"), "vocab"));
    accel_status_t st = ACCEL_OK;

    if (list && !json_is_array(list))
        return json_damaged(r, "added_tokens", " is not a list");
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        const json_t *j = json_array_get(list, i), *id = json_object_get(j, "id"),
                     *text = json_object_get(j, "content");
        struct added_token t = { .bytes = json_string_length(text) };

        if (!json_is_integer(id) || !t.bytes)
            return fail_added(r, i, " has no id, or no content");
        st = check_id(r, i, json_string_value(text), json_integer_value(id), next);
        ACCEL_TRY(st, read_flags(r, i, j, &t));
        t.id = (int32_t)json_integer_value(id);
        if (t.id >= next)
            next = (json_int_t)t.id + 1;
        ACCEL_TRY(st, keep_added(r, t, json_string_value(text)));
    }
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(r->t->added) && !st; k++)
        st = added_sort(&r->t->added[k], r->path, r->err);
    return st;
}
