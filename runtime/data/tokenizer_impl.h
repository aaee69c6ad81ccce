/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a tokenizer: cutting into words, merging, added tokens, the readers of its
 * files. Not for other stages. After opening nothing of it changes but what words are known
 * to be, so any thread may use it.
 */
#ifndef ACCEL_DATA_TOKENIZER_IMPL_H
#define ACCEL_DATA_TOKENIZER_IMPL_H

#include <stdatomic.h>

#include "data/tokenizer.h"

/* What stands in a file, for a message: at most len - 1 bytes of it into buf, whole
 * characters, nothing that steers a terminal; returns buf. */
const char *tokenizer_shown(const char *text, size_t n, char *buf, size_t len);
enum { SHOWN = 41 };

/* ---- words (pretokenize.c) ------------------------------------------------------- */

enum split_kind { SPLIT_GPT2, SPLIT_LLAMA3 };

/* Bytes of the first word of [p, end), p < end; at least 1. */
size_t pretokenize(enum split_kind kind, const uint8_t *p, const uint8_t *end);
/* Does a word end before p, begin < p, whatever follows? Not every such place is found. */
bool pretokenize_cuts(enum split_kind kind, const uint8_t *begin, const uint8_t *p);

/* ---- byte-pair encoding (bpe.c, bpe_long.c) -------------------------------------- */

struct bpe_token {
    uint32_t at, bytes; /* in struct bpe's text */
    bool used;          /* false: no token has this id */
    bool plain;         /* in the alphabet of bytes: words can become it */
};

struct bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank; /* UINT32_MAX: the slot is free */
    int32_t id;    /* of the two together */
};

struct bpe {
    struct bpe_token *token; /* [ids] */
    int32_t ids;             /* largest id + 1, added tokens included */
    uint8_t *text;           /* the tokens' bytes, one after the other */
    size_t text_bytes, text_cap;
    int32_t *slot; /* [slots], ids of plain tokens by their bytes; -1: free */
    uint64_t slots;
    struct bpe_merge *merge; /* [merge_slots] by pair */
    uint64_t merge_slots;
    /* [ids] what the merges make of a token's own bytes: itself, or not, or not yet known.
     * Threads that find out at the same time store the same. */
    _Atomic uint8_t *whole;
    int32_t byte[256];  /* id of each single byte */
    bool ignore_merges; /* a word that is a token is that token */
};

enum { BPE_MAX_IDS = 1 << 22 };
/* Room for `tokens` tokens of ids 0 .. ids - 1 <= BPE_MAX_IDS and for `merges` merges. */
accel_status_t bpe_init(struct bpe *b, int32_t ids, size_t tokens, size_t merges,
                        accel_error_t *err);
void bpe_free(struct bpe *b);
/* Adds a token by its name in the vocabulary, where each byte stands as a letter. */
accel_status_t bpe_add_token(struct bpe *b, const char *name, size_t len, int32_t id,
                             const char *path, accel_error_t *err);
/* Adds a token that words cannot become, by its own bytes; or says that token `id`, which is
 * in the vocabulary, has these. */
accel_status_t bpe_add_raw(struct bpe *b, const char *text, size_t len, int32_t id,
                           const char *path, accel_error_t *err);
/* Merge number `rank`; of the same pair, the last one counts. Tokens first. */
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
/* Ids of one word, 0 < n < 2^31. Fails for want of memory only. */
accel_status_t bpe_encode(const struct bpe *b, const uint8_t *p, size_t n,
                          struct id_sink *out, accel_error_t *err);
/* The same by a heap, for words of any length: n log n. */
accel_status_t bpe_encode_long(const struct bpe *b, const uint8_t *p, size_t n,
                               struct id_sink *out, accel_error_t *err);

/* ---- added tokens (added_tokens.c) ----------------------------------------------- */

struct added_token {
    uint8_t *text;
    size_t bytes;
    int32_t id;
    bool lstrip, rstrip; /* take the whitespace before, after */
    bool single_word;    /* no token inside a word */
    bool late;           /* "normalized": looked for where the others are not */
};

/* Added tokens of one kind, sorted by their text. */
struct added_set {
    struct added_token *token;
    size_t count, longest; /* bytes */
    uint8_t first[256];    /* 1: a token begins with this byte */
};

struct added_match {
    size_t begin, end; /* whitespace that it takes included */
    int32_t id;
};

accel_status_t added_sort(struct added_set *s, const char *path, accel_error_t *err);
void added_free(struct added_set *s);
/* The first match at or after *scan in text[n]; `taken` is the end of the match before it.
 * Moves *scan behind it. */
bool added_next(const struct added_set *s, const uint8_t *text, size_t n, size_t *scan,
                size_t taken, struct added_match *match_out);
/* Could any token touch the place `at`: begin there, or begin before and end there or
 * later? */
bool added_near(const struct added_set *s, const uint8_t *text, size_t n, size_t at);
/* Id of the added token of this text, or -1. */
int32_t added_find(const struct added_set *s, const uint8_t *text, size_t n);

/* ---- the whole ------------------------------------------------------------------- */

/* Tokens that a template puts around a text. */
struct frame {
    int32_t *id;
    size_t before, count; /* of `count`, the first `before` come first */
};

struct accel_tokenizer {
    struct bpe bpe;
    struct added_set added[2]; /* [1]: late */
    struct frame frame;
    enum split_kind split;
    bool prefix_space;
};

/* tokenizer.json; vocab.json and merges.txt in a directory. `t` is zeroed before; on failure
 * the caller closes it. */
accel_status_t tokenizer_read_json(struct accel_tokenizer *t, const char *path,
                                   accel_error_t *err);
accel_status_t tokenizer_read_gpt2(struct accel_tokenizer *t, const char *dir,
                                   accel_error_t *err);
/* The same from memory; `path` is for messages only. */
accel_status_t tokenizer_parse_json(struct accel_tokenizer *t, const char *text,
                                    size_t n, const char *path, accel_error_t *err);
/* Id of a token by its text, added tokens first; -1. */
int32_t tokenizer_find(const struct accel_tokenizer *t, const uint8_t *text, size_t n);

#endif
