/* SPDX-License-Identifier: Apache-2.0
 *
 * The tasks' environment, as far as it is the same for all of them. Runs in srun, and
 * for a dry run in sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_TASKENV_H
#define ACCEL_SRUN_PLUGIN_TASKENV_H

#include "srun_plugin/client.h"

/* srun: puts config and variables into the carrier, and tells what is kept of the
 * user's own environment. False, with the reason reported: the step cannot start. */
bool taskenv_export(const struct client *c, const struct config_world *world,
                    const char *tasks_per_node);
/* Calls `emit` for every variable that goes to the tasks, except those of their
 * place (environ_apply_place). */
accel_status_t taskenv_list(const struct client *c, const struct config_world *world,
                            config_env_f emit, void *user, accel_error_t *err);
/* The user's own value of a variable, as far as srun exports it to the tasks;
 * NULL: none. */
const char *taskenv_user_value(const struct client *c, const char *name, char *buf,
                               size_t len);

#endif
