/* SPDX-License-Identifier: Apache-2.0
 *
 * One variable, flag or setting of the program comes in; its value goes the same way as
 * a line of a file, and messages name it.
 */
#include "config/sources/single_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lones_open(struct lones *l, size_t most)
{
    l->item = calloc(most, sizeof(*l->item));
    l->count = 0;
    return l->item != NULL;
}

void lones_close(struct lones *l)
{
    free(l->item);
    l->item = NULL;
}

struct lone *lone_next(struct lones *l)
{
    return &l->item[l->count++];
}

const struct config_text *lone_enter(struct validator *v, struct lone *l,
                                     enum config_origin origin, const char *name,
                                     size_t len)
{
    char shown[96];

    snprintf(l->label, sizeof(l->label), "%s %s",
             origin == ORIGIN_ENV    ? "environment"
             : origin == ORIGIN_FLAG ? "flag"
                                     : "the program's",
             printable(shown, sizeof(shown), name, len));
    l->in = (struct config_text){ .path = l->label, .origin = origin };
    v->report->in = l->in;
    return &l->in;
}

/* An unknown flag is an error, unlike an unknown variable: it was written for us. */
static void unknown_setting(struct validator *v, const char *name)
{
    const char *near[CONFIG_MAX_KEYS], *found, *dot = strrchr(name, '.');
    char hint[160] = "`accel check --keys` lists all keys";

    for (size_t i = 0; i < v->keys; i++)
        near[i] = v->schema[i].name;
    found = suggest_nearest(dot ? dot + 1 : name, near, v->keys);
    if (found)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", found);
    report_add(v->report, A0205, (struct place){ 0 }, hint, "there is no such key");
}

void lone_setting(struct validator *v, struct lones *l, enum config_origin origin,
                  const char *name, const char *value)
{
    const struct config_text *in =
        lone_enter(v, lone_next(l), origin, name, strlen(name));
    int row = config_row(name);

    if (row >= 0)
        validate_value(v, (size_t)row, value, in);
    else
        unknown_setting(v, name);
}
