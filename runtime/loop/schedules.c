/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedules of a run's optimizers: the calls of the program, the rate of a step,
 * and the advance after it. In: settings, metrics, steps. Out: learning rates. The
 * rules are those of optim/schedule.h. Never communicates.
 */
#include <math.h>

#include "common/sized.h"
#include "loop/loop.h"
#include "handle/run.h"

/* ---- for the step ---------------------------------------------------------------- */

/* A schedule may be a function of the program. */
static const char schedule_function[] = "the function of a schedule";

/* In float32, as kernels take it. */
accel_status_t optim_rate(struct accel_optim *o, accel_error_t *err)
{
    struct graph *g = &o->run->graph;
    double rate = o->lr;
    accel_status_t st = ACCEL_OK;

    if (o->scheduled) {
        const char *outer = graph_enter(g, schedule_function);

        st = schedule_now(&o->schedule, &rate, err);
        g->inside = outer;
    }
    if (st == ACCEL_OK)
        o->lr = (float)rate;
    return st;
}

/* A schedule that asks for its own rate would never return. */
float optim_next_rate(const struct accel_optim *o)
{
    struct graph *g = &o->run->graph;
    const char *outer;
    float rate;

    if (!o->scheduled)
        return o->lr;
    if (g->inside == schedule_function)
        return NAN;
    outer = graph_enter(g, schedule_function);
    rate = (float)schedule_peek(&o->schedule);
    g->inside = outer;
    return rate;
}

accel_status_t optim_rate_failed(const accel_error_t *why, accel_error_t *err)
{
    *err = *why;
    err->code = ACCEL_EINVAL;
    return ACCEL_EINVAL;
}

/* Accelerate's rule, told what its arguments would be. */
static void schedule_moves(struct accel_optim *o, bool skipped)
{
    const accel_schedule_t *set = &o->schedule.set;
    const struct schedule_advance rule = {
        .with_optimizer = set->move != ACCEL_MOVE_BY_CALLS,
        .split_batches = set->move == ACCEL_MOVE_BY_STEPS,
        .ranks = o->run->mesh.data.size,
    };
    const struct schedule_event event = { .sync = true, .skipped = skipped };

    o->schedule.position = schedule_advance(&rule, &event, set, o->schedule.position);
}

void optim_move(struct accel_optim *o, bool skipped)
{
    if (o->scheduled && o->schedule.set.move != ACCEL_MOVE_BY_CALLS)
        schedule_moves(o, skipped);
}

/* ---- calls of the program -------------------------------------------------------- */

static accel_status_t schedule_given(const accel_optim_t *o, const char *call,
                                     accel_error_t *err)
{
    accel_status_t st = optim_given(o, call, err);

    ACCEL_TRY(st, run_ready(o->run, call, err));
    if (st != ACCEL_OK || o->scheduled)
        return st;
    return accel_fail(err, A0980, "call accel_schedule_add before accel_prepare_all",
                      "%s: optimizer '%s' has no schedule", call, o->name);
}

accel_status_t accel_schedule_add(accel_optim_t *o, const accel_schedule_t *schedule,
                                  accel_error_t *err)
{
    accel_status_t st;
    accel_schedule_t own;

    ACCEL_CHECK(st, optim_given(o, "accel_schedule_add", err));
    if (o->run->prepared || o->scheduled)
        return accel_fail(err, A0980,
                          "call it once for each optimizer, right after "
                          "accel_optim_add; a job has its schedule in accel_job_t",
                          "accel_schedule_add: %s '%s' %s",
                          o->scheduled ? "optimizer" : "the run of optimizer", o->name,
                          o->scheduled ? "has a schedule already"
                                       : "is prepared already");
    if (!schedule)
        return accel_fail(err, A0980, "pass a struct accel_schedule",
                          "accel_schedule_add: the schedule of optimizer '%s' is NULL",
                          o->name);
    ACCEL_CHECK(st, sized_read(SIZED(accel_schedule_t, user), &own, schedule, err));
    return optim_schedule(o, &own, err);
}

accel_status_t accel_schedule_step(accel_optim_t *o, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, schedule_given(o, "accel_schedule_step", err));
    if (o->schedule.set.move != ACCEL_MOVE_BY_CALLS)
        return accel_fail(err, A0980, "set move to ACCEL_MOVE_BY_CALLS, or do not call",
                          "accel_schedule_step: the schedule of optimizer '%s' moves "
                          "with its steps",
                          o->name);
    schedule_moves(o, false);
    return ACCEL_OK;
}

accel_status_t accel_schedule_metric(accel_optim_t *o, double metric,
                                     accel_error_t *err)
{
    accel_status_t st = schedule_given(o, "accel_schedule_metric", err);

    return st != ACCEL_OK ? st : schedule_metric(&o->schedule, metric, err);
}

int64_t accel_schedule_position(const accel_optim_t *o)
{
    return o && o->scheduled ? o->schedule.position : -1;
}
