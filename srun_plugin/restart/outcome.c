/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a step: what happened to it, and whether it comes back. srun's exit code,
 * the signals it got and the controller's view of the job come in. A verdict and its
 * words go out; a run that the warning, a preemption or the time limit ended unsaved is
 * told what would have saved it.
 */

#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>

#include "srun_plugin/step/plugin_step.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/restart/restart.h"

/* Fills *o from what the controller knows of the job. Without an answer only the exit
 * code counts. */
static void read_job(const struct client *c, struct outcome *o)
{
    job_info_msg_t *msg = NULL;
    uint32_t base;

    if (slurm_load_job(&msg, c->job_id, JOB_FLAGS) != SLURM_SUCCESS || !msg)
        return;
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const slurm_job_info_t *j = &msg->job_array[i];
        if (j->job_id != c->job_id)
            continue;
        base = j->job_state & JOB_STATE_BASE;
        if (j->array_task_id != NO_VAL)
            snprintf(o->job, sizeof(o->job), "%u_%u", j->array_job_id,
                     j->array_task_id);
        o->batch = j->batch_flag;
        o->may_requeue = j->requeue;
        o->restarts = j->restart_cnt;
        o->present = base != JOB_PENDING && o->restarts == restarts_count(&c->env);
        o->preempted = j->preempt_time > 0 || base == JOB_PREEMPTED;
        o->node_failed = base == JOB_NODE_FAIL;
        o->timed_out = base == JOB_TIMEOUT;
        /* not from its end, which is now for a job that has ended */
        o->warned = (int64_t)time(NULL) >= notice_due(&c->file.config, j);
        /* A batch job that Slurm has requeued starts again, whatever its code was. */
        o->killed =
            base == JOB_PREEMPTED || base == JOB_NODE_FAIL || (o->batch && !o->present);
        o->cancelled = base == JOB_CANCELLED;
    }
    slurm_free_job_info_msg(msg);
}

/* The number of the warning signal. */
static int warning_number(const struct config *cfg)
{
    return cfg->preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1;
}

void outcome_read(const struct client *c, int exit_code, struct outcome *o_out)
{
    int warning = warning_number(&c->file.config);

    *o_out = (struct outcome){ .exit_code = exit_code };
    snprintf(o_out->job, sizeof(o_out->job), "%u", c->job_id);
    if (exit_code != 0 || (int64_t)time(NULL) >= c->undisturbed_until)
        read_job(c, o_out);
    o_out->seconds = (long)(time(NULL) - c->started_at);
    /* Only in the first seconds: later the program has had its chance to handle
     * the signal. */
    o_out->early = exit_code == 128 + warning && o_out->seconds < SHORT_SECONDS;
}

/* Does somebody want the run to end? In a batch job only Ctrl-C says so: there Slurm
 * itself sends SIGTERM to srun, whatever comes next. */
static bool is_told_to_end(const struct outcome *o)
{
    return interrupt_seen() == SIGINT || (interrupt_seen() && !o->batch);
}

/* Nobody else says that such a run was ended on purpose. */
bool outcome_was_told(const struct outcome *o)
{
    return is_told_to_end(o) && o->exit_code != 0 && o->exit_code != EXIT_STOPPED;
}

bool outcome_is_disturbed(const struct outcome *o)
{
    return o->cancelled || o->preempted || o->timed_out || o->killed ||
           is_told_to_end(o);
}

/* Exit code 0 means finished, unless Slurm killed the step. A step that failed by
 * itself (any other code) does not come back: it would fail again. */
bool outcome_comes_back(const struct outcome *o)
{
    if (o->cancelled || o->exit_code == EXIT_STOPPED || is_told_to_end(o))
        return false;
    if (o->exit_code == 0)
        return o->killed;
    return o->exit_code == EXIT_RESUME || o->preempted || o->node_failed || o->early;
}

const char *outcome_text(const struct outcome *o, char *buf, size_t len)
{
    const char *what = o->preempted     ? "was preempted"
                       : o->node_failed ? "lost a node"
                       : o->early       ? "was told to stop while starting"
                                        : "stopped";

    if (o->exit_code == EXIT_RESUME)
        snprintf(buf, len, "%s with its state saved (exit 85)", what);
    else
        snprintf(buf, len, "%s (exit %d)", what, o->exit_code);
    return buf;
}

/* Many a program saves at SIGTERM and ends with 0, and then nobody runs it again. */
void outcome_say_finished(const struct outcome *o)
{
    if (o->exit_code != 0 || o->killed || o->cancelled || !(o->preempted || o->warned))
        return;
    slurm_info(
        "accel: job %s: ended with exit code 0 after the notice of %s: it counts "
        "as finished and is not run again; a program that has saved and is not "
        "finished ends with 85 (see doc/python.md)",
        o->job, o->preempted ? "a preemption" : "its time limit");
}

/* What was not saved at the warning, or at SIGTERM, is lost, whoever restarts the run.
 * So this is told even to jobs that do not come back. */
void outcome_say_unsaved(const struct client *c, const struct outcome *o,
                         const struct step_report *report)
{
    int warning = warning_number(&c->file.config);
    const char *what = o->timed_out ? "ended by the time limit"
                       : o->preempted && (o->exit_code || o->killed) ? "preempted"
                       : o->exit_code == 128 + warning ? "ended by the warning signal"
                                                       : NULL;

    if (!what || o->exit_code == EXIT_RESUME || o->exit_code == EXIT_STOPPED ||
        o->cancelled)
        return;
    if (report->saved)
        slurm_info("accel: job %s: %s with exit code %d; it can resume from step %lld, "
                   "which it saved last",
                   o->job, what, o->exit_code, (long long)report->saved_step);
    else
        slurm_info("accel: job %s: %s with exit code %d; accel knows of no checkpoint "
                   "of this attempt; a program that saves on %s and SIGTERM and then "
                   "exits with 85 loses nothing (see doc/python.md)",
                   o->job, what, o->exit_code,
                   warning == SIGUSR2 ? "SIGUSR2" : "SIGUSR1");
}
