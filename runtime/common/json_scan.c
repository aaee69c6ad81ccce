/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict JSON for texts that may be hostile: headers of weights, configs. The caller
 * asks for what it expects token by token, so nothing is built for text of another
 * form. Strings are decoded where they stand. Never allocates.
 */
#include <string.h>

#include "common/common.h"
#include "common/json_scan.h"

static const char no_comma[] = "a comma or a closing bracket is expected here";
static const char *const problems[] = {
    [JSON_CONTROL] = "a control character in a string",
    [JSON_ESCAPE] = "an unknown escape",
    [JSON_HALF_ESCAPE] = "a string is not closed",
    [JSON_OPEN_STRING] = "a string is not closed",
    [JSON_NO_VALUE] = "not a JSON value",
    [JSON_NO_NUMBER] = "not a JSON value",
    [JSON_NO_FRACTION] = "a number ends with its decimal point",
    [JSON_NO_EXPONENT] = "a number has no digits in its exponent",
    [JSON_TOO_DEEP] = "objects and lists nest too deeply",
    [JSON_MORE] = "there is more text after the end",
    [JSON_NO_KEY] = "text in double quotes is expected here",
    [JSON_NO_COLON] = "a colon is expected here",
    [JSON_IN_OBJECT] = no_comma,
    [JSON_IN_LIST] = no_comma,
};

/* The first problem is the cause; later ones follow from it. */
bool json_scan_fail(struct json_scan *j, const char *problem)
{
    if (!j->problem)
        j->problem = problem;
    return false;
}

/* A problem with a name, of the token that begins at `from`. */
static bool json_bad(struct json_scan *j, enum json_problem kind, const char *from)
{
    if (!j->problem) {
        j->problem = problems[kind];
        j->from = from;
        j->kind = kind;
    }
    return false;
}

/* the four blanks of JSON */
static void skip_blanks(struct json_scan *j)
{
    while (j->s < j->end &&
           (*j->s == ' ' || *j->s == '\n' || *j->s == '\r' || *j->s == '\t'))
        j->s++;
}

bool json_scan_is(struct json_scan *j, char c)
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
bool json_scan_want(struct json_scan *j, char c)
{
    if (json_scan_is(j, c))
        return true;
    switch (c) {
    case '{':
        return json_scan_fail(j, "an object is expected here");
    case '[':
        return json_scan_fail(j, "a list is expected here");
    case ':':
        return json_bad(j, JSON_NO_COLON, j->s);
    case '"':
        return json_bad(j, JSON_NO_KEY, j->s);
    default:
        return json_bad(j, c == ',' ? JSON_IN_OBJECT : JSON_IN_LIST, j->s);
    }
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
static bool take_hex(struct json_scan *j, uint32_t *code_out)
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
            return json_scan_fail(j, "\\u needs four hexadecimal digits");
    }
    return true;
}

/* Behind \u: one code point, from two escapes when the first is half of a surrogate
 * pair. NUL is refused, since texts end with one. */
static bool take_unicode(struct json_scan *j, char **to)
{
    uint32_t code, low;

    if (!take_hex(j, &code))
        return false;
    if (code == 0)
        return json_scan_fail(j, "a NUL in a string");
    if (code >= 0xd800 && code < 0xe000) {
        /* a low half first, or no second escape after the high half */
        if (code >= 0xdc00 || j->end - j->s < 2 || j->s[0] != '\\' || j->s[1] != 'u')
            return json_scan_fail(j, "half of a surrogate pair");
        j->s += 2;
        if (!take_hex(j, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return json_scan_fail(j, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, code);
    return true;
}

/* A byte of a decoded string. A check leaves the text as it is. */
static void put_byte(const struct json_scan *j, char **to, char c)
{
    if (!j->check)
        *(*to)++ = c;
}

/* A backslash and what follows; *to moves past what was decoded. */
static bool take_escape(struct json_scan *j, char **to)
{
    /* from[i] is the letter of the escape, into[i] the character */
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *start = j->s, *at;

    j->s++;
    if (j->s == j->end)
        return json_bad(j, JSON_HALF_ESCAPE, start);
    if (*j->s == 'u') {
        j->s++;
        return j->check || take_unicode(j, to);
    }
    /* strchr would find the NUL at the end of `from` */
    at = *j->s ? strchr(from, *j->s) : NULL;
    if (!at)
        return json_bad(j, JSON_ESCAPE, start);
    put_byte(j, to, into[at - from]);
    j->s++;
    return true;
}

/* The closing quote gives room for the NUL. */
bool json_scan_string(struct json_scan *j, char **text_out)
{
    char *to, *start;
    uint32_t code;

    if (!json_scan_want(j, '"'))
        return false;
    /* `to` follows j->s and never passes it: decoding shortens */
    start = to = j->s;
    while (j->s < j->end && *j->s != '"') {
        size_t n;

        if ((unsigned char)*j->s < 0x20)
            return json_bad(j, JSON_CONTROL, j->s);
        if (*j->s == '\\') {
            if (!take_escape(j, &to))
                return false;
            continue;
        }
        n = j->check ? 1 : utf8_next(j->s, (size_t)(j->end - j->s), &code);
        if (n == 0)
            return json_scan_fail(j, "not UTF-8");
        while (n-- > 0)
            put_byte(j, &to, *j->s++);
    }
    if (j->s == j->end)
        return json_bad(j, JSON_OPEN_STRING, j->s);
    j->s++;
    put_byte(j, &to, '\0'); /* at the latest where the closing quote was */
    *text_out = start;
    return true;
}

/* Signs, fractions, exponents and leading zeros are refused. */
bool json_scan_whole(struct json_scan *j, int64_t *value_out)
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
            return json_scan_fail(j, "a number beyond 9223372036854775807");
    /* no digit at all, a sign, a fraction or an exponent */
    if (j->s == from || (j->s < j->end && memchr(".eE", *j->s, 3)))
        return json_scan_fail(j, "a whole number of at least 0 is expected here");
    if (j->s - from > 1 && *from == '0')
        return json_scan_fail(j, "a number with a leading zero");
    *value_out = v;
    return true;
}

/* number of digits skipped */
static size_t skip_digits(struct json_scan *j)
{
    char *from = j->s;

    while (j->s < j->end && *j->s >= '0' && *j->s <= '9')
        j->s++;
    return (size_t)(j->s - from);
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? as in the RFC, of any size. */
static bool skip_number(struct json_scan *j)
{
    const char *start = j->s, *first;
    size_t n;

    if (*j->s == '-')
        j->s++;
    first = j->s;
    n = skip_digits(j);
    if (n == 0 || (n > 1 && *first == '0'))
        return json_bad(j, JSON_NO_NUMBER, start);
    if (j->s < j->end && *j->s == '.') {
        j->s++;
        if (skip_digits(j) == 0)
            return json_bad(j, JSON_NO_FRACTION, start);
    }
    if (j->s < j->end && (*j->s | 0x20) == 'e') {
        j->s++;
        if (j->s < j->end && (*j->s == '+' || *j->s == '-'))
            j->s++;
        if (skip_digits(j) == 0)
            return json_bad(j, JSON_NO_EXPONENT, start);
    }
    return true;
}

/* A number, or true, false or null; only these, in lower case. */
static bool skip_word(struct json_scan *j)
{
    static const char *const words[] = { "true", "false", "null" };

    if (j->s < j->end && (*j->s == '-' || (*j->s >= '0' && *j->s <= '9')))
        return skip_number(j);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(j->end - j->s) >= n && !memcmp(j->s, words[i], n)) {
            j->s += n;
            return true;
        }
    }
    return json_bad(j, JSON_NO_VALUE, j->s);
}

/* Any value with `levels` of them inside it. A check counts brackets only and refuses
 * the one too many itself, since its place is shown. After a problem every call returns
 * at once, so the loops end. */
bool json_scan_skip(struct json_scan *j, int levels)
{
    char *text;
    size_t n = 0;

    if (j->problem)
        return false;
    if (levels < 0)
        return json_bad(j, JSON_TOO_DEEP, j->s);
    skip_blanks(j);
    if (levels == 0 && j->check && j->s < j->end && (*j->s == '{' || *j->s == '['))
        return json_bad(j, JSON_TOO_DEEP, j->s);
    if (j->s < j->end && *j->s == '"')
        return json_scan_string(j, &text);
    if (j->s < j->end && *j->s == '{') {
        while (json_scan_member(j, &n, &text))
            json_scan_skip(j, levels - 1);
        return !j->problem;
    }
    if (!json_scan_is(j, '['))
        return skip_word(j);
    if (json_scan_is(j, ']'))
        return true;
    do
        json_scan_skip(j, levels - 1);
    while (json_scan_is(j, ','));
    return json_scan_want(j, ']');
}

bool json_scan_null(struct json_scan *j)
{
    if (j->problem)
        return false;
    skip_blanks(j);
    if (j->end - j->s < 4 || memcmp(j->s, "null", 4) != 0)
        return false;
    j->s += 4;
    return true;
}

bool json_scan_end(struct json_scan *j)
{
    if (j->problem)
        return false;
    skip_blanks(j);
    return j->s == j->end || json_bad(j, JSON_MORE, j->s);
}

/* Nothing but a comma may stand between members, and no comma before the end. */
bool json_scan_member(struct json_scan *j, size_t *n, char **key_out)
{
    if ((*n)++ == 0) {
        if (!json_scan_want(j, '{') || json_scan_is(j, '}'))
            return false;
    } else {
        if (json_scan_is(j, '}'))
            return false;
        if (!json_scan_want(j, ','))
            return false;
    }
    return json_scan_string(j, key_out) && json_scan_want(j, ':');
}

bool json_scan_check(struct json_scan *j, int levels)
{
    j->check = true;
    return json_scan_skip(j, levels) && json_scan_end(j);
}
