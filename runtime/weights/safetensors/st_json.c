/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict JSON for headers that may be hostile. The caller asks for what it expects
 * token by token, so nothing is built for text of another form. Strings are decoded
 * where they stand. Never allocates.
 */
#include <string.h>

#include "st_internal.h"

/* levels of objects and lists that a skipped value may have: bounds the recursion */
#define DEPTH 32

const char st_no_memory[] = "out of memory";

/* The first problem is the cause; later ones follow from it. */
bool st_json_fail(struct st_json *j, const char *problem)
{
    if (!j->problem)
        j->problem = problem;
    return false;
}

/* the four blanks of JSON */
static void skip_blanks(struct st_json *j)
{
    while (j->s < j->end &&
           (*j->s == ' ' || *j->s == '\n' || *j->s == '\r' || *j->s == '\t'))
        j->s++;
}

bool st_json_is(struct st_json *j, char c)
{
    if (j->problem)
        return false;
    skip_blanks(j);
    if (j->s == j->end || *j->s != c)
        return false;
    j->s++;
    return true;
}

/* Says what was expected, not what was found: the error has the byte. */
bool st_json_want(struct st_json *j, char c)
{
    if (st_json_is(j, c))
        return true;
    switch (c) {
    case '{':
        return st_json_fail(j, "an object is expected here");
    case '[':
        return st_json_fail(j, "a list is expected here");
    case ':':
        return st_json_fail(j, "a colon is expected here");
    case '"':
        return st_json_fail(j, "text in double quotes is expected here");
    default:
        return st_json_fail(j, "a comma or a closing bracket is expected here");
    }
}

/* Length of the well-formed UTF-8 sequence at s; 0 if there is none. Overlong forms,
 * surrogates and codes beyond 10ffff are not. */
static int utf8_length(const unsigned char *s, const unsigned char *end)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int n = *s < 0x80 ? 1 : *s >= 0xf5 ? 0 : *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
    uint32_t code;

    if (n == 1)
        return 1;
    /* 0x80 to 0xbf continue a sequence, c0 and c1 would begin an overlong one */
    if (n == 0 || *s < 0xc2 || end - s < n)
        return 0;
    code = *s & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    /* overlong, beyond Unicode, or half of a surrogate pair */
    if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    return n;
}

/* Appends a code point. At most as long as the escape that it came from, so decoding in
 * place never overtakes reading. */
static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* The four digits of \uXXXX. */
static bool take_hex(struct st_json *j, uint32_t *code_out)
{
    *code_out = 0;
    for (int i = 0; i < 4; i++, j->s++) {
        /* | 0x20 makes upper-case letters lower-case */
        char c = j->s < j->end ? *j->s : '\0', lower = (char)(c | 0x20);

        if (c >= '0' && c <= '9')
            *code_out = *code_out << 4 | (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            *code_out = *code_out << 4 | (uint32_t)(lower - 'a' + 10);
        else
            return st_json_fail(j, "\\u needs four hexadecimal digits");
    }
    return true;
}

/* Behind \u: one code point, from two escapes when the first is half of a surrogate
 * pair. NUL is refused, since texts end with one. */
static bool take_unicode(struct st_json *j, char **to)
{
    uint32_t code, low;

    if (!take_hex(j, &code))
        return false;
    if (code == 0)
        return st_json_fail(j, "a NUL in a string");
    if (code >= 0xd800 && code < 0xe000) {
        /* a low half first, or no second escape behind the high half */
        if (code >= 0xdc00 || j->end - j->s < 2 || j->s[0] != '\\' || j->s[1] != 'u')
            return st_json_fail(j, "half of a surrogate pair");
        j->s += 2;
        if (!take_hex(j, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return st_json_fail(j, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, code);
    return true;
}

/* A backslash and what follows; *to moves behind what was decoded. */
static bool take_escape(struct st_json *j, char **to)
{
    /* from[i] is the letter of the escape, into[i] the character */
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *at;

    j->s++;
    if (j->s == j->end)
        return st_json_fail(j, "a string is not closed");
    if (*j->s == 'u') {
        j->s++;
        return take_unicode(j, to);
    }
    /* strchr would find the NUL at the end of `from` */
    at = *j->s ? strchr(from, *j->s) : NULL;
    if (!at)
        return st_json_fail(j, "an unknown escape");
    *(*to)++ = into[at - from];
    j->s++;
    return true;
}

/* The closing quote gives room for the NUL. */
bool st_json_string(struct st_json *j, char **text_out)
{
    char *to, *start;

    if (!st_json_want(j, '"'))
        return false;
    /* `to` follows j->s and never passes it: decoding shortens */
    start = to = j->s;
    while (j->s < j->end && *j->s != '"') {
        int n;

        if ((unsigned char)*j->s < 0x20)
            return st_json_fail(j, "a control character in a string");
        if (*j->s == '\\') {
            if (!take_escape(j, &to))
                return false;
            continue;
        }
        n = utf8_length((unsigned char *)j->s, (unsigned char *)j->end);
        if (n == 0)
            return st_json_fail(j, "not UTF-8");
        while (n-- > 0)
            *to++ = *j->s++;
    }
    if (j->s == j->end)
        return st_json_fail(j, "a string is not closed");
    j->s++;
    *to = '\0'; /* at the latest where the closing quote was */
    *text_out = start;
    return true;
}

/* Signs, fractions, exponents and leading zeros are refused. */
bool st_json_whole(struct st_json *j, int64_t *value_out)
{
    int64_t v = 0;
    char *from;

    if (j->problem)
        return false;
    skip_blanks(j);
    /* checked digit by digit: a number of any length may be there */
    for (from = j->s; j->s < j->end && *j->s >= '0' && *j->s <= '9'; j->s++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, *j->s - '0', &v))
            return st_json_fail(j, "a number beyond 9223372036854775807");
    /* no digit at all, a sign, a fraction or an exponent */
    if (j->s == from || (j->s < j->end && memchr(".eE", *j->s, 3)))
        return st_json_fail(j, "a whole number of at least 0 is expected here");
    if (j->s - from > 1 && *from == '0')
        return st_json_fail(j, "a number with a leading zero");
    *value_out = v;
    return true;
}

/* number of digits skipped */
static size_t skip_digits(struct st_json *j)
{
    char *from = j->s;

    while (j->s < j->end && *j->s >= '0' && *j->s <= '9')
        j->s++;
    return (size_t)(j->s - from);
}

/* A number of JSON, of any size. */
static bool skip_number(struct st_json *j)
{
    char *first;
    size_t n;

    if (j->s < j->end && *j->s == '-')
        j->s++;
    /* leading zeros are no JSON, wherever a number is */
    first = j->s;
    n = skip_digits(j);
    if (n == 0 || (n > 1 && *first == '0'))
        return st_json_fail(j, "not a JSON value");
    if (j->s < j->end && *j->s == '.') {
        j->s++;
        if (skip_digits(j) == 0)
            return st_json_fail(j, "a number ends with its decimal point");
    }
    if (j->s < j->end && (*j->s | 0x20) == 'e') {
        j->s++;
        if (j->s < j->end && (*j->s == '+' || *j->s == '-'))
            j->s++;
        if (skip_digits(j) == 0)
            return st_json_fail(j, "a number has no digits in its exponent");
    }
    return true;
}

/* true, false, null or a number. */
static bool skip_word(struct st_json *j)
{
    static const char *const words[] = { "true", "false", "null" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(j->end - j->s) >= n && !memcmp(j->s, words[i], n)) {
            j->s += n;
            return true;
        }
    }
    return skip_number(j);
}

/* Any value. After a problem every call returns at once, so the loops end. */
static bool skip(struct st_json *j, int depth)
{
    char *text;
    size_t n = 0;

    if (j->problem)
        return false;
    if (depth > DEPTH)
        return st_json_fail(j, "objects and lists nest too deeply");
    skip_blanks(j);
    if (j->s < j->end && *j->s == '"')
        return st_json_string(j, &text);
    if (j->s < j->end && *j->s == '{') {
        while (st_json_member(j, &n, &text))
            skip(j, depth + 1);
        return !j->problem;
    }
    if (!st_json_is(j, '['))
        return skip_word(j);
    if (st_json_is(j, ']'))
        return true;
    do
        skip(j, depth + 1);
    while (st_json_is(j, ','));
    return st_json_want(j, ']');
}

bool st_json_skip(struct st_json *j)
{
    return skip(j, 0);
}

bool st_json_null(struct st_json *j)
{
    if (j->problem)
        return false;
    skip_blanks(j);
    if (j->end - j->s < 4 || memcmp(j->s, "null", 4) != 0)
        return false;
    j->s += 4;
    return true;
}

bool st_json_end(struct st_json *j)
{
    if (j->problem)
        return false;
    skip_blanks(j);
    return j->s == j->end || st_json_fail(j, "there is more text after the end");
}

/* Nothing but a comma may stand between members, and no comma before the end. */
bool st_json_member(struct st_json *j, size_t *n, char **key_out)
{
    if ((*n)++ == 0) {
        if (!st_json_want(j, '{') || st_json_is(j, '}'))
            return false;
    } else {
        if (st_json_is(j, '}'))
            return false;
        if (!st_json_want(j, ','))
            return false;
    }
    return st_json_string(j, key_out) && st_json_want(j, ':');
}

accel_status_t st_json_error(const struct st_json *j, const char *where, const char *at,
                             accel_error_t *err)
{
    if (j->problem == st_no_memory)
        return accel_fail_nomem(err, "the header of a safetensors file",
                                (size_t)(j->end - j->begin));
    return accel_fail_at(err, A0824, where, "copy or download the file again",
                         "byte %zu%s: %s", (size_t)(j->s - j->begin), at, j->problem);
}
