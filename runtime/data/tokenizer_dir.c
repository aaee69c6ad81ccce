/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory of a saved tokenizer in, the JSON of a tokenizer.json out: from
 * tokenizer.json, or from vocab.json and merges.txt, and from the settings beside them,
 * which say how words are cut and which tokens are special. Never guesses: a tokenizer
 * that is not cut as GPT-2's is refused by its name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lfs_pointer.h"
#include "data/data_impl.h"
#include "data/tokenizer_json.h"

/* The special tokens that have a role, in the order in which they get their ids. */
static const char *const roles[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token" };
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, ROLES };

/* Tokenizers that cut words as GPT-2 does, with their tokens where a directory does not
 * name them. */
struct kind {
    const char *token[ROLES];
    /* a text alone is put between CLS and SEP */
    bool framed;
};

static const struct kind gpt2 = {
    .token = { [BOS] = "<|endoftext|>",
               [EOS] = "<|endoftext|>",
               [UNK] = "<|endoftext|>" },
};
static const struct kind roberta = {
    .token = { "<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>" },
    .framed = true,
};

/* Their classes, and the models that have one of them where no class is named. */
static const struct {
    const char *name;
    const struct kind *kind;
} classes[] = {
    { "GPT2Tokenizer", &gpt2 },          { "CodeGenTokenizer", &gpt2 },
    { "RobertaTokenizer", &roberta },    { "BartTokenizer", &roberta },
    { "LongformerTokenizer", &roberta }, { "LEDTokenizer", &roberta },
    { "MvpTokenizer", &roberta },
}, models[] = {
    { "gpt2", &gpt2 },        { "gpt_neo", &gpt2 },      { "gptj", &gpt2 },
    { "codegen", &gpt2 },     { "opt", &gpt2 },          { "phi", &gpt2 },
    { "starcoder2", &gpt2 },  { "roberta", &roberta },   { "bart", &roberta },
    { "led", &roberta },      { "longformer", &roberta }, { "mvp", &roberta },
    { "roberta-prelayernorm", &roberta },
};

/* A directory being read. The JSON of a file is NULL where there is no such file. */
struct dir_reader {
    const char *dir;
    /* tokenizer_config.json, config.json, special_tokens_map.json, added_tokens.json */
    json_t *settings, *model, *map, *added;
    /* what becomes of it; of its members, not owned */
    json_t *root, *vocab, *list;
    /* NULL: the settings name no kind of the table */
    const struct kind *kind;
    accel_error_t *err;
};

/* ---- files ----------------------------------------------------------------------- */

static accel_status_t file_of(const struct dir_reader *r, const char *name, char *path,
                              size_t len)
{
    if ((size_t)snprintf(path, len, "%s/%s", r->dir, name) >= len)
        return accel_fail(r->err, A0716, "use a shorter path", "the path is too long");
    return ACCEL_OK;
}

static accel_status_t refuse(const struct dir_reader *r, const char *file,
                             const char *cure, const char *key, const char *what)
{
    char path[4096];
    accel_status_t st = file_of(r, file, path, sizeof(path));

    return st ? st : accel_fail_at(r->err, A0715, path, cure, "%s%s", key, what);
}

/* A file that holds one JSON object; none where it is missing. */
static accel_status_t read_object(const struct dir_reader *r, const char *name,
                                  json_t **object_out)
{
    char path[4096], *text;
    size_t n;
    accel_status_t st = file_of(r, name, path, sizeof(path));

    if (st || (access(path, F_OK) && errno == ENOENT))
        return st;
    ACCEL_CHECK(st, tokenizer_read_file(path, &text, &n, r->err));
    *object_out = json_of_text(text, n, path, r->err);
    free(text);
    if (!*object_out)
        return ACCEL_ECORRUPT;
    if (!json_is_object(*object_out))
        return accel_fail_at(r->err, A0714, path, "copy or create the file again",
                             "no JSON object");
    return ACCEL_OK;
}

/* One merge per line, "left right"; lines that begin with #version are skipped. CRLF
 * is accepted. */
static accel_status_t read_merges(const struct dir_reader *r, const char *path,
                                  const char *text, size_t n, json_t *merges)
{
    const char *end = text + n, *next;
    int line = 1;

    if (is_lfs_pointer(text, n))
        return accel_fail_at(r->err, A0714, path, LFS_POINTER_CURE, LFS_POINTER_TEXT);
    for (const char *p = text; p < end; p = next + 1, line++) {
        const char *stop, *space;

        next = memchr(p, '\n', (size_t)(end - p));
        next = next ? next : end;
        stop = next > p && next[-1] == '\r' ? next - 1 : next;
        if (stop - p >= 8 && !memcmp(p, "#version", 8))
            continue;
        space = memchr(p, ' ', (size_t)(stop - p));
        if (!space || memchr(space + 1, ' ', (size_t)(stop - space - 1)))
            return accel_fail_at(r->err, A0714, path, "copy or create the file again",
                                 "line %d is not a pair of tokens", line);
        if (json_array_append_new(merges, json_stringn(p, (size_t)(stop - p))))
            return accel_fail_at(r->err, A0714, path, "copy or create the file again",
                                 "line %d is not UTF-8", line);
    }
    return ACCEL_OK;
}

/* vocab.json and merges.txt as the model of a tokenizer.json. */
static accel_status_t read_two_files(struct dir_reader *r)
{
    char path[4096], *text;
    json_t *vocab = NULL, *merges;
    size_t n;
    accel_status_t st = read_object(r, "vocab.json", &vocab);

    ACCEL_TRY(st, file_of(r, "merges.txt", path, sizeof(path)));
    if (!st && (!vocab || access(path, F_OK)))
        st = accel_fail_at(
            r->err, A0701, r->dir, "give the directory of a saved tokenizer",
            "the directory has neither tokenizer.json nor vocab.json and merges.txt");
    ACCEL_TRY(st, tokenizer_read_file(path, &text, &n, r->err));
    if (st) {
        json_decref(vocab);
        return st;
    }
    merges = json_array();
    st = read_merges(r, path, text, n, merges);
    free(text);
    r->root = json_pack("{s:{s:s, s:o, s:o}}", "model", "type", "BPE", "vocab", vocab,
                        "merges", merges);
    return st || r->root ? st : accel_fail_nomem(r->err, "tokenizer", n);
}

/* ---- which tokenizer ------------------------------------------------------------- */

/* "Fast" at the end of a class changes no id. */
static const struct kind *kind_of_class(const char *name)
{
    size_t n = strlen(name);

    if (n > 4 && !strcmp(name + n - 4, "Fast"))
        n -= 4;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(classes); i++)
        if (strlen(classes[i].name) == n && !memcmp(classes[i].name, name, n))
            return classes[i].kind;
    return NULL;
}

static const struct kind *kind_of_model(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(models); i++)
        if (!strcmp(models[i].name, name))
            return models[i].kind;
    return NULL;
}

/* The class that the settings name, or else the model's. Two files without any settings
 * are GPT-2's if they can be: its vocabulary has its token, and no ends of words. */
static accel_status_t find_kind(struct dir_reader *r, bool two_files)
{
    static const char cure[] =
        "give a tokenizer.json: the tokenizers library writes it";
    const char *named =
                   json_string_value(json_object_get(r->settings, "tokenizer_class")),
               *model = json_string_value(json_object_get(r->model, "model_type")),
               *file = named ? "tokenizer_config.json" : "config.json";
    char shown[SHOWN], what[2 * SHOWN];

    if (!named)
        named = json_string_value(json_object_get(r->model, "tokenizer_class"));
    r->kind = named ? kind_of_class(named) : model ? kind_of_model(model) : NULL;
    if (r->kind || !two_files)
        return ACCEL_OK;
    if (named || model) {
        named = named ? named : model;
        snprintf(what, sizeof(what), " '%s' does not cut words as GPT-2 does",
                 tokenizer_shown(named, strlen(named), shown, SHOWN));
        return refuse(r, file, cure, named == model ? "model_type" : "tokenizer_class",
                      what);
    }
    if (!json_object_get(r->vocab, "<|endoftext|>") ||
        json_object_get(r->vocab, "a</w>"))
        return refuse(r, "vocab.json",
                      "add the tokenizer_config.json that belongs to it", "",
                      "not GPT-2's, and nothing beside it says how words are cut");
    r->kind = &gpt2;
    return ACCEL_OK;
}

/* ---- added tokens ---------------------------------------------------------------- */

/* A token with its id, to be sorted. */
struct numbered {
    long long id;
    const char *text;
    const json_t *flags;
};

static int by_id(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* The id that the tokenizers library gives a token: the vocabulary's, or the next. */
static json_int_t next_id(const struct dir_reader *r, const char *text)
{
    const json_t *known = json_object_get(r->vocab, text);

    return known ? json_integer_value(known)
                 : json_ids_end(r->list, (json_int_t)json_object_size(r->vocab));
}

static const json_t *listed(const struct dir_reader *r, const char *text)
{
    for (size_t i = 0; i < json_array_size(r->list); i++) {
        const json_t *j = json_array_get(r->list, i);
        const char *s = json_string_value(json_object_get(j, "content"));

        if (s && !strcmp(s, text))
            return j;
    }
    return NULL;
}

/* Adds a token to the list unless it is there, with the flags of `flags` (an object
 * with "content", or none); id -1: the library's choice. */
static accel_status_t add_token(const struct dir_reader *r, const char *text,
                                const json_t *flags, json_int_t id, bool special)
{
    static const char *const keys[] = { "single_word", "lstrip", "rstrip",
                                        "normalized" };
    json_t *j;

    if (!*text || listed(r, text))
        return ACCEL_OK;
    j = json_pack("{s:I, s:s, s:b}", "id", id < 0 ? next_id(r, text) : id, "content",
                  text, "special", special);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(keys); i++) {
        json_t *v = json_object_get(flags, keys[i]);

        if (v)
            json_object_set(j, keys[i], v);
    }
    if (json_array_append_new(r->list, j))
        return accel_fail_nomem(r->err, "added token", strlen(text));
    return ACCEL_OK;
}

/* A special token as a text, or as an object with it and its flags; null: none. */
static accel_status_t add_special(const struct dir_reader *r, const json_t *token)
{
    const char *text = json_string_value(
        json_is_object(token) ? json_object_get(token, "content") : token);

    return text ? add_token(r, text, token, -1, true) : ACCEL_OK;
}

/* What the settings hold beside the roles: lists, or texts by a name of their own. */
static accel_status_t add_extra(const struct dir_reader *r, const char *key,
                                const json_t *extra)
{
    const size_t n = strlen(key);
    const char *name;
    json_t *v;
    accel_status_t st = ACCEL_OK;

    if (strcmp(key, "extra_special_tokens") != 0 &&
        strcmp(key, "additional_special_tokens") != 0)
        return n > 6 && !strcmp(key + n - 6, "_token") ? add_special(r, extra) : st;
    for (size_t i = 0; i < json_array_size(extra) && !st; i++)
        st = add_special(r, json_array_get(extra, i));
    json_object_foreach((json_t *)extra, name, v)
    {
        ACCEL_TRY(st, add_special(r, v));
    }
    return st;
}

/* All special tokens of the settings, those with a role first. What they do not name is
 * the kind's; null is none. */
static accel_status_t add_all_special(const struct dir_reader *r)
{
    const char *key;
    json_t *v;
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < ROLES && !st; i++) {
        v = json_object_get(r->settings, roles[i]);
        if (v)
            st = add_special(r, v);
        else if (r->kind && r->kind->token[i])
            st = add_token(r, r->kind->token[i], NULL, -1, true);
    }
    json_object_foreach(r->settings, key, v)
    {
        ACCEL_TRY(st, add_extra(r, key, v));
    }
    return st;
}

/* Tokens with ids, in the order of those: {"id": {"content": text, flags}}, or
 * {text: id}, where `special` has those that are special. */
static accel_status_t add_numbered(const struct dir_reader *r, json_t *tokens,
                                   const struct dir_reader *special)
{
    struct numbered *t = calloc(json_object_size(tokens) + 1, sizeof(*t));
    const char *key;
    size_t n = 0;
    json_t *v;
    accel_status_t st = ACCEL_OK;

    if (!t)
        return accel_fail_nomem(r->err, "added tokens", json_object_size(tokens));
    json_object_foreach(tokens, key, v)
    {
        const char *text = json_string_value(json_object_get(v, "content"));

        t[n++] = (struct numbered){ .id = text ? atoll(key) : json_integer_value(v),
                                    .text = text ? text : key,
                                    .flags = text ? v : NULL };
    }
    qsort(t, n, sizeof(*t), by_id);
    for (size_t i = 0; i < n && !st; i++)
        st = add_token(r, t[i].text, t[i].flags, t[i].id,
                       special ? listed(special, t[i].text) != NULL
                               : json_is_true(json_object_get(t[i].flags, "special")));
    free(t);
    return st;
}

/* The tokens of tokenizer_config.json, where it numbers them; of older directories
 * those of the two other files. */
static accel_status_t add_tokens(struct dir_reader *r)
{
    struct dir_reader special = *r;
    json_t *numbered = json_object_get(r->settings, "added_tokens_decoder");
    accel_status_t st;

    if (numbered) {
        st = add_numbered(r, numbered, NULL);
        return st ? st : add_all_special(r);
    }
    json_object_update(r->settings, r->map);
    special.list = json_array();
    special.kind = NULL;
    st = add_all_special(&special);
    ACCEL_TRY(st, add_numbered(r, r->added, &special));
    json_decref(special.list);
    return st ? st : add_all_special(r);
}

/* ---- the whole ------------------------------------------------------------------- */

/* The token of a role, as the template writes it. */
static void frame_token(const struct dir_reader *r, int role, json_t *single,
                        json_t *ids)
{
    const json_t *v = json_object_get(r->settings, roles[role]), *token;
    const char *text = json_is_object(v)
                           ? json_string_value(json_object_get(v, "content"))
                       : v ? json_string_value(v)
                           : r->kind->token[role];

    token = text ? listed(r, text) : NULL;
    if (!token)
        return;
    json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", text));
    json_object_set_new(ids, text,
                        json_pack("{s:[O]}", "ids", json_object_get(token, "id")));
}

/* What the class puts around a text. */
static void set_frame(const struct dir_reader *r)
{
    const bool framed = r->kind->framed;
    json_t *single = json_array(), *ids = json_object();

    if (framed || json_is_true(json_object_get(r->settings, "add_bos_token")))
        frame_token(r, framed ? CLS : BOS, single, ids);
    json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    if (framed || json_is_true(json_object_get(r->settings, "add_eos_token")))
        frame_token(r, framed ? SEP : EOS, single, ids);
    json_object_set_new(r->root, "post_processor",
                        json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing",
                                  "single", single, "special_tokens", ids));
}

/* A class of the table says itself whether a text gets a space before it. */
static accel_status_t set_words(struct dir_reader *r, bool two_files)
{
    json_t *pre = json_object_get(r->root, "pre_tokenizer"),
           *space = json_object_get(r->settings, "add_prefix_space");
    const char *type = json_string_value(json_object_get(pre, "type"));

    if (json_is_true(json_object_get(r->settings, "split_special_tokens")))
        return refuse(r, "tokenizer_config.json", "remove it", "split_special_tokens",
                      " is true: accel takes a special token as a whole");
    if (two_files) {
        pre = json_pack("{s:s}", "type", "ByteLevel");
        json_object_set_new(r->root, "pre_tokenizer", pre);
    } else if (!r->kind || !json_object_get(r->settings, "tokenizer_class") || !type ||
               strcmp(type, "ByteLevel") != 0) {
        return ACCEL_OK;
    }
    json_object_set_new(pre, "add_prefix_space", json_boolean(json_is_true(space)));
    return ACCEL_OK;
}

/* The JSON, with all that the directory says about it. */
static accel_status_t read_files(struct dir_reader *r, bool *two_files_out)
{
    bool two_files;
    accel_status_t st = read_object(r, "tokenizer.json", &r->root);

    two_files = !st && !r->root;
    if (two_files)
        st = read_two_files(r);
    ACCEL_TRY(st, read_object(r, "tokenizer_config.json", &r->settings));
    ACCEL_TRY(st, read_object(r, "special_tokens_map.json", &r->map));
    ACCEL_TRY(st, read_object(r, "added_tokens.json", &r->added));
    if (!st && !json_object_get(r->settings, "tokenizer_class"))
        st = read_object(r, "config.json", &r->model);
    if (st)
        return st;
    r->vocab = json_object_get(json_object_get(r->root, "model"), "vocab");
    r->settings = r->settings ? r->settings : json_object();
    if (!json_object_get(r->root, "added_tokens"))
        json_object_set_new(r->root, "added_tokens", json_array());
    r->list = json_object_get(r->root, "added_tokens");
    *two_files_out = two_files;
    return find_kind(r, two_files);
}

accel_status_t tokenizer_read_dir(struct accel_tokenizer *t, const char *dir,
                                  accel_error_t *err)
{
    struct dir_reader r = { .dir = dir, .err = err };
    bool two_files = false;
    accel_status_t st = read_files(&r, &two_files);
    char path[4096];

    ACCEL_TRY(st, add_tokens(&r));
    ACCEL_TRY(st, set_words(&r, two_files));
    if (!st && two_files)
        set_frame(&r);
    ACCEL_TRY(st, file_of(&r, two_files ? "vocab.json" : "tokenizer.json", path,
                          sizeof(path)));
    ACCEL_TRY(st, json_read_tokenizer(t, r.root, path, err));
    json_decref(r.root);
    json_decref(r.settings);
    json_decref(r.model);
    json_decref(r.map);
    json_decref(r.added);
    return st;
}
