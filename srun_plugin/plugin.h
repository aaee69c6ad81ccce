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
#include "config/python/environ.h"

#define OPTION_CONFIG   "accel-config"
#define OPTION_RESUME   "accel-resume"
#define OPTION_DRY_RUN  "accel-dry-run"
#define ENV_RESOLVED    "ACCEL_CONFIG_RESOLVED"
#define ENV_CARRIER     "SLURM_ACCEL_ENVIRONMENT" /* srun to the tasks, see taskenv.c */
#define CARRIER_OFF     "none" /* in its place: the step runs without accel after all */
#define CARRIER_REFUSED "refused"             /* in its place: the tasks end 1 */
#define ENV_DIGEST      "ACCEL_CONFIG_DIGEST" /* hash of the config at submission */
#define DIGEST_DIGITS   16
/* In the carrier only: tasks of each node, "2(x3),1". */
#define ENV_TASKS_PER_NODE "ACCEL_TASKS_PER_NODE"
#define RESOLVED_MAX       (16 * 1024)
#define ENV_NOTICE         "ACCEL_PREEMPTION_NOTICE"
/* The warning signal that accel asked Slurm for. In the job's environment, for its steps:
 * "USR1@120"; in a task's, whose signal is ignored: "USR1@SECONDS-SINCE-1970". */
#define ENV_JOB_WARNING  "SLURM_ACCEL_WARNING"
#define ENV_WARNING      "ACCEL_WARNING"
#define EXIT_RESUME      85                      /* accel_exit_code(ACCEL_ERESUME) */
#define EXIT_STOPPED     75                      /* accel_exit_code(ACCEL_ESTOPPED) */
#define JOB_FLAGS        (SHOW_ALL | SHOW_LOCAL) /* our own cluster: one request less */
#define FIRST_SPECIAL_ID 0xfffffff0u /* batch, extern and interactive steps are above */

struct config_api;

/* ---- opts.c: the options and the config -------------------------------------------------- */

/* Registers the options. In srun, sbatch and salloc it also looks whether the option is
 * in use, and if so reads the file (quietly) and sets the launch defaults, because the
 * environment is read right after slurm_spank_init. */
int opts_init(spank_t sp);
/* srun, sbatch, salloc: the validated config; NULL when the option is not in use. */
const struct config *opts_config(void);
const char *opts_path(void);             /* absolute path of the file */
const struct config_api *opts_api(void); /* NULL: no parser loaded */
/* Is `arg`, which Slurm gave the callback of `option`, the value that counts? False for one
 * handed down by an outer sbatch, salloc or srun when this client has its own. */
bool opts_is_ours(const char *option, const char *arg, bool *inherited);
/* What relative paths are relative to: the directory of the submission for a value handed
 * down, also when the job runs elsewhere (--chdir); NULL: the current directory. */
const char *opts_base(bool inherited);
/* Words of the command line, and of the script or NULL; ours. */
char **opts_words(void);
char **opts_script(void);
/* Registers one of ours; says so when it is refused. */
void opts_register(spank_t sp, struct spank_option *option);
/* srun, after all options: refuses a size that is known to be wrong, and says in one line
 * why an allocation will be too small. */
void opts_check_size(void);
/* The place that sets the top-level key `name`, else the job file. Returns buf. */
const char *opts_place(const char *name, char *buf, size_t len);
/* Text of a key whose name occurs once. */
void opts_value(const struct config *cfg, const char *name, char *buf, size_t len);
/* slurmstepd: the option came with the step and is not "none". */
bool opts_remote_active(void);
void opts_free(void);

/* ---- resume_option.c: --accel-resume ------------------------------------------------------------ */

void resume_register(spank_t sp);
/* After all options: the choice travels to the tasks in ACCEL_RESUME. */
void resume_export(void);

/* ---- dry_run.c: --accel-dry-run ---------------------------------------------------------- */

void dry_run_register(spank_t sp);
/* After all options, in srun, sbatch and salloc: with the option it prints the plan and ends
 * this client, before anything is queued. */
void dry_run_maybe(void);

/* ---- arguments.c: what stands behind the plugin in plugstack.conf ---------------------- */

/* Takes the words of the line, such as site=/etc/accel/site.yaml; says which are unknown. */
void arguments_take(int ac, char **av);
const char *arguments_site(void); /* NULL: the path that was compiled in */

/* ---- cmdline.c: what the user typed ---------------------------------------------------- */

/* Words of /proc/self/cmdline, NULL-terminated; one malloc. NULL when unreadable. */
char **cmdline_read(void);
/* Value of the last --NAME=VALUE or --NAME VALUE ("" if it has none) among the client's
 * own options, NULL when absent. Unique prefixes count, as for getopt. */
const char *cmdline_option(char **argv, const char *name, size_t min_prefix);
/* Index of the command or script, or the length of argv. */
size_t cmdline_command(char **argv);
/* Value of the last -LETTER ("" if it takes none) among the client's own options, also as
 * in "-Qn4", NULL when absent. */
const char *cmdline_letter(char **argv, char letter);
/* At most `max` bytes of `path`, NUL-terminated, one malloc; NULL on failure. */
char *cmdline_read_file(const char *path, size_t max, size_t *len_out);
/* Runs this program again with these words; returns only on failure. */
void cmdline_exec(char **argv, char **env);
bool cmdline_is_sbatch(void);

/* ---- script.c: what the batch script says ---------------------------------------------- */

/* Words of the #SBATCH lines of the script among argv, behind its name, NULL-terminated;
 * one malloc, to be scanned with cmdline_*. NULL when argv names no script to look into. */
char **script_read(char **argv);

/* Path of the script that argv names, as sbatch finds it; false when there is none to look
 * into. */
bool script_find(char **argv, char *out, size_t len);
#define SCRIPT_MAX (256u << 10) /* of a script that is looked into */

/* ---- hints.c: what is no error ---------------------------------------------------------- */

/* Keeps the notes of a config that srun and sbatch are to tell. */
void hints_take(const struct config_diags *diags);
/* After all options, in srun, sbatch and salloc: says them, and what the script and the
 * command let one expect. */
void hints_say(void);
void hints_free(void);

/* ---- size.c: the size of an allocation ------------------------------------------------- */

/* sbatch, salloc, at init: where the user gave no number of tasks, starts the program again
 * with the config's as options. Returns when there is nothing to add, when this is that
 * second start already, or when it fails. `script` may be NULL. */
void size_ask_again(const struct config *cfg, char **argv, char **script);
void size_forget_guard(void);
/* srun: says what to give when the allocation is too small for the config's tasks. */
void size_hint(const struct config *cfg, char **argv);
/* Is a step of so many tasks and nodes (0: not known) what the config asks for? If not,
 * says so and how to cure it. */
bool size_fits(const struct config *cfg, uint32_t tasks, uint32_t nodes);
/* Did the user give this very client a number of tasks or nodes? */
bool size_is_typed(char **argv);
/* What the client's own options, and for srun the allocation it is in, make of the size;
 * 0: they leave it open. */
void size_typed(char **argv, char **script, uint32_t *tasks, uint32_t *nodes);
/* srun, after all options: a size that is known and wrong ends it, 1, with nothing queued.
 * In an allocation that also spares the job a step that would never end. */
void size_refuse_early(const struct config *cfg, char **argv);
void size_refuse_het(void); /* says why a part of a heterogeneous job is refused */

/* ---- defaults.c: launch options from the config ---------------------------------------- */

/* Keeps the user's environment as it was before the plugin or srun changed it. */
void defaults_snapshot(void);
/* A variable of that environment, or NULL. */
const char *defaults_user_env(const char *name);
char **defaults_user_environ(void);
/* Sets the environment inputs of srun, or of sbatch and salloc, where neither the
 * environment nor (for sbatch) the script has a value. The command line wins anyway. */
void defaults_for_srun(const struct config *cfg, char **argv);
void defaults_for_allocator(const struct config *cfg, char **argv, char **script);
/* srun: the warning, "USR1@120", that accel asked for in this job; NULL: none, or the user
 * asked for one of his own. */
const char *defaults_warning(char **argv);
/* What the two above have set, in that order; ours. */
struct launch_default {
    const char *name; /* of the environment input */
    char value[32];
};
const struct launch_default *defaults_set(size_t *count_out);
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

/* ---- taskenv.c: srun's part of the tasks' environment ----------------------------------- */

/* Puts config and variables into the carrier; says what the user's own environment keeps.
 * False, with the reason said: the step cannot start. */
bool taskenv_export(const struct config *cfg, const struct config_world *world,
                    const char *tasks_per_node);
/* Calls `emit` for every variable that goes to the tasks, but for those of their place
 * (environ_apply_place). */
accel_status_t taskenv_list(const struct config *cfg, const struct config_world *world,
                            config_env_f emit, void *user, accel_error_t *err);
/* What the tasks get of the user's own, as far as srun exports it; NULL: nothing. */
const char *taskenv_user_value(const char *name, char *buf, size_t len);

/* ---- contexts -------------------------------------------------------------------------- */

int local_user_init(spank_t sp);
int remote_task_init(spank_t sp);
/* Watches the end of this srun: requeue of a batch job, resubmission of a bare srun. */
void resubmit_arm(uint32_t job_id);
void resubmit_watch(void);
/* interrupt.c: this srun's first SIGTERM or SIGHUP lets the step's tasks save and end. */
void interrupt_watch(uint32_t job_id, uint32_t step_id);
/* The signal that told this srun to end while its step ran, Ctrl-C too; 0: none. */
int interrupt_seen(void);
/* requeued.c, at the end of a bare srun with this exit code: takes the job back that Slurm
 * queues once more because of RequeueExit. Waits until Slurm is done with the job. */
void requeued_drop(uint32_t job_id, int exit_code);
/* Is `code` in a list of slurm.conf such as "85" or "1-3,85"? NULL: an empty one. */
bool requeued_lists(const char *list, int code);
/* How often this job was started again, by requeue or by resubmission. */
long resubmit_count(void);
/* The first of the jobs that this srun asked for in a row; a batch job's own id. */
long resubmit_first_job(void);
/* notice.c: tells the tasks, in ACCEL_PREEMPTION_NOTICE, how much time the partition gives
 * between the notice of a preemption and the kill, and in ACCEL_WARNING which warning accel
 * asked for; says so when the time limit is too short for it. Asks the controller thrice. */
void notice_export(const struct config *cfg, uint32_t job_id);

#endif
