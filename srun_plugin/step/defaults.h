/* SPDX-License-Identifier: Apache-2.0
 *
 * Launch options that follow from the config. Runs in srun, sbatch and salloc, before
 * they read their environment.
 */
#ifndef ACCEL_SRUN_PLUGIN_DEFAULTS_H
#define ACCEL_SRUN_PLUGIN_DEFAULTS_H

#include <stddef.h>

#include "config/config.h"
#include "srun_plugin/options/option_values.h"

struct launch_default {
    /* Name of the environment input; static. */
    const char *name;
    char value[32];
};
struct launch_defaults {
    /* What was set, in that order. */
    struct launch_default set[12];
    size_t set_count;
    /* Names to unset again after the options. */
    const char *lent[8];
    size_t lent_count;
};

/* Set the environment inputs of srun, or of sbatch and salloc, where neither the
 * environment nor (for sbatch) the script has a value. The command line wins anyway. */
void defaults_for_srun(struct launch_defaults *d, const struct config *cfg,
                       const struct typed *t, const struct user_env *env);
void defaults_for_allocator(struct launch_defaults *d, const struct config *cfg,
                            const struct typed *t);
/* Unsets those that would only confuse the job's own environment. */
void defaults_withdraw(struct launch_defaults *d);
/* srun: the warning that accel asked for in this job, "USR1@120"; NULL: none, or the
 * user asked for one of their own. */
const char *defaults_warning(const struct launch_defaults *d, const struct typed *t,
                             const struct user_env *env);

#endif
