/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_objects.h that set rules: accumulation, schedules, moving averages,
 * local SGD, PowerSGD.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

/* Now and then no rate that can be. */
static double own_rate(void *user, int64_t position)
{
    (void)user;
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
    return position == 9 ? NAN : 1.0 / (double)(1 + position);
}

static accel_schedule_t some_schedule(struct world *w)
{
    accel_schedule_t s = { sizeof(s),
                           .kind = (accel_schedule_kind_t)calls_random(w, 9),
                           .steps = 20,
                           .warmup = (int64_t)calls_random(w, 3),
                           .first = (int)calls_random(w, 2),
                           .move = (accel_schedule_move_t)calls_random(w, 3) };

    if (s.kind == ACCEL_SCHEDULE_OWN)
        s.own = calls_once_in(w, 10) ? NULL : own_rate;
    if (s.kind == ACCEL_SCHEDULE_PLATEAU && calls_once_in(w, 2))
        s.plateau = (accel_plateau_t){ .maximize = (int)calls_random(w, 2),
                                       .factor = calls_real(w),
                                       .patience = calls_number(w),
                                       .threshold = calls_real(w),
                                       .cooldown = calls_number(w) };
    if (calls_once_in(w, 4)) {
        s.steps = calls_number(w);
        s.warmup = calls_number(w);
        s.end = calls_real(w);
        s.cycles = calls_real(w);
        s.power = calls_real(w);
        s.timescale = calls_real(w);
        s.div = calls_real(w);
        s.final_div = calls_real(w);
    }
    if (calls_once_in(w, 12))
        s.kind = (accel_schedule_kind_t)calls_number(w);
    return s;
}

static void give_schedule(struct world *w, accel_optim_t *o)
{
    const accel_schedule_t s = some_schedule(w);

    CALL(w, w->now->prepared || !o,
         accel_schedule_add(o, calls_once_in(w, 20) ? NULL : &s, calls_error(w)));
}

static void call_schedule(struct world *w)
{
    bool none = false;
    accel_optim_t *o = PICK(w, optim, &none);

    if ((none && o) || (!o && calls_random(w, 8)))
        return; /* its run has its own rules; many runs have none */
    switch (calls_random(w, 4)) {
    case 0:
        give_schedule(w, o);
        break;
    case 1:
        CALL(w, !o, accel_schedule_step(o, calls_error(w)));
        break;
    default:
        CALL(w, !o, accel_schedule_metric(o, calls_real(w), calls_error(w)));
    }
    if (accel_schedule_position(o) < -1)
        calls_finding(w, "accel_schedule_position", "it cannot be");
}

static void call_find_optim(struct world *w)
{
    bool none = false;
    accel_t *run = calls_run(w, &none);

    if (accel_optim_find(run, calls_name(w)) && !run)
        calls_finding(w, "accel_optim_find", "an optimizer of no run");
}

/* Everything between steps, and a pair most of the time: meanwhile much is refused. */
static void call_swap(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);

    if (calls_random(w, 8))
        calls_settle(w);
    if (CALL(w, bad,
             accel_ema_swap(run, (int)calls_random(w, 8) > 0, calls_error(w))) &&
        calls_random(w, 4))
        CALL(w, bad, accel_ema_swap(run, 0, calls_error(w)));
}

static void call_ema(struct world *w)
{
    accel_ema_t rule = { sizeof(rule),
                         .warmup = (accel_ema_warmup_t)calls_random(w, 3) };
    bool bad = w->now->prepared, none = false;
    accel_t *run = calls_run(w, &bad);
    accel_optim_t *o = calls_once_in(w, 2) ? NULL : PICK(w, optim, &none);

    if (calls_once_in(w, 3))
        rule = (accel_ema_t){ sizeof(accel_ema_t),
                              .decay = calls_real(w),
                              .warmup = (accel_ema_warmup_t)calls_number(w),
                              .gamma = calls_real(w),
                              .power = calls_real(w),
                              .every = calls_number(w),
                              .after = calls_number(w) };
    CALL(w, bad || (none && o),
         accel_ema(run, o, calls_once_in(w, 20) ? NULL : &rule, calls_error(w)));
}

static void call_local_sgd(struct world *w)
{
    bool bad = w->now->prepared;
    accel_t *run = calls_run(w, &bad);
    int64_t every = calls_number(w);

    CALL(w, bad || every < 1, accel_local_sgd(run, every, calls_error(w)));
}

static void call_powersgd(struct world *w)
{
    accel_powersgd_t rule = { sizeof(rule),
                              .start = (int64_t)calls_random(w, 3) - 1,
                              .least = 1,
                              .no_feedback = (int)calls_random(w, 2),
                              .cold = (int)calls_random(w, 2),
                              .batched = (int)calls_random(w, 2) };
    bool bad = w->now->prepared;
    accel_t *run = calls_run(w, &bad);

    if (calls_once_in(w, 3)) {
        rule.rank = (int)calls_number(w);
        rule.start = calls_number(w);
        rule.least = calls_real(w);
    }
    CALL(w, bad || rule.rank < 0,
         accel_powersgd(run, calls_once_in(w, 20) ? NULL : &rule, calls_error(w)));
}

static void call_accumulation(struct world *w)
{
    const accel_accumulation_t rule = {
        sizeof(rule), .every = (int)(calls_number(w) & INT64_C(0x80000003)),
        .across_epochs = (int)calls_random(w, 2),
        .sync_each_batch = (int)calls_random(w, 2),
        .short_by_count = (int)calls_random(w, 2)
    };
    bool bad = !w->now->prepared || w->inside > 0 || rule.every < 0;
    accel_t *run = calls_run(w, &bad);
    bool none = calls_once_in(w, 20);

    CALL(w, bad || none,
         accel_accumulate_rule(run, none ? NULL : &rule, calls_error(w)));
}

void calls_rules(struct world *w)
{
    if (calls_once_in(w, 3))
        call_ema(w);
    if (calls_once_in(w, 4))
        call_powersgd(w);
    else if (calls_once_in(w, 4))
        call_local_sgd(w);
    for (int i = 0; i < 2; i++)
        if (w->now->optim[i] && calls_once_in(w, 2))
            give_schedule(w, w->now->optim[i]);
}

const struct calls_action calls_of_rules[] = {
    { call_schedule, 4, false },
    { call_find_optim, 1, true },
    { call_swap, 3, false },
    { call_ema, 1, false },
    { call_local_sgd, 1, false },
    { call_powersgd, 1, false },
    { call_accumulation, 2, false },
    { calls_train, 3, false },
    { NULL, 0, false },
};
