/* SPDX-License-Identifier: Apache-2.0
 *
 * Did-you-mean: the nearest name by edit distance (insert, delete, replace and swap of
 * neighbours, each 1). Case is ignored so that FULL_shard finds FULL_SHARD.
 */
#include <ctype.h>
#include <string.h>

#include "common/common.h"

#define LONGEST 64

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* Optimal string alignment distance; words longer than LONGEST never match. */
static int edit_distance(const char *a, const char *b)
{
    int row[3][LONGEST + 1];
    int la = (int)strlen(a), lb = (int)strlen(b);

    if (la > LONGEST || lb > LONGEST)
        return LONGEST;
    for (int j = 0; j <= lb; j++)
        row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *cur = row[i % 3], *prev = row[(i + 2) % 3], *prev2 = row[(i + 1) % 3];

        cur[0] = i;
        for (int j = 1; j <= lb; j++) {
            int ca = tolower((unsigned char)a[i - 1]);
            int cb = tolower((unsigned char)b[j - 1]);

            cur[j] = min3(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == cb && prev2[j - 2] + 1 < cur[j])
                cur[j] = prev2[j - 2] + 1;
        }
    }
    return row[la % 3][lb];
}

const char *suggest_nearest(const char *word, const char *const *names, size_t n)
{
    int len = (int)strlen(word);
    int best = len <= 8 ? 2 : len / 3 > 2 ? len / 3 : 2;
    const char *found = NULL;

    if (len > LONGEST)
        return NULL;
    if (len <= 3)
        best = 1;
    for (size_t i = 0; i < n; i++) {
        int d = edit_distance(word, names[i]);

        if (d < best || (d == best && !found)) {
            best = d;
            found = names[i];
        }
    }
    return found;
}
