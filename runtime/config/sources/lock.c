/* SPDX-License-Identifier: Apache-2.0
 *
 * accel.lock: a list of keys in the site file whose values stronger sources may repeat
 * but not change. A locked key that the site file does not set is locked at its
 * built-in value. This is policy, not a fence: nothing here can force what a user's own
 * process does.
 */
#include <stdio.h>
#include <string.h>

#include "config/read/document.h"

/* Only asked inside the map `accel`. */
bool lock_is_list(const char *name)
{
    return !strcmp(name, "lock");
}

/* Reports a name in the list that is no key. A typo here would leave a key unlocked, so
 * it is an error. */
static void unknown_name(struct validator *v, const struct yaml_node *item)
{
    const char *near[CONFIG_MAX_KEYS], *found, *dot = strrchr(item->text, '.');
    char name[80], hint[160] = "`accel check --keys` lists all keys";

    for (size_t i = 0; i < v->keys; i++)
        near[i] = v->schema[i].name;
    found = suggest_nearest(dot ? dot + 1 : item->text, near, v->keys);
    if (found)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", found);
    report_add(v->report, A0202, item->at, hint, "'%s' is not a key that can be locked",
               printable(name, sizeof(name), item->text, strlen(item->text)));
}

/* null and an empty list lock nothing. The list may come before or after the values it
 * locks: both are of the same file. */
void lock_take(struct validator *v, const struct yaml_node *key,
               const struct yaml_node *list)
{
    const struct yaml_node *node = v->tree->node;

    if (v->source->origin != ORIGIN_SITE) {
        report_add(v->report, A0203, key->at, "remove it here",
                   "only the site file can lock keys");
        return;
    }
    if (list->kind != NODE_LIST) {
        if (list->kind != NODE_SCALAR || !list->plain || !word_null(list->text))
            report_add(v->report, A0204, list->at, "write: lock: [KEY, ...]",
                       "'lock' must be a list of keys");
        return;
    }
    for (int i = list->first; i >= 0 && !report_full(v->report); i = node[i].next) {
        /* -1: no such key, or not even a word. */
        int row = node[i].kind == NODE_SCALAR ? config_row(node[i].text) : -1;

        if (node[i].kind != NODE_SCALAR) {
            report_add(v->report, A0204, node[i].at, "write: lock: [KEY, ...]",
                       "'lock' must be a list of keys");
        } else if (row < 0) {
            unknown_name(v, &node[i]);
        } else {
            v->lock_at[row] = node[i].at;
            v->lock_at[row].in = v->source;
            v->cfg->locked[row] = true;
        }
    }
}

/* Compares canonical values, so that "yes" repeats a locked "true". Tries the value on
 * a copy of the config to get its canonical form. */
bool lock_refuses(struct validator *v, size_t row, const char *text, struct place at)
{
    const struct config_key *k = &v->schema[row];
    const struct place *lock = &v->lock_at[row];
    char now[CONFIG_GIVEN_BYTES], then[CONFIG_GIVEN_BYTES], site[300], shown[2][60],
        path[128], at_line[32] = "";
    struct config changed;

    if (!lock->in || v->source->origin == ORIGIN_SITE)
        return false;
    changed = *v->cfg;
    if (value_set(&changed, k, text) != VALUE_OK)
        /* The caller reports what is wrong with it. */
        return false;
    config_value_text(v->cfg, k, now, sizeof(now));
    config_value_text(&changed, k, then, sizeof(then));
    if (!strcmp(now, then))
        return false;
    /* In a task nobody knows the line of the lock. */
    if (lock->line)
        snprintf(at_line, sizeof(at_line), ":%d:%d", lock->line, lock->col);
    report_add(v->report, A0201, at,
               "remove it; ask the site's administrator why it is locked",
               "'%s' is locked to '%s' by the site (%s%s), but is set to '%s' here",
               config_key_path(k, path, sizeof(path)),
               printable(shown[0], sizeof(shown[0]), now, strlen(now)),
               printable(site, sizeof(site), lock->in->path, strlen(lock->in->path)),
               at_line, printable(shown[1], sizeof(shown[1]), then, strlen(then)));
    return true;
}
