/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_spank.so: the words that its two sides share. dispatch.c receives Slurm's calls
 * and hands them on by context:
 *
 *   srun, sbatch, salloc   main_srun.c, with the user's rights; what it calls gets its
 *                          part of struct client (client.h), or the whole
 *   slurmstepd             remote.c, which opens no file and loads no parser; as root
 *                          it only notes whether the option came with the step, and
 *                          remote_exit.c has a child that is the user note a bad end
 *
 * The headers say in which of them their functions run.
 */
#ifndef ACCEL_SRUN_PLUGIN_H
#define ACCEL_SRUN_PLUGIN_H

#include <slurm/spank.h>

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

/* ---- main_srun.c: the client, in the order in which Slurm makes the calls -------- */

/* srun, sbatch, salloc: before the client reads its environment and its options. The
 * words are those after the plugin in plugstack.conf. */
void client_init(int ac, char **av);
/* srun, sbatch, salloc: an option with its value, once for each place that gives it. 0,
 * or -1 to end the client, with the reason reported. */
int client_take_config(const char *arg);
int client_take_resume(const char *arg);
void client_take_dry_run(void);
/* srun, sbatch, salloc: after all options. Ends the client where nothing is to be
 * queued. */
void client_after_options(void);
/* srun: the step exists, its tasks do not. 0, or -1 to end the step, with the
 * reason reported. */
int client_start_step(spank_t sp);
/* srun, sbatch, salloc: the last call. In srun what is left to do waits for exit(). */
void client_exit(void);

/* ---- remote.c: slurmstepd -------------------------------------------------------- */

/* slurmstepd, as root: notes whether --accel-config came with the step and is not
 * "none". Here nothing opens a file of the user's, and nothing parses anything as
 * root. */
void remote_take_config(const char *arg);
/* slurmstepd, in each task and as the user: sets the task's environment if the option
 * came with the step. 0, or -1 to end the task, with the reason reported. */
int remote_task_init(spank_t sp);
/* slurmstepd, as root, when a task has ended: a bad end is noted for srun if the option
 * came with the step. Takes two seconds at most, once. */
void remote_task_exit(spank_t sp);

/* ---- remote_exit.c --------------------------------------------------------------- */

/* The same, of a step that the option came with. */
void remote_note_end(spank_t sp);

#endif
