/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 in, classes of characters out. Never changes a byte.
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

/* Tries lengths of 2 to 4; a lone byte of a longer character has class 0. */
unsigned unicode_last(const uint8_t *begin, const uint8_t *p, int *len_out)
{
    uint32_t cp;

    for (int n = 2; p[-1] >= 0x80 && n <= 4 && n <= p - begin; n++) {
        if (utf8_next((const char *)p - n, (size_t)n, &cp) == (size_t)n) {
            *len_out = n;
            return unicode_class[cp];
        }
    }
    *len_out = 1;
    return p[-1] < 0x80 ? unicode_class[p[-1]] : 0;
}
