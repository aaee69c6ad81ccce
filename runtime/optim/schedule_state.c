/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a schedule stands: its position and how far a call moves it, what the metrics
 * of PLATEAU have left of the rate, and both as text. The rule of PLATEAU is torch's
 * ReduceLROnPlateau.step.
 */
#include "optim/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* torch's eps: the rate is not lowered by less. */
#define LEAST_STEP_DOWN 1e-8

accel_status_t schedule_begin(struct schedule *out, const accel_schedule_t *set,
                              double lr, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, schedule_check(set, err));
    if (!(lr >= 0) || isinf(lr))
        return accel_fail(err, A0980, "set the optimizer's lr",
                          "the lr of a schedule must be finite and not negative");
    *out = (struct schedule){ .set = schedule_defaults(*set),
                              .lr = lr,
                              .last = lr,
                              .left = lr,
                              .best = set->plateau.maximize ? -HUGE_VAL : HUGE_VAL };
    return ACCEL_OK;
}

double schedule_peek(const struct schedule *s)
{
    const bool plateau = s->set.kind == ACCEL_SCHEDULE_PLATEAU;

    return schedule_rate(&s->set, plateau ? s->left : s->lr, s->position);
}

void schedule_set_lr(struct schedule *s, double lr)
{
    s->left = s->lr > 0 ? s->left * (lr / s->lr) : lr;
    s->lr = lr;
}

accel_status_t schedule_now(struct schedule *s, double *rate_out, accel_error_t *err)
{
    const double rate = schedule_peek(s);

    if (isnan(rate))
        return accel_fail(err, A0981,
                          "let it return a factor that is finite and not negative",
                          "the program's own schedule gives no factor for position "
                          "%" PRId64,
                          s->position + s->set.first);
    *rate_out = s->last = rate;
    return ACCEL_OK;
}

static bool metric_is_better(const accel_plateau_t *p, double metric, double best)
{
    const double threshold = p->threshold < 0 ? 0 : p->threshold;

    if (p->maximize)
        return metric > (p->absolute ? best + threshold : best * (threshold + 1));
    return metric < (p->absolute ? best - threshold : best * (1 - threshold));
}

accel_status_t schedule_metric(struct schedule *s, double metric, accel_error_t *err)
{
    const accel_plateau_t *p = &s->set.plateau;

    if (s->set.kind != ACCEL_SCHEDULE_PLATEAU)
        return accel_fail(err, A0980, "give metrics to schedules of kind PLATEAU only",
                          "a schedule of kind %s takes no metric",
                          schedule_name(s->set.kind));
    if (metric_is_better(p, metric, s->best)) {
        s->best = metric;
        s->bad = 0;
    } else {
        s->bad++;
    }
    if (s->resting > 0) {
        s->resting--;
        s->bad = 0;
    }
    if (s->bad > (p->patience < 0 ? 0 : p->patience)) {
        const double lower = fmax(s->left * p->factor, s->lr * s->set.end);

        if (s->left - lower > LEAST_STEP_DOWN)
            s->left = lower;
        s->resting = p->cooldown;
        s->bad = 0;
    }
    return ACCEL_OK;
}

/* ---- text ------------------------------------------------------------------------ */

/* 17 digits give a double back to the bit. */
void schedule_encode(const struct schedule *s, char text_out[SCHEDULE_TEXT])
{
    text_format(text_out, SCHEDULE_TEXT,
                "%s position %" PRId64 " last %.17g left %.17g best %.17g bad %" PRId64
                " resting %" PRId64,
                schedule_name(s->set.kind), s->position, s->last, s->left, s->best,
                s->bad, s->resting);
}

/* A rate or a metric of a schedule that has lived. */
static bool plausible(const struct schedule *s)
{
    return s->position >= 0 && s->bad >= 0 && s->resting >= 0 && s->last >= 0 &&
           !isinf(s->last) && s->left >= 0 && !isinf(s->left) && !isnan(s->best);
}

accel_status_t schedule_decode(struct schedule *s, const char *text, accel_error_t *err)
{
    struct schedule read = *s;
    char kind[16] = "";
    int words, end = 0;

    words =
        text_scan(text,
                  "%15s position %" SCNd64 " last %lf left %lf best %lf bad %" SCNd64
                  " resting %" SCNd64 "%n",
                  kind, &read.position, &read.last, &read.left, &read.best, &read.bad,
                  &read.resting, &end);
    if (words != 7 || text[end] || !plausible(&read))
        return accel_fail(err, A0982, "use a checkpoint that is intact",
                          "the state of a schedule cannot be read: \"%.200s\"", text);
    if (strcmp(kind, schedule_name(s->set.kind)) != 0)
        return accel_fail(err, A0982,
                          "use the kind of schedule that the run began with",
                          "the state is that of a schedule of kind %s, but this one is "
                          "of kind %s",
                          kind, schedule_name(s->set.kind));
    *s = read;
    return ACCEL_OK;
}

/* Accelerate's rule (AcceleratedScheduler.step): only after a step that the optimizer
 * took, and by as many positions as ranks unless they share one batch. */
int64_t schedule_advance(const struct schedule_advance *rule,
                         const struct schedule_event *event,
                         const accel_schedule_t *set, int64_t position)
{
    int64_t to = position + 1;

    if (!rule->with_optimizer)
        return to;
    if (!event->sync || event->skipped)
        return position;
    if (!rule->split_batches)
        to = position + rule->ranks;
    /* The last steps of a run would go beyond, when a loader keeps its last, smaller
     * batch. A position that is beyond already stays. */
    if (set->kind == ACCEL_SCHEDULE_ONE_CYCLE && to > set->steps)
        to = position > set->steps ? position : set->steps;
    return to;
}
