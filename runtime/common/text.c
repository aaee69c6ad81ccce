/* SPDX-License-Identifier: Apache-2.0
 *
 * Text with a point in its numbers: what goes into files, logs and messages, and what
 * is read from them, whatever locale the program has set. In: formats and values. Out:
 * text and numbers as in the C locale. Other threads keep their locale, and this one
 * has its own again afterwards. And the characters of UTF-8.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/common.h"

/* With every libc the C locale is made without memory, so this cannot fail and nothing
 * is to be freed. */
static locale_t enter_c_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

int text_vformat(char *buf, size_t len, const char *fmt, va_list ap)
{
    const locale_t before = enter_c_locale();
    const int length = vsnprintf(buf, len, fmt, ap);

    uselocale(before);
    return length;
}

int text_format(char *buf, size_t len, const char *fmt, ...)
{
    va_list ap;
    int length;

    va_start(ap, fmt);
    length = text_vformat(buf, len, fmt, ap);
    va_end(ap);
    return length;
}

int text_scan(const char *s, const char *fmt, ...)
{
    const locale_t before = enter_c_locale();
    va_list ap;
    int fields;

    va_start(ap, fmt);
    fields = vsscanf(s, fmt, ap);
    va_end(ap);
    uselocale(before);
    return fields;
}

double text_number(const char *s, char **end_out)
{
    const locale_t before = enter_c_locale();
    const double v = strtod(s, end_out);

    uselocale(before);
    return v;
}

/* Rejects what RFC 3629 rejects: overlong forms, surrogates, and code points above
 * U+10FFFF. libyaml rejects the same, but without a place. */
size_t utf8_next(const char *s, size_t n, uint32_t *cp_out)
{
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char c = n ? (unsigned char)s[0] : 0;
    size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

    if (n < len || (c >= 0x80 && c < 0xc2) || c > 0xf4)
        return 0;
    *cp_out = len == 1 ? c : c & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
        *cp_out = *cp_out << 6 | ((unsigned char)s[i] & 0x3f);
    }
    if (*cp_out < smallest[len] || *cp_out > 0x10ffff ||
        (*cp_out >= 0xd800 && *cp_out < 0xe000))
        return 0;
    return len;
}
