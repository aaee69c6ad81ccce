/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 in, classes of characters out. Accepts what the standard calls well-formed and
 * nothing else. Never changes a byte.
 */
#include "data/unicode.h"

#include <pthread.h>
#include <string.h>

#include "data/unicode_table.h"

uint8_t unicode_class[UNICODE_LIMIT];

static void unicode_fill(void)
{
    const size_t n = sizeof(unicode_changes) / sizeof(*unicode_changes);

    for (size_t i = 0; i < n; i++) {
        uint32_t from = unicode_changes[i] >> 4,
                 to = i + 1 < n ? unicode_changes[i + 1] >> 4 : UNICODE_LIMIT;
        int class = (int)(unicode_changes[i] & 0xf);

        /* Pages of nothing but zeros stay untouched. */
        if (class)
            memset(unicode_class + from, class, to - from);
    }
}

/* The table of 1.1 million bytes is filled from about 2000 changes, once
 * per process. */
void unicode_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, unicode_fill);
}

/* Bytes 2 to 4 of a character. */
static int is_tail(uint8_t c)
{
    return (c & 0xc0) == 0x80;
}

/* Refuses overlong forms, surrogates and code points beyond the last. */
int unicode_decode(const uint8_t *p, const uint8_t *end, uint32_t *cp_out)
{
    const ptrdiff_t n = end - p;
    uint32_t cp;

    if (n < 2 || p[0] < 0xc2 || !is_tail(p[1]))
        return 0;
    if (p[0] < 0xe0) {
        *cp_out = (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
        return 2;
    }
    if (n < 3 || !is_tail(p[2]))
        return 0;
    if (p[0] < 0xf0) {
        cp =
            (uint32_t)(p[0] & 0xf) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
        if (cp < 0x800 || (cp >= 0xd800 && cp < 0xe000))
            return 0;
        *cp_out = cp;
        return 3;
    }
    if (n < 4 || !is_tail(p[3]) || p[0] > 0xf4)
        return 0;
    cp = (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
         (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
    if (cp < 0x10000 || cp >= UNICODE_LIMIT)
        return 0;
    *cp_out = cp;
    return 4;
}

/* Tries lengths of 2 to 4; a lone byte of a longer character has class 0. */
unsigned unicode_last(const uint8_t *begin, const uint8_t *p, int *len_out)
{
    uint32_t cp;

    for (int n = 2; p[-1] >= 0x80 && n <= 4 && n <= p - begin; n++) {
        if (unicode_decode(p - n, p, &cp) == n) {
            *len_out = n;
            return unicode_class[cp];
        }
    }
    *len_out = 1;
    return p[-1] < 0x80 ? unicode_class[p[-1]] : 0;
}
