/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmstepd's side of the plugin. Nothing here opens a file of the user's, and nothing
 * parses anything as root.
 */
#ifndef ACCEL_SRUN_PLUGIN_REMOTE_H
#define ACCEL_SRUN_PLUGIN_REMOTE_H

#include <slurm/spank.h>

/* slurmstepd, as root: notes whether --accel-config came with the step and is
 * not "none". */
void remote_take_config(const char *arg);
/* slurmstepd, in each task and as the user: sets the task's environment if the option
 * came with the step. 0, or -1 to end the task, with the reason reported. */
int remote_task_init(spank_t sp);

#endif
