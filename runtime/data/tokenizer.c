/* SPDX-License-Identifier: Apache-2.0
 *
 * A text in, its ids out, and back. Added tokens are taken out first, the text between
 * them is cut into words, and each word is merged. Any bytes are a text. Never writes
 * to what it was opened from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "data/data_impl.h"
#include "data/tokenizer_impl.h"
#include "data/unicode.h"

/* ---- encoding -------------------------------------------------------------------- */

enum { WORD_MAX = INT32_MAX }; /* bytes */

/* Positions inside a word are int32_t (bpe_long.c). */
static accel_status_t encode_words(const struct accel_tokenizer *t, const uint8_t *p,
                                   const uint8_t *end, struct id_sink *out,
                                   accel_error_t *err)
{
    while (p < end) {
        size_t n = pretokenize(t->split, p, end);
        accel_status_t st;

        if (n > WORD_MAX)
            return accel_fail(err, A0716, "check that the input is text",
                              "a word has %zu bytes; the limit is %d", n, WORD_MAX);
        ACCEL_CHECK(st, bpe_encode(&t->bpe, p, n, out, err));
        p += n;
    }
    return ACCEL_OK;
}

/* Text between added tokens, with a space before it where the tokenizer wants one; not
 * behind a cut, where the text before it has had its own. */
static accel_status_t encode_piece(const struct accel_tokenizer *t, const uint8_t *p,
                                   size_t n, bool continued, struct id_sink *out,
                                   accel_error_t *err)
{
    accel_status_t st;
    uint8_t *copy;

    if (!t->prefix_space || continued || *p == ' ')
        return encode_words(t, p, p + n, out, err);
    copy = malloc(n + 1);
    if (!copy)
        return accel_fail_nomem(err, "copy of a text", n + 1);
    copy[0] = ' ';
    memcpy(copy + 1, p, n);
    st = encode_words(t, copy, copy + n + 1, out, err);
    free(copy);
    return st;
}

/* Takes the tokens of added[level] out of the text, then those of the next level out of
 * each piece between them. */
static accel_status_t encode_level(const struct accel_tokenizer *t, size_t level,
                                   const uint8_t *text, size_t n, bool continued,
                                   struct id_sink *out, accel_error_t *err)
{
    size_t scan = 0, taken = 0;
    struct added_match m;
    accel_status_t st = ACCEL_OK;

    if (level == ACCEL_ARRAY_SIZE(t->added))
        return encode_piece(t, text, n, continued, out, err);
    while (!st && added_next(&t->added[level], text, n, &scan, taken, &m)) {
        if (taken < m.begin)
            st = encode_level(t, level + 1, text + taken, m.begin - taken,
                              continued && taken == 0, out, err);
        sink_add(out, m.id);
        taken = m.end;
    }
    if (!st && taken < n)
        st = encode_level(t, level + 1, text + taken, n - taken,
                          continued && taken == 0, out, err);
    return st;
}

/* Pieces of a long text have no frame; the caller adds it once. */
accel_status_t tokenizer_encode(const accel_tokenizer_t *t, const uint8_t *text,
                                size_t n, bool continued, int32_t *ids, size_t cap,
                                size_t *count_out, accel_error_t *err)
{
    struct id_sink out = { .id = ids, .cap = cap };
    accel_status_t st = encode_level(t, 0, text, n, continued, &out, err);

    if (!st)
        *count_out = out.count;
    return st;
}

/* The frame is what a template puts around a text. */
accel_status_t accel_tokenize(const accel_tokenizer_t *t, const void *text,
                              size_t bytes, unsigned flags, int32_t *ids, size_t cap,
                              size_t *count_out, accel_error_t *err)
{
    struct id_sink out = { .id = ids, .cap = ids ? cap : 0 };
    const bool framed = flags & ACCEL_TOKENIZE_FRAME;
    accel_status_t st;

    if (!t || !count_out || (!text && bytes) || (flags & ~ACCEL_TOKENIZE_FRAME))
        return accel_fail(err, A0716, "see accel_tokenize in accel_text.h",
                          "the tokenizer, the text or the output count is NULL, or a "
                          "flag is unknown (0x%x)",
                          flags);
    for (size_t i = 0; framed && i < t->frame.before; i++)
        sink_add(&out, t->frame.id[i]);
    ACCEL_CHECK(st, encode_level(t, 0, text, bytes, false, &out, err));
    for (size_t i = t->frame.before; framed && i < t->frame.count; i++)
        sink_add(&out, t->frame.id[i]);
    *count_out = out.count;
    return ACCEL_OK;
}

/* Goes back from the end, so far that no added token that could touch the place reaches
 * beyond what is seen, whatever may follow. */
size_t tokenizer_cut(const accel_tokenizer_t *t, const uint8_t *text, size_t n)
{
    size_t longest = t->added[0].longest > t->added[1].longest ? t->added[0].longest
                                                               : t->added[1].longest;

    for (size_t at = n > longest ? n - longest - 1 : 0; at > 0; at--) {
        if (pretokenize_cuts(t->split, text, text + at) &&
            !added_near(&t->added[0], text, n, at) &&
            !added_near(&t->added[1], text, n, at))
            return at;
    }
    return 0;
}

/* ---- decoding -------------------------------------------------------------------- */

/* Counts all bytes, stores the first `cap`; a character may be cut in two. */
accel_status_t accel_detokenize(const accel_tokenizer_t *t, const int32_t *ids,
                                size_t count, void *text, size_t cap, size_t *bytes_out,
                                accel_error_t *err)
{
    size_t bytes = 0;

    if (!t || !bytes_out || (!ids && count))
        return accel_fail(err, A0716, "see accel_detokenize in accel_text.h",
                          "the tokenizer, the ids or the output size is NULL");
    for (size_t i = 0; i < count; i++) {
        const struct bpe_token *token =
            ids[i] >= 0 && ids[i] < t->bpe.ids ? &t->bpe.token[ids[i]] : NULL;
        size_t n;

        if (!token || !token->used)
            return accel_fail(err, A0716, "use the tokenizer that created the ids",
                              "id %d, number %zu, is not a token of this tokenizer",
                              ids[i], i);
        n = token->bytes;
        /* `text` may be NULL, to ask for the size alone */
        if (text && bytes < cap)
            memcpy((char *)text + bytes, t->bpe.text + token->at,
                   n < cap - bytes ? n : cap - bytes);
        bytes += n;
    }
    *bytes_out = bytes;
    return ACCEL_OK;
}

/* Looks among the last three bytes for the start of a character that more bytes
 * could complete. */
size_t accel_utf8_whole(const void *text, size_t bytes)
{
    const uint8_t *p = text;

    for (size_t tail = 1; tail <= 3 && tail <= bytes; tail++) {
        uint8_t lead = p[bytes - tail];
        size_t length = lead >= 0xf0 && lead <= 0xf4   ? 4
                        : lead >= 0xe0 && lead <= 0xef ? 3
                        : lead >= 0xc2 && lead <= 0xdf ? 2
                                                       : 1;

        if ((lead & 0xc0) != 0x80)
            return length > tail ? bytes - tail : bytes;
    }
    return bytes;
}

/* The text comes from a file that may be hostile: control characters never reach
 * a terminal. */
const char *tokenizer_shown(const char *text, size_t n, char *buf, size_t len)
{
    size_t out = n < len ? n : len - 1;

    memcpy(buf, text, out);
    out = accel_utf8_whole(buf, out);
    buf[out] = '\0';
    for (char *p = buf; *p; p++)
        if ((uint8_t)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return buf;
}

/* ---- opening --------------------------------------------------------------------- */

/* Added tokens first: their text may be that of a token of the vocabulary. */
int32_t accel_tokenizer_id(const accel_tokenizer_t *t, const char *token)
{
    const uint8_t *text = (const uint8_t *)token;
    const size_t n = token ? strlen(token) : 0;
    int32_t id = -1;

    if (t && token)
        id = added_find(&t->added[0], text, n);
    if (t && token && id < 0)
        id = added_find(&t->added[1], text, n);
    return t && n && id < 0 ? bpe_find(&t->bpe, text, n) : id;
}

int accel_tokenizer_vocab(const accel_tokenizer_t *t)
{
    return t ? t->bpe.ids : 0;
}

/* Also what an opener has left half made. */
void accel_tokenizer_close(accel_tokenizer_t *t)
{
    if (!t)
        return;
    bpe_free(&t->bpe);
    added_free(&t->added[0]);
    added_free(&t->added[1]);
    free(t->frame.id);
    free(t);
}

/* Without added tokens: one more or less leaves the ids of the others as they are. */
uint64_t tokenizer_mark(const accel_tokenizer_t *t)
{
    uint64_t mark = 0;

    for (int32_t id = 0; id < t->bpe.ids; id++) {
        const struct bpe_token *token = &t->bpe.token[id];

        if (token->used && token->plain)
            mark = XXH3_64bits_withSeed(t->bpe.text + token->at, token->bytes,
                                        mark + (uint64_t)id);
    }
    return mark ? mark : 1;
}

static accel_status_t read_path(struct accel_tokenizer *t, const char *path,
                                accel_error_t *err)
{
    struct stat sb;

    if (stat(path, &sb))
        return data_fail_errno(err, path, "open the tokenizer");
    return S_ISDIR(sb.st_mode) ? tokenizer_read_dir(t, path, err)
                               : tokenizer_read_json(t, path, err);
}

/* With `json` NULL the file or directory `path`. The classes of characters are filled
 * in once per process, before the first text. */
static accel_status_t tokenizer_new(accel_tokenizer_t **out, const char *json, size_t n,
                                    const char *path, accel_error_t *err)
{
    accel_tokenizer_t *t = calloc(1, sizeof(*t));
    accel_status_t st;

    if (!t)
        return accel_fail_nomem(err, "tokenizer", sizeof(*t));
    unicode_init();
    st = json ? tokenizer_parse_json(t, json, n, path, err) : read_path(t, path, err);
    if (st) {
        accel_tokenizer_close(t);
        return st;
    }
    *out = t;
    return ACCEL_OK;
}

accel_status_t accel_tokenizer_open(accel_tokenizer_t **out, const char *path,
                                    accel_error_t *err)
{
    if (!out || !path || !*path)
        return accel_fail(err, A0716, "give tokenizer.json or its directory",
                          "no tokenizer path given");
    return tokenizer_new(out, NULL, 0, path, err);
}

accel_status_t tokenizer_open_memory(accel_tokenizer_t **tokenizer_out,
                                     const char *json, size_t n, const char *path,
                                     accel_error_t *err)
{
    return tokenizer_new(tokenizer_out, json, n, path, err);
}
