/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate of each step (struct accel_schedule in accel_objects.h has the
 * formulas), where a schedule stands, and how far a call moves it. Numbers in, numbers
 * out. Never communicates, never allocates.
 */
#ifndef ACCEL_OPTIM_SCHEDULE_H
#define ACCEL_OPTIM_SCHEDULE_H

#include "common/common.h"

/* ---- schedule.c: a rate is a function of the position ---------------------------- */

/* "constant", "one-cycle" ...; static. */
const char *schedule_name(accel_schedule_kind_t kind);
/* "cosine steps 60 warmup 10 ...": what shapes a schedule of that kind. */
#define SCHEDULE_SETTINGS 320
void schedule_settings(const accel_schedule_t *set, char text_out[SCHEDULE_SETTINGS]);
/* Replaces the zeros of `set` that mean "default". Idempotent. */
accel_schedule_t schedule_defaults(accel_schedule_t set);
/* ACCEL_EINVAL naming the field that is out of range. With or without defaults. */
accel_status_t schedule_check(const accel_schedule_t *set, accel_error_t *err);
/* That of struct accel_job: linear warm-up from lr / warmup on, then a cosine to lr /
 * 10 at the last step. */
accel_schedule_t schedule_of_job(int64_t warmup, int64_t steps);
/* The rate of the optimizer step that is taken at `position`, which is the number of
 * positions that the schedule has moved. `set` with defaults. A position below 0 counts
 * as 0, one beyond the end as the end: no rate grows again, as torch's ONE_CYCLE does.
 * PLATEAU: `lr` is the rate that the metrics have left. NaN where an own function gives
 * no rate. */
double schedule_rate(const accel_schedule_t *set, double lr, int64_t position);

/* ---- schedule_state.c: where a schedule stands ----------------------------------- */

struct schedule {
    /* with defaults */
    accel_schedule_t set;
    /* the optimizer's */
    double lr;
    int64_t position;
    /* rate of the latest schedule_now; lr before the first */
    double last;
    /* PLATEAU: what the metrics have left of lr, the best of them, how many in a row
     * were not better, how many more do not count */
    double left, best;
    int64_t bad, resting;
};

/* A schedule at position 0. Errors: those of schedule_check, ACCEL_EINVAL (an lr that
 * is not finite or is negative). */
accel_status_t schedule_begin(struct schedule *out, const accel_schedule_t *set,
                              double lr, accel_error_t *err);
/* The rate of the next optimizer step. ACCEL_EINVAL: an own function gave none. */
accel_status_t schedule_now(struct schedule *s, double *rate_out, accel_error_t *err);
/* The same without a note of it; NaN: an own function gave none. */
double schedule_peek(const struct schedule *s);
/* Another lr, finite and not negative: the rate keeps its share of it. */
void schedule_set_lr(struct schedule *s, double lr);
/* Takes a metric; NaN counts as bad. One call is one metric, on any number of ranks
 * (Accelerate feeds each metric once per rank, so that a patience of 10 is over after
 * 10 / ranks). ACCEL_EINVAL: no PLATEAU. */
accel_status_t schedule_metric(struct schedule *s, double metric, accel_error_t *err);

/* The state as one line without newline, exact to the bit and free of the locale;
 * SCHEDULE_TEXT bytes hold any. */
#define SCHEDULE_TEXT 320
void schedule_encode(const struct schedule *s, char text_out[SCHEDULE_TEXT]);
/* Puts a begun schedule where the text says. Settings are not in it: they are the
 * program's, and may have changed. ACCEL_EMISMATCH: the text is of another kind, or is
 * none; then nothing changes. */
accel_status_t schedule_decode(struct schedule *s, const char *text,
                               accel_error_t *err);

/* The rule by which Accelerate moves a schedule (AcceleratedScheduler.step). */
struct schedule_advance {
    /* false: each call moves it by one, whatever the optimizer did */
    bool with_optimizer;
    /* The loader cuts one batch among the ranks, so that a step uses as many samples as
     * with one rank: moved by one. Without it by one per rank, as a schedule for one
     * rank would need for the samples of all. */
    bool split_batches;
    int ranks;
};

/* What happened since the last call. */
struct schedule_event {
    /* the micro-batch ended its group: accumulate.h */
    bool sync;
    /* the optimizer left its step out, because a gradient was not finite */
    bool skipped;
};

/* The position after the call. ONE_CYCLE stops at its number of steps. */
int64_t schedule_advance(const struct schedule_advance *rule,
                         const struct schedule_event *event,
                         const accel_schedule_t *set, int64_t position);

#endif
