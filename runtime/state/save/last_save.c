/* SPDX-License-Identifier: Apache-2.0
 *
 * The save that no other follows: at the end of a run, or when the run is told to stop.
 * In: the run between two steps; for a stop also the verdict of preemption/deadline.c.
 * Out: a durable checkpoint, or the reason why there is none of this step.
 */
#include <stdio.h>
#include <time.h>

#include "preemption/preemption.h"
#include "state/save/staging.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "handle/run.h"

/* Of the time that is left, what may pass before a save in flight is given up: the rest
 * is for the history and the requeue. */
#define WAIT_SHARE 0.9

/* Collective. */
static accel_status_t judge(accel_t *run, int sig, struct stop_verdict *verdict_out,
                            accel_error_t *err)
{
    const struct stop_save save = run_last_save(run);

    return deadline_judge(&run->preemption, sig, &save, verdict_out, err);
}

/* Says that the nodes get it, since the shared directory is too slow. */
static void say_local(accel_t *run, int sig, const struct stop_verdict *v)
{
    char shared[48] = "of unknown time";

    if (v->need > 0)
        snprintf(shared, sizeof(shared), "of about %.1f s", v->need);
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "received %s: saving step %lld on the nodes (about %.1f s, in place of "
               "one %s; %.1f s are left of %s)",
               stop_signal_name(sig), (long long)run->progress.step, v->need_local,
               shared, v->left, v->of);
}

/* Collective. Is there time to save? Says what is done. first: no try came before. */
static accel_status_t fits(accel_t *run, int sig, bool first,
                           struct stop_verdict *verdict_out, accel_error_t *err)
{
    char times[96] = "";
    struct stop_verdict v;
    accel_status_t st = judge(run, sig, &v, err);

    *verdict_out = v;
    if (st != ACCEL_OK)
        return st;
    v.left = v.left > 0 ? v.left : 0;
    if (v.local) {
        if (!staging_has(&run->staging, run->progress.step))
            say_local(run, sig, &v);
        return ACCEL_OK;
    }
    if (!v.save)
        snprintf(run->preemption.declined, sizeof(run->preemption.declined),
                 "a checkpoint takes about %.1f s, and %.1f s are left of %s", v.need,
                 v.left, v.of);
    else if (v.limited && v.need > 0)
        snprintf(times, sizeof(times), " (about %.1f s; %.1f s are left of %s)", v.need,
                 v.left, v.of);
    if (v.save && first)
        accel_logf(&run->log, ACCEL_LOG_INFO, "received %s: saving step %lld%s",
                   stop_signal_name(sig), (long long)run->progress.step, times);
    else if (!v.save && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN, "received %s: step %lld is not saved: %s",
                   stop_signal_name(sig), (long long)run->progress.step,
                   run->preemption.declined);
    return ACCEL_OK;
}

/* Waits until this rank's thread has written, or until the time is over. */
static void await_write(const struct background *b, double seconds)
{
    const int64_t until = clock_ns() + (int64_t)(seconds * 1e9);

    while (background_writes(b) && clock_ns() < until)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

/* Collective. *busy_out: some rank's thread still writes. */
static accel_status_t any_writes(accel_t *run, const struct background *b,
                                 bool *busy_out, accel_error_t *err)
{
    int64_t writes = background_writes(b);
    const accel_status_t st =
        comm_all_reduce(run->comm, &writes, 1, ACCEL_I64, COMM_MAX, err);

    *busy_out = writes > 0;
    return st;
}

/* Collective. Does a copy fit, by what is known? The last one of this life counts,
 * on the slowest rank, even if it was given up: the next takes as long at least. A
 * copy that does not fit is not begun, because no thread can be ended while a slow
 * disk holds it in a write. */
static accel_status_t copy_fits(accel_t *run, int64_t until, bool *fits_out,
                                accel_error_t *err)
{
    const double known =
        pace_copy_seconds(&run->preemption.pace, (double)run->plan.checkpoint_bytes);
    const int64_t last = background_ns(&run->staging.drain);
    int64_t v[2] = { (int64_t)(known * 1e9), clock_ns() - until };
    accel_status_t st;

    v[0] = last > v[0] ? last : v[0];
    st = comm_all_reduce(run->comm, v, 2, ACCEL_I64, COMM_MAX, err);
    *fits_out = v[0] <= -v[1];
    if (st == ACCEL_OK && !*fits_out)
        accel_logf(
            &run->log, ACCEL_LOG_INFO,
            "the checkpoint of step %lld stays on the nodes: a copy takes %.1f s "
            "or more, and %.1f s are left for it",
            (long long)run->progress.step, (double)v[0] * 1e-9,
            v[1] < 0 ? (double)-v[1] * 1e-9 : 0.0);
    return st;
}

/* Collective. The stop's checkpoint is on the nodes: the time that is left may do for a
 * copy, without which a restart elsewhere could not have it. An older copy that is not
 * yet complete is given up for it; its thread has to end first. */
static accel_status_t copy_in_time(accel_t *run, double seconds, accel_error_t *err)
{
    const int64_t until = clock_ns() + (int64_t)(seconds * 1e9);
    bool busy = false, fits = false;
    accel_status_t st = any_writes(run, &run->staging.drain, &busy, err);

    if (busy)
        staging_give_up(run);
    await_write(&run->staging.drain, (double)(until - clock_ns()) * 1e-9);
    busy = false;
    ACCEL_TRY(st, any_writes(run, &run->staging.drain, &busy, err));
    if (st == ACCEL_OK && !busy)
        st = copy_fits(run, until, &fits, err);
    if (st == ACCEL_OK && !busy)
        st = staging_go_on(run, fits, err); /* commits an older one, begins it */
    if (st != ACCEL_OK || !fits)
        return st;
    await_write(&run->staging.drain, (double)(until - clock_ns()) * 1e-9);
    st = any_writes(run, &run->staging.drain, &busy, err);
    if (st == ACCEL_OK && !busy)
        st = staging_go_on(run, false, err); /* commits it */
    if (st == ACCEL_OK && busy)
        staging_give_up(run);
    return st;
}

/* One try: to the shared directory, whose disk no copy from the nodes uses then, or to
 * the nodes. */
static accel_status_t save_by(accel_t *run, const struct stop_verdict *v,
                              accel_error_t *err)
{
    const int64_t begun = clock_ns();
    accel_status_t st;

    if (v->save) {
        staging_give_up(run);
        return save_checkpoint(run, err);
    }
    if (!v->local)
        return ACCEL_OK;
    ACCEL_CHECK(st, save_staged(run, err));
    return copy_in_time(
        run, (v->left - (double)(clock_ns() - begun) * 1e-9) * WAIT_SHARE, err);
}

/* All ranks have the same status, so all of them try again or none does. Errors of
 * other kinds end it at once. sig: of a stop; 0: take all the time. */
static accel_status_t save_tries(accel_t *run, int sig, accel_error_t *err)
{
    /* seconds; short, since after Slurm's warning little time is left */
    static const int pauses[] = { 1, 2, 4 };
    accel_error_t why = { 0 };
    accel_status_t st;
    struct stop_verdict v = { .save = true };

    for (size_t i = 0;; i++) {
        st = sig ? fits(run, sig, i == 0, &v, &why) : ACCEL_OK;
        ACCEL_TRY(st, save_by(run, &v, &why));
        if (!save_may_pass(st) || i == ACCEL_ARRAY_SIZE(pauses))
            break;
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "cannot save the last checkpoint, of step %lld (attempt %zu of "
                       "%zu): %s%s%s; next attempt in %d s",
                       (long long)run->progress.step, i + 1,
                       ACCEL_ARRAY_SIZE(pauses) + 1, why.where,
                       why.where[0] ? ": " : "", why.text, pauses[i]);
        why = (accel_error_t){ 0 };
        /* any signal ends it: then time is short, and the next try begins at once */
        nanosleep(&(struct timespec){ .tv_sec = pauses[i] }, NULL);
    }
    if (st != ACCEL_OK)
        *err = why;
    return st;
}

accel_status_t save_last(accel_t *run, accel_error_t *err)
{
    return save_tries(run, 0, err);
}

/* Collective. What is being written was begun before the stop: it gets the time that
 * there is. *over_out: that was not enough. */
static accel_status_t finish_or_give_up(accel_t *run, int sig, bool *over_out,
                                        accel_error_t *err)
{
    const long long step = run->background.step;
    bool writes = false;
    struct stop_verdict v;
    accel_status_t st;

    if (!run->background.in_flight)
        return ACCEL_OK;
    background_hurry(&run->background);
    st = judge(run, sig, &v, err);
    if (st == ACCEL_OK && v.limited) {
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "received %s: finishing the checkpoint of step %lld",
                   stop_signal_name(sig), step);
        await_write(&run->background, v.left * WAIT_SHARE);
        st = any_writes(run, &run->background, &writes, err);
    }
    if (st != ACCEL_OK || !writes)
        return st ? st : save_finish(run, err);
    *over_out = true;
    background_give_up(&run->background);
    snprintf(run->preemption.declined, sizeof(run->preemption.declined),
             "the checkpoint of step %lld was not written by the end of %s", step,
             v.of);
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN, "received %s: %s", stop_signal_name(sig),
                   run->preemption.declined);
    return ACCEL_OK;
}

accel_status_t save_stop(accel_t *run, int sig, accel_error_t *err)
{
    bool over = false;
    accel_status_t st = finish_or_give_up(run, sig, &over, err);

    return st || over ? st : save_tries(run, sig, err);
}
