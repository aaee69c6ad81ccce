/* SPDX-License-Identifier: Apache-2.0
 *
 * The YAML tree comes in, struct config goes out, by the schema table: finds the row of
 * each key, and names the nearest key for an unknown one. Goes on after a problem, so
 * that all problems of a file are shown in one run.
 */
#include <stdio.h>
#include <string.h>

#include "config/read/validate.h"

/* The maps of a config file, in the order of enum config_section. Inside a map its
 * prefix may be left out of a key: "version" in fsdp_config is fsdp_version. */
static const struct section {
    const char *path, *prefix;
} sections[] = {
    [TOP_LEVEL] = { "", "" },
    [FSDP_CONFIG] = { "fsdp_config", "fsdp_" },
    [DYNAMO_CONFIG] = { "dynamo_config", "dynamo_" },
    [MPIRUN_CONFIG] = { "mpirun_config", "mpirun_" },
    [FP8_CONFIG] = { "fp8_config", "fp8_" },
    [PARALLELISM_CONFIG] = { "parallelism_config", "parallelism_config_" },
    [DEEPSPEED_CONFIG] = { "deepspeed_config", "deepspeed_" },
    [MEGATRON_LM_CONFIG] = { "megatron_lm_config", "megatron_lm_" },
    [ACCEL_MAP] = { "accel", "" },
    [ACCEL_CHECKPOINT] = { "accel.checkpoint", "" },
    [ACCEL_PREEMPTION] = { "accel.preemption", "" },
    [ACCEL_PRECISION] = { "accel.precision", "" },
    [ACCEL_PYTHON] = { "accel.python", "" },
    [ACCEL_TOPOLOGY] = { "accel.topology", "" },
};
_Static_assert(ACCEL_ARRAY_SIZE(sections) == CONFIG_SECTIONS,
               "struct validator has a place for each");

const char *section_name(int section)
{
    return sections[section].path;
}

size_t config_key_prefix(const struct config_key *key)
{
    size_t i = 0, n;

    while (strcmp(sections[i].path, key->section) != 0)
        i++;
    n = strlen(sections[i].prefix);
    return strncmp(key->name, sections[i].prefix, n) == 0 ? n : 0;
}

struct place lasting(const struct validator *v, struct place at)
{
    at.in = v->source;
    return at;
}

/* The map `name` inside of `section`: an index into sections, or -1. Maps of the top
 * level have a path without a dot, those inside of `accel` have one. */
static int find_section(int section, const char *name)
{
    size_t n = strlen(sections[section].path);

    for (int i = 1; i < CONFIG_SECTIONS; i++) {
        const char *path = sections[i].path;
        const char *dot = strrchr(path, '.');

        if (n == 0 ? !dot && !strcmp(path, name)
                   : dot && (size_t)(dot - path) == n &&
                         !strncmp(path, sections[section].path, n) &&
                         !strcmp(dot + 1, name))
            return i;
    }
    return -1;
}

/* Is `written` the key `name`, or `name` without the prefix of its section? */
static bool is_name(const char *name, const struct section *s, const char *written)
{
    size_t skip = strlen(s->prefix);

    return !strcmp(name, written) ||
           (skip && !strncmp(name, s->prefix, skip) && !strcmp(name + skip, written));
}

/* Row of the key `name` in `section`, with or without the prefix; -1: there is none.
 * Old keys are found, too; take_value passes them on to their new row. */
static int find_key(const struct validator *v, int section, const char *name)
{
    const struct section *s = &sections[section];

    for (size_t i = 0; i < v->keys; i++) {
        const struct config_key *k = &v->schema[i];

        if (!strcmp(k->section, s->path) &&
            (is_name(k->name, s, name) ||
             (k->other_name && is_name(k->other_name, s, name))))
            return (int)i;
    }
    return -1;
}

/* ---- unknown keys ---------------------------------------------------------------- */

/* The known key or map nearest to `name`, in the form the user would write it, or NULL.
 * Compared without the prefix unless `name` has it: otherwise a common prefix makes
 * every key look near. */
static const char *nearest_key(const struct validator *v, int section, const char *name)
{
    const struct section *s = &sections[section];
    size_t skip = strlen(s->prefix), n = 0;
    bool prefixed = skip && !strncmp(name, s->prefix, skip);
    const char *names[CONFIG_MAX_KEYS + CONFIG_SECTIONS], *found;

    for (size_t i = 0; i < v->keys; i++) {
        const char *full = v->schema[i].name;

        if (strcmp(v->schema[i].section, s->path) != 0)
            continue;
        names[n++] = full + (prefixed || strncmp(full, s->prefix, skip) ? 0 : skip);
    }
    for (int i = 1; i < CONFIG_SECTIONS; i++) {
        const char *dot = strrchr(sections[i].path, '.');
        const char *last = dot ? dot + 1 : sections[i].path;

        if (find_section(section, last) == i)
            names[n++] = last;
    }
    found = suggest_nearest(name, names, n);
    /* Suggest the full name: it is right in every file, with or without the
     * map's prefix. */
    return found && skip && !prefixed && find_key(v, section, found) >= 0
               ? v->schema[find_key(v, section, found)].name
               : found;
}

/* Reports an unknown key. The cure is the nearest name, else the map that does have
 * this key, else the list of all keys. */
static void unknown_key(struct validator *v, int section, const struct yaml_node *key)
{
    const char *near = nearest_key(v, section, key->text);
    char name[80], hint[200];

    printable(name, sizeof(name), key->text, strlen(key->text));
    if (near) {
        v->misspelt_type |= !strcmp(near, "distributed_type");
        snprintf(hint, sizeof(hint), "did you mean '%s'?", near);
    } else {
        snprintf(hint, sizeof(hint), "remove it; `accel check --keys` lists all keys");
        for (int i = 0; i < CONFIG_SECTIONS; i++) {
            if (i == section ||
                (find_key(v, i, key->text) < 0 && find_section(i, key->text) < 0))
                continue;
            if (i)
                snprintf(hint, sizeof(hint), "it belongs in the map '%s'",
                         sections[i].path);
            else
                snprintf(hint, sizeof(hint), "it belongs at the top level");
            break;
        }
    }
    if (section)
        report_add(v->report, A0101, key->at, hint, "unknown key '%s' in '%s'", name,
                   sections[section].path);
    else
        report_add(v->report, A0101, key->at, hint, "unknown key '%s'", name);
}

/* ---- maps ------------------------------------------------------------------------ */

/* A map may contain maps. */
static void take_map(struct validator *v, int section, const struct yaml_node *map);

/* Takes a map inside of a map. null counts as an empty map. */
static void take_section(struct validator *v, int section, const struct yaml_node *key,
                         const struct yaml_node *val)
{
    if (v->section_at[section].line) {
        report_add(v->report, A0106, key->at, "merge the two maps",
                   "key '%s' is given twice (first on line %d)", key->text,
                   v->section_at[section].line);
        return;
    }
    v->section_at[section] = key->at;
    if (v->source->origin == ORIGIN_FILE)
        v->job_section_at[section] = lasting(v, key->at);
    if (is_absent(val))
        return;
    if (val->kind == NODE_MAP)
        take_map(v, section, val);
    else
        report_add(v->report, A0107, val->at,
                   "write its keys on the lines below, indented by two spaces",
                   "'%s' must be a map of keys, not %s", key->text,
                   val->kind == NODE_LIST ? "a list" : "one value");
}

/* Children alternate key and value. Stops when the report is full: what follows could
 * not be told. */
static void take_map(struct validator *v, int section, const struct yaml_node *map)
{
    const struct yaml_node *node = v->tree->node;

    for (int i = map->first; i >= 0 && !report_full(v->report);) {
        const struct yaml_node *key = &node[i], *val = &node[key->next];
        int row, child;

        i = val->next;
        if (key->kind != NODE_SCALAR) {
            report_add(v->report, A0107, key->at, "write 'key: value'",
                       "a key must be a word, not a %s",
                       key->kind == NODE_MAP ? "map" : "list");
            continue;
        }
        /* The list of locks is no value; then maps, then keys. */
        child = find_section(section, key->text);
        row = find_key(v, section, key->text);
        if (section == ACCEL_MAP && lock_is_list(key->text))
            lock_take(v, key, val);
        else if (child >= 0)
            take_section(v, child, key, val);
        else if (row >= 0)
            take_value(v, (size_t)row, key, val);
        else
            unknown_key(v, section, key);
    }
}

/* The places of keys and maps belong to one file: another file may give the same key
 * again, that is what overriding means. */
void validate_tree(struct validator *v, const struct yaml_tree *t,
                   const struct config_text *source)
{
    v->tree = t;
    v->source = source;
    memset(v->key_at, 0, sizeof(v->key_at));
    memset(v->section_at, 0, sizeof(v->section_at));
    if (!t->count || is_absent(&t->node[0]))
        return;
    if (t->node[0].kind != NODE_MAP) {
        report_add(v->report, A0107, t->node[0].at,
                   "write 'key: value' lines, as accelerate config does",
                   "a config file must be a map of keys, not %s",
                   t->node[0].kind == NODE_LIST ? "a list" : "one value");
        /* The file has no keys at all; do not also ask for one of them. */
        v->needs_type = false;
        return;
    }
    take_map(v, TOP_LEVEL, &t->node[0]);
    v->cfg->has_accel_section |= v->section_at[ACCEL_MAP].line != 0;
}

/* Wraps the value in two nodes, so that a variable goes the same way as a line of a
 * file. Words and texts count as quoted, numbers and truth words as plain, since a
 * shell has no such quotes. */
void validate_value(struct validator *v, size_t row, const char *text,
                    const struct config_text *source)
{
    enum config_type type = v->schema[row].type;
    bool is_text = type == TYPE_ENUM || type == TYPE_STRING;
    struct yaml_node key = { .kind = NODE_SCALAR,
                             .text = (char *)v->schema[row].name,
                             .at.in = source };
    struct yaml_node value = {
        .kind = NODE_SCALAR, .plain = !is_text, .text = (char *)text, .at.in = source
    };

    v->source = source;
    v->key_at[row] = (struct place){ 0 };
    take_value(v, row, &key, &value);
}

/* A key that has no value (a default takes part in the conflict) is shown at
 * its map. */
struct place place_of(const struct validator *v, const char *name, int section)
{
    int row = config_row(name);

    return row >= 0 && v->value_at[row].in ? v->value_at[row]
                                           : v->job_section_at[section];
}

/* Only for the job file: a user file may well hold maps for several types. */
void note_unused_map(struct validator *v, int section, const char *key,
                     const char *word)
{
    char now[32], cure[64];
    struct place at = v->job_section_at[section];

    if (!at.in || !config_section_given(v->cfg, section_name(section)))
        return;
    snprintf(cure, sizeof(cure), "set %s: %s to use it", key, word);
    report_add(v->report, MESSAGE_NOTE, at, cure, "'%s' has no effect with %s %s",
               section_name(section), key, config_get(v->cfg, key, now, sizeof(now)));
}
