/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer: cutting into words, merging, added tokens, the readers of
 * its files. Not for other stages. After opening only bpe.whole changes, atomically, so
 * any thread may use a tokenizer.
 */
#ifndef ACCEL_DATA_TOKENIZER_IMPL_H
#define ACCEL_DATA_TOKENIZER_IMPL_H

#include <stdatomic.h>

#include "data/tokenizer.h"

/* Text of a file for a message: at most len - 1 bytes of it into buf, whole characters,
 * no control characters. Returns buf. */
const char *tokenizer_shown(const char *text, size_t n, char *buf, size_t len);
/* bytes of such a buffer */
enum { SHOWN = 41 };

/* ---- words (pretokenize.c) ------------------------------------------------------- */

/* Which regular expression cuts a text into words. */
enum split_kind { SPLIT_GPT2, SPLIT_LLAMA3 };

/* Bytes of the first word of [p, end), p < end; at least 1. */
size_t pretokenize(enum split_kind kind, const uint8_t *p, const uint8_t *end);
/* Does a word end before p (begin < p), whatever follows? Not every such place
 * is found. */
bool pretokenize_cuts(enum split_kind kind, const uint8_t *begin, const uint8_t *p);

/* ---- byte-pair encoding (bpe.c, bpe_long.c) -------------------------------------- */

/* A token of the vocabulary, or an added one. */
struct bpe_token {
    /* in struct bpe's text */
    uint32_t at, bytes;
    /* false: no token has this id */
    bool used;
    /* in the alphabet of bytes: words can become it */
    bool plain;
};

/* An entry of the table of merges. */
struct bpe_merge {
    /* left id << 32 | right id */
    uint64_t pair;
    /* UINT32_MAX: the slot is free */
    uint32_t rank;
    /* of the two together */
    int32_t id;
};

/* Vocabulary and merges, each with a hash table. Owns all its arrays. */
struct bpe {
    /* [ids] */
    struct bpe_token *token;
    /* largest id + 1, added tokens included */
    int32_t ids;
    /* the tokens' bytes, one after the other */
    uint8_t *text;
    size_t text_bytes, text_cap;
    /* [slots] ids of plain tokens by their bytes; -1: free */
    int32_t *slot;
    uint64_t slots;
    /* [merge_slots] by pair */
    struct bpe_merge *merge;
    uint64_t merge_slots;
    /* [ids] what the merges make of a token's own bytes: the token itself, something
     * else, or not yet known. Threads that find out at the same time store the same. */
    _Atomic uint8_t *whole;
    /* id of each single byte */
    int32_t byte[256];
    /* a word that is a token becomes that token, whatever the merges say */
    bool ignore_merges;
};

enum { BPE_MAX_IDS = 1 << 22 };
/* Allocates tables for `tokens` tokens of ids 0 .. ids - 1 <= BPE_MAX_IDS and for
 * `merges` merges. `b` is zeroed before; bpe_free also after a failure. */
accel_status_t bpe_init(struct bpe *b, int32_t ids, size_t tokens, size_t merges,
                        accel_error_t *err);
void bpe_free(struct bpe *b);
/* Adds a token by its name in the vocabulary, where each byte is written as
 * a letter. */
accel_status_t bpe_add_token(struct bpe *b, const char *name, size_t len, int32_t id,
                             const char *path, accel_error_t *err);
/* Adds a token that words cannot become, by its own bytes; for an id of the vocabulary,
 * checks that it has these bytes. */
accel_status_t bpe_add_raw(struct bpe *b, const char *text, size_t len, int32_t id,
                           const char *path, accel_error_t *err);
/* Adds merge number `rank`; of the same pair the last one counts. All tokens must
 * be there. */
accel_status_t bpe_add_merge(struct bpe *b, const char *left, size_t left_len,
                             const char *right, size_t right_len, uint32_t rank,
                             const char *path, accel_error_t *err);
/* Checks that every byte has a token. */
accel_status_t bpe_finish(struct bpe *b, const char *path, accel_error_t *err);

/* Id of the plain token of these bytes, or -1. */
int32_t bpe_find(const struct bpe *b, const uint8_t *p, size_t n);
/* The merge of two ids, or NULL. */
const struct bpe_merge *bpe_merge(const struct bpe *b, int32_t left, int32_t right);

/* Where ids go: the first `cap` are stored, all are counted. */
struct id_sink {
    int32_t *id;
    size_t cap, count;
};
static inline void sink_add(struct id_sink *s, int32_t id)
{
    if (s->count < s->cap)
        s->id[s->count] = id;
    s->count++;
}
/* Appends the ids of one word, 0 < n < 2^31. Fails only without memory. */
accel_status_t bpe_encode(const struct bpe *b, const uint8_t *p, size_t n,
                          struct id_sink *out, accel_error_t *err);
/* The same with a heap, for words of any length: n log n. */
accel_status_t bpe_encode_long(const struct bpe *b, const uint8_t *p, size_t n,
                               struct id_sink *out, accel_error_t *err);

/* ---- added tokens (added_tokens.c) ----------------------------------------------- */

/* A token that is looked for in the text as it is. */
struct added_token {
    uint8_t *text;
    size_t bytes;
    int32_t id;
    /* take the whitespace before, after */
    bool lstrip, rstrip;
    /* not where a word goes on before or behind it */
    bool single_word;
    /* "normalized": looked for where the others are not */
    bool late;
};

/* Added tokens of one kind, sorted by their text. */
struct added_set {
    struct added_token *token;
    /* tokens; bytes of the longest one */
    size_t count, longest;
    /* 1: a token begins with this byte */
    uint8_t first[256];
};

/* Where a token was found in a text. */
struct added_match {
    /* including the whitespace that it takes */
    size_t begin, end;
    int32_t id;
};

/* To be called when all tokens are there. ACCEL_ECORRUPT: two have the same text. */
accel_status_t added_sort(struct added_set *s, const char *path, accel_error_t *err);
void added_free(struct added_set *s);
/* The first match at or after *scan in text[n]; `taken` is the end of the match before
 * it. Moves *scan behind it. False: there is none. */
bool added_next(const struct added_set *s, const uint8_t *text, size_t n, size_t *scan,
                size_t taken, struct added_match *match_out);
/* Could any token touch the place `at`: begin there, or begin before it and end there
 * or later? */
bool added_near(const struct added_set *s, const uint8_t *text, size_t n, size_t at);
/* Id of the added token of this text, or -1. */
int32_t added_find(const struct added_set *s, const uint8_t *text, size_t n);

/* ---- the whole ------------------------------------------------------------------- */

/* Tokens that a template puts around a text. */
struct frame {
    int32_t *id;
    /* of `count` ids the first `before` come before the text */
    size_t before, count;
};

/* A tokenizer. Owns all its parts. */
struct accel_tokenizer {
    struct bpe bpe;
    /* [1]: late */
    struct added_set added[2];
    struct frame frame;
    enum split_kind split;
    /* a text that does not begin with a space gets one */
    bool prefix_space;
};

/* Reads a tokenizer.json, or the directory of a saved tokenizer. `t` is zeroed before;
 * on failure the caller closes it. */
accel_status_t tokenizer_read_json(struct accel_tokenizer *t, const char *path,
                                   accel_error_t *err);
accel_status_t tokenizer_read_dir(struct accel_tokenizer *t, const char *dir,
                                  accel_error_t *err);
/* tokenizer_read_json from memory; `path` is for messages only. */
accel_status_t tokenizer_parse_json(struct accel_tokenizer *t, const char *text,
                                    size_t n, const char *path, accel_error_t *err);

#endif
