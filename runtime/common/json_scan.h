/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict JSON in one pass (RFC 8259). The caller asks for what it expects, token by
 * token, or only whether a text is JSON. Strings are decoded where they stand.
 */
#ifndef ACCEL_COMMON_JSON_SCAN_H
#define ACCEL_COMMON_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is wrong: of those with a name another text than `problem` may be shown. */
enum json_problem {
    JSON_OTHER,
    JSON_CONTROL,     /* a control character in a string */
    JSON_ESCAPE,      /* an unknown one */
    JSON_HALF_ESCAPE, /* the text ends after its backslash */
    JSON_OPEN_STRING,
    JSON_NO_VALUE,
    JSON_NO_NUMBER, /* a sign without digits, a leading zero */
    JSON_NO_FRACTION,
    JSON_NO_EXPONENT,
    JSON_TOO_DEEP,
    JSON_MORE, /* text after the end */
    JSON_NO_KEY,
    JSON_NO_COLON,
    JSON_IN_OBJECT, /* neither a comma nor its end */
    JSON_IN_LIST,
};

/* A position in a text. */
struct json_scan {
    char *begin, *s, *end;
    /* The first problem, static; every later call returns false. s is where reading
     * stopped, `from` (of a problem with a name) where the number or escape begins. */
    const char *problem, *from;
    enum json_problem kind;
    /* Set by json_scan_check: the text is not written to. */
    bool check;
};

/* Notes a problem of the caller's unless there is one; returns false. */
bool json_scan_fail(struct json_scan *j, const char *problem);
/* Skips blanks and takes the character c. False, which is no problem, if another one is
 * there. */
bool json_scan_is(struct json_scan *j, char c);
/* The same, but another character is a problem. */
bool json_scan_want(struct json_scan *j, char c);
/* A text: UTF-8 without NUL inside. *text_out lies in the scanned text and ends with
 * a NUL. */
bool json_scan_string(struct json_scan *j, char **text_out);
/* A whole number from 0 to INT64_MAX. */
bool json_scan_whole(struct json_scan *j, int64_t *value_out);
/* Takes null, if it is here. */
bool json_scan_null(struct json_scan *j);
/* Any value, at most `levels` of them inside each other: bounds the recursion. */
bool json_scan_skip(struct json_scan *j, int levels);
/* True if only blanks are left. */
bool json_scan_end(struct json_scan *j);
/* Steps through an object. The first call, with *n = 0, opens it; each call takes the
 * next key and its colon, and the caller takes the value. False at the end or at
 * a problem. */
bool json_scan_member(struct json_scan *j, size_t *n, char **key_out);
/* Is the whole text one value, with at most `levels` open brackets? Only the grammar is
 * checked: neither UTF-8 nor the digits of \u, which are left to another reader. */
bool json_scan_check(struct json_scan *j, int levels);

#endif
