/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands that read a config share: the options --set and --site, reading
 * with problems on stderr, and the place that each value came from.
 */
#ifndef ACCEL_SETTINGS_H
#define ACCEL_SETTINGS_H

#include <argp.h>

#include "config/config.h"

/* Above every letter and every command's own keys. */
enum { CLI_SET_KEY = 0x1000, CLI_SITE_KEY };
/* Rows of an argp table, the same in every command that reads a config. */
#define CLI_SETTINGS_OPTIONS                                                           \
    { "set",                                                                           \
      CLI_SET_KEY,                                                                     \
      "KEY=VALUE",                                                                     \
      0,                                                                               \
      "Set a key, overriding files and environment; may be repeated",                  \
      0 },                                                                             \
    {                                                                                  \
        "site", CLI_SITE_KEY, "FILE", 0,                                               \
            "Use FILE as the site file, to test it before it is installed", 0          \
    }

/* What the command line says about sources. */
struct cli_settings {
    /* --set in their order; names and values belong to argv or to the caller. */
    struct config_setting *item;
    size_t count;
    /* NULL: the installed one. */
    const char *site;
    /* Only the given files: no environment, no user file, no site file. */
    bool alone;
    /* NULL: the usual user file. */
    const char *user;
    /* For a run that Slurm does not start. */
    bool without_slurm;
};
/* Handles --set and --site for an argp parser. ARGP_ERR_UNKNOWN for other keys. */
error_t cli_settings_parse(int key, char *arg, struct argp_state *state,
                           struct cli_settings *s);
/* Adds one setting. Both texts must outlive `s`. False: out of memory. */
bool cli_settings_add(struct cli_settings *s, const char *name, const char *value);
void cli_settings_free(struct cli_settings *s);

/* A config and the sources it was made from. Large: keep it off small stacks. */
struct cli_config {
    struct config config;
    struct config_sources sources;
    struct config_paths paths;
    /* The job file as messages show it. */
    char shown[1024];
};
/* Resolves `job` (NULL: none) with the other sources, shows notes and problems on
 * stderr and returns the exit code. */
int cli_config_load(const char *job, const struct cli_settings *s,
                    struct cli_config *out);
/* Prints the values as a table on stdout, with origins when asked. `all` shows
 * every key, else only keys that libaccel reads and those that a source gives.
 * Returns the exit code. */
int cli_config_print(const struct cli_config *c, bool all, bool origin, bool json);

#endif
