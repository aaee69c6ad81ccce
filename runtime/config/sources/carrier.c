/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of variables as one sealed text, and back. slurmstepd carries this file: it
 * needs libc and xxHash only.
 */
#include <stdlib.h>
#include <string.h>

#include "common/sealed_text.h"
#include "config/python/environ.h"

/* Caps of one item. A longer name or value is not ours. */
enum { NAME_MAX_BYTES = 64, VALUE_MAX_BYTES = 32 << 10 };

static const char version[] = "accelenv1;";

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
    sealed_append(b, value);
}

accel_status_t carrier_seal(struct strbuf *b, accel_error_t *err)
{
    sealed_close(b);
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

/* Decodes in place. Control characters are refused even though they can be encoded: no
 * variable of the contract has one. */
static bool decode_value(char *value)
{
    if (!sealed_decode(value) || strlen(value) >= VALUE_MAX_BYTES)
        return false;
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || *value == 0x7f)
            return false;
    return true;
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
    return environ_name_allowed(item) && decode_value(*value_out);
}

/* Calls `each` for all items of text[len]. With `each` NULL it only checks. False:
 * *st_out has the error. */
static bool walk(const char *text, size_t len, config_env_f each, void *user,
                 accel_error_t *err, accel_status_t *st_out)
{
    char *copy = strndup(text, len), *item, *rest = copy;
    bool good = true;

    if (!copy) {
        *st_out = accel_fail_nomem(err, "the tasks' environment", len);
        return false;
    }
    /* An empty list is one empty item to strsep; len > 0 leaves it out. */
    while (good && len > 0 && (item = strsep(&rest, ";"))) {
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
    const size_t head = strlen(version);
    accel_status_t st = ACCEL_OK;
    size_t items;

    if (strncmp(text, version, head) || sealed_problem(text, head, CARRIER_MAX, &items))
        return damaged(err, "wrong hash");
    if (walk(text + head, items - head, NULL, NULL, err, &st))
        walk(text + head, items - head, each, user, err, &st);
    return st;
}
