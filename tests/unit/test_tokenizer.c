/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers: the ids of the tokenizers library, any bytes there and back, text in
 * pieces, long words, and files that are damaged or of another kind.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/tokenizer_impl.h"
#include "data/tokenizer_json.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static const char *data_dir;

struct bytes {
    uint8_t *p;
    size_t n;
};

static struct bytes read_data(const char *name)
{
    char path[4096];
    struct bytes b = { 0 };
    accel_error_t err = { 0 };
    char *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", data_dir, name);
    tap_ok(!tokenizer_read_file(path, &text, &b.n, &err), "%s is read (%s)", name,
           err.text);
    b.p = (uint8_t *)text;
    return b;
}

static accel_tokenizer_t *open_data(const char *name)
{
    char path[4096];
    accel_tokenizer_t *t = NULL;
    accel_error_t err = { 0 };

    snprintf(path, sizeof(path), "%s/%s", data_dir, name);
    tap_ok(!accel_tokenizer_open(&t, path, &err), "%s opens (%s)", name, err.text);
    return t;
}

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Ids of a text by the two calls that accel.h describes; *count_out of them. */
static int32_t *ids_of(const accel_tokenizer_t *t, const void *text, size_t n,
                       unsigned flags, size_t *count_out)
{
    accel_error_t err;
    int32_t *ids;
    size_t again = 0;

    if (accel_tokenize(t, text, n, flags, NULL, 0, count_out, &err))
        return NULL;
    ids = malloc((*count_out + 1) * sizeof(*ids));
    ids[*count_out] = -7;
    if (accel_tokenize(t, text, n, flags, ids, *count_out, &again, &err) ||
        again != *count_out || ids[*count_out] != -7)
        abort();
    return ids;
}

/* ---- the library's ids ----------------------------------------------------------- */

static void check_golden(const accel_tokenizer_t *t, const char *name)
{
    struct bytes text = read_data("mixed.txt"), want = read_data(name);
    size_t n, wrong = 0;
    int32_t *ids = ids_of(t, text.p, text.n, ACCEL_TOKENIZE_FRAME, &n);

    tap_is_int((long long)n, (long long)want.n / 2, "%s: as many ids", name);
    for (size_t i = 0; i < n && i < want.n / 2; i++)
        wrong += ids[i] != (want.p[2 * i] | want.p[2 * i + 1] << 8);
    tap_is_int((long long)wrong, 0, "%s: the same ids", name);
    free(ids);
    free(text.p);
    free(want.p);
}

static void test_library(void)
{
    accel_tokenizer_t *t = open_data("gpt2.json"), *two = open_data("gpt2");
    accel_tokenizer_t *llama = open_data("llama3.json");
    size_t n;
    int32_t *ids;

    check_golden(t, "gpt2.ids");
    check_golden(two, "gpt2.ids");
    check_golden(llama, "llama3.ids");
    tap_is_int(accel_tokenizer_vocab(t), 700, "vocabulary");
    tap_is_int(accel_tokenizer_vocab(llama), 704, "vocabulary with added tokens");
    tap_is_int(accel_tokenizer_id(t, "<|endoftext|>"), 0, "id of a special token");
    tap_is_int(accel_tokenizer_id(two, "<|endoftext|>"), 0, "also of the two files");
    tap_is_int(accel_tokenizer_id(llama, "<r>"), 703, "id of an added token");
    tap_is_int(accel_tokenizer_id(t, " "), 221, "id of a byte");
    tap_is_int(accel_tokenizer_id(t, "no such token"), -1, "id of what is none");
    ids = ids_of(llama, "", 0, ACCEL_TOKENIZE_FRAME, &n);
    tap_ok(n == 1 && ids[0] == accel_tokenizer_id(llama, "<|begin_of_text|>"),
           "a template around nothing");
    free(ids);
    ids = ids_of(llama, NULL, 0, 0, &n);
    tap_is_int((long long)n, 0, "nothing");
    free(ids);
    accel_tokenizer_close(t);
    accel_tokenizer_close(two);
    accel_tokenizer_close(llama);
}

/* ---- any bytes ------------------------------------------------------------------- */

/* Pieces of text with bytes that are none between them. */
static void fill_random(uint8_t *p, size_t n, const struct bytes *text)
{
    for (size_t i = 0; i < n;) {
        size_t from = next() % text->n, len = 1 + next() % 12;

        for (; len > 0 && i < n && from < text->n; len--)
            p[i++] = text->p[from++];
        if (next() % 3 == 0 && i < n)
            p[i++] = (uint8_t)next();
    }
}

static bool comes_back(const accel_tokenizer_t *t, const uint8_t *p, size_t n)
{
    accel_error_t err;
    size_t count, bytes = 0, part = 0;
    int32_t *ids = ids_of(t, p, n, 0, &count);
    uint8_t *back = malloc(n + 1);
    bool same = ids && !accel_detokenize(t, ids, count, back, n, &bytes, &err) &&
                bytes == n && !memcmp(back, p, n);

    /* Id by id it is the same. */
    for (size_t i = 0, at = 0; same && i < count; i++, at += part)
        same = !accel_detokenize(t, ids + i, 1, back, n, &part, &err) &&
               !memcmp(back, p + at, part);
    free(back);
    free(ids);
    return same;
}

static void test_bytes(void)
{
    accel_tokenizer_t *t = open_data("gpt2.json");
    struct bytes text = read_data("mixed.txt");
    uint8_t buf[600], every[256];
    int wrong = 0;

    for (int i = 0; i < 256; i++)
        every[i] = (uint8_t)i;
    tap_ok(comes_back(t, every, 256), "every byte comes back");
    for (int i = 0; i < 5000; i++) {
        size_t n = 1 + next() % sizeof(buf);

        fill_random(buf, n, &text);
        wrong += !comes_back(t, buf, n);
    }
    tap_is_int(wrong, 0, "broken UTF-8 comes back");
    free(text.p);
    accel_tokenizer_close(t);
}

/* ---- words ----------------------------------------------------------------------- */

static void test_words(void)
{
    static const struct {
        enum split_kind kind;
        const char *words; /* with | between them */
    } c[] = {
        { SPLIT_GPT2, "I|'ve| | got|\r|\n|12| 3" },
        { SPLIT_GPT2, "it|'|S| '|s| ''|s|  " },
        { SPLIT_GPT2,
          "\xc3\xa9t\xc3\xa9|\xc2\xa0|x|\xe2\x80\x83| \xc2\xbd|\xe2\x82\xac" },
        /* A byte that belongs to no character is a symbol. */
        { SPLIT_GPT2, "ab|\xff\xfe| cd| \xff|x" },
        { SPLIT_GPT2, "a|\xc3(" },
        { SPLIT_LLAMA3, "I|'LL| | go|!\r\n\r\n| |123|4| |5" },
        { SPLIT_LLAMA3, "x|'\xc5\xbf|y|'re|'RE" },
        { SPLIT_LLAMA3, " \n\n| | x|\t|\ty|  \r\n|z" },
        { SPLIT_LLAMA3, "(a|(((|a|.\n\n" },
        /* A surrogate, an overlong form and what is above U+10FFFF are symbols too. */
        { SPLIT_LLAMA3, "\xed\xa0\x80|a|\xc0\x80\n|1|\xf4\x90\x80\x80|1|\xf0\x9f\x98" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        char text[128], got[256];
        size_t n = 0, out = 0;

        for (const char *s = c[i].words; *s; s++)
            if (*s != '|')
                text[n++] = *s;
        for (size_t at = 0; at < n;) {
            size_t len =
                pretokenize(c[i].kind, (uint8_t *)text + at, (uint8_t *)text + n);

            if (at)
                got[out++] = '|';
            memcpy(got + out, text + at, len);
            out += len;
            at += len;
        }
        got[out] = '\0';
        tap_is_str(got, c[i].words, "words of text %zu", i);
    }
}

/* ---- pieces ---------------------------------------------------------------------- */

/* Text read through a window of `window` bytes, which grows where it must. */
static bool same_in_pieces(const accel_tokenizer_t *t, const struct bytes *text,
                           size_t window)
{
    size_t want_n, have = 0, at = 0, n;
    int32_t *want = ids_of(t, text->p, text->n, 0, &want_n);
    int32_t *ids = malloc(2 * (text->n + 1) * sizeof(*ids));
    bool continued = false, same = true;
    accel_error_t err;

    for (size_t size = window; at < text->n;) {
        bool end = text->n - at <= size;
        size_t cut = end ? text->n - at : tokenizer_cut(t, text->p + at, size);

        if (!cut) {
            size *= 2;
            continue;
        }
        /* What follows is out of sight. */
        same = same && !tokenizer_encode(t, text->p + at, cut, continued, ids + have,
                                         2 * cut, &n, &err);
        have += n;
        at += cut;
        continued = true;
        size = window;
    }
    same = same && have == want_n && !memcmp(ids, want, have * sizeof(*ids));
    free(want);
    free(ids);
    return same;
}

/* `text` with the first `from` replaced by `to`, which may be shorter or longer. */
static struct bytes replaced(const struct bytes *text, const char *from, const char *to)
{
    uint8_t *at = memmem(text->p, text->n, from, strlen(from));
    struct bytes b = { malloc(text->n + strlen(to)), 0 };
    size_t before = at ? (size_t)(at - text->p) : text->n;

    if (!at) {
        tap_ok(false, "the file has no '%s'", from);
        from = to = "";
    }
    memcpy(b.p, text->p, before);
    memcpy(b.p + before, to, strlen(to));
    memcpy(b.p + before + strlen(to), text->p + before + strlen(from),
           text->n - before - strlen(from));
    b.n = text->n - strlen(from) + strlen(to);
    return b;
}

/* Opens a file of the data as "the file", with the first `from` replaced. */
static accel_status_t open_replaced(accel_tokenizer_t **t_out, const char *name,
                                    const char *from, const char *to,
                                    accel_error_t *err)
{
    struct bytes file = read_data(name), other = replaced(&file, from, to);
    const accel_status_t st =
        tokenizer_open_memory(t_out, (char *)other.p, other.n, "the file", err);

    free(other.p);
    free(file.p);
    return st;
}

/* GPT-2's, with a space before every text. */
static accel_tokenizer_t *open_spaced(void)
{
    accel_tokenizer_t *t = NULL;
    accel_error_t err = { 0 };

    tap_ok(!open_replaced(&t, "gpt2.json", "\"add_prefix_space\": false",
                          "\"add_prefix_space\": true", &err),
           "with a space before every text (%s)", err.text);
    return t;
}

static void test_pieces(void)
{
    static const uint8_t words[] = "one two abcdefghijklmnopqrst";
    struct bytes text = read_data("mixed.txt");
    accel_tokenizer_t *t[] = { open_data("gpt2.json"), open_data("llama3.json"),
                               open_spaced() };
    uint8_t broken[20000];
    struct bytes noise = { broken, sizeof(broken) };

    fill_random(broken, sizeof(broken), &text);
    for (size_t i = 0; i < 3 && t[i]; i++) {
        int wrong = 0;

        for (size_t window = 40; window < 400; window += 23)
            wrong += !same_in_pieces(t[i], &text, window) +
                     !same_in_pieces(t[i], &noise, window);
        tap_is_int(wrong, 0, "tokenizer %zu: text in pieces has the ids of the whole",
                   i);
        tap_is_int((long long)tokenizer_cut(t[i], words, sizeof(words) - 1), 7,
                   "which is cut at a blank");
        accel_tokenizer_close(t[i]);
    }
    free(text.p);
}

static void test_prefix(void)
{
    accel_tokenizer_t *t = open_spaced();
    accel_error_t err;
    char text[64];
    static const char *const c[][2] = {
        { "a", " a" },     { " a", " a" },
        { "\na", " \na" }, { "a<|endoftext|>b", " a<|endoftext|> b" },
        { "", "" },
    };

    for (size_t i = 0; t && i < ACCEL_ARRAY_SIZE(c); i++) {
        size_t n, bytes = 0;
        int32_t *ids = ids_of(t, c[i][0], strlen(c[i][0]), 0, &n);

        accel_detokenize(t, ids, n, text, sizeof(text) - 1, &bytes, &err);
        text[bytes] = '\0';
        tap_is_str(text, c[i][1], "a space before text %zu", i);
        free(ids);
    }
    accel_tokenizer_close(t);
}

/* ---- merging --------------------------------------------------------------------- */

/* The heap of long words merges as the table of short ones does. */
static void test_long_words(void)
{
    accel_tokenizer_t *t = open_data("gpt2.json");
    struct bytes text = read_data("mixed.txt");
    int wrong = 0;
    accel_error_t err;

    for (int i = 0; i < 20000; i++) {
        int32_t a[48], b[48];
        struct id_sink x = { a, 48, 0 }, y = { b, 48, 0 };
        size_t n = 2 + next() % 47, from = next() % (text.n - n);

        wrong += bpe_encode(&t->bpe, text.p + from, n, &x, &err) ||
                 bpe_encode_long(&t->bpe, text.p + from, n, &y, &err) ||
                 x.count != y.count || memcmp(a, b, x.count * sizeof(*a));
    }
    tap_is_int(wrong, 0, "long words are merged as short ones");
    free(text.p);
    text = (struct bytes){ malloc(1 << 20), 1 << 20 };
    for (size_t i = 0; i < text.n; i++)
        text.p[i] = "the"[next() % 3];
    tap_ok(comes_back(t, text.p, text.n), "a word of 1 MiB");
    free(text.p);
    accel_tokenizer_close(t);
}

/* ---- threads --------------------------------------------------------------------- */

struct reader {
    const accel_tokenizer_t *t;
    const struct bytes *text;
    int32_t *ids;
    size_t count;
};

static void *read_all(void *arg)
{
    struct reader *r = arg;

    r->ids = ids_of(r->t, r->text->p, r->text->n, 0, &r->count);
    return NULL;
}

/* One handle, four threads, each the first to see some of the words. */
static void test_threads(void)
{
    accel_tokenizer_t *t = open_data("gpt2.json");
    struct bytes text = read_data("mixed.txt");
    struct reader r[4];
    pthread_t thread[4];
    int wrong = 0;

    for (int i = 0; i < 4; i++) {
        r[i] = (struct reader){ t, &text, NULL, 0 };
        if (pthread_create(&thread[i], NULL, read_all, &r[i]))
            abort();
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 1; i < 4; i++)
        wrong += r[i].count != r[0].count ||
                 memcmp(r[i].ids, r[0].ids, r[0].count * sizeof(*r[0].ids));
    tap_is_int(wrong, 0, "threads that share a tokenizer have the same ids");
    for (int i = 0; i < 4; i++)
        free(r[i].ids);
    free(text.p);
    accel_tokenizer_close(t);
}

/* ---- misuse and damage ----------------------------------------------------------- */

static void test_arguments(void)
{
    accel_tokenizer_t *t = open_data("gpt2.json"), *none = NULL;
    accel_error_t err;
    size_t n;
    int32_t bad[] = { 5, 700, -1 };

    tap_ok(accel_tokenizer_open(&none, "", &err) == ACCEL_EINVAL && !none, "no path");
    tap_ok(accel_tokenizer_open(&none, "/nowhere/tokenizer.json", &err) == ACCEL_ENOENT,
           "no file: %s", err.text);
    tap_ok(accel_tokenizer_open(&none, "/dev/null", &err) == ACCEL_ECORRUPT,
           "no regular file: %s", err.text);
    tap_ok(accel_tokenize(t, "a", 1, 2, NULL, 0, &n, &err) == ACCEL_EINVAL,
           "a flag that is none: %s", err.text);
    tap_ok(accel_tokenize(t, NULL, 1, 0, NULL, 0, &n, &err) == ACCEL_EINVAL, "no text");
    tap_ok(accel_detokenize(t, bad, 1, NULL, 0, &n, &err) == ACCEL_OK && n == 1,
           "the size alone");
    tap_ok(accel_detokenize(t, bad, 2, NULL, 0, &n, &err) == ACCEL_EINVAL &&
               strstr(err.text, "id 700, number 1"),
           "an id that is no token: %s", err.text);
    tap_ok(accel_detokenize(t, bad + 2, 1, NULL, 0, &n, &err) == ACCEL_EINVAL,
           "a negative one");
    accel_tokenizer_close(t);
    accel_tokenizer_close(NULL);
}

static void test_utf8_whole(void)
{
    static const struct {
        const char *text;
        size_t whole;
    } c[] = {
        { "", 0 },
        { "ab", 2 },
        { "a\xc3", 1 },
        { "a\xc3\xa9", 3 },
        { "\xe2\x82", 0 },
        { "\xe2\x82\xac", 3 },
        { "a\xf0\x9f\x98", 1 },
        { "\xf0\x9f\x98\x80", 4 },
        { "a\x80\x80\x80\x80", 5 },
        { "a\xff", 2 },
        { "\xc3\xa9\xe2", 2 },
        { "a\xc3\xa9\xa9", 4 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++)
        tap_is_int((long long)accel_utf8_whole(c[i].text, strlen(c[i].text)),
                   (long long)c[i].whole, "whole characters of text %zu", i);
}

#define NO_ID "model.vocab: 'A' has no id between 0 and 4194303"

static const struct damage {
    const char *file, *from, *to, *text;
    accel_status_t want;
} damages[] = {
    { "gpt2.json", "{\n", "", "not valid JSON", ACCEL_ECORRUPT },
    { "gpt2.json", "\"1.0\"", "\"2.0\"", "version is not", ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}",
      "normalizer is", ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"ByteLevel\"", "\"Whitespace\"", "pre_tokenizer is neither",
      ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"use_regex\": true", "\"use_regex\": false", "use_regex",
      ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"use_regex\": true", "\"use_regex\": 1", "use_regex",
      ACCEL_ECORRUPT },
    { "gpt2.json", "\"decoder\": {\n\"type\": \"ByteLevel\"",
      "\"decoder\": {\n\"type\": \"WordPiece\"", "decoder.type", ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"post_processor\": null",
      "\"post_processor\": {\"type\": \"T5Processing\"}", "post_processor.type",
      ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"post_processor\": null",
      "\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"A\", 33]}",
      "post_processor.sep: an id", ACCEL_ECORRUPT },
    { "gpt2.json", "\"post_processor\": null",
      "\"post_processor\": {\"type\": \"RobertaProcessing\", \"cls\": [\"A\", 700],"
      "\"sep\": [\"A\", 33]}",
      "post_processor.cls: an id", ACCEL_ECORRUPT },
    { "gpt2.json", "\"BPE\"", "\"Unigram\"", "model.type is not BPE",
      ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"dropout\": null", "\"dropout\": 0.1", "model.dropout",
      ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"_\"",
      "model.end_of_word_suffix", ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"A\": 33,\n", "", "the byte 0x41", ACCEL_EUNSUPPORTED },
    { "gpt2.json", "\"A\": 33", "\"A\": 34", "id 34 twice", ACCEL_ECORRUPT },
    { "gpt2.json", "\"A\": 33", "\"A\": -1", NO_ID, ACCEL_ECORRUPT },
    { "gpt2.json", "\"A\": 33", "\"A\": 4194304", NO_ID, ACCEL_ECORRUPT },
    { "gpt2.json", "\"A\": 33", "\"A\": 3e1", NO_ID, ACCEL_ECORRUPT },
    { "gpt2.json", "\"A\": 33", "\"B\": 33", "not valid JSON: duplicate",
      ACCEL_ECORRUPT },
    { "gpt2.json", "\"merges\": [", "\"merges\": [\"A \xc3\xa9\",",
      "merge 0 ('A' '\xc3\xa9'): both together are not", ACCEL_ECORRUPT },
    { "gpt2.json", "\"merges\": [", "\"merges\": [\"AA B\",", "the first is not",
      ACCEL_ECORRUPT },
    { "gpt2.json", "\"merges\": [", "\"merges\": [\"A B C\",", "model.merges[0]",
      ACCEL_ECORRUPT },
    { "gpt2.json", "\"merges\": [", "\"merges\": [[\"A\"],", "model.merges[0]",
      ACCEL_ECORRUPT },
    { "gpt2.json", "\"id\": 0", "\"id\": 9", "has id 9, where 0", ACCEL_ECORRUPT },
    { "gpt2.json", "\"content\": \"<|endoftext|>\"", "\"content\": \"\"",
      "added_tokens[0] has no", ACCEL_ECORRUPT },
    { "gpt2.json", "\"lstrip\": false", "\"lstrip\": 0", "a flag", ACCEL_ECORRUPT },
    { "llama3.json", "\"id\": 703", "\"id\": 99999999999", "where 703",
      ACCEL_ECORRUPT },
    { "llama3.json", "<|end_of_text|>", "<|begin_of_text|>",
      "same content, ids 700 and 701", ACCEL_ECORRUPT },
    { "llama3.json", "{1,3}", "{1,2}", "pretokenizers[0].pattern", ACCEL_EUNSUPPORTED },
    { "llama3.json", "\"Isolated\"", "\"Removed\"", "only behavior Isolated",
      ACCEL_EUNSUPPORTED },
    { "llama3.json", "\"use_regex\": false", "\"use_regex\": true", "pretokenizers[1]",
      ACCEL_EUNSUPPORTED },
    { "llama3.json", "\"SpecialToken\"", "\"Special\"", "post_processor.single",
      ACCEL_ECORRUPT },
};

static void test_damage(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(damages); i++) {
        accel_tokenizer_t *t = NULL;
        accel_error_t err = { 0 };
        const accel_status_t st =
            open_replaced(&t, damages[i].file, damages[i].from, damages[i].to, &err);

        tap_ok(st == damages[i].want && !t && strstr(err.text, damages[i].text) &&
                   err.hint[0] && strstr(err.where, "the file"),
               "damage %zu: %s", i, err.text);
    }
}

/* ---- what is put around the text ------------------------------------------------- */

#define OFFSETS "{\"type\": \"ByteLevel\"}"
#define PAIR(type)                                                                     \
    "{\"type\": \"" type "Processing\", \"cls\": [\"B\", 34], \"sep\": [\"C\", 35]}"
#define TOKEN(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TEMPLATE                                                                       \
    "{\"type\": \"TemplateProcessing\", \"single\": [" TOKEN("D") ", " TOKEN(          \
        "E") ", {\"Sequence\": {\"id\": \"A\", \"type_id\": "                          \
             "0}}, " TOKEN("D") "], \"special_tokens\": {\"D\": "                      \
                                "{\"ids\": [36]}, \"E\": {\"ids\": "                   \
                                "[37]}}}"
#define LIST(items) "{\"type\": \"Sequence\", \"processors\": [" items "]}"

/* The text is "A", of id 33. */
static void test_processors(void)
{
    static const struct {
        const char *what, *json, *ids; /* of a refused one a piece of its message */
    } rows[] = {
        { "none", "null", " 33" },
        { "offsets", OFFSETS, " 33" },
        { "BERT's", PAIR("Bert"), " 34 33 35" },
        { "RoBERTa's", PAIR("Roberta"), " 34 33 35" },
        { "a template", TEMPLATE, " 36 37 33 36" },
        { "an empty list", LIST(""), " 33" },
        { "a list of one", LIST(PAIR("Bert")), " 34 33 35" },
        { "of nothing but offsets", LIST(OFFSETS ", " OFFSETS), " 33" },
        { "offsets first", LIST(OFFSETS ", " TEMPLATE), " 36 37 33 36" },
        { "offsets last", LIST(PAIR("Roberta") ", " OFFSETS), " 34 33 35" },
        { "two pairs", LIST(PAIR("Bert") ", " PAIR("Bert")), "has two templates" },
        { "a pair and a template", LIST(PAIR("Bert") ", " TEMPLATE),
          "has two templates" },
        { "an unknown one", LIST(OFFSETS ", {\"type\": \"T5Processing\"}"),
          "is none of" },
        { "a list in a list", LIST(LIST(OFFSETS)), "is none of" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        const bool good = rows[i].ids[0] == ' ';
        char json[1200], got[1200] = "";
        accel_tokenizer_t *t = NULL;
        accel_error_t err = { 0 };
        int32_t ids[8];
        size_t n = 0, used = 0;

        snprintf(json, sizeof(json), "\"post_processor\": %s", rows[i].json);
        if (open_replaced(&t, "gpt2.json", "\"post_processor\": null", json, &err) ||
            accel_tokenize(t, "A", 1, ACCEL_TOKENIZE_FRAME, ids, 8, &n, &err))
            snprintf(got, sizeof(got), "%s", err.text);
        for (size_t k = 0; k < n && k < 8; k++)
            used += (size_t)snprintf(got + used, sizeof(got) - used, " %d", ids[k]);
        tap_ok(good ? !strcmp(got, rows[i].ids) : strstr(got, rows[i].ids) != NULL,
               "what is put around a text: %s:%s", rows[i].what, got);
        accel_tokenizer_close(t);
    }
}

/* ---- directories ----------------------------------------------------------------- */

static void write_json(const char *dir, const char *name, const json_t *j)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    tap_ok(!json_dump_file(j, path, 0), "%s is written", name);
}

static json_t *json_of_data(const char *name)
{
    struct bytes b = read_data(name);
    json_t *j = json_loadb((char *)b.p, b.n, 0, NULL);

    free(b.p);
    return j;
}

/* The vocabulary of RoBERTa's form has its own tokens first, in the order of the ids;
 * that of CLIP has ends of words. */
static json_t *vocab_of(const char *base)
{
    static const char *const first[] = { "<s>", "<pad>", "</s>", "<unk>" };
    json_t *vocab = json_of_data("gpt2/vocab.json"), *other, *id;
    const char *name;

    if (!strcmp(base, "clip"))
        json_object_set_new(vocab, "a</w>", json_integer(700));
    if (strcmp(base, "roberta") != 0)
        return vocab;
    other = json_object();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(first); i++)
        json_object_set_new(other, first[i], json_integer((json_int_t)i));
    json_object_foreach(vocab, name, id)
    {
        if (json_integer_value(id))
            json_object_set_new(other, name, json_integer(json_integer_value(id) + 3));
    }
    json_object_set_new(other, "<mask>",
                        json_integer((json_int_t)json_object_size(other)));
    json_decref(vocab);
    return other;
}

static void link_data(const char *dir, const char *name, const char *as)
{
    char from[4200], to[256];

    snprintf(from, sizeof(from), "%s/%s", data_dir, name);
    snprintf(to, sizeof(to), "%s/%s", dir, as);
    tap_ok(!symlink(from, to), "%s is there", as);
}

/* Equal lists of ids for all texts? The number of those that differ. */
static int compare_texts(const accel_tokenizer_t *t, const json_t *texts,
                         const json_t *want, unsigned flags)
{
    int wrong = 0;

    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i), *list = json_array_get(want, i);
        size_t n = 0;
        int32_t *ids =
            ids_of(t, json_string_value(text), json_string_length(text), flags, &n);
        bool same = ids && n == json_array_size(list);

        for (size_t k = 0; same && k < n; k++)
            same = json_integer_value(json_array_get(list, k)) == ids[k];
        if (!same)
            tap_diag("text %zu: '%s', %zu ids", i, json_string_value(text), n);
        wrong += !same;
        free(ids);
    }
    return wrong;
}

static void test_layout(const json_t *texts, const json_t *layout)
{
    const char *name = json_string_value(json_object_get(layout, "name")),
               *base = json_string_value(json_object_get(layout, "base")),
               *refused = json_string_value(json_object_get(layout, "refused"));
    char dir[] = "/tmp/accel-layout-XXXXXX", line[1100];
    json_t *vocab, *whole, *files = json_object_get(layout, "files"), *content;
    accel_tokenizer_t *t = NULL;
    accel_error_t err = { 0 };
    const char *file;
    accel_status_t st;

    run_folder_new(dir);
    if (!strcmp(base, "json")) {
        whole = json_of_data("gpt2.json");
        json_object_update(whole, json_object_get(layout, "patch"));
        write_json(dir, "tokenizer.json", whole);
        json_decref(whole);
    } else {
        vocab = vocab_of(base);
        write_json(dir, "vocab.json", vocab);
        json_decref(vocab);
        link_data(dir, "gpt2/merges.txt", "merges.txt");
    }
    json_object_foreach(files, file, content) write_json(dir, file, content);
    st = accel_tokenizer_open(&t, dir, &err);
    if (refused) {
        snprintf(line, sizeof(line), "%s: %s", err.where, err.text);
        tap_ok(st && strstr(line, refused), "%s: refused (%s)", name, line);
    } else if (tap_ok(!st, "%s: opens (%s)", name, err.text)) {
        tap_is_int(compare_texts(t, texts, json_object_get(layout, "ids"), 0), 0,
                   "%s: ids", name);
        tap_is_int(compare_texts(t, texts, json_object_get(layout, "framed"),
                                 ACCEL_TOKENIZE_FRAME),
                   0, "%s: ids in the frame", name);
    }
    accel_tokenizer_close(t);
    run_folder_remove(dir);
}

/* The ids of AutoTokenizer from directories (layouts.py). */
static void test_directories(void)
{
    json_t *all = json_of_data("layouts.json"),
           *layouts = json_object_get(all, "layouts");

    tap_ok(json_array_size(layouts) >= 20, "layouts.json is read");
    for (size_t i = 0; i < json_array_size(layouts); i++)
        test_layout(json_object_get(all, "texts"), json_array_get(layouts, i));
    json_decref(all);
}

int main(void)
{
    const char *src = getenv("ACCEL_SRC");
    const int files = tap_open_files();
    static char dir[4096];

    snprintf(dir, sizeof(dir), "%s/tests/data/tokenizer", src ? src : ".");
    data_dir = dir;
    if (access(dir, R_OK))
        tap_skip_all("no tests/data/tokenizer: set ACCEL_SRC");
    test_library();
    test_bytes();
    test_words();
    test_pieces();
    test_prefix();
    test_long_words();
    test_threads();
    test_arguments();
    test_utf8_whole();
    test_damage();
    test_processors();
    test_directories();
    tap_is_int(tap_open_files(), files, "no file stays open");
    return tap_done();
}
