/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel schema [KEY]`: the config file's JSON Schema on stdout, or that of one key.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/config/json_schema.h"

static error_t parse_schema_args(int key, char *arg, struct argp_state *state)
{
    const char **wanted = state->input;

    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    if (*wanted)
        argp_error(state, "one key at a time");
    *wanted = arg;
    return 0;
}

/* The row of "section.key". NULL: there is none, and `err`
 * suggests the nearest path. */
static const struct config_key *find_schema_key(const char *wanted, accel_error_t *err)
{
    static char paths[CONFIG_MAX_KEYS][128];
    const char *names[CONFIG_MAX_KEYS], *near;
    char hint[200] = "accel check --keys lists all keys";
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++) {
        config_key_path(&k[i], paths[i], sizeof(paths[i]));
        names[i] = paths[i];
        if (!strcmp(paths[i], wanted))
            return &k[i];
    }
    /* Paths, so that a bare name finds the map it lies in. */
    near = suggest_nearest(wanted, names, n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", near);
    accel_fail(err, A0013, hint, "no key '%s' in a config file", wanted);
    return NULL;
}

static const struct argp argp = {
    .parser = parse_schema_args,
    .args_doc = "[KEY]",
    .doc =
        "Prints the JSON Schema (draft-07) of a config file, generated from the table "
        "that the parser uses. With KEY, prints the schema of that key, such as "
        "accel.checkpoint.keep.\vFor completion and hover texts in an editor with a "
        "YAML language server, put this line first in a config file, with the path of "
        "the saved schema:\n# yaml-language-server: $schema=accel.schema.json"
};

/* Keys stay in the order of the table, so that the file in an installation can be
 * compared with a new one. */
static int run_schema(int argc, char **argv)
{
    const char *wanted = NULL;
    const struct config_key *key = NULL;
    accel_error_t err;
    json_t *schema;

    cli_parse(&cli_schema, argc, argv, &wanted);
    /* A wrong key is told before a schema is built. */
    if (wanted) {
        key = find_schema_key(wanted, &err);
        if (!key)
            return cli_fail(&err);
    }
    schema = key ? json_schema_key(key) : json_schema_file();
    return cli_print_json(schema, JSON_INDENT(2) | JSON_PRESERVE_ORDER, "the schema");
}

const struct cli_command cli_schema = {
    .name = "schema",
    .run = run_schema,
    .summary = "JSON Schema of the config file, for editors",
    .example = "accel schema >accel.schema.json",
    .argp = &argp,
};
