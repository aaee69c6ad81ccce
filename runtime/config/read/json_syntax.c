/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a text strict JSON? The YAML reader accepts more than JSON: comments, bare words,
 * trailing commas. DeepSpeed does not, so its file is first checked against the grammar
 * of RFC 8259. One pass, no recursion, no memory. And what is strict JSON but not YAML:
 * characters beyond U+FFFF as two escapes, as Python writes them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/read/document.h"

/* The state between two tokens: what the grammar allows next. */
enum expect {
    /* any value */
    VALUE,
    /* after [ */
    VALUE_OR_END,
    /* after { */
    KEY_OR_END,
    /* after a comma in an object: } would be a trailing comma */
    KEY,
    COLON,
    /* after a value: comma or closing bracket */
    NEXT_OR_END,
};

/* Where the scan stands. After a failure `at` is the place of the problem. */
struct scanner {
    const char *s, *end;
    struct place at;
    /* Set by fail; static. */
    const char *problem, *cure;
    /* The open brackets, '{' or '[', outermost first. */
    char open[CONFIG_MAX_DEPTH];
    int depth;
};

/* Moves by n bytes. Columns count characters: continuation bytes of UTF-8 do not
 * move them. */
static void advance(struct scanner *j, size_t n)
{
    for (; n > 0; n--, j->s++) {
        if (*j->s == '\n') {
            j->at.line++;
            j->at.col = 1;
        } else if (((unsigned char)*j->s & 0xc0) != 0x80) {
            j->at.col++;
        }
    }
}

/* Notes the problem; returns false, so that callers end in one line. */
static bool fail(struct scanner *j, const char *problem, const char *cure)
{
    j->problem = problem;
    j->cure = cure;
    return false;
}

/* Is `c` next? False at the end of the text. */
static bool is_at(const struct scanner *j, char c)
{
    return j->s < j->end && *j->s == c;
}

/* A string with JSON's escapes. \u is not followed by a check of its digits: the YAML
 * reader checks them. */
static bool take_string(struct scanner *j)
{
    advance(j, 1);
    while (j->s < j->end && *j->s != '"') {
        if ((unsigned char)*j->s < 0x20)
            return fail(j, "a line break or control character in a string",
                        "close the string before it, or write \\n");
        if (*j->s == '\\' &&
            (j->s + 1 == j->end || !strchr("\"\\/bfnrtu", j->s[1]) || !j->s[1]))
            return fail(j, "an unknown escape",
                        "use one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX");
        advance(j, *j->s == '\\' ? 2 : 1);
    }
    if (j->s == j->end)
        return fail(j, "a string is not closed", "close it with \"");
    advance(j, 1);
    return true;
}

/* Number of decimal digits at s. */
static size_t digits(const char *s, const char *end)
{
    const char *from = s;

    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return (size_t)(s - from);
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? as in the RFC. */
static bool take_number(struct scanner *j)
{
    const char *p = j->s + (*j->s == '-');
    size_t n = digits(p, j->end);

    if (n == 0 || (n > 1 && *p == '0'))
        return fail(j, "not a number",
                    "write it in decimal, without a plus sign or leading zeros");
    p += n;
    if (p < j->end && *p == '.') {
        n = digits(++p, j->end);
        if (n == 0)
            return fail(j, "a number ends with its decimal point",
                        "write a digit after it");
        p += n;
    }
    if (p < j->end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < j->end && (*p == '+' || *p == '-');
        n = digits(p, j->end);
        if (n == 0)
            return fail(j, "a number has no digits in its exponent",
                        "write a digit after e");
        p += n;
    }
    advance(j, (size_t)(p - j->s));
    return true;
}

/* true, false or null; only these, in lower case. */
static bool take_word(struct scanner *j)
{
    static const char *const words[] = { "true", "false", "null" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(j->end - j->s) >= n && !memcmp(j->s, words[i], n)) {
            advance(j, n);
            return true;
        }
    }
    return fail(j, "not a JSON value",
                "write a number, true, false, null, or text in double quotes");
}

/* Takes the value that begins here; of an object or list, only its opening bracket.
 * What may follow goes to *next_out. */
static bool take_value(struct scanner *j, enum expect *next_out)
{
    *next_out = NEXT_OR_END;
    if (is_at(j, '{') || is_at(j, '[')) {
        if (j->depth == CONFIG_MAX_DEPTH)
            return fail(j, "objects and lists nest too deeply",
                        "check that this is a DeepSpeed file");
        *next_out = *j->s == '{' ? KEY_OR_END : VALUE_OR_END;
        j->open[j->depth++] = *j->s;
        advance(j, 1);
        return true;
    }
    if (is_at(j, '"'))
        return take_string(j);
    if (j->s < j->end && (*j->s == '-' || (*j->s >= '0' && *j->s <= '9')))
        return take_number(j);
    return take_word(j);
}

/* Takes the closing bracket of the innermost open one. */
static bool close_here(struct scanner *j)
{
    char wanted = j->open[j->depth - 1] == '{' ? '}' : ']';

    if (!is_at(j, wanted))
        return fail(j, wanted == '}' ? "expected , or }" : "expected , or ]",
                    "put commas between values and close brackets");
    advance(j, 1);
    j->depth--;
    return true;
}

/* Takes one token; white space is skipped already. *next goes in as the state before it
 * and comes out as the state after it. */
static bool take_token(struct scanner *j, enum expect *next)
{
    switch (*next) {
    case VALUE:
        return take_value(j, next);
    /* "[" may be closed at once, "[1," may not: that is why there are two states. */
    case VALUE_OR_END:
        if (!is_at(j, ']'))
            return take_value(j, next);
        *next = NEXT_OR_END;
        return close_here(j);
    case KEY_OR_END:
    case KEY:
        /* The same for "{". */
        if (*next == KEY_OR_END && is_at(j, '}')) {
            *next = NEXT_OR_END;
            return close_here(j);
        }
        *next = COLON;
        return is_at(j, '"') ? take_string(j)
                             : fail(j, "expected a key",
                                    "write keys in double quotes; no comma before }");
    case COLON:
        *next = VALUE;
        if (!is_at(j, ':'))
            return fail(j, "expected :", "write \"key\": value");
        advance(j, 1);
        return true;
    case NEXT_OR_END:
        if (!is_at(j, ','))
            return close_here(j);
        *next = j->open[j->depth - 1] == '{' ? KEY : VALUE;
        advance(j, 1);
        return true;
    }
    return false;
}

/* The text ends when the outermost value does; only white space may follow. */
bool json_check(struct config_report *r)
{
    struct scanner j = { .s = r->in.text,
                         .end = r->in.text + r->in.len,
                         .at = { .line = 1, .col = 1, .width = 1 } };
    enum expect next = VALUE;
    bool good = true, begun = false;

    while (good && (!begun || j.depth > 0)) {
        while (j.s < j.end && memchr(" \t\r\n", *j.s, 4))
            advance(&j, 1);
        good = take_token(&j, &next);
        begun = true;
    }
    while (good && j.s < j.end && memchr(" \t\r\n", *j.s, 4))
        advance(&j, 1);
    if (good && j.s < j.end)
        good = fail(&j, "there is more text after the end", "remove it");
    if (!good)
        report_add(r, A0151, j.at, j.cure, "not valid JSON: %s", j.problem);
    return good;
}

/* ---- pairs of escapes ------------------------------------------------------------ */

/* The number of an escape \uXXXX at s; -1: there is none. */
static long escape_at(const char *s, const char *end)
{
    char digits[5] = "";

    if (end - s < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    memcpy(digits, s + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16)
                                                         : -1;
}

/* A pair has 12 bytes, \UXXXXXXXX 10. Half of one stays, and the YAML reader refuses
 * it. A backslash and what it escapes are skipped together: "\\ud83d" has no escape. */
char *json_for_yaml(const char *text, size_t len, size_t *len_out)
{
    const char *s = text, *end = text + len;
    char *copy = malloc(len + 1), *to = copy;
    bool any = false;

    while (copy && s < end) {
        const long high = escape_at(s, end),
                   low = high < 0 ? -1 : escape_at(s + 6, end);
        const size_t n = *s == '\\' && s + 1 < end ? 2 : 1;

        if (high >= 0xd800 && high < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
            to += sprintf(to, "\\U%08lx",
                          0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
            s += 12;
            any = true;
            continue;
        }
        memcpy(to, s, n);
        to += n;
        s += n;
    }
    *len_out = (size_t)(to - copy);
    if (any)
        return copy;
    free(copy);
    return NULL;
}
