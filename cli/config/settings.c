/* SPDX-License-Identifier: Apache-2.0
 *
 * --set and --site in, a resolved config out, its problems on stderr: the same for
 * every command that reads a config.
 */
#include "cli/config/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

bool cli_settings_add(struct cli_settings *s, const char *name, const char *value)
{
    /* One at a time: a command line has few. */
    struct config_setting *grown = realloc(s->item, (s->count + 1) * sizeof(*s->item));

    if (!grown)
        return false;
    s->item = grown;
    s->item[s->count++] = (struct config_setting){ name, value };
    return true;
}

/* --set KEY=VALUE is cut in place at the first "=": argv's words live as
 * long as the program. */
error_t cli_settings_parse(int key, char *arg, struct argp_state *state,
                           struct cli_settings *s)
{
    char *equals;

    switch (key) {
    case CLI_SET_KEY:
        equals = strchr(arg, '=');
        if (!equals || equals == arg) {
            argp_error(state, "--set %s: write --set KEY=VALUE", arg);
            return 0;
        }
        /* The value may have further "="; only the first one divides. */
        *equals = '\0';
        return cli_settings_add(s, arg, equals + 1) ? 0 : ENOMEM;
    case CLI_SITE_KEY:
        s->site = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void cli_settings_free(struct cli_settings *s)
{
    free(s->item);
    memset(s, 0, sizeof(*s));
}

/* The sources as a run finds them, with what the command line replaces. All problems
 * are shown, not only the first; a failure without any (a file that cannot be opened)
 * has the error itself. */
int cli_config_load(const char *job, const struct cli_settings *s,
                    struct cli_config *out)
{
    struct config_sources *sources = &out->sources;
    struct config_diags diags;
    accel_error_t err;
    accel_status_t st;
    int code;

    *sources = (struct config_sources){ .job_path = job,
                                        .flags = s->item,
                                        .flag_count = s->count,
                                        .without_slurm = s->without_slurm };
    /* Paths are kept in out->paths, which the sources point into. */
    if (!s->alone)
        config_sources_default(sources, &out->paths);
    /* Named by us, so it is read with our rules, not as Accelerate's default file. */
    if (s->user) {
        sources->user_path = s->user;
        sources->user_is_accelerates = false;
    }
    if (s->site) {
        sources->site_path = s->site;
        sources->site_is_named = true;
    }
    st = config_resolve(sources, &out->config, &diags, &err);
    code = accel_exit_code(st);
    /* The problems are freed below, their name for the file is still needed. */
    memcpy(out->shown, diags.path, sizeof(out->shown));
    for (size_t i = 0; i < diags.count; i++)
        fprintf(stderr, "%s\n", diags.item[i].text);
    if (st != ACCEL_OK && !diags.errors)
        code = cli_fail(&err);
    else if (st != ACCEL_OK)
        fprintf(stderr, "%s: %zu error%s%s\n", diags.path, diags.errors,
                diags.errors == 1 ? "" : "s",
                diags.count >= 20 ? " shown, there may be more" : "");
    config_diags_free(&diags);
    return code;
}

/* Keys without a field of their own (SIZE_MAX) are only handed on to programs: they are
 * shown when some source gives them. */
static bool is_shown(const struct config *cfg, const struct config_key *key, size_t row)
{
    return key->offset != SIZE_MAX || cfg->origin[row] != ORIGIN_DEFAULT;
}

/* A value the site has locked is marked, since it explains why the
 * user's own did not win. */
int cli_config_print(const struct cli_config *c, bool all, bool origin, bool json)
{
    const char *const columns[] = { "KEY", "VALUE", origin ? "FROM" : NULL, NULL };
    struct cli_table *t = cli_table_new("config", columns);
    size_t n;
    const struct config_key *k = config_schema(&n);

    if (!t)
        return cli_no_memory("the table");
    for (size_t i = 0; i < n; i++) {
        char name[128], value[CONFIG_GIVEN_BYTES], from[1200];

        if (!all && !is_shown(&c->config, &k[i], i))
            continue;
        config_key_path(&k[i], name, sizeof(name));
        config_value_text(&c->config, &k[i], value, sizeof(value));
        config_place(&c->config, &c->sources, i, from, sizeof(from));
        if (c->config.locked[i])
            strncat(from, " (locked)", sizeof(from) - strlen(from) - 1);
        cli_table_row(t, (const char *[]){ name, value, from });
    }
    return cli_table_print(t, json);
}
