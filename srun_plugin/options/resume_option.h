/* SPDX-License-Identifier: Apache-2.0
 *
 * --accel-resume. Runs in srun, sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_RESUME_OPTION_H
#define ACCEL_SRUN_PLUGIN_RESUME_OPTION_H

#include "srun_plugin/client.h"

/* Takes the value of the option. False, with the reason reported: it is refused. */
bool resume_option_take(struct client *c, const char *arg);
/* After all options, with --accel-config: puts the choice into ACCEL_RESUME, in which
 * it travels to the tasks. */
void resume_option_export(const struct client *c);

#endif
