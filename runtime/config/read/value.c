/* SPDX-License-Identifier: Apache-2.0
 *
 * One value of a config file: put in canonical form, checked against its row and
 * stored; or refused, with what the row takes. Adds notes about what Slurm or accel
 * decides instead.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/read/validate.h"

/* ---- values ---------------------------------------------------------------------- */

/* What a row takes, in words for a message. Returns buf. */
static const char *wanted(const struct config_key *k, char *buf, size_t len)
{
    static const char *const names[] = {
        [TYPE_BOOL] = "true or false",    [TYPE_INT] = "a whole number",
        [TYPE_NUMBER] = "a number",       [TYPE_STRING] = "one word or text",
        [TYPE_ENUM] = "one word or text", [TYPE_BOOLS] = "three of true and false",
    };

    if (k->type != TYPE_ENUM && k->values && !k->values[1])
        snprintf(buf, len, "%s, or %s", names[k->type], k->values[0]);
    else
        snprintf(buf, len, "%s", names[k->type]);
    return buf;
}

/* "one of: a, b, c" */
static void list_words(char *buf, size_t len, const char *const *words)
{
    size_t used = (size_t)snprintf(buf, len, "one of: ");

    for (int i = 0; words[i] && used < len; i++)
        used +=
            (size_t)snprintf(buf + used, len - used, "%s%s", i ? ", " : "", words[i]);
}

/* Reports a value that Accelerate knows but that has no meaning on a Slurm cluster. */
static void refuse_value(struct validator *v, const struct config_key *k,
                         const struct yaml_node *val)
{
    char shown[60], hint[300];

    printable(shown, sizeof(shown), val->text, strlen(val->text));
    if (k->ours && k->use == USE_REFUSED)
        snprintf(hint, sizeof(hint), "set it to '%s' or remove it: %s", k->ours,
                 k->help);
    /* distributed_type, the only other row with refused words */
    else
        snprintf(hint, sizeof(hint),
                 "it means TPUs, which Slurm does not provide; the closest are FSDP "
                 "and MULTI_CPU");
    report_add(v->report, A0105, val->at, hint, "'%s: %s' is refused", k->name, shown);
}

/* Reports a value of the wrong type. One cure is for what people write: a
 * leading zero. */
static void wrong_type(struct validator *v, const struct config_key *k,
                       const struct yaml_node *val)
{
    char shown[60], hint[300], want[100];

    printable(shown, sizeof(shown), val->text, strlen(val->text));
    wanted(k, want, sizeof(want));
    if (k->type == TYPE_INT && val->text[0] == '0')
        snprintf(hint, sizeof(hint),
                 "write it in decimal, without leading zeros or 0x");
    else
        snprintf(hint, sizeof(hint), "write %s: %s", want, k->help);
    report_add(v->report, A0102, val->at, hint, "'%s' must be %s, not '%s'", k->name,
               want, shown);
}

/* Reports a value out of bounds, a text that is too long, or one too many. */
static void wrong_range(struct validator *v, const struct config_key *k,
                        const struct yaml_node *val)
{
    char shown[60], hint[300];

    printable(shown, sizeof(shown), val->text, strlen(val->text));
    snprintf(hint, sizeof(hint), "choose a value in this range: %s", k->help);
    if (k->type == TYPE_INT || k->type == TYPE_NUMBER)
        report_add(v->report, A0103, val->at, hint,
                   "'%s' must be between %.15g and %.15g, not %s", k->name, k->min,
                   k->max, shown);
    else if (k->type == TYPE_STRING && (double)strlen(val->text) > k->max)
        report_add(v->report, A0103, val->at, "shorten it",
                   "'%s' is longer than %.0f bytes", k->name, k->max);
    else
        report_add(v->report, A0125, val->at, "shorten the values",
                   "the values together are longer than %d bytes", CONFIG_GIVEN_BYTES);
}

/* Reports a word that the row does not have, with the nearest one or all of them. */
static void wrong_word(struct validator *v, const struct config_key *k,
                       const struct yaml_node *val)
{
    const char *all[40], *near;
    char shown[60], hint[300];
    size_t n = 0;

    if (word_index(k->refused, val->text) >= 0) {
        refuse_value(v, k, val);
        return;
    }
    list_words(hint, sizeof(hint), k->values);
    for (int i = 0; k->values[i]; i++)
        all[n++] = k->values[i];
    near = suggest_nearest(val->text, all, n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", near);
    printable(shown, sizeof(shown), val->text, strlen(val->text));
    report_add(v->report, A0104, val->at, hint, "'%s' cannot be '%s'", k->name, shown);
}

/* A word of the row in the row's own case. Accelerate takes most of its words in any
 * case, and none differ by it alone. Where it also takes the numbers that PyTorch's
 * enum has for them, which count from 1, or the name of a member with its leading
 * underscore, those are words, too. */
static const char *row_word(const struct config_key *k, const char *text)
{
    static const struct {
        const char *key, *words[5];
    } numbered[] = {
        { "fsdp_sharding_strategy",
          { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
            "HYBRID_SHARD_ZERO2" } },
        { "fsdp_backward_prefetch", { "BACKWARD_PRE", "BACKWARD_POST" } },
        { "fsdp_state_dict_type",
          { "FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT" } },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(numbered); i++)
        if (!strcmp(k->name, numbered[i].key) && text[0] >= '1' && text[0] <= '5' &&
            !text[1] && numbered[i].words[text[0] - '1'])
            return numbered[i].words[text[0] - '1'];
    if (word_index(k->values, text) >= 0)
        return text;
    for (int i = 0; k->values && k->values[i]; i++)
        if (!strcasecmp(k->values[i], text))
            return k->values[i];
    return !strcasecmp(text, "_HYBRID_SHARD_ZERO2") ? row_word(k, text + 1) : text;
}

/* The user's word in canonical form, static or val's own text. May add the note about
 * an unquoted NO. */
static const char *canonical(struct validator *v, const struct config_key *k,
                             const struct yaml_node *val)
{
    const char *text = row_word(k, val->text), *word = NULL;
    const bool is_word = word_index(k->values, text) >= 0;

    /* A truth value, or a key that is one or another word. */
    if ((k->type == TYPE_BOOL && !is_word) || word_index(k->values, "true") >= 0)
        return word_truth(text) < 0 ? text : word_truth(text) ? "true" : "false";
    if (word_index(k->values, "yes") >= 0 && word_truth(text) >= 0)
        return word_truth(text) ? "yes" : "no";
    if (k->type != TYPE_ENUM || !val->plain || word_bool(val->text) != 0)
        return text;
    /* YAML reads a bare NO as the boolean false; people mean the word. */
    if (word_index(k->values, "NO") >= 0)
        word = "NO";
    else if (word_index(k->values, "no") >= 0)
        word = "no";
    if (!word)
        return text;
    report_add(v->report, MESSAGE_NOTE, val->at, "put it in quotes to mean the word",
               "unquoted, YAML reads this as false; accel reads it as '%s'", word);
    return word;
}

/* A number without the underscores that YAML and Python allow between digits; in buf if
 * there are any. */
static const char *without_underscores(const char *text, char *buf, size_t len)
{
    size_t used = 0;

    if (!strchr(text, '_') || strlen(text) >= len)
        return text;
    for (const char *p = text; *p; p++) {
        if (*p != '_')
            buf[used++] = *p;
        else if (p == text || !isdigit((unsigned char)p[-1]) ||
                 !isdigit((unsigned char)p[1]))
            return text;
    }
    buf[used] = '\0';
    return buf;
}

/* Would a shell expand it? accel does not, and a directory named "~" helps nobody. */
static bool is_path_expandable(const struct config_key *k, const char *text)
{
    return !strcmp(k->section, "accel.checkpoint") && !strcmp(k->name, "dir") &&
           (text[0] == '~' || strchr(text, '$'));
}

/* A line break in a name or path would break the messages and logs that show it. */
static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

/* Top-level keys that Slurm replaces and accel launch, which runs without
 * Slurm, honours. */
static bool counts_alone(const struct config_key *k)
{
    static const char *const names[] = { "gpu_ids", "machine_rank", "main_process_ip",
                                         "main_process_port" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        if (!k->section[0] && !strcmp(k->name, names[i]))
            return true;
    return false;
}

/* Such a value is checked but has no effect: says who decides instead, or what the key
 * is for. */
static void note_replaced(struct validator *v, const struct config_key *k,
                          const char *text, const struct yaml_node *val)
{
    char shown[60];

    if ((k->use != USE_REPLACED && k->use != USE_NO_EFFECT) ||
        value_among(k->ours, text) || (v->without_slurm && counts_alone(k)))
        return;
    printable(shown, sizeof(shown), text, strlen(text));
    report_add(v->report, MESSAGE_NOTE, val->at, k->help, "'%s: %s' %s", k->name, shown,
               k->use == USE_REPLACED ? "is replaced" : "has no effect");
}

/* Checks canonical text that stands at `val`, and stores it. A refused word is reported
 * as refused before anything else is said about it. */
static void take_text(struct validator *v, size_t row, const struct yaml_node *val,
                      const char *text)
{
    const struct config_key *k = &v->schema[row];

    if (k->use == USE_REFUSED && word_index(k->values, text) >= 0 &&
        !value_among(k->ours, text)) {
        refuse_value(v, k, val);
        return;
    }
    /* Before it is stored: a locked value never enters the config. */
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
    if (k->use == USE_REFUSED && !value_among(k->ours, text)) {
        refuse_value(v, k, val);
        return;
    }
    note_replaced(v, k, text, val);
    v->cfg->origin[row] = (unsigned char)v->source->origin;
    v->cfg->line[row] = val->at.line;
}

/* Checks what depends on how the value is written (quotes, control characters, ~), then
 * takes its canonical text. */
static void take_scalar(struct validator *v, size_t row, const struct yaml_node *val)
{
    const struct config_key *k = &v->schema[row];
    const char *text;
    char number[64];

    if (k->type == TYPE_INT && !strcmp(k->name, "num_processes") &&
        !strcmp(val->text, "-1"))
        /* Accelerate writes -1 for "not given". */
        return;
    text = canonical(v, k, val);
    if (k->type == TYPE_INT || k->type == TYPE_NUMBER)
        text = without_underscores(text, number, sizeof(number));
    if (k->type == TYPE_STRING && has_control(text))
        report_add(v->report, A0119, val->at, "remove it",
                   "'%s' contains a control character", k->name);
    else if (is_path_expandable(k, text))
        report_add(v->report, A0118, val->at, "write the full path",
                   "'~' and '$' in '%s' are not expanded yet", k->name);
    else
        take_text(v, row, val, text);
}

/* `first` is -1 in an empty map or list. A plain null is a scalar. */
bool is_absent(const struct yaml_node *val)
{
    if (val->kind != NODE_SCALAR)
        return val->first < 0;
    return val->plain ? word_null(val->text) : !*val->text;
}

/* Reports a key of which no value is accepted. */
static void refuse_key(struct validator *v, const struct config_key *k,
                       const struct yaml_node *key)
{
    char hint[300];

    snprintf(hint, sizeof(hint), "remove it: %s", k->help);
    report_add(v->report, A0105, key->at, hint, "'%s' is refused", k->name);
}

/* Appends "true" or "false" to the list in buf, or "?" for what is neither. */
static void add_truth(char *buf, size_t len, int truth)
{
    const size_t used = strlen(buf);

    snprintf(buf + used, len - used, "%s%s", used ? "," : "",
             truth < 0 ? "?"
             : truth   ? "true"
                       : "false");
}

/* Writes "(True, False, False)" or the list [true, false, false] as "true,false,false".
 * Anything else becomes text that the row refuses. */
static void bools_text(const struct yaml_tree *t, const struct yaml_node *val,
                       char *buf, size_t len)
{
    char copy[64], *rest, *item;

    buf[0] = '\0';
    if (val->kind == NODE_LIST) {
        for (int i = val->first; i >= 0; i = t->node[i].next) {
            const struct yaml_node *n = &t->node[i];

            add_truth(buf, len, n->kind == NODE_SCALAR ? word_truth(n->text) : -1);
        }
        return;
    }
    snprintf(copy, sizeof(copy), "%s", val->text);
    for (item = strtok_r(copy, "(), ", &rest); item;
         item = strtok_r(NULL, "(), ", &rest))
        add_truth(buf, len, word_truth(item));
}

/* A list has no text for messages: it is called "this". */
static void take_bools(struct validator *v, size_t row, const struct yaml_node *val)
{
    struct yaml_node shown = *val;
    char text[64], list[] = "this";

    bools_text(v->tree, val, text, sizeof(text));
    if (val->kind == NODE_LIST)
        shown.text = list;
    take_text(v, row, &shown, text);
}

/* Tells the new name of an old key; its value is taken. */
static void note_moved(struct validator *v, const struct config_key *k,
                       const struct yaml_node *key)
{
    char hint[200];

    snprintf(hint, sizeof(hint), "write it as %s: %s", k->moved_to, k->help);
    report_add(v->report, MESSAGE_NOTE, key->at, hint,
               "'%s' is an old key; it is still accepted", k->name);
}

/* An old key is taken in the name of its new row, so giving both counts as twice. A
 * null still counts as given for that check, but sets nothing. */
void take_value(struct validator *v, size_t row, const struct yaml_node *key,
                const struct yaml_node *val)
{
    const struct config_key *old = v->schema[row].moved_to ? &v->schema[row] : NULL;
    const struct config_key *k;
    struct place *seen;
    char want[100];

    /* Another row replaced this one. */
    if (old)
        row = (size_t)config_row(old->moved_to);
    k = &v->schema[row];
    seen = &v->key_at[row];
    if (seen->line) {
        report_add(v->report, A0106, key->at, "keep one of the two",
                   "key '%s' is given twice (first on line %d)", k->name, seen->line);
        return;
    }
    *seen = key->at;
    if (is_absent(val))
        return;
    if (old)
        note_moved(v, old, key);
    /* Kept also for a value that is refused below: a message about the key then points
     * to it. */
    v->value_at[row] = lasting(v, val->at);
    if (k->use == USE_REFUSED && !k->ours)
        refuse_key(v, k, key);
    else if (k->type == TYPE_BOOLS && val->kind != NODE_MAP)
        take_bools(v, row, val);
    else if (val->kind != NODE_SCALAR && k->use == USE_NO_EFFECT)
        report_add(v->report, MESSAGE_NOTE, key->at, k->help, "'%s' has no effect",
                   k->name);
    else if (val->kind != NODE_SCALAR)
        report_add(v->report, A0107, val->at, "write one value after the colon",
                   "'%s' must be %s, not a %s", k->name, wanted(k, want, sizeof(want)),
                   val->kind == NODE_MAP ? "map" : "list");
    else
        take_scalar(v, row, val);
}

/* Rows without a default text keep 0, which means "not given". */
void config_defaults(struct config *cfg_out)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    memset(cfg_out, 0, sizeof(*cfg_out));
    for (size_t i = 0; i < n; i++)
        if (k[i].offset != SIZE_MAX && k[i].default_text)
            value_set(cfg_out, &k[i], k[i].default_text);
}
