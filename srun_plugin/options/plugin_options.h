/* SPDX-License-Identifier: Apache-2.0
 *
 * Our options, what follows from them, and what a user should know before the job
 * starts. Runs in srun, sbatch and salloc.
 */
#ifndef ACCEL_SRUN_PLUGIN_OPTIONS_H
#define ACCEL_SRUN_PLUGIN_OPTIONS_H

#include "srun_plugin/client.h"

/* ---- config_option.c ------------------------------------------------------------- */

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

/* ---- resume_option.c ------------------------------------------------------------- */

/* Takes the value of the option. False, with the reason reported: it is refused. */
bool resume_option_take(struct client *c, const char *arg);
/* After all options, with --accel-config: puts the choice into ACCEL_RESUME, in which
 * it travels to the tasks. */
void resume_option_export(const struct client *c);

/* ---- dry_run.c ------------------------------------------------------------------- */

/* After all options: prints the plan and ends this client before anything is queued. */
__attribute__((noreturn)) void dry_run_show(const struct client *c);
/* The same without --accel-config: reports that there is no plan, and ends
 * this client. */
__attribute__((noreturn)) void dry_run_refuse(void);

/* ---- hints.c --------------------------------------------------------------------- */

/* After all options: shows the notes of the config, and what the script and the command
 * lead one to expect. */
void hints_say(const struct client *c);
/* Once the step has that many tasks: a launcher among them that ignores the others. */
void hints_say_worlds(const struct client *c, uint32_t tasks);

#endif
