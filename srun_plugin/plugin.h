/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_spank.so: what its files share. dispatch.c receives Slurm's calls and hands them
 * to the file of the context: local.c (srun), remote.c (slurmstepd); sbatch and salloc
 * need opts.c and defaults.c only. Nothing here links or loads a parser in slurmd or slurmstepd.
 */
#ifndef ACCEL_SRUN_PLUGIN_H
#define ACCEL_SRUN_PLUGIN_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "common/common.h"
#include "config/config.h"

#define OPTION_NAME      "accel-config"
#define ENV_RESOLVED     "ACCEL_CONFIG_RESOLVED"
#define RESOLVED_MAX     (16 * 1024)
#define EXIT_RESUME      85          /* accel_exit_code(ACCEL_ERESUME) */
#define FIRST_SPECIAL_ID 0xfffffff0u /* batch, extern and interactive steps are above */

/* ---- opts.c: the option and the config it names -------------------------------------- */

/* Registers --accel-config. In srun, sbatch and salloc it also looks whether the option is
 * in use, and if so reads the file (quietly) and sets the launch defaults, because the
 * environment is read right after slurm_spank_init. */
int opts_init(spank_t sp);
/* srun, sbatch, salloc: the validated config; NULL when the option is not in use. */
const struct config *opts_config(void);
const char *opts_path(void); /* absolute path of the file */
/* srun: says in one line why an allocation will be too small. */
void opts_hint(void);
/* File line that sets `name` at the top level; 0: not in the file. */
int opts_line_of(const char *name);
/* slurmstepd: the option came with the step and is not "none". */
bool opts_remote_active(void);
void opts_free(void);

/* ---- cmdline.c: what the user typed ---------------------------------------------------- */

/* Words of /proc/self/cmdline, NULL-terminated; one malloc. NULL when unreadable. */
char **cmdline_read(void);
/* Value of the last --NAME=VALUE or --NAME VALUE ("" if it has none) among the client's
 * own options, NULL when absent. Unique prefixes count, as for getopt. */
const char *cmdline_option(char **argv, const char *name, size_t min_prefix);
/* Index of the command or script, or the length of argv. */
size_t cmdline_command(char **argv);
/* Is -LETTER among the client's own options, also as in "-QnN4"? */
bool cmdline_letter(char **argv, char letter);
/* At most `max` bytes of `path`, NUL-terminated, one malloc; NULL on failure. */
char *cmdline_read_file(const char *path, size_t max, size_t *len_out);
/* Runs this program again with these words; returns only on failure. */
void cmdline_exec(char **argv, char **env);
bool cmdline_is_sbatch(void);

/* ---- script.c: what the batch script says ---------------------------------------------- */

/* Words of the #SBATCH lines of the script among argv, behind its name, NULL-terminated;
 * one malloc, to be scanned with cmdline_*. NULL when argv names no script to look into. */
char **script_read(char **argv);

/* ---- size.c: the size of an allocation ------------------------------------------------- */

/* sbatch, salloc, at init: where the user gave no number of tasks, starts the program again
 * with the config's as options. Returns when there is nothing to add, when this is that
 * second start already, or when it fails. `script` may be NULL. */
void size_ask_again(const struct config *cfg, char **argv, char **script);
void size_forget_guard(void);
/* srun: says what to give when the allocation is too small for the config's tasks. */
void size_hint(const struct config *cfg, char **argv);

/* ---- defaults.c: launch options from the config ---------------------------------------- */

/* Keeps the user's environment as it was before the plugin or srun changed it. */
void defaults_snapshot(void);
/* A variable of that environment, or NULL. */
const char *defaults_user_env(const char *name);
char **defaults_user_environ(void);
/* Sets the environment inputs of srun, or of sbatch and salloc, where neither the
 * environment nor (for sbatch) the script has a value. The command line wins anyway. */
void defaults_for_srun(const struct config *cfg, char **argv);
void defaults_for_allocator(const struct config *cfg, char **script);
/* Takes back those that would only confuse the job's own environment. */
void defaults_withdraw(void);
void defaults_free(void);

/* ---- say.c: errors of the plugin -------------------------------------------------------- */

/* One error: "accel: error[A0301]: WHERE: TEXT", and "  cure: CURE" below it. `where` and
 * `cure` may be NULL. */
void plugin_error(enum message code, const char *where, const char *cure,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* An error of a stage above, in the same form. */
void plugin_report(const accel_error_t *err);
/* The lines of `text` one by one, the first behind `prefix`; empty ones are left out. */
void plugin_lines(const char *prefix, const char *text);

/* ---- contexts -------------------------------------------------------------------------- */

int local_user_init(spank_t sp);
int remote_task_init(spank_t sp);
/* Watches the end of this srun: requeue of a batch job, resubmission of a bare srun. */
void resubmit_arm(uint32_t job_id, uint32_t step_id);
void resubmit_watch(void);
/* How often this job was started again, by requeue or by resubmission. */
long resubmit_count(void);

#endif
