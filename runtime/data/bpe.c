/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding: a vocabulary and its merges in, the ids of a word out. Of all
 * pairs of neighbours the one of the lowest rank is merged, the leftmost of equal ones,
 * until none is left. Only what is known of whole words changes after opening.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "data/tokenizer_impl.h"

/* what the merges make of a token's own bytes: see struct bpe */
enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };
/* bytes of a word that is merged by looking at all of its pairs */
enum { SHORT = 48 };

/* ---- the alphabet: bytes as letters ---------------------------------------------- */

/* GPT-2's alphabet: printable bytes stand for themselves, the other 68 for U+0100 and
 * on, in their order. */
static bool is_printed(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

/* The byte that a code point below 0x144 stands for, or -1. */
static int byte_of(unsigned cp)
{
    unsigned at = 0x100;

    if (cp < 0x100)
        return is_printed(cp) ? (int)cp : -1;
    for (unsigned byte = 0; byte < 0x100; byte++)
        if (!is_printed(byte) && at++ == cp)
            return (int)byte;
    return -1;
}

/* Writes the bytes that `name` spells to bytes_out[len] and returns how many; 0: a
 * letter is not in the alphabet. */
static size_t spell(const char *name, size_t len, uint8_t *bytes_out)
{
    const uint8_t *p = (const uint8_t *)name, *end = p + len;
    size_t n = 0;

    while (p < end) {
        unsigned cp = *p++;
        int byte;

        if (cp >= 0x80) {
            if (p == end || cp < 0xc2 || cp > 0xc5)
                return 0;
            cp = (cp & 0x1f) << 6 | (*p++ & 0x3f);
        }
        byte = byte_of(cp);
        if (byte < 0)
            return 0;
        bytes_out[n++] = (uint8_t)byte;
    }
    return n;
}

/* ---- tables ---------------------------------------------------------------------- */

/* A power of two for a table of n entries that is at most half full. */
static uint64_t power_above(size_t n)
{
    uint64_t slots = 64;

    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    return slots;
}

/* All bytes 0xff: id -1, rank UINT32_MAX. bpe_free takes what is half made. */
accel_status_t bpe_init(struct bpe *b, int32_t ids, size_t tokens, size_t merges,
                        accel_error_t *err)
{
    b->ids = ids;
    b->slots = power_above(tokens);
    b->merge_slots = power_above(merges);
    b->token = calloc((size_t)ids, sizeof(*b->token));
    b->whole = calloc((size_t)ids, sizeof(*b->whole));
    b->slot = malloc(b->slots * sizeof(*b->slot));
    b->merge = malloc(b->merge_slots * sizeof(*b->merge));
    if (!b->token || !b->whole || !b->slot || !b->merge)
        return accel_fail_nomem(err, "tables of a tokenizer",
                                b->merge_slots * sizeof(*b->merge));
    memset(b->slot, 0xff, b->slots * sizeof(*b->slot));
    memset(b->merge, 0xff, b->merge_slots * sizeof(*b->merge));
    memset(b->byte, 0xff, sizeof(b->byte));
    return ACCEL_OK;
}

void bpe_free(struct bpe *b)
{
    free(b->token);
    free((void *)b->whole);
    free(b->slot);
    free(b->merge);
    free(b->text);
}

/* The slot of these bytes: that of their token, or the free one where it would go.
 * Linear probing; the table is never full. */
static uint64_t slot_of(const struct bpe *b, const uint8_t *p, size_t n)
{
    uint64_t at = XXH3_64bits(p, n) & (b->slots - 1);

    for (;; at = (at + 1) & (b->slots - 1)) {
        const struct bpe_token *t;

        if (b->slot[at] < 0)
            return at;
        t = &b->token[b->slot[at]];
        if (t->bytes == n && !memcmp(b->text + t->at, p, n))
            return at;
    }
}

/* Tokens of bpe_add_raw are not in this table: no word becomes one. */
int32_t bpe_find(const struct bpe *b, const uint8_t *p, size_t n)
{
    return b->slot[slot_of(b, p, n)];
}

/* The slot of this pair, or the free one where it would go. The multiplier is that of
 * Fibonacci hashing. */
static uint64_t merge_slot_of(const struct bpe *b, uint64_t pair)
{
    uint64_t at = (pair * 0x9e3779b97f4a7c15u >> 20) & (b->merge_slots - 1);

    while (b->merge[at].rank != UINT32_MAX && b->merge[at].pair != pair)
        at = (at + 1) & (b->merge_slots - 1);
    return at;
}

const struct bpe_merge *bpe_merge(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_merge *m =
        &b->merge[merge_slot_of(b, (uint64_t)left << 32 | (uint32_t)right)];

    return m->rank == UINT32_MAX ? NULL : m;
}

/* ---- filling them ---------------------------------------------------------------- */

/* Makes room for n more bytes of text. Offsets are 32-bit. */
static accel_status_t keep_text(struct bpe *b, size_t n, accel_error_t *err)
{
    if (b->text_cap - b->text_bytes < n) {
        size_t cap = 2 * b->text_cap + n + 4096;
        uint8_t *grown = cap < UINT32_MAX ? realloc(b->text, cap) : NULL;

        if (!grown)
            return accel_fail_nomem(err, "text of the tokens", cap);
        b->text = grown;
        b->text_cap = cap;
    }
    return ACCEL_OK;
}

/* A name outside of the alphabet is kept as it is: no word can become that token, but
 * it can be decoded. */
accel_status_t bpe_add_token(struct bpe *b, const char *name, size_t len, int32_t id,
                             const char *path, accel_error_t *err)
{
    struct bpe_token *t = &b->token[id];
    accel_status_t st;
    uint64_t at;

    ACCEL_CHECK(st, keep_text(b, len, err));
    if (t->used || len == 0)
        return accel_fail_at(err, A0714, path, "copy or create the file again",
                             t->used ? "the vocabulary has id %d twice"
                                     : "the token of id %d in the vocabulary is empty",
                             id);
    t->at = (uint32_t)b->text_bytes;
    t->bytes = (uint32_t)spell(name, len, b->text + t->at);
    t->used = true;
    t->plain = t->bytes > 0;
    if (!t->plain) {
        memcpy(b->text + t->at, name, len);
        t->bytes = (uint32_t)len;
        b->text_bytes += len;
        return ACCEL_OK;
    }
    b->text_bytes += t->bytes;
    at = slot_of(b, b->text + t->at, t->bytes);
    if (b->slot[at] >= 0)
        return accel_fail_at(err, A0714, path, "copy or create the file again",
                             "tokens %d and %d of the vocabulary are the same",
                             b->slot[at], id);
    b->slot[at] = id;
    if (t->bytes == 1)
        b->byte[b->text[t->at]] = id;
    return ACCEL_OK;
}

/* An added token may be in the vocabulary already, with the same bytes. */
accel_status_t bpe_add_raw(struct bpe *b, const char *text, size_t len, int32_t id,
                           const char *path, accel_error_t *err)
{
    struct bpe_token *t = &b->token[id];
    char shown[SHOWN];
    accel_status_t st;

    if (t->used && t->bytes == len && !memcmp(b->text + t->at, text, len))
        return ACCEL_OK;
    if (t->used)
        return accel_fail_at(
            err, A0715, path, "give the added token a name in ASCII",
            "added_tokens: '%s' stands for other bytes in model.vocab (id %d)",
            tokenizer_shown(text, len, shown, sizeof(shown)), id);
    ACCEL_CHECK(st, keep_text(b, len, err));
    *t = (struct bpe_token){ (uint32_t)b->text_bytes, (uint32_t)len, true, false };
    memcpy(b->text + t->at, text, len);
    b->text_bytes += len;
    return ACCEL_OK;
}

/* The token of these letters; -1: there is none; -2: a letter is not in the alphabet,
 * so that no text comes to the merge. */
static int32_t part_of(const struct bpe *b, uint8_t *scratch, const char *name,
                       size_t len)
{
    size_t n = spell(name, len, scratch);

    return n ? bpe_find(b, scratch, n) : -2;
}

/* Both parts and their concatenation must be tokens. `scratch` is the unused end of
 * the text. */
accel_status_t bpe_add_merge(struct bpe *b, const char *left, size_t left_len,
                             const char *right, size_t right_len, uint32_t rank,
                             const char *path, accel_error_t *err)
{
    accel_status_t st;
    char shown[2][SHOWN];
    uint8_t *scratch;
    int32_t x, y, both;
    size_t n;

    ACCEL_CHECK(st, keep_text(b, left_len + right_len, err));
    scratch = b->text + b->text_bytes;
    x = part_of(b, scratch, left, left_len);
    y = part_of(b, scratch, right, right_len);
    if (x == -2 || y == -2)
        return ACCEL_OK;
    n = spell(left, left_len, scratch);
    n += spell(right, right_len, scratch + n);
    both = bpe_find(b, scratch, n);
    if (x < 0 || y < 0 || both < 0)
        return accel_fail_at(err, A0714, path,
                             "use the vocabulary and merges of the same tokenizer",
                             "merge %u ('%s' '%s'): %s not in the vocabulary", rank,
                             tokenizer_shown(left, left_len, shown[0], SHOWN),
                             tokenizer_shown(right, right_len, shown[1], SHOWN),
                             x < 0   ? "the first is"
                             : y < 0 ? "the second is"
                                     : "both together are");
    b->merge[merge_slot_of(b, (uint64_t)x << 32 | (uint32_t)y)] = (struct bpe_merge){
        .pair = (uint64_t)x << 32 | (uint32_t)y, .rank = rank, .id = both
    };
    return ACCEL_OK;
}

/* With a token for every byte, every text has ids. */
accel_status_t bpe_finish(struct bpe *b, const char *path, accel_error_t *err)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        if (b->byte[byte] < 0)
            return accel_fail_at(
                err, A0715, path,
                "train the tokenizer with all 256 bytes in its alphabet",
                "model.vocab has no token for the byte 0x%02x: some texts "
                "could not be encoded",
                byte);
    }
    return ACCEL_OK;
}

/* ---- a word ---------------------------------------------------------------------- */

/* Merges id[n] in place, n > 1; returns how many are left. Quadratic, but for short
 * words faster than a heap. */
static size_t merge_short(const struct bpe *b, int32_t *id, size_t n)
{
    const struct bpe_merge *pair[SHORT]; /* [i]: of id[i] and id[i + 1] */

    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = bpe_merge(b, id[i], id[i + 1]);
    while (n > 1) {
        uint32_t low = UINT32_MAX;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] && pair[i]->rank < low) {
                low = pair[i]->rank;
                at = i;
            }
        }
        if (low == UINT32_MAX)
            break;
        id[at] = pair[at]->id;
        n--;
        memmove(id + at + 1, id + at + 2, (n - at - 1) * sizeof(*id));
        memmove(pair + at, pair + at + 1, (n - at - 1) * sizeof(*pair));
        if (at > 0)
            pair[at - 1] = bpe_merge(b, id[at - 1], id[at]);
        if (at + 1 < n)
            pair[at] = bpe_merge(b, id[at], id[at + 1]);
    }
    return n;
}

/* A word that is a token and becomes it again by merges is looked up only. That it
 * does is found out once per token; threads may find it out at the same time, and
 * store the same. */
accel_status_t bpe_encode(const struct bpe *b, const uint8_t *p, size_t n,
                          struct id_sink *out, accel_error_t *err)
{
    int32_t id[SHORT], known;
    uint8_t whole = WHOLE_UNKNOWN;
    size_t left;

    if (n == 1) {
        sink_add(out, b->byte[*p]);
        return ACCEL_OK;
    }
    known = bpe_find(b, p, n);
    if (known >= 0)
        whole = b->ignore_merges
                    ? WHOLE_YES
                    : atomic_load_explicit(&b->whole[known], memory_order_relaxed);
    if (whole == WHOLE_YES) {
        sink_add(out, known);
        return ACCEL_OK;
    }
    if (n > SHORT)
        return bpe_encode_long(b, p, n, out, err);
    for (size_t i = 0; i < n; i++)
        id[i] = b->byte[p[i]];
    /* Every byte has a token (bpe_finish). */
    left = merge_short(b, id, n);
    if (known >= 0)
        atomic_store_explicit(&b->whole[known], left == 1 ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    for (size_t i = 0; i < left; i++)
        sink_add(out, id[i]);
    return ACCEL_OK;
}
