/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel config`: asks for a config on a terminal. `default` makes one from
 * this machine, `show` tells every value and its origin, `update` brings an old
 * file into today's form.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/config/config_values.h"
#include "cli/config/settings.h"

/* Long options without a letter. */
enum { O_ORIGIN = 256, O_PRECISION };

struct config_args {
    /* Operands and options as they were given; NULL: not given. */
    const char *verb, *file;
    const char *target, *precision;
    bool origin, json;
    struct cli_settings settings;
};

static bool is_verb(const struct config_args *a, const char *verb)
{
    return a->verb && !strcmp(a->verb, verb);
}

/* Refuses options and operands that belong to another verb. argp knows no verbs, and an
 * option that is silently ignored is worse than an error. */
static void check_verb_form(const struct config_args *a, struct argp_state *state)
{
    if (a->verb && !is_verb(a, "default") && !is_verb(a, "show") &&
        !is_verb(a, "update"))
        argp_error(state, "unknown verb '%s': default, show or update", a->verb);
    else if (a->file && is_verb(a, "default"))
        argp_error(state, "default takes no FILE: give --config-file FILE");
    else if (is_verb(a, "update") && !a->file)
        argp_error(state, "update needs the FILE to rewrite");
    else if (a->precision && !is_verb(a, "default"))
        argp_error(state, "--mixed-precision belongs to accel config default");
    else if ((a->origin || a->json || a->settings.count || a->settings.site) &&
             !is_verb(a, "show"))
        argp_error(state, "--origin, --json, --set and --site belong to accel config "
                          "show");
}

static error_t parse_config_args(int key, char *arg, struct argp_state *state)
{
    struct config_args *a = state->input;

    switch (key) {
    case 'f':
        a->target = arg;
        return 0;
    case O_PRECISION:
        /* Judged here: this value goes into the file without a run of the validator. */
        if (strcmp(arg, "no") != 0 && strcmp(arg, "fp16") != 0 && strcmp(arg, "bf16"))
            argp_error(state, "--mixed-precision takes no, fp16 or bf16, not '%s'",
                       arg);
        a->precision = arg;
        return 0;
    case O_ORIGIN:
        a->origin = true;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!a->verb)
            a->verb = arg;
        else if (!a->file)
            a->file = arg;
        else
            argp_error(state, "one file at a time");
        return 0;
    case ARGP_KEY_END:
        /* Accelerate's --config_file names the file for these verbs as well. */
        if (!a->file && (is_verb(a, "show") || is_verb(a, "update")))
            a->file = a->target;
        check_verb_form(a, state);
        return 0;
    default:
        return cli_settings_parse(key, arg, state, &a->settings);
    }
}

/* Hidden aliases with underscores: Accelerate's own spelling. */
static const struct argp_option options[] = {
    { "config-file", 'f', "FILE", 0, "The file to write (default: the user file)", 0 },
    { "config_file", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
    { "mixed-precision", O_PRECISION, "no|fp16|bf16", 0,
      "For default: the precision to write (no if not given)", 0 },
    { "mixed_precision", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
    { "origin", O_ORIGIN, NULL, 0, "For show: print where each value comes from", 0 },
    { "json", 'j', NULL, 0, "For show: print JSON instead of a table", 0 },
    CLI_SETTINGS_OPTIONS,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_config_args,
    .args_doc = "\ndefault\nshow [FILE]\nupdate FILE",
    .doc =
        "Without a verb, asks questions on the terminal and writes the user file. Its "
        "values are defaults for every job file; size and device of a run count only "
        "together with their distributed_type. default writes a file for the devices "
        "of this machine. show prints all values: of FILE and the other sources, or of "
        "those sources alone. update rewrites an old Accelerate file in the current "
        "form and keeps the old one as FILE.bak.\vThe first source that sets a key "
        "wins: --set, environment ACCEL_KEY, job file, user file "
        "($XDG_CONFIG_HOME/accel/config.yaml), site file "
        "(" SYSCONFDIR "/accel/site.yaml), built-in default. Exit code: 64 no "
        "terminal, 65 a problem in a file, 73 file exists or cannot be "
        "written, 77 file not trusted, 78 key locked by the site."
};

/* Writes the user file, unless another was named: `default` without
 * questions, no verb with them. */
static int write_config_file(const struct config_args *a)
{
    struct config_sources sources = { 0 };
    struct config_paths paths;
    const char *path = a->target;

    if (!path) {
        config_sources_default(&sources, &paths);
        path = paths.user[0] ? paths.user : NULL;
    }
    /* Services and containers may have no HOME. */
    if (!path)
        return cli_error(A0261, NULL, "set HOME, or give --config-file FILE",
                         "there is no home directory for the user file");
    return a->verb ? config_default(path, a->precision) : config_ask(path);
}

/* `show` resolves as a run would; the other verbs write and never
 * read the environment. */
static int run_config(int argc, char **argv)
{
    struct config_args a = { 0 };
    struct cli_config c;
    int code;

    cli_parse(&cli_config, argc, argv, &a);
    if (is_verb(&a, "update"))
        return config_update(a.file);
    if (!is_verb(&a, "show"))
        return write_config_file(&a);
    code = cli_config_load(a.file, &a.settings, &c);
    cli_settings_free(&a.settings);
    return code ? code : cli_config_print(&c, true, a.origin, a.json);
}

const struct cli_command cli_config = {
    .name = "config",
    .run = run_config,
    .summary = "create a config file, or show where its values come from",
    .example = "accel config\naccel config show fsdp.yaml --origin",
    .argp = &argp,
};
