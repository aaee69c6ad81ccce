/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of an attempt that was told to stop: why, what is saved, what comes next, and
 * one status for all ranks. 85 means "run me again". 75 means no automatic restart: the
 * job was cancelled, somebody pressed Ctrl-C, or the limit of restarts is reached.
 */
#include <signal.h>
#include <stdio.h>

#include "preemption/preemption.h"
#include "preemption/requeue.h"

const char *stop_signal_name(int sig)
{
    return sig == SIGTERM   ? "SIGTERM"
           : sig == SIGINT  ? "SIGINT"
           : sig == SIGUSR2 ? "SIGUSR2"
                            : "SIGUSR1";
}

void preemption_announce(struct preemption *p, int sig, int64_t step, int64_t saved)
{
    char kept[64] = "nothing is saved yet";

    if (p->announced || p->rank != 0 || sig != SIGINT)
        return;
    p->announced = true;
    if (saved >= 0)
        snprintf(kept, sizeof(kept), "the checkpoint of step %lld is kept",
                 (long long)saved);
    accel_logf(p->log, ACCEL_LOG_INFO,
               "interrupted: saving at the end of step %lld; press Ctrl-C "
               "again to end at once (%s)",
               (long long)step, kept);
}

/* Rank 0: finds out why, notes it in the history, asks for the requeue. In
 * this order, because Slurm may kill this process at any moment once it has
 * accepted the request. `step`: the history's words for it. */
static struct requeue_ending find_ending(struct preemption *p, int sig,
                                         const char *step)
{
    const struct requeue_request request = {
        .state_dir = p->directory,
        .signal = sig,
        .lead_seconds = p->rules.lead_seconds,
        .grace_seconds = p->notice.grace,
        .restart = p->incarnation.restart,
        .restarts = p->history.restarts,
        .max_restarts = p->rules.max_restarts,
        .switched_off = !p->rules.requeue,
    };
    struct requeue_ending e = requeue_look(&request, p->log);

    history_add(p, "stop%s signal=%s seconds=%.3f reason=%s", step,
                stop_signal_name(sig), p->history.save_seconds,
                stop_reason_text(e.reason));
    if (e.result == REQUEUE_DONE)
        e.result = requeue_ask(&request, e.job, p->log);
    return e;
}

/* What comes next, for the hint of the error. */
static void next_text(const struct preemption *p, const struct requeue_ending *e,
                      char *buf, size_t len)
{
    if (e->result == REQUEUE_DONE)
        snprintf(buf, len,
                 "job %s is requeued and will resume automatically (restart %lld of "
                 "at most %lld)",
                 e->job, (long long)p->history.restarts + 1,
                 (long long)p->rules.max_restarts);
    else
        snprintf(buf, len, "%s", requeue_result_text(e->result));
}

/* What is saved, for the text of the error. */
static void saved_text(const struct preemption *p, const struct stop_state *s,
                       char *buf, size_t len)
{
    const long long step = s->step, kept = s->saved;
    int used;

    if (!s->begun) {
        snprintf(buf, len, "no step was done: %s: %s", p->directory, p->declined);
    } else if (step >= 0 && kept == step) {
        snprintf(buf, len, "the state of step %lld is saved in %s", step, s->where);
    } else {
        if (step >= 0)
            used =
                snprintf(buf, len, "step %lld is not saved: %s; ", step, p->declined);
        else
            used = snprintf(buf, len, "the last step is not saved: %s; ", p->declined);
        if (kept >= 0)
            snprintf(buf + used, len - (size_t)used,
                     "the checkpoint of step %lld is kept", kept);
        else
            snprintf(buf + used, len - (size_t)used, "%s",
                     s->none ? s->none : "there is no older checkpoint");
    }
}

/* The same for the history; without what is not known. */
static void step_text(const struct stop_state *s, char *buf, size_t len)
{
    const long long step = s->step, kept = s->saved;

    *buf = '\0';
    if (s->begun && step >= 0 && kept == step)
        snprintf(buf, len, " step=%lld", step);
    else if (s->begun && step >= 0)
        snprintf(buf, len, " step=%lld saved=%lld", step, kept);
    else if (s->begun && kept >= 0)
        snprintf(buf, len, " saved=%lld", kept);
}

accel_status_t preemption_stop(struct preemption *p, int sig,
                               const struct stop_state *s, accel_error_t *err)
{
    const bool saved = s->step >= 0 && s->saved == s->step;
    struct requeue_ending e = { STOP_SIGNAL, REQUEUE_NO_JOB, "" };
    int64_t final = 0, met = 0;
    char next[256], step[64], text[DIRECTORY_MOST + 384];
    accel_status_t st;

    saved_text(p, s, text, sizeof(text));
    step_text(s, step, sizeof(step));
    if (p->rank == 0) {
        e = find_ending(p, sig, step);
        final = e.result == REQUEUE_NOT_MEANT || e.result == REQUEUE_STOPPED ||
                e.result == REQUEUE_LIMIT;
    }
    /* The others wait here for rank 0: the first rank to exit makes srun end the rest
     * of the step (kill-on-bad-exit), and so rank 0 in the middle of its request. It
     * waits in turn, until all know. Errors are ignored: an accepted request kills the
     * ranks, perhaps right now. */
    if (preemption_agree(p, &final, 1, NULL) == ACCEL_OK)
        preemption_agree(p, &met, 1, NULL);
    next_text(p, &e, next, sizeof(next));
    if (saved)
        st = accel_fail(err, final ? A0923 : A0907, next, "stopped (%s); %s",
                        stop_reason_text(e.reason), text);
    else
        st = accel_fail(err, final ? A0927 : A0926, next, "stopped (%s); %s",
                        stop_reason_text(e.reason), text);
    /* Only rank 0 knows why and what comes next, and it says so. */
    if (p->rank != 0 && err)
        err->text[0] = err->hint[0] = '\0';
    return st;
}
