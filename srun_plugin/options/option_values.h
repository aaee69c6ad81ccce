/* SPDX-License-Identifier: Apache-2.0
 *
 * What the user gave this very client, what an outer sbatch, salloc or srun hands down
 * to it, and the environment before the plugin or Slurm changed it. Runs in srun,
 * sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_TYPED_H
#define ACCEL_SRUN_PLUGIN_TYPED_H

#include <stdbool.h>

/* ---- option_values.c ------------------------------------------------------------- */

/* Words to be scanned with cmdline_*; NULL: there are none to look into. */
struct typed {
    /* Of the command line. */
    char **words;
    /* sbatch: of its script's #SBATCH lines. */
    char **script;
};

/* Reads the words. `allocates`: in sbatch and salloc. */
void typed_read(struct typed *t, bool allocates);
void typed_free(struct typed *t);
/* The value of one of our options on the command line or in the script; NULL: none. */
const char *typed_value(const struct typed *t, const char *option);
/* The value that an outer client hands down; NULL: none. */
const char *typed_inherited(const char *option);
/* Is `arg`, which Slurm gave the callback of `option`, the value that counts? False for
 * one inherited from an outer client when this client has its own. *inherited_out: it
 * came from there. */
bool typed_is_ours(const struct typed *t, const char *option, const char *arg,
                   bool *inherited_out);
/* The directory that relative paths start from: for an inherited value the directory of
 * the submission, also when the job runs elsewhere (--chdir). NULL: the current one. */
const char *typed_base(bool inherited);

/* ---- user_env.c ------------------------------------------------------------------ */

struct user_env {
    /* NULL-terminated, in one malloc; NULL: not kept. */
    char **vars;
};

/* Keeps the environment. Only the first call counts. */
void user_env_keep(struct user_env *e);
/* A variable of it, or NULL. */
const char *user_env_get(const struct user_env *e, const char *name);
/* A number >= 0 of it; `otherwise` if there is none. */
long user_env_long(const struct user_env *e, const char *name, long otherwise);
void user_env_free(struct user_env *e);

#endif
