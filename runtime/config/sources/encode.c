/* SPDX-License-Identifier: Apache-2.0
 *
 * Canonical text:
 * "accel1;key@f12=value;...;file=PATH;deepspeed=SECTION;accel=1;xxh3=HEX". It carries
 * every key that was given, locked, or is not at its default, each with its origin (d
 * default, s site, p program, u user, f file, e environment, o option), its line and
 * whether the site locks it, so that a task knows the config without opening the user's
 * file. The hash guards against damage, not malice.
 *
 * The writer and the reader may be of two releases. A line with a 0 before it, "f012",
 * marks a value that is the default: a reader that does not know such a key goes on
 * without it, and refuses any other key or value that it does not know by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "common/sealed_text.h"
#include "config/read/document.h"

/* MAX_TEXT includes the NUL. */
enum { MAX_TEXT = 16 << 10 };

/* The frame, the items that are not keys of the schema, and a letter for each
 * enum config_origin. */
static const char version[] = "accel1;";
static const char has_accel[] = "accel";
static const char job_file[] = "file";
static const char deepspeed_file[] = "deepspeed";
static const char origin_letter[] = "dspufeo";
static const char lock_mark[] = "l";
static const char default_mark[] = "0";

/* "path@f12=value;", or "path@f12l=value;" for a locked key, with the full path, since
 * two maps may have keys of one name. Nothing for one that nobody gave or locked and
 * that is what it is in `fresh`, the defaults. */
static void append_key(struct strbuf *b, const struct config *cfg,
                       const struct config *fresh, const struct config_key *k,
                       size_t row)
{
    char path[128], value[CONFIG_GIVEN_BYTES], normal[CONFIG_GIVEN_BYTES];
    unsigned origin = cfg->origin[row];
    bool same;

    config_value_text(cfg, k, value, sizeof(value));
    config_value_text(fresh, k, normal, sizeof(normal));
    same = strcmp(value, normal) == 0;
    if (same && origin == ORIGIN_DEFAULT && !cfg->locked[row])
        return;
    strbuf_printf(b, "%s@%c%s%d%s=", config_key_path(k, path, sizeof(path)),
                  origin_letter[origin <= ORIGIN_FLAG ? origin : 0],
                  same ? default_mark : "", cfg->line[row],
                  cfg->locked[row] ? lock_mark : "");
    sealed_append(b, value);
    strbuf_append(b, ";", 1);
}

/* Items are in the order of the table, so equal configs give equal texts: srun compares
 * the hash to tell whether a config has changed. */
accel_status_t config_encode(const struct config *cfg, char *buf, size_t len,
                             accel_error_t *err)
{
    struct strbuf b = { 0 };
    size_t n;
    const struct config_key *k = config_schema(&n);
    struct config fresh;
    accel_status_t st = ACCEL_OK;

    config_defaults(&fresh);
    strbuf_append(&b, version, strlen(version));
    for (size_t i = 0; i < n; i++)
        append_key(&b, cfg, &fresh, &k[i], i);
    strbuf_printf(&b, "%s=", job_file);
    sealed_append(&b, cfg->job_path);
    if (cfg->deepspeed_more[0]) {
        strbuf_printf(&b, ";%s=", deepspeed_file);
        sealed_append(&b, cfg->deepspeed_more);
    }
    strbuf_printf(&b, ";%s=%d", has_accel, cfg->has_accel_section);
    sealed_close(&b);
    if (b.failed)
        st = accel_fail_nomem(err, "the resolved config", MAX_TEXT);
    else if (b.len >= len || b.len >= MAX_TEXT)
        st = accel_fail(err, A0125, "shorten the values",
                        "the resolved config is too long: %zu bytes", b.len);
    else
        memcpy(buf, b.s, b.len + 1);
    strbuf_free(&b);
    return st;
}

/* One message for all damage; `what` is for us. */
static accel_status_t damaged(accel_error_t *err, const char *what)
{
    return accel_fail_at(err, A0311, ENV_RESOLVED,
                         "do not edit the variable; start the job again",
                         "the resolved config is damaged: %s", what);
}

/* Stores origin, line and lock from a mark such as "f12" or "s3l". Lines cannot exceed
 * the bytes of the largest file. */
static bool take_mark(struct config *cfg, char *mark, size_t row)
{
    const char *letter = *mark ? strchr(origin_letter, *mark) : NULL;
    char *end;
    long line;

    /* strtol would also take a sign or blanks. */
    if (!letter || mark[1] < '0' || mark[1] > '9')
        return false;
    line = strtol(mark + 1, &end, 10);
    if ((*end && strcmp(end, lock_mark) != 0) || line > CONFIG_MAX_BYTES + 1)
        return false;
    cfg->locked[row] = *end;
    cfg->origin[row] = (unsigned char)(letter - origin_letter);
    cfg->line[row] = (int)line;
    return true;
}

/* Takes a text that only messages use; made printable, because anybody may have written
 * the variable. */
static bool take_shown(char *field, size_t len, char *value)
{
    if (!sealed_decode(value) || strlen(value) >= len)
        return false;
    printable(field, len, value, strlen(value));
    return true;
}

/* What came of an item: it was taken; the text is damaged; or, since the hash is right,
 * another release wrote something that this one does not know. */
enum item { ITEM_TAKEN, ITEM_DAMAGED, ITEM_UNKNOWN };

/* Takes an item that is not a key of the schema. */
static enum item take_other(struct config *cfg, const char *name, char *value)
{
    bool good;

    if (!strcmp(name, has_accel)) {
        cfg->has_accel_section = value[0] == '1';
        good = !strcmp(value, "0") || !strcmp(value, "1");
    } else if (!strcmp(name, job_file)) {
        good = take_shown(cfg->job_path, sizeof(cfg->job_path), value);
    } else if (!strcmp(name, deepspeed_file)) {
        good = take_shown(cfg->deepspeed_more, sizeof(cfg->deepspeed_more), value);
    } else {
        return ITEM_UNKNOWN;
    }
    return good ? ITEM_TAKEN : ITEM_DAMAGED;
}

/* The row of a key by its full path; of an old key, which an older writer knows, the
 * row that replaced it. -1: no such key. */
static int row_of_path(const char *path)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    char full[128];

    for (size_t i = 0; i < n; i++)
        if (!strcmp(config_key_path(&k[i], full, sizeof(full)), path))
            return k[i].moved_to ? config_row(k[i].moved_to) : (int)i;
    return -1;
}

/* Takes one item, which is cut into name and value. */
static enum item take_item(struct config *cfg, char *name, char *value)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    /* Keys have no '@'. */
    char *mark = strchr(name, '@');
    struct config scratch;
    int row;

    if (!mark)
        return take_other(cfg, name, value);
    *mark++ = '\0';
    if (!sealed_decode(value))
        return ITEM_DAMAGED;
    row = row_of_path(name);
    if (!take_mark(row < 0 ? &scratch : cfg, mark, row < 0 ? 0 : (size_t)row))
        return ITEM_DAMAGED;
    if (row < 0)
        return mark[1] == default_mark[0] && mark[2] >= '0' && mark[2] <= '9'
                   ? ITEM_TAKEN
                   : ITEM_UNKNOWN;
    k += row;
    if (!*value && !k->default_text)
        /* Written by config_value_text for a key that was not given. */
        return ITEM_TAKEN;
    return value_set(cfg, k, value) == VALUE_OK ? ITEM_TAKEN : ITEM_UNKNOWN;
}

/* A name or value that another release knows, as in "accel.checkpoint.keep=3". */
static accel_status_t unknown(accel_error_t *err, const char *name, const char *value)
{
    char shown[2][128];

    printable(shown[0], sizeof(shown[0]), name, strlen(name));
    printable(shown[1], sizeof(shown[1]), value, strlen(value));
    return accel_fail_at(err, A0127, ENV_RESOLVED,
                         "load the accel module whose version matches the site's "
                         "plugin, or leave it out of the config",
                         "the config has '%s' at '%s', which this library, version %s, "
                         "does not know",
                         shown[0], shown[1], accel_version());
}

/* Checks version, length and hash. *body_out is the length up to the hash. */
static accel_status_t check_frame(const char *text, size_t *body_out,
                                  accel_error_t *err)
{
    const char *problem = sealed_problem(text, strlen(version), MAX_TEXT, body_out);

    /* A text of another version is no damage: its cure is another module. */
    if (strncmp(text, version, strlen(version)))
        return accel_fail_at(
            err, A0127, ENV_RESOLVED,
            "load the accel module whose version matches the site's plugin",
            "the resolved config has a version that this library does not know");
    return problem ? damaged(err, problem) : ACCEL_OK;
}

/* Decodes into a local config, so that a text with a bad item leaves *cfg_out alone. */
accel_status_t config_decode(const char *text, struct config *cfg_out,
                             accel_error_t *err)
{
    struct config got;
    size_t body = 0;
    char *copy, *item, *rest;
    accel_status_t st;

    ACCEL_CHECK(st, check_frame(text, &body, err));
    copy = strndup(text + strlen(version), body - strlen(version));
    if (!copy)
        return accel_fail_nomem(err, "the resolved config", body);
    config_defaults(&got);
    for (item = strtok_r(copy, ";", &rest); st == ACCEL_OK && item;
         item = strtok_r(NULL, ";", &rest)) {
        char *value = strchr(item, '=');
        enum item what = ITEM_DAMAGED;

        if (value) {
            *value++ = '\0';
            what = take_item(&got, item, value);
        }
        if (what == ITEM_DAMAGED)
            st = damaged(err, "an item is malformed");
        else if (what == ITEM_UNKNOWN)
            st = unknown(err, item, value);
    }
    free(copy);
    if (st == ACCEL_OK)
        *cfg_out = got;
    return st;
}
