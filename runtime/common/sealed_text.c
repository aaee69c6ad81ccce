/* SPDX-License-Identifier: Apache-2.0
 *
 * Escapes and hash of a text that others can write: it is looked at as a whole before
 * any of it is used. slurmstepd carries this file: it needs libc and xxHash only.
 */
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/sealed_text.h"

enum { HASH_DIGITS = 16 };
static const char hash_key[] = ";xxh3=";

void sealed_append(struct strbuf *b, const char *value)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;

        if (c < 0x20 || c > 0x7e || c == ';' || c == '%')
            strbuf_printf(b, "%%%02X", c);
        else
            strbuf_append(b, value, 1);
    }
}

/* Upper case only, as sealed_append writes it; -1: not a digit. */
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool sealed_decode(char *value)
{
    char *to = value;

    for (; *value; value++) {
        if (*value == '%') {
            int hi = hex_digit(value[1]), lo = hi < 0 ? -1 : hex_digit(value[2]);

            if (lo < 0 || hi * 16 + lo == 0)
                return false;
            *to++ = (char)(hi * 16 + lo);
            value += 2;
        } else {
            *to++ = *value;
        }
    }
    *to = '\0';
    return true;
}

void sealed_close(struct strbuf *b)
{
    strbuf_printf(b, "%s%016llx", hash_key,
                  (unsigned long long)XXH3_64bits(b->s, b->len));
}

/* The hash has a fixed length, so its place follows from that of the text. */
const char *sealed_problem(const char *text, size_t head, size_t max, size_t *items_out)
{
    /* strnlen stops at `max`: a text of that length has no known end. */
    const size_t len = strnlen(text, max), tail = strlen(hash_key) + HASH_DIGITS;
    char hash[HASH_DIGITS + 1];

    if (len >= max || len < head + tail)
        return "wrong length";
    if (strncmp(text + len - tail, hash_key, strlen(hash_key)))
        return "no hash";
    snprintf(hash, sizeof(hash), "%016llx",
             (unsigned long long)XXH3_64bits(text, len - tail));
    if (strcmp(text + len - HASH_DIGITS, hash))
        return "wrong hash";
    *items_out = len - tail;
    return NULL;
}
