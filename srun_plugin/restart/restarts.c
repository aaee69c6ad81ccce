/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of restarts. The user's environment comes in: Slurm's own count there, or what
 * the srun before this one has left (resubmit.c). Never changes it.
 */
#include "srun_plugin/restart/restart.h"

#include "common/env_names.h"

/* Slurm counts requeues itself. Only a bare srun uses our own count; inside a job that
 * variable would be the one of an outer run. */
long restarts_count(const struct user_env *env)
{
    long requeued = user_env_long(env, "SLURM_RESTART_COUNT", 0);

    return requeued > 0 || user_env_get(env, "SLURM_JOB_ID")
               ? requeued
               : user_env_long(env, ENV_RESTART_COUNT, 0);
}

long restarts_first_job(const struct user_env *env, uint32_t job)
{
    return user_env_get(env, "SLURM_JOB_ID") ? (long)job
                                             : user_env_long(env, ENV_FIRST_JOB, job);
}

long restarts_short(const struct user_env *env)
{
    return user_env_long(env, ENV_SHORT_RUNS, 0);
}
