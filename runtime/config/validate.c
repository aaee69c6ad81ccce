/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML tree in, struct config out, by the schema table: each key and value is stored,
 * equals what we do, or is refused by name. Goes on after a problem, so that a file's
 * problems are all shown in one run.
 */
#include <stdio.h>
#include <string.h>

#include "config/report.h"

/* Maps of a config file. Inside one, the prefix of its keys may be left out. */
static const struct section {
    const char *path, *prefix;
} sections[] = {
    { "", "" },
    { "fsdp_config", "fsdp_" },
    { "dynamo_config", "dynamo_" },
    { "mpirun_config", "mpirun_" },
    { "parallelism_config", "parallelism_config_" },
    { "accel", "" },
    { "accel.checkpoint", "" },
    { "accel.preemption", "" },
};
enum { SECTIONS = CONFIG_SECTIONS, NESTED = 5 };

_Static_assert(ACCEL_ARRAY_SIZE(sections) == CONFIG_SECTIONS,
               "struct validator has a place for each");

/* What `section` calls its child map `name`: an index into sections, or -1. */
static int find_section(int section, const char *name)
{
    size_t n = strlen(sections[section].path);

    for (int i = 1; i < SECTIONS; i++) {
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

/* Row of `name` in `section`, with or without its prefix; -1 when there is none. */
static int find_key(const struct validator *v, int section, const char *name)
{
    const struct section *s = &sections[section];
    size_t skip = strlen(s->prefix);

    for (size_t i = 0; i < v->keys; i++) {
        const struct config_key *k = &v->schema[i];

        if (!strcmp(k->section, s->path) &&
            (!strcmp(k->name, name) || (skip && !strcmp(k->name + skip, name))))
            return (int)i;
    }
    return -1;
}

static bool is_given(const struct validator *v, const char *name)
{
    for (size_t i = 0; i < v->keys; i++)
        if (!strcmp(v->schema[i].name, name))
            return v->cfg->origin[i] != ORIGIN_DEFAULT;
    return false;
}

/* `at` for messages that come when other sources are read already. */
static struct place lasting(const struct validator *v, struct place at)
{
    at.in = v->source;
    return at;
}

/* Where a key's value stands, or its map in the job file, or that whole file. */
static struct place place_of(const struct validator *v, const char *name, int section)
{
    for (size_t i = 0; i < v->keys; i++)
        if (!strcmp(v->schema[i].name, name) && v->value_at[i].in)
            return v->value_at[i];
    return v->job_section_at[section];
}

/* ---- unknown keys ---------------------------------------------------------------------- */

/* The known key or map nearest to `name`, as written in the file, or NULL. */
static const char *nearest_key(const struct validator *v, int section, const char *name)
{
    const struct section *s = &sections[section];
    size_t skip = strlen(s->prefix), n = 0;
    bool prefixed = skip && !strncmp(name, s->prefix, skip);
    const char *names[CONFIG_MAX_KEYS + SECTIONS], *found;

    for (size_t i = 0; i < v->keys; i++)
        if (!strcmp(v->schema[i].section, s->path))
            names[n++] = v->schema[i].name + (prefixed ? 0 : skip);
    for (int i = 1; i < SECTIONS; i++) {
        const char *dot = strrchr(sections[i].path, '.');
        const char *last = dot ? dot + 1 : sections[i].path;

        if (find_section(section, last) == i)
            names[n++] = last;
    }
    found = suggest_nearest(name, names, n);
    return found && skip && !prefixed && find_key(v, section, found) >= 0
               ? v->schema[find_key(v, section, found)].name
               : found;
}

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
        for (int i = 0; i < SECTIONS; i++) {
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
        report_add(v->report, ACCEL_ECONFIG, key->at, hint, "unknown key '%s' in '%s'",
                   name, sections[section].path);
    else
        report_add(v->report, ACCEL_ECONFIG, key->at, hint, "unknown key '%s'", name);
}

/* ---- values ---------------------------------------------------------------------------- */

static const char *wanted(const struct config_key *k)
{
    switch (k->type) {
    case TYPE_BOOL:
        return "true or false";
    case TYPE_INT:
        return "a whole number";
    case TYPE_NUMBER:
        return "a number";
    default:
        return "one word or text";
    }
}

/* "one of: a, b, c" */
static void list_words(char *buf, size_t len, const char *const *words)
{
    size_t used = (size_t)snprintf(buf, len, "one of: ");

    for (int i = 0; words[i] && used < len; i++)
        used +=
            (size_t)snprintf(buf + used, len - used, "%s%s", i ? ", " : "", words[i]);
}

/* "a|b" holds `text` */
static bool is_fixed_value(const char *fixed, const char *text)
{
    size_t n = strlen(text);

    while (fixed) {
        const char *bar = strchr(fixed, '|');
        size_t len = bar ? (size_t)(bar - fixed) : strlen(fixed);

        if (len == n && !strncmp(fixed, text, n))
            return true;
        fixed = bar ? bar + 1 : NULL;
    }
    return false;
}

/* A known value that we do not do. */
static void unsupported(struct validator *v, const struct config_key *k,
                        const struct yaml_node *val, const char *hint)
{
    char shown[60];

    printable(shown, sizeof(shown), val->text, strlen(val->text));
    report_add(v->report, ACCEL_EUNSUPPORTED, val->at, hint,
               "'%s: %s' is not supported yet", k->name, shown);
}

/* The same for a key that has one value only. */
static void other_than_fixed(struct validator *v, const struct config_key *k,
                             const struct yaml_node *val)
{
    char hint[300];

    snprintf(hint, sizeof(hint), "set it to '%.*s' or remove it: %s",
             (int)strcspn(k->fixed, "|"), k->fixed, k->help);
    unsupported(v, k, val, hint);
}

static void wrong_type(struct validator *v, const struct config_key *k,
                       const struct yaml_node *val)
{
    char shown[60], hint[300];

    printable(shown, sizeof(shown), val->text, strlen(val->text));
    if (!val->plain && k->type != TYPE_ENUM && k->type != TYPE_STRING)
        snprintf(hint, sizeof(hint), "remove the quotes: quoted values are text");
    else if (k->type == TYPE_INT && val->text[0] == '0')
        snprintf(hint, sizeof(hint),
                 "write it in decimal, without leading zeros or 0x");
    else
        snprintf(hint, sizeof(hint), "write %s: %s", wanted(k), k->help);
    report_add(v->report, ACCEL_ECONFIG, val->at, hint, "'%s' must be %s, not %s'%s'",
               k->name, wanted(k), val->plain ? "" : "the text ", shown);
}

static void wrong_range(struct validator *v, const struct config_key *k,
                        const struct yaml_node *val)
{
    char shown[60], hint[300];

    printable(shown, sizeof(shown), val->text, strlen(val->text));
    snprintf(hint, sizeof(hint), "choose a value in this range: %s", k->help);
    if (k->type == TYPE_STRING)
        report_add(v->report, ACCEL_ECONFIG, val->at, "write it shorter",
                   "'%s' is longer than %.0f bytes", k->name, k->max);
    else if (k->offset == SIZE_MAX)
        other_than_fixed(v, k, val);
    else
        report_add(v->report, ACCEL_ECONFIG, val->at, hint,
                   "'%s' must be between %.0f and %.0f, not %s", k->name, k->min,
                   k->max, shown);
}

static void wrong_word(struct validator *v, const struct config_key *k,
                       const struct yaml_node *val)
{
    const char *all[40], *near;
    char shown[60], hint[300];
    size_t n = 0;

    list_words(hint, sizeof(hint), k->values);
    if (word_index(k->refused, val->text) >= 0) {
        unsupported(v, k, val, hint);
        return;
    }
    for (int i = 0; k->values[i]; i++)
        all[n++] = k->values[i];
    for (int i = 0; k->refused && k->refused[i]; i++)
        all[n++] = k->refused[i];
    near = suggest_nearest(val->text, all, n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", near);
    printable(shown, sizeof(shown), val->text, strlen(val->text));
    report_add(v->report, ACCEL_ECONFIG, val->at, hint, "'%s' has no value '%s'",
               k->name, shown);
}

/* Accelerate also takes the numbers of PyTorch's enum, counted from 1. */
static const char *strategy_word(const char *text)
{
    static const char *const words[] = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                         "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" };

    if (text[0] >= '1' && text[0] <= '5' && !text[1])
        return words[text[0] - '1'];
    return text;
}

/* The user's word in canonical form; may add the note about an unquoted NO. */
static const char *canonical(struct validator *v, const struct config_key *k,
                             const struct yaml_node *val)
{
    const char *text = val->text, *word = NULL;

    if (k->type == TYPE_BOOL)
        return !val->plain || word_bool(text) < 0 ? text
               : word_bool(text)                  ? "true"
                                                  : "false";
    if (!strcmp(k->name, "fsdp_sharding_strategy"))
        return strategy_word(text);
    if (k->type != TYPE_ENUM || !val->plain || word_bool(text) != 0)
        return text;
    /* YAML reads a bare NO as the boolean false; people mean the word. */
    if (word_index(k->values, "NO") >= 0)
        word = "NO";
    else if (word_index(k->values, "no") >= 0)
        word = "no";
    if (!word)
        return text;
    /* Accelerate itself writes `downcast_bf16: false`: nothing to remark. */
    if (k->fixed && !strcmp(text, "false"))
        return word;
    report_add(v->report, ACCEL_OK, val->at, "put it in quotes to say the word",
               "without quotes YAML reads this as false; taken as '%s'", word);
    return word;
}

/* Quoted numbers and truth words are text; an unquoted one is not a wrong type. */
static bool has_wrong_quotes(const struct config_key *k, const struct yaml_node *val)
{
    return !val->plain && k->type != TYPE_ENUM && k->type != TYPE_STRING;
}

static bool is_path_expandable(const struct config_key *k, const char *text)
{
    return !strcmp(k->section, "accel.checkpoint") && !strcmp(k->name, "dir") &&
           (text[0] == '~' || strchr(text, '$'));
}

static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

static void take_scalar(struct validator *v, const struct config_key *k,
                        const struct yaml_node *val, size_t row)
{
    const char *text;

    if (has_wrong_quotes(k, val)) {
        wrong_type(v, k, val);
        return;
    }
    if (k->type == TYPE_INT && !strcmp(k->name, "num_processes") &&
        !strcmp(val->text, "-1"))
        return; /* what Accelerate writes for "not given" */
    text = canonical(v, k, val);
    if (k->type == TYPE_STRING && has_control(text)) {
        report_add(v->report, ACCEL_ECONFIG, val->at, "remove it",
                   "'%s' holds a control character", k->name);
        return;
    }
    if (is_path_expandable(k, text)) {
        report_add(v->report, ACCEL_EUNSUPPORTED, val->at, "write the path out",
                   "'~' and '$' in '%s' are not expanded: not supported yet", k->name);
        return;
    }
    if (lock_refuses(v, row, text, val->at))
        return;
    switch (value_set(v->cfg, k, text)) {
    case VALUE_TYPE:
        if (k->type == TYPE_ENUM)
            wrong_word(v, k, val);
        else
            wrong_type(v, k, val);
        return;
    case VALUE_RANGE:
        wrong_range(v, k, val);
        return;
    case VALUE_OK:
        break;
    }
    if (k->offset == SIZE_MAX && !is_fixed_value(k->fixed, text)) {
        other_than_fixed(v, k, val);
        return;
    }
    v->cfg->origin[row] = (unsigned char)v->source->origin;
    v->cfg->line[row] = val->at.line;
}

/* null, an empty map and an empty list say "not given". */
static bool is_absent(const struct yaml_node *val)
{
    if (val->kind != NODE_SCALAR)
        return val->first < 0;
    return val->plain ? word_null(val->text) : !*val->text;
}

static void refuse_key(struct validator *v, const struct config_key *k,
                       const struct yaml_node *key)
{
    char hint[300];

    snprintf(hint, sizeof(hint), "remove it: %s", k->help);
    report_add(v->report, ACCEL_EUNSUPPORTED, key->at, hint,
               "'%s' is not supported yet", k->name);
}

static void take_value(struct validator *v, size_t row, const struct yaml_node *key,
                       const struct yaml_node *val)
{
    const struct config_key *k = &v->schema[row];

    if (v->key_at[row].line) {
        report_add(v->report, ACCEL_ECONFIG, key->at, "keep one of the two",
                   "key '%s' is given twice (first on line %d)", k->name,
                   v->key_at[row].line);
        return;
    }
    v->key_at[row] = key->at;
    if (is_absent(val))
        return;
    v->value_at[row] = lasting(v, val->at);
    if (k->offset == SIZE_MAX && !k->fixed)
        refuse_key(v, k, key);
    else if (val->kind != NODE_SCALAR)
        report_add(v->report, ACCEL_ECONFIG, val->at, "write one value after the colon",
                   "'%s' must be %s, not a %s", k->name, wanted(k),
                   val->kind == NODE_MAP ? "map" : "list");
    else
        take_scalar(v, k, val, row);
}

/* ---- maps ------------------------------------------------------------------------------ */

static void take_map(struct validator *v, int section, const struct yaml_node *map);

static void take_section(struct validator *v, int section, const struct yaml_node *key,
                         const struct yaml_node *val)
{
    if (v->section_at[section].line) {
        report_add(v->report, ACCEL_ECONFIG, key->at, "join the two maps",
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
        report_add(v->report, ACCEL_ECONFIG, val->at,
                   "write its keys on the lines below, indented by two spaces",
                   "'%s' must be a map of keys, not %s", key->text,
                   val->kind == NODE_LIST ? "a list" : "one value");
}

static void take_map(struct validator *v, int section, const struct yaml_node *map)
{
    const struct yaml_node *node = v->tree->node;

    for (int i = map->first; i >= 0 && !report_full(v->report);) {
        const struct yaml_node *key = &node[i], *val = &node[key->next];
        int row, child;

        i = val->next;
        if (key->kind != NODE_SCALAR) {
            report_add(v->report, ACCEL_ECONFIG, key->at, "write 'key: value'",
                       "a key must be a word, not a %s",
                       key->kind == NODE_MAP ? "map" : "list");
            continue;
        }
        child = find_section(section, key->text);
        row = find_key(v, section, key->text);
        if (section == NESTED && lock_is_list(key->text))
            lock_take(v, key, val);
        else if (child >= 0)
            take_section(v, child, key, val);
        else if (row >= 0)
            take_value(v, (size_t)row, key, val);
        else
            unknown_key(v, section, key);
    }
}

/* ---- keys against each other ------------------------------------------------------------ */

static void check_sizes(struct validator *v)
{
    const struct config *c = v->cfg;
    long long p = c->num_processes, m = c->num_machines;
    struct place at_p = place_of(v, "num_processes", 0);
    struct place at_m = place_of(v, "num_machines", 0);

    if (c->distributed_type == DIST_NO && p > 1)
        report_add(v->report, ACCEL_ECONFIG, at_p,
                   "use distributed_type: FSDP or MULTI_CPU, or num_processes: 1",
                   "distributed_type NO is one process, but num_processes is %lld", p);
    else if (c->distributed_type == DIST_NO && m > 1)
        report_add(v->report, ACCEL_ECONFIG, at_m,
                   "use distributed_type: FSDP or MULTI_CPU, or num_machines: 1",
                   "distributed_type NO is one process, but num_machines is %lld", m);
    if (p && m > p)
        report_add(
            v->report, ACCEL_ECONFIG, at_m, "give each machine a process",
            "num_machines (%lld) is larger than num_processes (%lld), which counts "
            "the whole job",
            m, p);
    else if (p && m && p % m)
        report_add(v->report, ACCEL_ECONFIG, at_p,
                   "use a multiple of num_machines: all machines run equally many",
                   "num_processes (%lld) cannot be divided by num_machines (%lld)", p,
                   m);
}

static void check_fsdp(struct validator *v)
{
    const struct config *c = v->cfg;
    enum { FSDP_SECTION = 1 };

    if (c->distributed_type != DIST_FSDP && v->job_section_at[FSDP_SECTION].in) {
        report_add(v->report, ACCEL_OK, v->job_section_at[FSDP_SECTION],
                   "set distributed_type: FSDP to use it",
                   "'fsdp_config' has no effect with distributed_type %s",
                   c->distributed_type == DIST_NO ? "NO" : "MULTI_CPU");
        return;
    }
    if (c->distributed_type != DIST_FSDP)
        return;
    if (c->cpu_ram_efficient_loading && !c->sync_module_states)
        report_add(
            v->report, ACCEL_ECONFIG,
            place_of(v, "fsdp_sync_module_states", FSDP_SECTION),
            "set it to true, or fsdp_cpu_ram_efficient_loading to false",
            "fsdp_cpu_ram_efficient_loading%s needs fsdp_sync_module_states: true",
            is_given(v, "fsdp_cpu_ram_efficient_loading") ? "" : " (on by default)");
    if (c->transformer_cls[0] && c->auto_wrap_policy != WRAP_TRANSFORMER)
        report_add(v->report, ACCEL_OK,
                   place_of(v, "fsdp_transformer_layer_cls_to_wrap", FSDP_SECTION),
                   "set fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP to use it",
                   "fsdp_transformer_layer_cls_to_wrap has no effect with NO_WRAP");
}

/* MULTI_CPU says CPU by its name; use_cpu says it for the other types. */
static void force_cpu(struct validator *v, const char *because, bool force)
{
    size_t from = 0, device = 0;

    if (!force || v->cfg->device == DEVICE_CPU)
        return;
    for (size_t i = 0; i < v->keys; i++) {
        if (!strcmp(v->schema[i].name, because))
            from = i;
        if (v->schema[i].offset == offsetof(struct config, device))
            device = i;
    }
    v->cfg->device = DEVICE_CPU;
    v->cfg->origin[device] = v->cfg->origin[from];
    v->cfg->line[device] = v->cfg->line[from];
}

void validate_across(struct validator *v)
{
    struct config *c = v->cfg;

    if (is_given(v, "distributed_type")) {
        check_fsdp(v);
        check_sizes(v);
    } else if (v->needs_type && !v->misspelt_type &&
               !v->value_at[config_row("distributed_type")].in) {
        report_add(v->report, ACCEL_ECONFIG, (struct place){ 0 },
                   "add the line 'distributed_type: FSDP' (or MULTI_CPU, or 'NO')",
                   "the required key 'distributed_type' is missing");
    }
    force_cpu(v, c->use_cpu ? "use_cpu" : "distributed_type",
              c->use_cpu || (c->distributed_type == DIST_MULTI_CPU &&
                             is_given(v, "distributed_type")));
}

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
        report_add(v->report, ACCEL_ECONFIG, t->node[0].at,
                   "write 'key: value' lines, as accelerate config does",
                   "a config file is a map of keys, not %s",
                   t->node[0].kind == NODE_LIST ? "a list" : "one value");
        v->needs_type = false;
        return;
    }
    take_map(v, 0, &t->node[0]);
    v->cfg->has_accel_section |= v->section_at[NESTED].line != 0;
}

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
