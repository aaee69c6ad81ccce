/* SPDX-License-Identifier: Apache-2.0
 *
 * Text with a point in its numbers: what goes into files, logs and messages, and what
 * is read from them, whatever locale the program has set. In: formats and values. Out:
 * text and numbers as in the C locale. Other threads keep their locale, and this one
 * has its own again afterwards.
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
