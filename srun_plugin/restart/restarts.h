/* SPDX-License-Identifier: Apache-2.0
 *
 * How often this run was started before, by requeue or by a bare srun that ran itself
 * again. Runs in srun, sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_RESTARTS_H
#define ACCEL_SRUN_PLUGIN_RESTARTS_H

#include <stdint.h>

#include "srun_plugin/options/user_env.h"

/* How often the job was restarted. */
long restarts_count(const struct user_env *env);
/* The first of the jobs that this srun asked for in a row, of which `job` is the last;
 * for a batch job its own id. */
long restarts_first_job(const struct user_env *env, uint32_t job);
/* Short runs in a row, up to the last one before this. */
long restarts_short(const struct user_env *env);

#endif
