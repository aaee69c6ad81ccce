/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves and the stop of an attempt. The program saves; here it is decided whether there
 * is time for that, and noted how long it took. Sizes are not known, so the pace of
 * saves is that of one checkpoint: "1 byte".
 */
#include <stdio.h>

#include "job/attempt.h"

/* The agreement of the program, with an error: it has none of its own. */
static accel_status_t agree(void *user, int64_t *values, int count, accel_error_t *err)
{
    struct accel_attempt *a = user;
    const accel_status_t st = a->agree(a->agree_user, values, count);

    return st == ACCEL_OK
               ? ACCEL_OK
               : accel_fail(err, A0929, "look for the rank that failed first",
                            "the ranks cannot agree: %s", accel_status_name(st));
}

void accel_attempt_agree_by(accel_attempt_t *a, accel_agree_f fn, void *user)
{
    a->agree = fn;
    a->agree_user = user;
    a->preemption.agree = fn ? agree : NULL;
    a->preemption.agree_user = a;
}

/* Is there a way to reach the other ranks? */
static accel_status_t can_agree(const struct accel_attempt *a, const char *call,
                                accel_error_t *err)
{
    if (a->preemption.size == 1 || a->preemption.agree)
        return ACCEL_OK;
    return accel_fail(err, A0901, "call accel_attempt_agree_by first",
                      "%s: %d ranks have no way to agree", call, a->preemption.size);
}

/* Gives all ranks rank 0's status. The others' errors say where to look. */
static accel_status_t share(struct accel_attempt *a, accel_status_t st,
                            accel_error_t *err)
{
    int64_t worst = st;
    accel_status_t met = preemption_agree(&a->preemption, &worst, 1, err);

    if (met != ACCEL_OK || st != ACCEL_OK || worst <= 0)
        return met != ACCEL_OK ? met : st;
    return accel_fail(err, A0929, "see what rank 0 says", "rank 0 has failed: %s",
                      accel_status_name((accel_status_t)worst));
}

/* Is there time for the save of a stop? */
static accel_status_t fits(struct accel_attempt *a, int64_t step, int *save_out,
                           accel_error_t *err)
{
    struct preemption *p = &a->preemption;
    struct stop_verdict v;
    accel_status_t st;

    ACCEL_CHECK(
        st, deadline_judge(p, a->agreed, &(struct stop_save){ .bytes = 1 }, &v, err));
    v.left = v.left > 0 ? v.left : 0;
    *save_out = v.save;
    if (!v.save) {
        snprintf(p->declined, sizeof(p->declined),
                 "a checkpoint takes about %.1f s, and %.1f s are left of %s", v.need,
                 v.left, v.of);
        if (p->rank == 0)
            accel_logf(p->log, ACCEL_LOG_WARN,
                       "received %s: step %lld is not saved: %s",
                       stop_signal_name(a->agreed), (long long)step, p->declined);
    } else {
        accel_logf(p->log, ACCEL_LOG_INFO, "received %s: saving step %lld",
                   stop_signal_name(a->agreed), (long long)step);
    }
    return ACCEL_OK;
}

accel_status_t accel_attempt_save_begin(accel_attempt_t *a, int64_t step, int *save_out,
                                        accel_error_t *err)
{
    accel_status_t st;

    *save_out = 0;
    a->begun_ns = 0;
    ACCEL_CHECK(st, can_agree(a, "accel_attempt_save_begin", err));
    if (a->preemption.rank == 0)
        st = lease_keep(&a->preemption, err);
    ACCEL_CHECK(st, share(a, st, err));
    if (a->agreed)
        ACCEL_CHECK(st, fits(a, step, save_out, err));
    else
        *save_out = 1;
    if (*save_out)
        a->begun_ns = clock_ns();
    return ACCEL_OK;
}

/* The slowest rank's time counts, which all of them wait for. */
accel_status_t accel_attempt_note_save(accel_attempt_t *a, int64_t step,
                                       accel_error_t *err)
{
    struct preemption *p = &a->preemption;
    int64_t ns = clock_ns() - a->begun_ns;
    accel_status_t st;
    double seconds;

    if (a->begun_ns == 0)
        return accel_fail(err, A0901, "call accel_attempt_save_begin before the save",
                          "accel_attempt_note_save: no save has begun");
    a->begun_ns = 0;
    ACCEL_CHECK(st, can_agree(a, "accel_attempt_note_save", err));
    ACCEL_CHECK(st, preemption_agree(p, &ns, 1, err));
    seconds = (double)ns * 1e-9;
    a->saved = step;
    if (p->history.saves[SAVE_AT_ONCE]++ == 0)
        history_add(p, "save step=%lld seconds=%.3f", (long long)step, seconds);
    report_attempt(p, step);
    p->history.save_seconds = seconds;
    pace_add(&p->pace, SAVE_AT_ONCE, 1, seconds);
    notice_check(p, seconds);
    return ACCEL_OK;
}

accel_status_t accel_attempt_stop(accel_attempt_t *a, int64_t step, accel_error_t *err)
{
    struct preemption *p = &a->preemption;
    accel_status_t st;

    ACCEL_CHECK(st, can_agree(a, "accel_attempt_stop", err));
    if (!a->agreed)
        return accel_fail(err, A0901, "call accel_attempt_agreed first",
                          "accel_attempt_stop: the ranks have agreed on no stop");
    if (!p->declined[0]) /* said only where the step is not saved */
        snprintf(p->declined, sizeof(p->declined), "the program did not save it");
    signals_leave_interrupt(); /* nothing is left to save */
    /* Earlier attempts may have saved: only the program knows what is left of that. */
    return preemption_stop(p, a->agreed,
                           &(struct stop_state){ .begun = true,
                                                 .step = step,
                                                 .saved = a->saved,
                                                 .where = a->directory,
                                                 .none = "this attempt saved nothing" },
                           err);
}
