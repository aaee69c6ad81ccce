/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a life that was told to stop and is saved: why, what comes next, and one
 * status for all ranks. 85 means "run me again"; 75 means that it is not restarted
 * automatically: the job was cancelled, somebody pressed Ctrl-C, or the limit of
 * restarts is reached.
 */
#include <signal.h>
#include <stdio.h>

#include "life/requeue.h"
#include "run/run.h"

/* Why the run stops, and whether it comes back. Known to rank 0 only. */
struct ending {
    enum stop_reason reason;
    enum requeue_result result;
};

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

/* Rank 0: finds out why, notes it in the history, asks for the requeue. In
 * this order, because Slurm may kill this process at any moment once it has
 * accepted the request. */
static struct ending find_ending(accel_t *run, int sig)
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
    struct ending e = { STOP_SIGNAL, REQUEUE_LEFT };
    accel_error_t why = { 0 };

    if (requeue_look(&request, &run->log, &e.result, &e.reason, &why) != ACCEL_OK)
        accel_logf(&run->log, ACCEL_LOG_WARN, "cannot requeue: %s", why.text);
    history_add(run, "stop step=%lld signal=%s seconds=%.3f reason=%s",
                (long long)run->progress.step, stop_signal_name(sig),
                run->life.history.save_seconds, stop_reason_text(e.reason));
    if (e.result == REQUEUE_DONE)
        e.result = requeue_ask(&request, &run->log);
    return e;
}

/* What comes next, for the hint of the error. */
static void next_text(const accel_t *run, const struct ending *e, char *buf, size_t len)
{
    if (e->result == REQUEUE_DONE)
        snprintf(buf, len,
                 "job %ld is requeued and will resume automatically (restart %lld of "
                 "at most %lld)",
                 run->life.incarnation.job, (long long)run->life.history.restarts + 1,
                 (long long)run->config.preempt_max_restarts);
    else
        snprintf(buf, len, "%s", requeue_result_text(e->result));
}

accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err)
{
    struct ending e = { STOP_SIGNAL, REQUEUE_NO_JOB };
    int64_t final = 0;
    char next[256], what[128];

    if (run->boot.rank == 0) {
        e = find_ending(run, sig);
        final = e.result == REQUEUE_NOT_MEANT || e.result == REQUEUE_STOPPED ||
                e.result == REQUEUE_LIMIT;
    }
    /* The others wait here for rank 0: the first rank to exit makes srun end the rest
     * of the step (kill-on-bad-exit), and so rank 0 in the middle of its request.
     * Errors are ignored: an accepted request kills the ranks, perhaps right now. */
    if (comm_broadcast(run->comm, &final, sizeof(final), 0, NULL) == ACCEL_OK)
        comm_barrier(run->comm, NULL);
    next_text(run, &e, next, sizeof(next));
    snprintf(what, sizeof(what), "stopped (%s); the state of step %lld is saved",
             stop_reason_text(e.reason), (long long)run->progress.step);
    if (final)
        return accel_fail(err, A0923, next, "%s in %s", what, run->ckpt_dir);
    return accel_fail(err, A0907, next, "%s in %s", what, run->ckpt_dir);
}
