/* SPDX-License-Identifier: Apache-2.0
 *
 * The size of an allocation or a step against that of the config. Keeps nothing. Runs
 * in srun, sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_SIZE_H
#define ACCEL_SRUN_PLUGIN_SIZE_H

#include "srun_plugin/client.h"

/* sbatch, salloc, at init: if the user gave no number of tasks, starts the program
 * again with the config's as options. Returns when there is nothing to add, when this
 * is that second start, or on failure. */
void size_ask_again(const struct config *cfg, const struct typed *t);
/* Removes the mark of that second start from the environment. */
void size_forget_guard(void);
/* Did the user give this very client a number of tasks or nodes? argv may be NULL. */
bool size_is_typed(char **argv);
/* The size as the client's own options give it, and for srun the allocation it is in.
 * 0: they leave it open. */
void size_typed(const struct client *c, uint32_t *tasks_out, uint32_t *nodes_out);
/* Is a step of these tasks and nodes (0: not known) what the config asks for? If not,
 * reports it with the cure. */
bool size_fits(const struct client *c, uint32_t tasks, uint32_t nodes);
/* srun, after all options: ends it with 1 if the size is known and wrong, before
 * anything is queued. Inside an allocation that also spares the job a step that would
 * never end. */
void size_refuse_early(const struct client *c);
/* srun: reports why a part of a heterogeneous job is refused. */
void size_refuse_het(void);
/* srun: reports what to give when the allocation is too small for the
 * config's tasks. */
void size_hint(const struct client *c);

#endif
