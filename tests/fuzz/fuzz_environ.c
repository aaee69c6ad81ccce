/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as what a task reads from its environment: the carrier of the
 * torch contract and the resolved config, as they are and sealed with the right hash,
 * and Slurm's list of task counts. Only names of the contract are set, only printable
 * values, and what the user had stays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/repeat_list.h"
#include "config/python/environ.h"
#include "tests/fuzz/fuzz_check.h"

enum { VARIABLES = 64 };

/* The task's environment. */
struct task {
    char *name[VARIABLES], *value[VARIABLES];
    int count;
    struct environ_ops ops;
    struct strbuf again; /* the list, written once more */
};

static int find(const struct task *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->name[i], name) == 0)
            return i;
    return -1;
}

static bool get(void *where, const char *name, char *buf, size_t len)
{
    int i = find(where, name);

    if (i < 0)
        return false;
    snprintf(buf, len, "%s", ((struct task *)where)->value[i]);
    return true;
}

static void unset(void *where, const char *name)
{
    struct task *t = where;
    int i = find(t, name);

    if (i < 0)
        return;
    free(t->name[i]);
    free(t->value[i]);
    t->count--;
    t->name[i] = t->name[t->count];
    t->value[i] = t->value[t->count];
}

static void set(void *where, const char *name, const char *value)
{
    struct task *t = where;

    if (!environ_name_allowed(name))
        abort();
    for (const char *s = value; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            abort();
    unset(t, name);
    if (t->count == VARIABLES)
        return;
    t->name[t->count] = strdup(name);
    t->value[t->count++] = strdup(value);
}

static void apply(void *user, const char *name, const char *value, bool task)
{
    static const struct task_place place = { .rank = 3,
                                             .index = 3,
                                             .world = 4,
                                             .local_rank = 1,
                                             .local_world = 2,
                                             .node = 1,
                                             .nodes = 2,
                                             .cores = 2 };
    struct task *t = user;

    carrier_add(&t->again, name, value, task);
    environ_apply(&t->ops, &place, name, value, task);
}

static void read_carrier(const char *text)
{
    struct task t = { .ops = { get, set, unset, &t } };
    accel_error_t err = { 0 };
    char value[16];

    set(&t, "MASTER_ADDR", "the user's");
    carrier_start(&t.again);
    if (carrier_read(text, apply, &t, &err) != ACCEL_OK) {
        if (t.count != 1 || !err.text[0])
            abort();
    } else if (carrier_seal(&t.again, &err) == ACCEL_OK) {
        struct task once = { .ops = { get, set, unset, &once } };

        /* What is written again is read again, to the same text. */
        carrier_start(&once.again);
        if (carrier_read(t.again.s, apply, &once, &err) != ACCEL_OK ||
            carrier_seal(&once.again, &err) != ACCEL_OK ||
            strcmp(once.again.s, t.again.s))
            abort();
        while (once.count > 0)
            unset(&once, once.name[0]);
        strbuf_free(&once.again);
    }
    if (!get(&t, "MASTER_ADDR", value, sizeof(value)) || strcmp(value, "the user's"))
        abort();
    while (t.count > 0)
        unset(&t, t.name[0]);
    strbuf_free(&t.again);
}

/* `head` and the text, with their hash. */
static char *seal(const char *head, const char *text)
{
    char *out = malloc(strlen(head) + strlen(text) + 32);
    size_t n;

    if (!out)
        abort();
    n = (size_t)sprintf(out, "%s%s", head, text);
    sprintf(out + n, ";xxh3=%016llx", (unsigned long long)XXH3_64bits(out, n));
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config c;
    char *text = malloc(size + 1), *sealed;
    int64_t last = 0;

    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    read_carrier(text);
    sealed = seal(strncmp(text, "accelenv1;", 10) ? "accelenv1;" : "", text);
    read_carrier(sealed);
    free(sealed);
    sealed = seal(strncmp(text, "accel1;", 7) ? "accel1;" : "", text);
    if (config_decode(sealed, &c, NULL) == ACCEL_OK)
        fuzz_check_config(&c);
    free(sealed);
    for (int64_t node = 0; node < 5 && last >= 0; node++) {
        int64_t rank = repeat_list_sum(text, node);

        if (rank >= 0 && rank < last)
            abort();
        last = rank;
    }
    free(text);
    return 0;
}
