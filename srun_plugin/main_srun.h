/* SPDX-License-Identifier: Apache-2.0
 *
 * The client: srun, sbatch and salloc, with the user's rights. In the order in which
 * Slurm makes the calls.
 */
#ifndef ACCEL_SRUN_PLUGIN_MAIN_SRUN_H
#define ACCEL_SRUN_PLUGIN_MAIN_SRUN_H

#include <slurm/spank.h>

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

#endif
