/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens, which are taken out of a text before it is cut into words: the leftmost
 * match, and of several there the longest. Tokens are sorted, and a search narrows them
 * byte by byte. Never looks into words.
 */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_impl.h"
#include "data/unicode.h"

/* Order of bytes; a token comes before those that it begins. */
static int by_text(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);

    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorts the tokens, refuses equal ones, and notes their first bytes and the
 * longest length. */
accel_status_t added_sort(struct added_set *s, const char *path, accel_error_t *err)
{
    if (s->count)
        qsort(s->token, s->count, sizeof(*s->token), by_text);
    for (size_t i = 0; i < s->count; i++) {
        if (i && !by_text(&s->token[i - 1], &s->token[i]))
            return accel_fail_at(err, A0714, path, "remove one of them",
                                 "two added tokens have the same "
                                 "content, ids %d and %d",
                                 s->token[i - 1].id, s->token[i].id);
        s->first[s->token[i].text[0]] = 1;
        if (s->token[i].bytes > s->longest)
            s->longest = s->token[i].bytes;
    }
    return ACCEL_OK;
}

void added_free(struct added_set *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->token[i].text);
    free(s->token);
}

/* The first token of [lo, hi), which agree in their first `depth` bytes, whose byte
 * there is at least `byte`. A token that ends there comes before all. */
static size_t bound(const struct added_set *s, size_t lo, size_t hi, size_t depth,
                    unsigned byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->token[mid].bytes <= depth || s->token[mid].text[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token that begins at text[0], or NULL. [lo, hi) are the tokens that agree
 * with the text so far; the one that ends here, if any, is the first of them. */
static const struct added_token *longest_at(const struct added_set *s,
                                            const uint8_t *text, size_t n)
{
    const struct added_token *found = NULL;
    size_t lo = 0, hi = s->count;

    for (size_t depth = 0; depth < n && lo < hi; depth++) {
        lo = bound(s, lo, hi, depth, text[depth]);
        hi = bound(s, lo, hi, depth, text[depth] + 1u);
        if (lo < hi && s->token[lo].bytes == depth + 1)
            found = &s->token[lo];
    }
    return found;
}

/* Does a character of a word end at `at`, or begin there? */
static bool word_before(const uint8_t *text, size_t at)
{
    int len;

    return at > 0 && (unicode_last(text, text + at, &len) & UNICODE_WORD);
}

static bool word_after(const uint8_t *text, size_t n, size_t at)
{
    int len;

    return at < n && (unicode_next(text + at, text + n, &len) & UNICODE_WORD);
}

/* Most positions are skipped by their first byte alone. A single_word match inside a
 * word is passed over as a whole. lstrip never takes whitespace that an earlier
 * match has. */
bool added_next(const struct added_set *s, const uint8_t *text, size_t n, size_t *scan,
                size_t taken, struct added_match *match_out)
{
    size_t at = *scan;
    int len;

    for (; s->count && at < n; at++) {
        const struct added_token *t;

        if (!s->first[text[at]])
            continue;
        t = longest_at(s, text + at, n - at);
        if (!t)
            continue;
        *scan = at + t->bytes;
        if (t->single_word && (word_before(text, at) || word_after(text, n, *scan))) {
            at = *scan - 1;
            continue;
        }
        *match_out = (struct added_match){ at, *scan, t->id };
        while (t->lstrip && match_out->begin > 0 &&
               (unicode_last(text, text + match_out->begin, &len) & UNICODE_SPACE))
            match_out->begin -= (size_t)len;
        if (t->lstrip && match_out->begin < taken)
            match_out->begin = taken;
        while (t->rstrip && match_out->end < n &&
               (unicode_next(text + match_out->end, text + n, &len) & UNICODE_SPACE))
            match_out->end += (size_t)len;
        return true;
    }
    *scan = n;
    return false;
}

/* Looks back as far as the longest token reaches. */
bool added_near(const struct added_set *s, const uint8_t *text, size_t n, size_t at)
{
    size_t from = at < s->longest ? 0 : at - s->longest;

    for (size_t i = from; s->count && i <= at && i < n; i++) {
        const struct added_token *t =
            s->first[text[i]] ? longest_at(s, text + i, n - i) : NULL;

        if (t && (i == at || i + t->bytes >= at))
            return true;
    }
    return false;
}

/* The whole text must be the token. */
int32_t added_find(const struct added_set *s, const uint8_t *text, size_t n)
{
    const struct added_token *t = longest_at(s, text, n);

    return t && t->bytes == n ? t->id : -1;
}
