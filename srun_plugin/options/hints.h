/* SPDX-License-Identifier: Apache-2.0
 *
 * Information that is no error. Runs in srun, sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_HINTS_H
#define ACCEL_SRUN_PLUGIN_HINTS_H

#include "srun_plugin/client.h"

/* After all options: shows the notes of the config, and what the script and the command
 * lead one to expect. */
void hints_say(const struct client *c);
/* Once the step has that many tasks: a launcher among them that ignores the others. */
void hints_say_worlds(const struct client *c, uint32_t tasks);

#endif
