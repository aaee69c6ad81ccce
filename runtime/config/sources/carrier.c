/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of variables as one printable text under a hash, and back. What comes back is
 * checked as a whole before any of it is used: the text travels through an environment that
 * others can write. Needs libc and xxHash only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "config/python/environ.h"

enum { HASH_DIGITS = 16, NAME_MAX_BYTES = 64, VALUE_MAX_BYTES = 32 << 10 };

static const char version[] = "accelenv1;";
static const char hash_key[] = ";xxh3=";

void carrier_start(struct strbuf *b)
{
    strbuf_append(b, version, strlen(version));
}

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

accel_status_t carrier_seal(struct strbuf *b, accel_error_t *err)
{
    if (!b->failed)
        strbuf_printf(b, "%s%016llx", hash_key,
                      (unsigned long long)XXH3_64bits(b->s, b->len));
    if (b->failed)
        return accel_fail_nomem(err, "the tasks' environment", CARRIER_MAX);
    if (b->len >= CARRIER_MAX)
        return accel_fail(err, A0320, "shorten the long values of the config",
                          "the tasks' environment has %zu bytes, more than %d", b->len,
                          CARRIER_MAX);
    return ACCEL_OK;
}

static accel_status_t damaged(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0311,
                      "start the step again; the plugin must be of one version on all "
                      "hosts",
                      "the environment that srun prepared for the tasks is damaged: %s",
                      what);
}

static bool frame_is_whole(const char *text, size_t len)
{
    size_t tail = strlen(hash_key) + HASH_DIGITS;
    char hash[HASH_DIGITS + 1];

    if (len >= CARRIER_MAX || len < strlen(version) + tail ||
        strncmp(text, version, strlen(version)) != 0 ||
        strncmp(text + len - tail, hash_key, strlen(hash_key)) != 0)
        return false;
    snprintf(hash, sizeof(hash), "%016llx",
             (unsigned long long)XXH3_64bits(text, len - tail));
    return !strcmp(text + len - HASH_DIGITS, hash);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place. False on a bad escape, on control characters and on too long a value. */
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

/* "NAME=value" or "NAME:word" into its parts. */
static bool split(char *item, char **value_out, bool *task_out)
{
    size_t n = strcspn(item, "=:");

    if (!item[n] || n >= NAME_MAX_BYTES)
        return false;
    *task_out = item[n] == ':';
    item[n] = '\0';
    *value_out = item + n + 1;
    return environ_name_allowed(item) && unescape(*value_out);
}

/* All items of text[len] between the frame's ends. With `each` NULL: only looks. */
static bool walk(const char *text, size_t len, config_env_f each, void *user,
                 accel_error_t *err, accel_status_t *status)
{
    size_t body = len - strlen(hash_key) - HASH_DIGITS - strlen(version);
    char *copy = strndup(text + strlen(version), body), *item, *rest = copy;
    bool good = true;

    if (!copy) {
        *status = accel_fail_nomem(err, "the tasks' environment", body);
        return false;
    }
    while (good && body > 0 && (item = strsep(&rest, ";"))) {
        char *value;
        bool task;

        good = split(item, &value, &task);
        if (good && each)
            each(user, item, value, task);
    }
    free(copy);
    if (!good)
        *status = damaged(err, "a name or value is not ours");
    return good;
}

accel_status_t carrier_read(const char *text, config_env_f each, void *user,
                            accel_error_t *err)
{
    size_t len = strnlen(text, CARRIER_MAX);
    accel_status_t status = ACCEL_OK;

    if (!frame_is_whole(text, len))
        return damaged(err, "wrong hash");
    if (walk(text, len, NULL, NULL, err, &status))
        walk(text, len, each, user, err, &status);
    return status;
}
