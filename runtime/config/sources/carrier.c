/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of variables as one printable text under a hash, and back. The text is checked
 * as a whole before any of it is used, because it travels through an environment that
 * others can write. slurmstepd carries this file: it needs libc and xxHash only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "config/python/environ.h"

/* Caps of one item. A longer name or value is not ours. */
enum { HASH_DIGITS = 16, NAME_MAX_BYTES = 64, VALUE_MAX_BYTES = 32 << 10 };

static const char version[] = "accelenv1;";
static const char hash_key[] = ";xxh3=";

/* The version comes first, so that an old plugin on a node refuses a new text instead
 * of misreading it. */
void carrier_start(struct strbuf *b)
{
    strbuf_append(b, version, strlen(version));
}

/* ":" instead of "=" marks a value that each task fills in for itself. */
void carrier_add(void *user, const char *name, const char *value, bool task)
{
    struct strbuf *b = user;

    strbuf_printf(b, "%s%s%c", b->len > strlen(version) ? ";" : "", name,
                  task ? ':' : '=');
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;

        if (c < 0x20 || c > 0x7e || c == ';' || c == '%')
            strbuf_printf(b, "%%%02X", c);
        else
            strbuf_append(b, value, 1);
    }
}

/* The hash covers everything before it, the version included. */
accel_status_t carrier_seal(struct strbuf *b, accel_error_t *err)
{
    if (!b->failed)
        strbuf_printf(b, "%s%016llx", hash_key,
                      (unsigned long long)XXH3_64bits(b->s, b->len));
    if (b->failed)
        return accel_fail_nomem(err, "the tasks' environment", CARRIER_MAX);
    if (b->len >= CARRIER_MAX)
        return accel_fail(err, A0320, "shorten the long values of the config",
                          "the tasks' environment has %zu bytes; the limit is %d",
                          b->len, CARRIER_MAX);
    return ACCEL_OK;
}

/* One message for all damage: the user cannot do anything about the details. */
static accel_status_t damaged(accel_error_t *err, const char *what)
{
    return accel_fail(
        err, A0311,
        "start the step again; install the same plugin version on all hosts",
        "the environment that srun prepared for the tasks is damaged: %s", what);
}

/* Are version, length and hash right? The hash is found by its position at the end. */
static bool frame_is_whole(const char *text, size_t len)
{
    size_t tail = strlen(hash_key) + HASH_DIGITS;
    char hash[HASH_DIGITS + 1];

    /* strnlen stops at CARRIER_MAX: a text of that length has no known end. */
    if (len >= CARRIER_MAX || len < strlen(version) + tail ||
        strncmp(text, version, strlen(version)) != 0 ||
        strncmp(text + len - tail, hash_key, strlen(hash_key)) != 0)
        return false;
    snprintf(hash, sizeof(hash), "%016llx",
             (unsigned long long)XXH3_64bits(text, len - tail));
    return !strcmp(text + len - HASH_DIGITS, hash);
}

/* Upper case only, as carrier_add writes it; -1: not a digit. */
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes %XX in place. False on a bad escape, on control characters and on a value
 * that is too long. Control characters are refused even though they can be encoded: no
 * variable of the contract has one. */
static bool unescape(char *s)
{
    const char *start = s;
    char *to = s;

    for (; *s; s++) {
        int c = (unsigned char)*s;

        if (c == '%') {
            int hi = hex_digit(s[1]), lo = hi < 0 ? -1 : hex_digit(s[2]);

            if (lo < 0)
                return false;
            c = hi * 16 + lo;
            s += 2;
        }
        if (c < 0x20 || c == 0x7f)
            return false;
        *to++ = (char)c;
    }
    *to = '\0';
    return to - start < VALUE_MAX_BYTES;
}

/* Cuts "NAME=value" or "NAME:word" into its parts, in place: `item` becomes the name.
 * The allow-list of names is what keeps LD_PRELOAD out of a task. */
static bool carrier_split(char *item, char **value_out, bool *task_out)
{
    size_t n = strcspn(item, "=:");

    if (!item[n] || n >= NAME_MAX_BYTES)
        return false;
    /* The mark is looked at before it becomes the NUL of the name. */
    *task_out = item[n] == ':';
    item[n] = '\0';
    *value_out = item + n + 1;
    return environ_name_allowed(item) && unescape(*value_out);
}

/* Calls `each` for all items between version and hash. With `each` NULL it only checks.
 * False: *st_out has the error. */
static bool walk(const char *text, size_t len, config_env_f each, void *user,
                 accel_error_t *err, accel_status_t *st_out)
{
    size_t body = len - strlen(hash_key) - HASH_DIGITS - strlen(version);
    char *copy = strndup(text + strlen(version), body), *item, *rest = copy;
    bool good = true;

    if (!copy) {
        *st_out = accel_fail_nomem(err, "the tasks' environment", body);
        return false;
    }
    /* An empty list is one empty item to strsep; body > 0 leaves it out. */
    while (good && body > 0 && (item = strsep(&rest, ";"))) {
        char *value;
        bool task;

        good = carrier_split(item, &value, &task);
        if (good && each)
            each(user, item, value, task);
    }
    free(copy);
    if (!good)
        *st_out = damaged(err, "a name or value is not accel's");
    return good;
}

/* Two passes: nothing is set in a task before the whole list is known to be good. */
accel_status_t carrier_read(const char *text, config_env_f each, void *user,
                            accel_error_t *err)
{
    size_t len = strnlen(text, CARRIER_MAX);
    accel_status_t st = ACCEL_OK;

    if (!frame_is_whole(text, len))
        return damaged(err, "wrong hash");
    if (walk(text, len, NULL, NULL, err, &st))
        walk(text, len, each, user, err, &st);
    return st;
}
