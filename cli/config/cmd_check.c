/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel check FILE...`: the resolved values of each file with their origin on stdout,
 * or all of its problems on stderr. `--keys` lists the schema. Needs no Slurm.
 */
#include <stdio.h>
#include <stdlib.h>

#include "config/config.h"
#include "cli/cli.h"
#include "cli/config/settings.h"

struct check_args {
    bool keys, json, quiet;
    struct cli_settings settings;
    /* Words of argv; room for all of argv. */
    char **files;
    int count;
};

static error_t parse_check_args(int key, char *arg, struct argp_state *state)
{
    struct check_args *a = state->input;

    switch (key) {
    case 'k':
        a->keys = true;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case 'q':
        a->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        a->files[a->count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->count && !a->keys)
            argp_error(state, "no file given");
        /* JSON of two files would be two documents on one stdout. */
        if (a->count > 1 && a->json)
            argp_error(state, "--json takes one file");
        return 0;
    default:
        return cli_settings_parse(key, arg, state, &a->settings);
    }
}

/* The values a file may give for this key, as a cell of the table. */
static void check_values_text(const struct config_key *k, char *buf, size_t len)
{
    static const char *const type_names[] = {
        [TYPE_BOOL] = "true false", [TYPE_INT] = "whole number",
        [TYPE_NUMBER] = "number",   [TYPE_STRING] = "text",
        [TYPE_ENUM] = "",           [TYPE_BOOLS] = "three true or false"
    };
    size_t used;

    /* A refused key may still have values that change nothing. */
    if (k->use == USE_REFUSED) {
        snprintf(buf, len, "%s%s", k->ours ? "only " : "refused",
                 k->ours ? k->ours : "");
        return;
    }
    used = (size_t)snprintf(buf, len, "%s", type_names[k->type]);
    for (int i = 0; k->values && k->values[i] && used < len; i++)
        used += (size_t)snprintf(buf + used, len - used, "%s%s", used ? " " : "",
                                 k->values[i]);
}

/* The schema table itself, one row per key: the same rows drive the parser. */
static int list_keys(bool json)
{
    static const char *const columns[] = { "KEY", "VALUES", "DEFAULT", "HELP", NULL };
    struct cli_table *t = cli_table_new("keys", columns);
    size_t n;
    const struct config_key *k = config_schema(&n);

    if (!t)
        return cli_no_memory("the table");
    for (size_t i = 0; i < n; i++) {
        char name[128], values[256];

        config_key_path(&k[i], name, sizeof(name));
        check_values_text(&k[i], values, sizeof(values));
        cli_table_row(t,
                      (const char *[]){ name, values, k[i].default_text, k[i].help });
    }
    return cli_table_print(t, json);
}

/* A config that only Python programs can use is valid; one line says what
 * libaccel would refuse. True: there is nothing. */
static bool note_unsupported(const struct cli_config *c)
{
    accel_error_t e;

    if (config_supported(&c->config, &e) == ACCEL_OK)
        return true;
    fprintf(stderr,
            "note: %s: %s by programs linked with libaccel (%s); Python scripts "
            "get it in their environment\n",
            e.where, e.text, e.hint);
    return false;
}

/* What such programs have no need to do; Python scripts do it. */
static void note_moot(const struct cli_config *c)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++) {
        const char *why = config_moot(&c->config, i);
        char where[256], text[60];

        if (why)
            fprintf(stderr,
                    "note: %s: '%s: %s' has no effect in programs linked with "
                    "libaccel, which compute the same numbers: %s\n",
                    config_where(&c->config, k[i].name, where, sizeof(where)),
                    k[i].name, config_get(&c->config, k[i].name, text, sizeof(text)),
                    why);
    }
}

/* One file with the sources below it. "OK" is left out of JSON, which
 * would no longer be JSON. */
static int check_file(const char *path, const struct check_args *a)
{
    struct cli_config c;
    int code = cli_config_load(path, &a->settings, &c);

    if (code)
        return code;
    if (note_unsupported(&c))
        note_moot(&c);
    if (!a->json)
        printf("%s: OK\n", c.shown);
    return a->quiet ? 0 : cli_config_print(&c, false, true, a->json);
}

static const struct argp_option options[] = {
    { "keys", 'k', NULL, 0, "List every key with its values, default and meaning", 0 },
    { "json", 'j', NULL, 0, "Print JSON instead of a table", 0 },
    { "quiet", 'q', NULL, 0, "Print no table, only OK or the problems", 0 },
    CLI_SETTINGS_OPTIONS,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_check_args,
    .args_doc = "FILE...\n--keys",
    .doc = "Checks Accelerate config files as srun --accel-config does, and shows each "
           "value with its origin.\vExit code: 0 no problem, 65 a problem in a file, "
           "66 file missing, 77 file not readable or not trusted, 78 key locked by the "
           "site."
};

/* All files are checked; the exit code is that of the first bad one. */
static int run_check(int argc, char **argv)
{
    struct check_args a = { 0 };
    int code = 0;

    a.files = calloc((size_t)argc, sizeof(*a.files));
    if (!a.files) {
        accel_error_t err;

        accel_fail_nomem(&err, "arguments", (size_t)argc * sizeof(*a.files));
        return cli_fail(&err);
    }
    /* The parser stores files as it meets them; argc bounds their number. */
    cli_parse(&cli_check, argc, argv, &a);
    if (a.keys)
        code = list_keys(a.json);
    for (int i = 0; i < a.count; i++) {
        /* The others are checked all the same: one run shows all problems. */
        int one = check_file(a.files[i], &a);

        code = code ? code : one;
    }
    free(a.files);
    cli_settings_free(&a.settings);
    return code;
}

const struct cli_command cli_check = {
    .name = "check",
    .run = run_check,
    .summary = "check a config file and show what it means",
    .example = "accel check fsdp.yaml",
    .argp = &argp,
    .everyday = true,
};
