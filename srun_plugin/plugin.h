/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_spank.so: what its files share. dispatch.c receives Slurm's calls and hands
 * them to the file of the context: local.c (srun) or remote.c (slurmstepd); sbatch and
 * salloc need opts.c and defaults.c only. Nothing here links or loads a parser in
 * slurmd or slurmstepd, which run as root. Errors go to the user's terminal through
 * say.c, hints through slurm_info.
 */
#ifndef ACCEL_SRUN_PLUGIN_H
#define ACCEL_SRUN_PLUGIN_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "common/common.h"
#include "config/python/environ.h"

#define OPTION_CONFIG  "accel-config"
#define OPTION_RESUME  "accel-resume"
#define OPTION_DRY_RUN "accel-dry-run"
/* srun's message to the tasks, see taskenv.c. Two words may stand in place of the list:
 * the step runs without accel after all, or its tasks end with 1. */
#define CARRIER_OFF     "none"
#define CARRIER_REFUSED "refused"
/* Hexadecimal digits of the config's hash. */
#define DIGEST_DIGITS 16
/* Bytes of a canonical config at most, see config_encode. */
#define RESOLVED_MAX (16 * 1024)
/* accel_exit_code of ACCEL_ERESUME and of ACCEL_ESTOPPED. */
#define EXIT_RESUME  85
#define EXIT_STOPPED 75
/* Our own cluster only: one request less. */
#define JOB_FLAGS (SHOW_ALL | SHOW_LOCAL)
/* Batch, extern and interactive steps have ids from here on. */
#define FIRST_SPECIAL_ID 0xfffffff0u

struct config_api;

/* ---- opts.c: the options and the config ------------------------------------------ */

/* Registers the options. In srun, sbatch and salloc it also finds out whether
 * the option is in use; if so, it reads the file without messages and sets
 * the launch defaults, because these clients read their environment right
 * after slurm_spank_init. */
int opts_init(spank_t sp);
/* srun, sbatch, salloc: the validated config; NULL when the option is not in use. */
const struct config *opts_config(void);
/* Absolute path of the file. */
const char *opts_path(void);
/* The parser; NULL: not loaded. */
const struct config_api *opts_api(void);
/* Is `arg`, which Slurm gave the callback of `option`, the value that counts? False for
 * one inherited from an outer sbatch, salloc or srun when this client has its own.
 * *inherited_out: it came from there. */
bool opts_is_ours(const char *option, const char *arg, bool *inherited_out);
/* The directory that relative paths start from: for an inherited value the directory of
 * the submission, also when the job runs elsewhere (--chdir). NULL: the current one. */
const char *opts_base(bool inherited);
/* Words of the command line, and of the #SBATCH lines or NULL; NULL-terminated, owned
 * by opts.c. */
char **opts_words(void);
char **opts_script(void);
/* Registers one of our options; reports when Slurm refuses it. */
void opts_register(spank_t sp, struct spank_option *option);
/* srun, after all options: ends it if the size is known to be wrong, and says in one
 * line why an allocation will be too small. */
void opts_check_size(void);
/* The place that sets the top-level key `name`, else the job file. Returns buf. */
const char *opts_place(const char *name, char *buf, size_t len);
/* Text of a key whose name occurs once in the schema; empty without a parser. */
void opts_value(const struct config *cfg, const char *name, char *buf, size_t len);
/* slurmstepd: did the option come with the step, and is it not "none"? */
bool opts_remote_active(void);
/* Frees the words and closes the parser. */
void opts_free(void);

/* ---- resume_option.c: --accel-resume --------------------------------------------- */

/* Registers --accel-resume. */
void resume_register(spank_t sp);
/* After all options: puts the choice into ACCEL_RESUME, in which it travels to
 * the tasks. */
void resume_export(void);

/* ---- dry_run.c: --accel-dry-run -------------------------------------------------- */

/* Registers --accel-dry-run. */
void dry_run_register(spank_t sp);
/* After all options, in srun, sbatch and salloc: with the option, prints the plan and
 * ends this client before anything is queued. */
void dry_run_maybe(void);

/* ---- arguments.c: what stands behind the plugin in plugstack.conf ---------------- */

/* Takes the words of the line, such as site=/etc/accel/site.yaml; reports
 * unknown ones. */
void arguments_take(int ac, char **av);
/* Path of the site file; NULL: the one that was compiled in. */
const char *arguments_site(void);

/* ---- cmdline.c: what the user typed ---------------------------------------------- */

/* Words of /proc/self/cmdline, NULL-terminated, in one malloc. NULL when it cannot
 * be read. */
char **cmdline_read(void);
/* Value of the last --NAME=VALUE or --NAME VALUE ("" if it has none) among the client's
 * own options; NULL when absent. Prefixes of at least min_prefix characters count, as
 * for getopt. */
const char *cmdline_option(char **argv, const char *name, size_t min_prefix);
/* Index of the command or script; the length of argv when there is none. */
size_t cmdline_command(char **argv);
/* Value of the last -LETTER ("" if it takes none) among the client's own options, also
 * as in "-Qn4"; NULL when absent. */
const char *cmdline_letter(char **argv, char letter);
/* The bytes of `path`, NUL-terminated, in one malloc; NULL on failure, or when it has
 * more than about `max` bytes. */
char *cmdline_read_file(const char *path, size_t max, size_t *len_out);
/* Runs this program again with these words. Returns only on failure. */
void cmdline_exec(char **argv, char **env);
/* Is this process sbatch? Slurm has one context for sbatch and salloc. */
bool cmdline_is_sbatch(void);

/* ---- script.c: what the batch script says ---------------------------------------- */

/* Words of the #SBATCH lines of the script that argv names, behind its name,
 * NULL-terminated, in one malloc; to be scanned with cmdline_*. NULL: there is no
 * script to look into. */
char **script_read(char **argv);

/* Path of the script that argv names, as sbatch finds it; false: there is no script to
 * look into. */
bool script_find(char **argv, char *out, size_t len);
/* Larger scripts are not looked into. */
#define SCRIPT_MAX (256u << 10)

/* ---- hints.c: what is no error --------------------------------------------------- */

/* Keeps the notes of a config that srun and sbatch are to show. */
void hints_take(const struct config_diags *diags);
/* After all options, in srun, sbatch and salloc: shows them, and what the script and
 * the command lead one to expect. */
void hints_say(void);
void hints_free(void);

/* ---- size.c: the size of an allocation ------------------------------------------- */

/* sbatch, salloc, at init: if the user gave no number of tasks, starts the program
 * again with the config's as options. Returns when there is nothing to add, when this
 * is that second start, or on failure. `script` may be NULL. */
void size_ask_again(const struct config *cfg, char **argv, char **script);
/* Removes the mark of that second start from the environment. */
void size_forget_guard(void);
/* srun: reports what to give when the allocation is too small for the
 * config's tasks. */
void size_hint(const struct config *cfg, char **argv);
/* Is a step of so many tasks and nodes (0: not known) what the config asks for? If not,
 * reports it with the cure. */
bool size_fits(const struct config *cfg, uint32_t tasks, uint32_t nodes);
/* Did the user give this very client a number of tasks or nodes? */
bool size_is_typed(char **argv);
/* The size as the client's own options give it, and for srun the allocation it is in.
 * 0: they leave it open. */
void size_typed(char **argv, char **script, uint32_t *tasks_out, uint32_t *nodes_out);
/* srun, after all options: ends it with 1 if the size is known and wrong, before
 * anything is queued. Inside an allocation that also spares the job a step that would
 * never end. */
void size_refuse_early(const struct config *cfg, char **argv);
/* Reports why a part of a heterogeneous job is refused. */
void size_refuse_het(void);

/* ---- defaults.c: launch options from the config ---------------------------------- */

/* Keeps the user's environment as it was before the plugin or srun changed it. Only the
 * first call counts. */
void defaults_snapshot(void);
/* A variable of that environment, or NULL. */
const char *defaults_user_env(const char *name);
/* All of it, NULL-terminated, owned by defaults.c; NULL: no snapshot. */
char **defaults_user_environ(void);
/* Sets the environment inputs of srun, or of sbatch and salloc, where neither the
 * environment nor (for sbatch) the script has a value. The command line wins anyway. */
void defaults_for_srun(const struct config *cfg, char **argv);
void defaults_for_allocator(const struct config *cfg, char **argv, char **script);
/* srun: the warning that accel asked for in this job, "USR1@120"; NULL: none, or the
 * user asked for one of their own. */
const char *defaults_warning(char **argv);
/* What the two functions above have set, in that order; owned by defaults.c. */
struct launch_default {
    /* Name of the environment input; static. */
    const char *name;
    char value[32];
};
const struct launch_default *defaults_set(size_t *count_out);
/* Unsets those that would only confuse the job's own environment. */
void defaults_withdraw(void);
void defaults_free(void);

/* ---- say.c: errors of the plugin ------------------------------------------------- */

/* Reports one error: "accel: error[A0301]: WHERE: TEXT", and "  cure: CURE" below it.
 * `where` and `cure` may be NULL. */
void plugin_error(enum message code, const char *where, const char *cure,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Reports an error of a stage above in the same form. */
void plugin_report(const accel_error_t *err);
/* Reports the lines of `text` one by one, the first behind `prefix`; leaves out
 * empty ones. */
void plugin_lines(const char *prefix, const char *text);

/* ---- taskenv.c: srun's part of the tasks' environment ---------------------------- */

/* Puts config and variables into the carrier, and tells what is kept of the user's own
 * environment. False, with the reason reported: the step cannot start. */
bool taskenv_export(const struct config *cfg, const struct config_world *world,
                    const char *tasks_per_node);
/* Calls `emit` for every variable that goes to the tasks, except those of their
 * place (environ_apply_place). */
accel_status_t taskenv_list(const struct config *cfg, const struct config_world *world,
                            config_env_f emit, void *user, accel_error_t *err);
/* The user's own value of a variable, as far as srun exports it to the tasks;
 * NULL: none. */
const char *taskenv_user_value(const char *name, char *buf, size_t len);

/* ---- contexts -------------------------------------------------------------------- */

/* What Slurm calls in srun before the tasks start, and in each task. 0, or -1 to end
 * the step or the task. */
int local_user_init(spank_t sp);
int remote_task_init(spank_t sp);
/* Watches the end of this srun, to requeue a batch job or to resubmit a bare srun: the
 * first call when the step is known, the second in slurm_spank_exit. */
void resubmit_arm(uint32_t job_id);
void resubmit_watch(void);
/* interrupt.c: from now on this srun's first SIGTERM or SIGHUP lets the step's tasks
 * save and end. */
void interrupt_watch(uint32_t job_id, uint32_t step_id);
/* The signal that told this srun to end while its step ran, Ctrl-C included;
 * 0: none. */
int interrupt_seen(void);
/* requeued.c, at the end of a bare srun with this exit code: cancels the job if Slurm
 * queues it again because of RequeueExit. Waits until Slurm is done with the job. */
void requeued_drop(uint32_t job_id, int exit_code);
/* Is `code` in a list of slurm.conf such as "85" or "1-3,85"? NULL is an empty list. */
bool requeued_lists(const char *list, int code);
/* How often this job was restarted, by requeue or by resubmission. */
long resubmit_count(void);
/* The first of the jobs that this srun asked for in a row; for a batch job its
 * own id. */
long resubmit_first_job(void);
/* notice.c: tells the tasks, in ACCEL_PREEMPTION_NOTICE, how much time the partition
 * gives between the notice of a preemption and the kill, and in ACCEL_WARNING which
 * warning accel asked for; says so when the time limit is too short for it. Makes at
 * most three requests to the controller. */
void notice_export(const struct config *cfg, uint32_t job_id);

#endif
