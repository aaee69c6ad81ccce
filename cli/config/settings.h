/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands that read a config share: the options --set and --site, reading with
 * problems on stderr, and the name of the place a value came from.
 */
#ifndef ACCEL_SETTINGS_H
#define ACCEL_SETTINGS_H

#include <argp.h>

#include "config/config.h"

enum { CLI_SET_KEY = 0x1000, CLI_SITE_KEY };
#define CLI_SETTINGS_OPTIONS                                                           \
    { "set",                                                                           \
      CLI_SET_KEY,                                                                     \
      "KEY=VALUE",                                                                     \
      0,                                                                               \
      "Set a key, over files and environment; may be repeated",                        \
      0 },                                                                             \
    {                                                                                  \
        "site", CLI_SITE_KEY, "FILE", 0,                                               \
            "Take FILE for the site file, to try one out before it is installed", 0    \
    }

struct cli_settings {
    struct config_setting *item;
    size_t count;
    const char *site;   /* NULL: the installed one */
    bool alone;         /* the given files only: no environment, user or site file */
    const char *user;   /* NULL: the usual user file */
    bool without_slurm; /* for a run that Slurm does not start */
};
/* Takes --set and --site from an argp parser; ARGP_ERR_UNKNOWN for other keys. */
error_t cli_settings_parse(int key, char *arg, struct argp_state *state,
                           struct cli_settings *s);
/* Adds one setting; both texts must stay. False: no memory. */
bool cli_settings_add(struct cli_settings *s, const char *name, const char *value);
void cli_settings_free(struct cli_settings *s);

/* A config and the sources it was made of. */
struct cli_config {
    struct config config;
    struct config_sources sources;
    struct config_paths paths;
    char shown[1024]; /* the job file as messages show it */
};
/* Resolves `job` (NULL: none) with the other sources, says notes and problems on stderr and
 * returns the exit code. */
int cli_config_load(const char *job, const struct cli_settings *s,
                    struct cli_config *out);
/* The values as a table on stdout, with origins when asked; `all` shows every key, else those
 * that count today or are given. Returns the exit code. */
int cli_config_print(const struct cli_config *c, bool all, bool origin, bool json);

#endif
