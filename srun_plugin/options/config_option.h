/* SPDX-License-Identifier: Apache-2.0
 *
 * --accel-config: which file it names, and what follows from it. Runs in srun, sbatch
 * and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_CONFIG_OPTION_H
#define ACCEL_SRUN_PLUGIN_CONFIG_OPTION_H

#include "srun_plugin/client.h"

/* At init, before Slurm has parsed the options: reads the file that they are going to
 * name, without messages. False: there is none, or it is wrong. *inherited_out: an
 * outer client names it. */
bool config_option_foresee(struct client *c, bool *inherited_out);
/* Does this value of the option put it to use? */
bool config_option_uses(const struct client *c, const char *arg);
/* Reads the file. False, with the reason reported: it is refused. */
bool config_option_load(struct client *c, const char *arg, bool inherited);
/* srun: has this step a size of its own, so that it is not the training of the config
 * that it inherits? */
bool config_option_is_other_step(const struct client *c);
/* Runs such a step without accel. */
void config_option_leave_alone(struct client *c);
/* Sets the environment inputs of this client. */
void config_option_set_defaults(struct client *c);
/* Notes the hash of the config at the submission, or compares with it. False, with the
 * reason reported: the config does not fit a task's environment, or out of memory. */
bool config_option_note_digest(struct client *c, bool inherited);

#endif
