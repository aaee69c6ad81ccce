/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of this srun's step: how it ended, whether it comes back, and its next start.
 * Keeps nothing. Runs in srun, inside exit(), but for restarts.c, which sbatch and
 * salloc call, too.
 */
#ifndef ACCEL_SRUN_PLUGIN_RESTART_H
#define ACCEL_SRUN_PLUGIN_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "common/step_reports.h"
#include "srun_plugin/options/option_values.h"
#include "srun_plugin/client.h"

/* ---- restarts.c ------------------------------------------------------------------ */

/* How often the job was restarted. */
long restarts_count(const struct user_env *env);
/* The first of the jobs that this srun asked for in a row, of which `job` is the last;
 * for a batch job its own id. */
long restarts_first_job(const struct user_env *env, uint32_t job);
/* Short runs in a row, up to the last one before this. */
long restarts_short(const struct user_env *env);

/* ---- rank_reports.c -------------------------------------------------------------- */

/* Makes the directory in which the ranks of this step report (c->reports). */
void rank_reports_make(struct client *c, uint32_t step_id);
/* Reads what they have reported and slurmstepd has noted, and removes it. */
void rank_reports_take(const struct client *c, struct step_report *report_out);
/* Names the rank that failed first, if that is known and srun ends with a code other
 * than 0. */
void rank_reports_say_failure(const struct client *c, const struct step_report *report,
                              int exit_code);
/* Says that accel.python.trainer had no effect. */
void rank_reports_say_trainer(const struct client *c, const struct step_report *report);
/* srun's exit code: `exit_code`, or that of the rank that failed first. */
int rank_reports_exit_code(const struct step_report *report, int exit_code);

/* ---- outcome.c ------------------------------------------------------------------- */

/* accel_exit_code of ACCEL_ERESUME and of ACCEL_ESTOPPED. */
#define EXIT_RESUME  85
#define EXIT_STOPPED 75
/* A run shorter than this made no progress. */
#define SHORT_SECONDS 10

/* What is known at the end of the step. */
struct outcome {
    int exit_code;
    /* The job as Slurm's commands want it: "12", or "10_3" for an element of an array,
     * whose last element has the number of the whole array. */
    char job[32];
    bool batch, may_requeue;
    /* Ended by its time limit. */
    bool timed_out;
    /* So near its time limit that it has been told. */
    bool warned;
    /* Still the same start of the job: running, or ended and not requeued. */
    bool present;
    bool preempted, node_failed;
    /* Ended by one of those two, or requeued already; srun may exit with 0 then. */
    bool killed;
    /* scancel, or Ctrl-C, which srun passes to Slurm. Overrides everything
     * before it. */
    bool cancelled;
    /* Ended by the warning signal before the program could handle it. */
    bool early;
    long restarts;
    /* How long the step took. */
    long seconds;
};

/* Fills *o from srun's exit code and from what the controller knows of the job. */
void outcome_read(const struct client *c, int exit_code, struct outcome *o_out);
/* Has something else than its ranks ended the step: Slurm, or the user? */
bool outcome_is_disturbed(const struct outcome *o);
/* Is the step to be started again? */
bool outcome_comes_back(const struct outcome *o);
/* Was it ended on purpose, by a signal to srun, without a last word of its own? */
bool outcome_was_told(const struct outcome *o);
/* Writes what happened, for all messages. Returns buf. */
const char *outcome_text(const struct outcome *o, char *buf, size_t len);
/* Says of a run that the warning, a preemption or the time limit ended unsaved from
 * what it can resume, or what would have saved it. */
void outcome_say_unsaved(const struct client *c, const struct outcome *o,
                         const struct step_report *report);
/* Says of a run that ended with 0 after a notice that it counts as finished. */
void outcome_say_finished(const struct outcome *o);

/* ---- resubmit.c ------------------------------------------------------------------ */

/* Requeues the batch job, or says why not. */
void resubmit_batch(const struct client *c, const struct outcome *o);
/* Asks for a new allocation, in which this process runs the same command, or says why
 * not and how to go on. */
void resubmit_bare(const struct client *c, const struct outcome *o);
/* Says that the run was ended on purpose and how to go on. */
void resubmit_say_ended(const struct outcome *o);

/* ---- requeued.c ------------------------------------------------------------------ */

/* At the end of a bare srun with this exit code: cancels the job if Slurm queues it
 * again because of RequeueExit. Waits until Slurm is done with the job. */
void requeued_drop(uint32_t job_id, int exit_code);
/* Is `code` in a list of slurm.conf such as "85" or "1-3,85"? NULL is an empty list. */
bool requeued_lists(const char *list, int code);

#endif
