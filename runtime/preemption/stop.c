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
#include "handle/run.h"

const char *stop_signal_name(int sig)
{
    return sig == SIGTERM   ? "SIGTERM"
           : sig == SIGINT  ? "SIGINT"
           : sig == SIGUSR2 ? "SIGUSR2"
                            : "SIGUSR1";
}

void stop_announce(accel_t *run, int sig)
{
    char kept[64] = "nothing is saved yet";

    if (run->life.announced || run->boot.rank != 0 || sig != SIGINT)
        return;
    run->life.announced = true;
    if (run->progress.saved_step >= 0)
        snprintf(kept, sizeof(kept), "the checkpoint of step %lld is kept",
                 (long long)run->progress.saved_step);
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "interrupted: saving at the end of step %lld; press Ctrl-C "
               "again to end at once (%s)",
               (long long)run->progress.step + 1, kept);
}

void stop_announce_pending(accel_t *run)
{
    stop_announce(run, signals_pending());
}

static bool is_saved(const accel_t *run)
{
    return run->progress.saved_step == run->progress.step;
}

/* Rank 0: finds out why, notes it in the history, asks for the requeue. In
 * this order, because Slurm may kill this process at any moment once it has
 * accepted the request. `step`: the history's words for it. */
static struct requeue_ending find_ending(accel_t *run, int sig, const char *step)
{
    const struct requeue_request request = {
        .state_dir = run->ckpt_dir,
        .signal = sig,
        .lead_seconds = run->config.preempt_lead_seconds,
        .grace_seconds = run->life.notice.grace,
        .restart = run->life.incarnation.restart,
        .restarts = run->life.history.restarts,
        .max_restarts = run->config.preempt_max_restarts,
        .switched_off = !run->config.preempt_requeue,
    };
    struct requeue_ending e = requeue_look(&request, &run->log);

    history_add(run, "stop%s signal=%s seconds=%.3f reason=%s", step,
                stop_signal_name(sig), run->life.history.save_seconds,
                stop_reason_text(e.reason));
    if (e.result == REQUEUE_DONE)
        e.result = requeue_ask(&request, e.job, &run->log);
    return e;
}

/* What comes next, for the hint of the error. */
static void next_text(const accel_t *run, const struct requeue_ending *e, char *buf,
                      size_t len)
{
    if (e->result == REQUEUE_DONE)
        snprintf(buf, len,
                 "job %s is requeued and will resume automatically (restart %lld of "
                 "at most %lld)",
                 e->job, (long long)run->life.history.restarts + 1,
                 (long long)run->config.preempt_max_restarts);
    else
        snprintf(buf, len, "%s", requeue_result_text(e->result));
}

/* What is saved, for the text of the error. */
static void saved_text(const accel_t *run, char *buf, size_t len)
{
    const long long step = run->progress.step, kept = run->progress.saved_step;
    int used;

    if (is_saved(run)) {
        snprintf(buf, len, "the state of step %lld is saved in %s%s", step,
                 staging_holds(&run->staging) ? run->config.ckpt_local_dir
                                              : run->ckpt_dir,
                 staging_holds(&run->staging) ? " on the nodes" : "");
        return;
    }
    used = snprintf(buf, len, "step %lld is not saved: %s; ", step, run->life.declined);
    if (kept >= 0)
        snprintf(buf + used, len - (size_t)used, "the checkpoint of step %lld is kept",
                 kept);
    else
        snprintf(buf + used, len - (size_t)used, "there is no older checkpoint");
}

/* What a stop leaves. */
struct leaving {
    bool saved;                                        /* the last step */
    char step[64];                                     /* for the history */
    char text[sizeof(((accel_t *)0)->ckpt_dir) + 384]; /* for the error */
};

/* Ends the attempt on all ranks. */
static accel_status_t end_life(accel_t *run, int sig, const struct leaving *l,
                               accel_error_t *err)
{
    struct requeue_ending e = { STOP_SIGNAL, REQUEUE_NO_JOB, "" };
    int64_t final = 0;
    char next[256];
    accel_status_t st;

    if (run->boot.rank == 0) {
        e = find_ending(run, sig, l->step);
        final = e.result == REQUEUE_NOT_MEANT || e.result == REQUEUE_STOPPED ||
                e.result == REQUEUE_LIMIT;
    }
    /* The others wait here for rank 0: the first rank to exit makes srun end the rest
     * of the step (kill-on-bad-exit), and so rank 0 in the middle of its request.
     * Errors are ignored: an accepted request kills the ranks, perhaps right now. */
    if (comm_broadcast(run->comm, &final, sizeof(final), 0, NULL) == ACCEL_OK)
        comm_barrier(run->comm, NULL);
    next_text(run, &e, next, sizeof(next));
    if (l->saved)
        st = accel_fail(err, final ? A0923 : A0907, next, "stopped (%s); %s",
                        stop_reason_text(e.reason), l->text);
    else
        st = accel_fail(err, final ? A0927 : A0926, next, "stopped (%s); %s",
                        stop_reason_text(e.reason), l->text);
    /* Only rank 0 knows why and what comes next, and it says so. */
    if (run->boot.rank != 0 && err)
        err->text[0] = err->hint[0] = '\0';
    return st;
}

accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err)
{
    struct leaving l = { .saved = is_saved(run) };
    const long long step = run->progress.step, kept = run->progress.saved_step;

    if (l.saved)
        snprintf(l.step, sizeof(l.step), " step=%lld", step);
    else
        snprintf(l.step, sizeof(l.step), " step=%lld saved=%lld", step, kept);
    saved_text(run, l.text, sizeof(l.text));
    return end_life(run, sig, &l, err);
}

accel_status_t run_stop_waiting(accel_t *run, accel_error_t *err)
{
    struct leaving l = { .saved = false };

    snprintf(l.text, sizeof(l.text), "no step was done: %s: %s", run->ckpt_dir,
             run->life.declined);
    return end_life(run, signals_pending(), &l, err);
}
