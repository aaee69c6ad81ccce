/* SPDX-License-Identifier: Apache-2.0
 *
 * The next start of a step that comes back. Runs in srun, inside exit().
 */
#ifndef ACCEL_SRUN_PLUGIN_RESUBMIT_H
#define ACCEL_SRUN_PLUGIN_RESUBMIT_H

#include "srun_plugin/client.h"
#include "srun_plugin/restart/outcome.h"

/* Requeues the batch job, or says why not. */
void resubmit_batch(const struct client *c, const struct outcome *o);
/* Asks for a new allocation, in which this process runs the same command, or says why
 * not and how to go on. */
void resubmit_bare(const struct client *c, const struct outcome *o);
/* Says that the run was ended on purpose and how to go on. */
void resubmit_say_ended(const struct outcome *o);

#endif
