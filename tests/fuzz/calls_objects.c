/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_objects.h: models, optimizers, and the settings of a loop.
 */
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

static void call_model_add(struct world *w)
{
    bool bad = w->now->prepared;
    accel_t *run = calls_run(w, &bad);
    accel_module_t *m = PICK(w, module, &bad);

    CALL(w, bad, accel_model_add(run, calls_name(w), m, calls_error(w)));
}

static void no_update(void *user, const accel_piece_t *piece)
{
    (void)user, (void)piece;
}

static void call_optim_add(struct world *w)
{
    static const char *const state[] = { "m", "v" };
    const accel_group_t group = { calls_name(w), (float)calls_real(w),
                                  (float)calls_real(w), calls_once_in(w, 3) };
    const accel_own_optim_t own = { sizeof(own),
                                    calls_once_in(w, 10) ? NULL : no_update, NULL,
                                    state, (int)calls_number(w) };
    accel_optimizer_t settings = { sizeof(settings),
                                   .kind = (accel_optimizer_kind_t)calls_number(w),
                                   .lr = (float)calls_real(w),
                                   .beta1 = (float)calls_real(w) };
    bool bad = w->now->prepared;
    accel_t *run = calls_run(w, &bad);
    accel_module_t *m[2] = { PICK(w, module, &bad), PICK(w, module, &bad) };
    int n = calls_once_in(w, 10) ? (int)calls_number(w) : 1;
    accel_optim_t *o;

    if (n > 2)
        n = 2;
    if (n < 2)
        bad = bad && (w->now->prepared || !run || !m[0]);
    if (calls_once_in(w, 3)) {
        settings.groups = &group;
        settings.group_count = 1;
    }
    calls_say(w, "accel_optim_add");
    if (calls_once_in(w, 2))
        o = accel_optim_add(run, calls_name(w), m, n,
                            calls_once_in(w, 20) ? NULL : &settings, calls_error(w));
    else if (own.states <= 2)
        o = accel_optim_add_own(run, calls_name(w), m, n, &settings,
                                calls_once_in(w, 20) ? NULL : &own, calls_error(w));
    else
        return;
    calls_made(w, "accel_optim_add", bad, o);
    KEEP(w, optim, o);
}

static void call_batch(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);

    CALL(w, bad, accel_batch_begin(run, calls_error(w)));
}

static void call_freeze(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_module_t *m = PICK(w, module, &bad);

    CALL(w, bad, accel_model_freeze(run, m, (int)calls_random(w, 2), calls_error(w)));
}

static void call_optim(struct world *w)
{
    bool none = false, bad = !w->now->prepared || w->inside > 0;
    accel_optim_t *o = PICK(w, optim, &none);
    double norm;
    int updated;

    if (none && o)
        return; /* its run has its own rules */
    bad = bad || !o;
    switch (calls_random(w, 4)) {
    case 0:
        CALL(
            w, bad,
            accel_optim_step(o, calls_once_in(w, 2) ? NULL : &updated, calls_error(w)));
        break;
    case 1:
        CALL(w, bad, accel_zero_grad(o, calls_error(w)));
        break;
    case 2:
        CALL(w, bad,
             accel_clip_norm(o, (float)calls_real(w),
                             calls_once_in(w, 2) ? NULL : &norm, calls_error(w)));
        break;
    default:
        CALL(w, bad, accel_clip_value(o, (float)calls_real(w), calls_error(w)));
    }
}

static void call_settings(struct world *w)
{
    bool none = false;
    accel_optim_t *o = PICK(w, optim, &none);
    double x = calls_real(w);

    CALL(w, !o || !(x >= 0), accel_optim_set_clip(o, (float)x, calls_error(w)));
    CALL(w, !o || !(x >= 0), accel_optim_set_lr(o, (float)x, calls_error(w)));
    CALL(w, !o, accel_optim_skip(o, (int)calls_random(w, 2), calls_error(w)));
    (void)accel_optim_lr(o);
    (void)accel_optim_steps(o);
}

static void call_loop(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    accel_step_info_t info = { .bytes = sizeof(info) };
    int k = (int)calls_number(w);

    (void)accel_sync(run);
    switch (calls_random(w, 3)) {
    case 0:
        if (k > 3 && k <= 1 << 20)
            k = 3;
        CALL(w, bad || k < 1, accel_accumulate(run, k, calls_error(w)));
        break;
    case 1:
        CALL(w, bad, accel_no_sync(run, calls_once_in(w, 3), calls_error(w)));
        break;
    default:
        CALL(w, !run || !w->now->prepared,
             accel_last_step(run, calls_once_in(w, 20) ? NULL : &info, calls_error(w)));
    }
}

const struct calls_action calls_of_objects[] = {
    { call_model_add, 1, false }, { call_optim_add, 1, false },
    { call_batch, 4, false },     { call_freeze, 1, false },
    { call_optim, 4, false },     { call_settings, 1, false },
    { call_loop, 2, false },      { NULL, 0, false },
};
