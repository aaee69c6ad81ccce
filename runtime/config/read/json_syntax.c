/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a text strict JSON? The YAML reader accepts more than JSON: comments, bare words,
 * trailing commas. DeepSpeed does not, so its file is first checked against the grammar
 * of RFC 8259. And what is strict JSON but not YAML: characters beyond U+FFFF as two
 * escapes, as Python writes them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_scan.h"
#include "config/read/document.h"

#define ESCAPES "use one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX"
#define COMMAS  "put commas between values and close brackets"

/* Mistakes of the grammar as somebody reads them who has written the file by hand. */
static const struct {
    const char *problem, *cure;
} mistakes[] = {
    [JSON_CONTROL] = { "a line break or control character in a string",
                       "close the string before it, or write \\n" },
    [JSON_ESCAPE] = { "an unknown escape", ESCAPES },
    [JSON_HALF_ESCAPE] = { "an unknown escape", ESCAPES },
    [JSON_OPEN_STRING] = { "a string is not closed", "close it with \"" },
    [JSON_NO_VALUE] = { "not a JSON value",
                        "write a number, true, false, null, or text in double quotes" },
    [JSON_NO_NUMBER] = { "not a number", "write it in decimal, without a plus sign or "
                                         "leading zeros" },
    [JSON_NO_FRACTION] = { "a number ends with its decimal point",
                           "write a digit after it" },
    [JSON_NO_EXPONENT] = { "a number has no digits in its exponent",
                           "write a digit after e" },
    [JSON_TOO_DEEP] = { "objects and lists nest too deeply",
                        "check that this is a DeepSpeed file" },
    [JSON_MORE] = { "there is more text after the end", "remove it" },
    [JSON_NO_KEY] = { "expected a key",
                      "write keys in double quotes; no comma before }" },
    [JSON_NO_COLON] = { "expected :", "write \"key\": value" },
    [JSON_IN_OBJECT] = { "expected , or }", COMMAS },
    [JSON_IN_LIST] = { "expected , or ]", COMMAS },
};

/* Columns count characters: continuation bytes of UTF-8 do not move them. */
static struct place place_at(const char *s, const char *at)
{
    struct place place = { .line = 1, .col = 1, .width = 1 };

    for (; s < at; s++) {
        if (*s == '\n') {
            place.line++;
            place.col = 1;
        } else if (((unsigned char)*s & 0xc0) != 0x80) {
            place.col++;
        }
    }
    return place;
}

bool json_check(struct config_report *r)
{
    /* A check does not write to the text. */
    char *text = (char *)r->in.text;
    struct json_scan j = { .begin = text, .s = text, .end = text + r->in.len };

    if (json_scan_check(&j, CONFIG_MAX_DEPTH))
        return true;
    report_add(r, A0151, place_at(text, j.from), mistakes[j.kind].cure,
               "not valid JSON: %s", mistakes[j.kind].problem);
    return false;
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
