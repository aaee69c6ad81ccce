/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_spank.so: the words that its two sides share. dispatch.c receives Slurm's calls
 * and hands them on by context:
 *
 *   srun, sbatch, salloc   main_srun.c, with the user's rights; what it calls gets its
 *                          part of struct client (client.h), or the whole
 *   slurmstepd             remote.c, which opens no file and loads no parser; as root
 *                          it only notes whether the option came with the step
 *
 * The header beside each file says in which of them its functions run.
 */
#ifndef ACCEL_SRUN_PLUGIN_H
#define ACCEL_SRUN_PLUGIN_H

#define OPTION_CONFIG  "accel-config"
#define OPTION_RESUME  "accel-resume"
#define OPTION_DRY_RUN "accel-dry-run"
/* Switches an inherited --accel-config off for one step. */
#define CONFIG_OFF "none"
/* Two words that may stand in place of srun's list of variables (ENV_CARRIER): the step
 * runs without accel after all, or its tasks end with 1. */
#define CARRIER_OFF     "none"
#define CARRIER_REFUSED "refused"
/* Batch, extern and interactive steps have ids from here on. */
#define FIRST_SPECIAL_ID 0xfffffff0u
/* For slurm_load_job: our own cluster only, which is one request less. */
#define JOB_FLAGS (SHOW_ALL | SHOW_LOCAL)

#endif
