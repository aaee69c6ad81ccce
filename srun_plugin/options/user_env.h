/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's environment as it was before the plugin or Slurm changed it. Runs in srun,
 * sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_USER_ENV_H
#define ACCEL_SRUN_PLUGIN_USER_ENV_H

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
