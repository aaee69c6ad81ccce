/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of keys in, a YAML config file out. What it writes reads back as the same
 * values, here and in any YAML 1.1 reader. Comments of an older file are lost:
 * only its values come in.
 */
#include "cli/config/config_values.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA_FILE DATADIR "/accel/accel.schema.json"

/* ---- values ---------------------------------------------------------------------- */

/* Replaces one row by a copy. The copy comes first: `text` may be
 * the old text itself. */
static bool set_row(struct config_values *v, int row, const char *text)
{
    char *copy;

    if (row < 0)
        return false;
    copy = text ? strdup(text) : NULL;
    if (text && !copy)
        return false;
    free(v->text[row]);
    v->text[row] = copy;
    return true;
}

bool config_values_take(struct config_values *v, const struct config *cfg,
                        enum config_origin from)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    bool good = true;
    char text[CONFIG_GIVEN_BYTES];

    for (size_t i = 0; i < n && good; i++) {
        /* use_cpu and MULTI_CPU also set the device. It was not given, so it
         * must not be written. */
        bool follows = k[i].offset == offsetof(struct config, device) &&
                       (cfg->use_cpu || cfg->distributed_type == DIST_MULTI_CPU);

        /* Other sources are this user's or this machine's, not the file's. */
        if (cfg->origin[i] != from || follows)
            continue;
        config_value_text(cfg, &k[i], text, sizeof(text));
        good = set_row(v, (int)i, text);
    }
    return good;
}

bool config_values_set(struct config_values *v, const char *key, const char *text)
{
    return set_row(v, config_row(key), text);
}

const char *config_values_get(const struct config_values *v, const char *key)
{
    int row = config_row(key);

    return row < 0 ? NULL : v->text[row];
}

void config_values_free(struct config_values *v)
{
    for (size_t i = 0; i < CONFIG_MAX_KEYS; i++)
        free(v->text[i]);
    memset(v, 0, sizeof(*v));
}

/* ---- YAML ------------------------------------------------------------------------ */

/* Words that YAML 1.1 readers take for true, false or null; in any case, to be safe. */
static bool is_yaml_word(const char *s)
{
    static const char *const words[] = { "y",    "n",   "yes",   "no",   "on",
                                         "true", "off", "false", "null", "~" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(words); i++)
        if (!strcasecmp(s, words[i]))
            return true;
    return false;
}

/* Letters and signs that YAML gives no meaning to. A digit in front could
 * make a number of it. */
static bool is_plain(const char *s)
{
    if (!isalpha((unsigned char)s[0]) && s[0] != '/' && s[0] != '_')
        return false;
    for (const char *p = s; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_/.+-@%", *p))
            return false;
    return !is_yaml_word(s);
}

/* Characters that single quotes do not carry unchanged: YAML's other line breaks and
 * what no YAML text may hold as it is. All of them begin with these bytes of UTF-8. */
static bool needs_escapes(const char *s)
{
    return strstr(s, "\xc2") || strstr(s, "\xe2\x80") || strstr(s, "\xef\xbb\xbf");
}

/* Double quotes, the only style of YAML that has escapes. */
static void append_escaped(struct strbuf *out, const char *s)
{
    strbuf_append(out, "\"", 1);
    while (*s) {
        static const struct {
            const char *bytes, *as;
        } escapes[] = { { "\"", "\\\"" },          { "\\", "\\\\" },
                        { "\xc2\x85", "\\N" },     { "\xe2\x80\xa8", "\\L" },
                        { "\xe2\x80\xa9", "\\P" }, { "\xef\xbb\xbf", "\\uFEFF" } };
        size_t i = 0;

        /* Other bytes, the rest of UTF-8 included, stand for themselves. */
        while (i < ACCEL_ARRAY_SIZE(escapes) &&
               strncmp(s, escapes[i].bytes, strlen(escapes[i].bytes)) != 0)
            i++;
        if (i < ACCEL_ARRAY_SIZE(escapes)) {
            strbuf_append(out, escapes[i].as, strlen(escapes[i].as));
            s += strlen(escapes[i].bytes);
        } else {
            strbuf_append(out, s++, 1);
        }
    }
    strbuf_append(out, "\"", 1);
}

/* The mildest style that keeps the text: plain, then single quotes (doubled inside),
 * then double quotes. */
static void append_text(struct strbuf *out, const char *s)
{
    if (is_plain(s)) {
        strbuf_append(out, s, strlen(s));
    } else if (needs_escapes(s)) {
        append_escaped(out, s);
    } else {
        strbuf_append(out, "'", 1);
        for (; *s; s++)
            strbuf_append(out, *s == '\'' ? "''" : s, *s == '\'' ? 2 : 1);
        strbuf_append(out, "'", 1);
    }
}

/* One "key: value" line. Numbers and booleans are written as they are; text and
 * words may need quotes. */
static void append_key(struct strbuf *out, const struct config_key *k, const char *text,
                       int indent)
{
    /* of a key that takes other words besides */
    bool is_truth =
        k->type == TYPE_ENUM && (!strcmp(text, "true") || !strcmp(text, "false"));
    bool is_text = !is_truth && (k->type == TYPE_STRING || k->type == TYPE_ENUM);

    strbuf_printf(out, "%*s%s: ", indent, "", k->name);
    /* Accelerate's own files have a boolean here, although the key takes words. */
    if (!strcmp(k->name, "downcast_bf16") && !strcmp(text, "no"))
        strbuf_printf(out, "false");
    else if (!strcmp(k->name, "fp8_override_linear_precision"))
        strbuf_printf(out, "[%s]", text); /* Accelerate takes the items one by one */
    else if (is_text)
        append_text(out, text);
    else
        strbuf_append(out, text, strlen(text));
    strbuf_append(out, "\n", 1);
}

/* Does the map `section` lie in the map `path`, or is it that one? */
static bool lies_in(const char *section, const char *path)
{
    size_t n = strlen(path);

    /* "ab.c" begins with "a" and does not lie in it. */
    return !strncmp(section, path, n) && (!section[n] || section[n] == '.');
}

/* Is row i the first given one of the map `path`? Rows of one map may stand apart in
 * the table, but YAML must open the map once. */
static bool is_first(const struct config_values *v, size_t i, const char *path)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (size_t j = 0; j < i; j++)
        if (v->text[j] && lies_in(k[j].section, path))
            return false;
    return true;
}

/* Appends the given keys of one map, then the maps inside it, each at its first row.
 * Recursion ends with the depth of the schema's sections. */
static void append_map(struct strbuf *out, const struct config_values *v,
                       const char *section, int indent)
{
    /* Bytes of "section." in front of an inner map's name. */
    size_t n, skip = section[0] ? strlen(section) + 1 : 0;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++)
        if (v->text[i] && !strcmp(k[i].section, section))
            append_key(out, &k[i], v->text[i], indent);
    for (size_t i = 0; i < n; i++) {
        const char *inner = k[i].section;
        char path[128];

        /* Only given rows that lie deeper than this map. */
        if (!v->text[i] || strlen(inner) <= skip || (skip && !lies_in(inner, section)))
            continue;
        /* One level deeper than `section`: "a.b" of a row in "a.b.c". */
        snprintf(path, sizeof(path), "%.*s", (int)(skip + strcspn(inner + skip, ".")),
                 inner);
        if (!is_first(v, i, path))
            continue;
        strbuf_printf(out, "%*s%s:\n", indent, "", path + skip);
        append_map(out, v, path, indent + 2);
    }
}

/* The comment is for the YAML language server of editors; readers of
 * the config skip it. */
void config_values_yaml(const struct config_values *v, struct strbuf *out)
{
    if (access(SCHEMA_FILE, R_OK) == 0)
        strbuf_printf(out, "# yaml-language-server: $schema=%s\n", SCHEMA_FILE);
    append_map(out, v, "", 0);
}
