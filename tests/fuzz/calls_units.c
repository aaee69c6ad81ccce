/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_units.h: units of own compute, wanted and done in any order.
 */
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

static void call_unit_new(struct world *w)
{
    bool bad = w->now->prepared;
    accel_t *run = calls_run(w, &bad);
    accel_unit_t *u;

    if (!calls_once_in(w, 3))
        return;
    calls_say(w, "accel_unit_new");
    u = accel_unit_new(run, calls_name(w), calls_error(w));
    calls_made(w, "accel_unit_new", bad, u);
    KEEP(w, unit, u);
}

static void call_unit_param(struct world *w)
{
    static const float values[64] = { 1 };
    bool none = false;
    accel_unit_t *u = PICK(w, unit, &none);
    int ndim = calls_once_in(w, 4) ? (int)calls_number(w) : 2;
    int64_t dims[] = { calls_once_in(w, 8) ? calls_number(w) : 3, 2, 2, 2, 2 };
    bool bad = !u || ndim < 1 || ndim > 4 || dims[0] < 1;

    if (dims[0] > 4)
        dims[0] = 4;
    if (none && u)
        return; /* its run has its own rules */
    CALL(w, bad || w->now->prepared,
         accel_unit_param(u, calls_name(w), ndim, calls_once_in(w, 30) ? NULL : dims,
                          (accel_init_t){ ACCEL_INIT_NORMAL, (float)calls_real(w) },
                          calls_once_in(w, 3) ? values : NULL, calls_error(w)));
}

static void call_unit(struct world *w)
{
    bool none = false, bad;
    accel_unit_t *u = PICK(w, unit, &none);
    int index = calls_once_in(w, 4) ? (int)calls_number(w) : 0;
    float *gradient = NULL;

    if (none && u)
        return; /* its run has its own rules */
    bad = !u || !w->now->prepared;
    switch (calls_random(w, 5)) {
    case 0:
        CALL(w, bad, accel_unit_want(u, calls_error(w)));
        break;
    case 1:
        calls_say(w, "accel_unit_done");
        accel_unit_done(u);
        break;
    case 2:
        calls_say(w, "accel_unit_values");
        (void)accel_unit_values(u, index);
        (void)accel_unit_dtype(u);
        break;
    default:
        if (CALL(w, bad || index < 0,
                 accel_unit_gradient(u, index, calls_once_in(w, 30) ? NULL : &gradient,
                                     calls_error(w))) &&
            gradient)
            gradient[0] += 1;
    }
}

static void call_finish(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);

    if (calls_once_in(w, 4))
        CALL(w, bad, accel_finish_backward(run, calls_real(w), calls_error(w)));
}

const struct calls_action calls_of_units[] = {
    { call_unit_new, 1, false }, { call_unit_param, 2, false },
    { call_unit, 5, false },     { call_finish, 1, false },
    { NULL, 0, false },
};
