/* SPDX-License-Identifier: Apache-2.0
 *
 * Did-you-mean: the nearest name by edit distance (insert, delete, replace, and swap
 * of neighbours, each 1), if it resembles the word. Case is ignored, so that
 * FULL_shard finds FULL_SHARD.
 */
#include <ctype.h>
#include <string.h>

#include "common/common.h"

#define LONGEST 128 /* longer words are never suggested */

struct word {
    int len;
    uint64_t letters; /* a bit for each letter that occurs; some share one */
    char lower[LONGEST];
};

/* False if s is shorter or longer than the limits, or longer than LONGEST. */
static bool read_word(struct word *word_out, const char *s, int shortest, int longest)
{
    word_out->len = (int)strnlen(s, LONGEST + 1);
    word_out->letters = 0;
    if (word_out->len < shortest || word_out->len > longest || word_out->len > LONGEST)
        return false;
    for (int i = 0; i < word_out->len; i++) {
        word_out->lower[i] = (char)tolower((unsigned char)s[i]);
        word_out->letters |= UINT64_C(1) << (word_out->lower[i] & 63);
    }
    return true;
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* A quick test: each letter that only one of the words has costs an edit. */
static bool are_far(const struct word *a, const struct word *b, int limit)
{
    return __builtin_popcountll(a->letters & ~b->letters) > limit ||
           __builtin_popcountll(b->letters & ~a->letters) > limit;
}

/* Optimal string alignment distance; any number above `limit` when it is larger. */
static int edit_distance(const struct word *a, const struct word *b, int limit)
{
    int row[3][LONGEST + 1], least_before = 0;

    if (are_far(a, b, limit))
        return limit + 1;
    for (int j = 0; j <= b->len; j++)
        row[0][j] = j;
    for (int i = 1; i <= a->len; i++) {
        int *cur = row[i % 3], *prev = row[(i + 2) % 3], *prev2 = row[(i + 1) % 3];
        char ca = a->lower[i - 1];
        int least = i;

        cur[0] = i;
        for (int j = 1; j <= b->len; j++) {
            char cb = b->lower[j - 1];

            cur[j] = min3(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == b->lower[j - 2] && a->lower[i - 2] == cb &&
                prev2[j - 2] + 1 < cur[j])
                cur[j] = prev2[j - 2] + 1;
            if (cur[j] < least)
                least = cur[j];
        }
        /* Later rows are built from the last two (the older one by a swap), so once
         * both are beyond the limit, all are. */
        if (least > limit && least_before >= limit)
            return limit + 1;
        least_before = least;
    }
    return row[a->len % 3][b->len];
}

/* Does the word resemble the name? One edit is a slip, and so are missing or extra
 * letters in one place. If more differs, the edits must be at most half of the part
 * that differs: "list" is not meant to be "test", nor "ddp.yaml" "fsdp.yaml", although
 * their distance is that of two slips. */
static bool are_alike(const struct word *a, const struct word *b, int distance)
{
    int shorter = a->len < b->len ? a->len : b->len, head = 0, tail = 0, longer;

    while (head < shorter && a->lower[head] == b->lower[head])
        head++;
    while (tail < shorter - head &&
           a->lower[a->len - 1 - tail] == b->lower[b->len - 1 - tail])
        tail++;
    longer = a->len + b->len - shorter - head - tail;
    return distance <= 1 || head + tail == shorter || 2 * distance <= longer;
}

const char *suggest_nearest(const char *word, const char *const *names, size_t n)
{
    struct word wanted, name;
    const char *found = NULL;
    int limit, d;

    if (!read_word(&wanted, word, 0, LONGEST))
        return NULL;
    limit = wanted.len <= 3 ? 1 : wanted.len / 3 > 2 ? wanted.len / 3 : 2;
    for (size_t i = 0; i < n && limit >= 0; i++) {
        if (!read_word(&name, names[i], wanted.len - limit, wanted.len + limit))
            continue;
        d = edit_distance(&wanted, &name, limit);
        if (d <= limit && are_alike(&wanted, &name, d)) {
            found = names[i];
            limit = d - 1; /* of equally near names the first one wins */
        }
    }
    return found;
}
