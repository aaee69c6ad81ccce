/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of the tokenizers library in, a tokenizer out. Parts that are not
 * supported are an error that names their place in the file: none is ignored silently.
 * The file is never trusted.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lfs_pointer.h"
#include "data/tokenizer_json.h"

const char split_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                          "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char split_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* ---- small readers --------------------------------------------------------------- */

/* Two kinds of errors: A0715 for a sound file that accel cannot follow exactly, A0714
 * for one that no library could. */
accel_status_t json_unsupported(const struct json_reader *r, const char *at,
                                const char *hint, const char *what)
{
    return accel_fail_at(r->err, A0715, r->path, hint, "%s%s", at, what);
}

accel_status_t json_damaged(const struct json_reader *r, const char *at,
                            const char *what)
{
    return accel_fail_at(r->err, A0714, r->path, "copy or create the file again",
                         "%s%s", at, what);
}

/* Is this member a string of this text? */
static bool is_text(const json_t *object, const char *key, const char *text)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s && !strcmp(s, text);
}

/* A member that is true or false; `otherwise` when it is missing. */
static accel_status_t read_flag(const struct json_reader *r, const json_t *object,
                                const char *at, const char *key, bool otherwise,
                                bool *flag_out)
{
    const json_t *v = json_object_get(object, key);
    char what[64];

    if (v && !json_is_boolean(v)) {
        snprintf(what, sizeof(what), ".%s: not true or false", key);
        return json_damaged(r, at, what);
    }
    *flag_out = v ? json_is_true(v) : otherwise;
    return ACCEL_OK;
}

/* ---- words ----------------------------------------------------------------------- */

/* ByteLevel alone cuts by the expression of GPT-2. */
static accel_status_t read_byte_level(const struct json_reader *r, const json_t *j)
{
    const char *at = "pre_tokenizer";
    bool regex;
    accel_status_t st = read_flag(r, j, at, "use_regex", true, &regex);

    ACCEL_TRY(st, read_flag(r, j, at, "add_prefix_space", true, &r->t->prefix_space));
    if (!st && !regex)
        st = json_unsupported(r, at, "put a Split before it, as Llama-3 has",
                              ".use_regex is false, and nothing else splits words");
    r->t->split = SPLIT_GPT2;
    return st;
}

/* The expression is compared as text: nothing but the two known ones could
 * be matched. */
static accel_status_t read_split(const struct json_reader *r, const json_t *j)
{
    const char *at = "pre_tokenizer.pretokenizers[0]";
    const char *regex =
        json_string_value(json_object_get(json_object_get(j, "pattern"), "Regex"));
    bool invert;
    accel_status_t st;

    ACCEL_CHECK(st, read_flag(r, j, at, "invert", false, &invert));
    if (!is_text(j, "behavior", "Isolated") || invert)
        return json_unsupported(r, at,
                                "use a tokenizer that splits like GPT-2 or Llama-3",
                                ": only behavior Isolated, not inverted, is supported");
    if (regex && !strcmp(regex, split_gpt2))
        r->t->split = SPLIT_GPT2;
    else if (regex && !strcmp(regex, split_llama3))
        r->t->split = SPLIT_LLAMA3;
    else
        return json_unsupported(r, at,
                                "use a tokenizer that splits like GPT-2 or Llama-3",
                                ".pattern is neither the expression of "
                                "GPT-2 nor that of Llama-3");
    return ACCEL_OK;
}

/* [Split, ByteLevel that only writes bytes as letters] */
static accel_status_t read_sequence(const struct json_reader *r, const json_t *j)
{
    const json_t *list = json_object_get(j, "pretokenizers"),
                 *split = json_array_get(list, 0), *bytes = json_array_get(list, 1);
    const char *at = "pre_tokenizer.pretokenizers[1]";
    bool regex = false, prefix = false;
    accel_status_t st;

    if (json_array_size(list) != 2 || !is_text(split, "type", "Split") ||
        !is_text(bytes, "type", "ByteLevel"))
        return json_unsupported(r, "pre_tokenizer.pretokenizers",
                                "use a tokenizer that splits like GPT-2 or Llama-3",
                                ": only Split followed by ByteLevel is supported");
    st = read_split(r, split);
    ACCEL_TRY(st, read_flag(r, bytes, at, "use_regex", true, &regex));
    ACCEL_TRY(st, read_flag(r, bytes, at, "add_prefix_space", true, &prefix));
    if (!st && (regex || prefix))
        st =
            json_unsupported(r, at, "use a tokenizer that splits like GPT-2 or Llama-3",
                             ": after a Split, use_regex and "
                             "add_prefix_space must be false");
    return st;
}

/* Either form ends in ByteLevel: no other kind of BPE is supported. */
static accel_status_t read_pre_tokenizer(const struct json_reader *r)
{
    const json_t *j = json_object_get(r->root, "pre_tokenizer");

    if (is_text(j, "type", "ByteLevel"))
        return read_byte_level(r, j);
    if (is_text(j, "type", "Sequence"))
        return read_sequence(r, j);
    return json_unsupported(r, "pre_tokenizer", "use a byte-level BPE tokenizer",
                            " is neither ByteLevel nor a Sequence with it");
}

/* ---- parts that must be as expected ---------------------------------------------- */

/* null counts as absent. */
static bool is_absent(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return !v || json_is_null(v);
}

/* A part that would change a text is refused. "truncation" and "padding" are about the
 * lengths of samples, which are the program's: they change no id of a text. */
static accel_status_t check_parts(const struct json_reader *r)
{
    const json_t *version = json_object_get(r->root, "version");

    if (version && !is_text(r->root, "version", "1.0"))
        return json_unsupported(r, "version", "save it with a library that writes 1.0",
                                " is not 1.0");
    if (!is_absent(r->root, "normalizer"))
        return json_unsupported(r, "normalizer",
                                "set it to null if the text is normalized already",
                                " is not null: accel does not change text");
    if (!is_absent(r->root, "decoder") &&
        !is_text(json_object_get(r->root, "decoder"), "type", "ByteLevel"))
        return json_unsupported(r, "decoder", "use a byte-level BPE tokenizer",
                                ".type is not ByteLevel");
    return ACCEL_OK;
}

/* ---- post-processor -------------------------------------------------------------- */

/* Appends an id to what is put around a text; `at` is its place in the file. */
static accel_status_t add_id(const struct json_reader *r, const json_t *v,
                             const char *at)
{
    struct frame *f = &r->t->frame;
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    int32_t *grown;

    if (id < 0 || id >= r->t->bpe.ids || !r->t->bpe.token[id].used)
        return json_damaged(r, at, ": an id is not a token");
    grown = realloc(f->id, (f->count + 1) * sizeof(*grown));
    if (!grown)
        return accel_fail_nomem(r->err, "template", sizeof(*grown));
    f->id = grown;
    f->id[f->count++] = (int32_t)id;
    return ACCEL_OK;
}

/* Appends the ids of the special token `name` of a template. */
static accel_status_t add_special(const struct json_reader *r, const json_t *j,
                                  const char *name)
{
    const char *at = "post_processor.special_tokens";
    const json_t *ids = json_object_get(
        json_object_get(json_object_get(j, "special_tokens"), name), "ids");
    accel_status_t st = ACCEL_OK;

    if (!json_array_size(ids))
        return json_damaged(r, at, ": a token of the template is missing");
    for (size_t i = 0; i < json_array_size(ids) && !st; i++)
        st = add_id(r, json_array_get(ids, i), at);
    return st;
}

/* The template for a single text: special tokens, and the text as Sequence A once. */
static accel_status_t read_template(const struct json_reader *r, const json_t *j)
{
    const json_t *single = json_object_get(j, "single");
    const size_t n = json_array_size(single);
    int texts = 0;
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < n && !st; i++) {
        const json_t *item = json_array_get(single, i);
        const char *name = json_string_value(
            json_object_get(json_object_get(item, "SpecialToken"), "id"));

        if (name) {
            st = add_special(r, j, name);
        } else if (is_text(json_object_get(item, "Sequence"), "id", "A")) {
            r->t->frame.before = r->t->frame.count;
            texts++;
        } else {
            return json_damaged(r, "post_processor.single",
                                ": neither a SpecialToken nor the Sequence A");
        }
    }
    if (!st && texts != 1)
        st = json_unsupported(r, "post_processor.single",
                              "use a template with the text once",
                              " does not hold the text exactly once");
    return st;
}

/* RoBERTa's and BERT's own: ["<s>", 0] before the text, ["</s>", 2] behind it. */
static accel_status_t read_pair(const struct json_reader *r, const json_t *j)
{
    accel_status_t st =
        add_id(r, json_array_get(json_object_get(j, "cls"), 1), "post_processor.cls");

    r->t->frame.before = r->t->frame.count;
    return st ? st
              : add_id(r, json_array_get(json_object_get(j, "sep"), 1),
                       "post_processor.sep");
}

static accel_status_t read_processor(const struct json_reader *r, const json_t *j)
{
    const bool pair =
        is_text(j, "type", "RobertaProcessing") || is_text(j, "type", "BertProcessing");

    if (is_text(j, "type", "ByteLevel"))
        /* it is about offsets, which nobody asks for here */
        return ACCEL_OK;
    if (!pair && !is_text(j, "type", "TemplateProcessing"))
        return json_unsupported(r, "post_processor", "use TemplateProcessing, or null",
                                ".type is none of ByteLevel, TemplateProcessing, "
                                "RobertaProcessing, BertProcessing and a Sequence of "
                                "them");
    if (r->t->frame.count)
        return json_unsupported(r, "post_processor", "keep one template",
                                " has two templates");
    return pair ? read_pair(r, j) : read_template(r, j);
}

/* One processor, or a sequence of them. */
static accel_status_t read_post_processor(const struct json_reader *r)
{
    const json_t *j = json_object_get(r->root, "post_processor"), *list;
    accel_status_t st = ACCEL_OK;

    if (is_absent(r->root, "post_processor"))
        return ACCEL_OK;
    if (!is_text(j, "type", "Sequence"))
        return read_processor(r, j);
    list = json_object_get(j, "processors");
    for (size_t i = 0; i < json_array_size(list) && !st; i++)
        st = read_processor(r, json_array_get(list, i));
    return st;
}

/* ---- the file -------------------------------------------------------------------- */

/* Duplicate keys are refused: a name would have two ids, and the last one would
 * win silently. */
json_t *json_of_text(const char *text, size_t n, const char *path, accel_error_t *err)
{
    json_error_t why;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    char where[300], shown[JSON_ERROR_TEXT_LENGTH];

    if (root)
        return root;
    if (is_lfs_pointer(text, n)) {
        accel_fail_at(err, A0714, path, LFS_POINTER_CURE, LFS_POINTER_TEXT);
        return NULL;
    }
    snprintf(where, sizeof(where), "%.200s:%d:%d", path, why.line, why.column);
    accel_fail_at(err, A0714, where, "copy or create the file again",
                  "not valid JSON: %s",
                  tokenizer_shown(why.text, strlen(why.text), shown, sizeof(shown)));
    return NULL;
}

/* The vocabulary comes before the added tokens, and both before the template that
 * names them. */
accel_status_t json_read_tokenizer(struct accel_tokenizer *t, const json_t *root,
                                   const char *path, accel_error_t *err)
{
    struct json_reader r = { .t = t, .root = root, .path = path, .err = err };
    accel_status_t st =
        json_is_object(root) ? check_parts(&r) : json_damaged(&r, "", "no JSON object");

    ACCEL_TRY(st, read_pre_tokenizer(&r));
    ACCEL_TRY(st, json_read_model(&r));
    ACCEL_TRY(st, json_read_added(&r));
    ACCEL_TRY(st, read_post_processor(&r));
    return st;
}

accel_status_t tokenizer_parse_json(struct accel_tokenizer *t, const char *text,
                                    size_t n, const char *path, accel_error_t *err)
{
    json_t *root = json_of_text(text, n, path, err);
    accel_status_t st = root ? json_read_tokenizer(t, root, path, err) : ACCEL_ECORRUPT;

    json_decref(root);
    return st;
}

accel_status_t tokenizer_read_json(struct accel_tokenizer *t, const char *path,
                                   accel_error_t *err)
{
    size_t n;
    char *text;
    accel_status_t st;

    ACCEL_CHECK(st, tokenizer_read_file(path, &text, &n, err));
    st = tokenizer_parse_json(t, text, n, path, err);
    free(text);
    return st;
}
