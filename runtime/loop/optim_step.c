/* SPDX-License-Identifier: Apache-2.0
 *
 * One optimizer's step: it completes the gradients, computes their norm, clips and
 * updates. In: gradients that backwards have left. Out: new parameters, and the
 * optimizer's count of steps. accel_step does the same for all optimizers that have not
 * stepped yet.
 */
#include <math.h>
#include <stdio.h>

#include "loop/loop.h"
#include "training/ema.h"
#include "training/local_sgd.h"
#include "training/loss_scale.h"
#include "backend/device.h"
#include "optim/optim.h"
#include "handle/run.h"

/* With a loss scale: an overflow counts even if the program takes it away now. */
static accel_status_t note_overflow(accel_t *run, struct accel_optim *o,
                                    accel_error_t *err)
{
    double sumsq = 0;
    accel_status_t st = run->scaling.on
                            ? shard_grad_sumsq(run->shard, o->number, &sumsq, err)
                            : ACCEL_OK;

    o->overflowed = o->overflowed || !isfinite(sumsq);
    return st;
}

/* Hooks see gradients once, as soon as they are complete. */
static accel_status_t complete(accel_t *run, struct accel_optim *o, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (!shard_is_reduced(run->shard, o->number)) {
        st = shard_reduce(run->shard, o->number, err);
        if (st == ACCEL_OK && run->hooks > 0)
            st = note_overflow(run, o, err);
        ACCEL_TRY(st, hooks_call(run, o->number, err));
    }
    phase_end(run, PHASE_OPTIMIZER);
    return st;
}

accel_status_t optim_gather(accel_t *run, struct accel_optim *o, double *sumsq_out,
                            accel_error_t *err)
{
    accel_status_t st = complete(run, o, err);

    ACCEL_TRY(st, shard_grad_sumsq(run->shard, o->number, sumsq_out, err));
    if (st == ACCEL_OK && o->overflowed)
        *sumsq_out = INFINITY;
    if (st == ACCEL_OK)
        o->own_sumsq = *sumsq_out;
    phase_end(run, PHASE_WAIT);
    return st;
}

accel_status_t loop_diverged(const accel_t *run, const char *what, accel_error_t *err)
{
    if (run->boot.rank != 0) {
        *err = (accel_error_t){ .code = ACCEL_EDIVERGED };
        return ACCEL_EDIVERGED;
    }
    return accel_fail(err, A0906,
                      "lower the learning rate or clip the gradients; checkpoints and "
                      "log are intact up to the previous step",
                      "step %lld: %s is no longer finite: the training has diverged",
                      (long long)run->progress.step + 1, what);
}

/* "the norm of the gradients", of optimizer 'd' where it has a name. */
static accel_status_t norm_diverged(const accel_t *run, const struct accel_optim *o,
                                    accel_error_t *err)
{
    char what[RUN_NAME + 64] = "the norm of the gradients";

    if (o->name[0])
        snprintf(what, sizeof(what), "the norm of the gradients of optimizer '%s'",
                 o->name);
    return loop_diverged(run, what, err);
}

/* With a loss scale that is a matter of course, without one it is not. */
static void say_skipped(const accel_t *run, const struct accel_optim *o)
{
    char whose[RUN_NAME + 32] = "";

    if (run->boot.rank != 0)
        return;
    if (o->name[0])
        snprintf(whose, sizeof(whose), " of optimizer '%s'", o->name);
    if (run->scaling.on)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "step %lld: the gradients%s overflow at a loss scale of %g; the "
                   "step is skipped",
                   (long long)run->progress.step + 1, whose, accel_loss_scale(run));
    else
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "step %lld: the gradients%s are not finite; its step is skipped",
                   (long long)run->progress.step + 1, whose);
}

static accel_status_t skip_step(accel_t *run, struct accel_optim *o)
{
    say_skipped(run, o);
    shard_zero(run->shard, o->number);
    optim_move(o, true);
    o->clipped = o->overflowed = false;
    o->skipped++;
    o->norm = NAN;
    return ACCEL_OK;
}

/* Steps count from 1 for the bias correction. */
accel_status_t optim_apply(accel_t *run, struct accel_optim *o, double sumsq,
                           accel_error_t *err)
{
    accel_error_t why = { 0 };
    const char *outer;
    float factor;
    double norm;
    accel_status_t st;

    o->last_lr = o->lr;
    if (optim_clip(local_sgd_sumsq(o, sumsq), o->clip, &factor, &norm, &why) !=
        ACCEL_OK) {
        loss_scale_found(run, true);
        return o->skip || run->scaling.on ? skip_step(run, o)
                                          : norm_diverged(run, o, err);
    }
    loss_scale_found(run, false);
    if (!o->clipped)
        o->norm = norm;
    o->clipped = false;
    outer = graph_enter(&run->graph, "an update function");
    st = shard_update(run->shard, o->number, o->lr, o->t + 1, factor, err);
    run->graph.inside = outer;
    ACCEL_TRY(st, run_failed(run, err)); /* an own update gave up */
    o->t++;
    o->updated++;
    averaging_step(o);
    local_sgd_stepped(run);
    optim_move(o, false);
    phase_end(run, PHASE_OPTIMIZER);
    return st;
}

/* ---- calls of the program -------------------------------------------------------- */

/* For calls that are allowed where accel_step is. */
static accel_status_t optim_ready(const accel_optim_t *o, const char *call,
                                  accel_error_t *err)
{
    accel_status_t st = optim_given(o, call, err);

    return st == ACCEL_OK ? run_trains(o->run, call, err) : st;
}

/* What ranks add up: sums[0], the sum of squares, of which each has its part, which is
 * filled in here; sums[1], a number of the caller's. */
static accel_status_t global_sums(struct accel_optim *o, double sums[2],
                                  accel_error_t *err)
{
    accel_status_t st = optim_gather(o->run, o, &sums[0], err);

    ACCEL_TRY(st, comm_all_reduce(o->run->comm, sums, 2, ACCEL_F64, COMM_SUM, err));
    phase_end(o->run, PHASE_WAIT);
    return st;
}

/* The rate comes first, so that all ranks know when one has none. */
static accel_status_t single_step(struct accel_optim *o, accel_error_t *err)
{
    accel_error_t why = { 0 };
    double sums[2] = { 0, optim_rate(o, &why) != ACCEL_OK };
    accel_status_t st = global_sums(o, sums, err);

    if (st == ACCEL_OK && sums[1] > 0)
        st = optim_rate_failed(&why, err);
    return st == ACCEL_OK ? optim_apply(o->run, o, sums[0], err) : st;
}

accel_status_t accel_optim_step(accel_optim_t *o, int *updated_out, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;
    int before;

    ACCEL_CHECK(st, optim_ready(o, "accel_optim_step", err));
    before = o->updated;
    if (loop_syncs(o->run))
        st = single_step(o, &e);
    if (st != ACCEL_OK)
        return run_report(o->run, st, &e, err);
    if (updated_out)
        *updated_out = o->updated > before;
    return ACCEL_OK;
}

accel_status_t accel_zero_grad(accel_optim_t *o, accel_error_t *err)
{
    accel_status_t st = optim_ready(o, "accel_zero_grad", err);

    if (st == ACCEL_OK) {
        shard_zero(o->run->shard, o->number);
        o->clipped = o->overflowed = false;
    }
    return st;
}

static accel_status_t clip_norm(struct accel_optim *o, float max, double *norm_out,
                                accel_error_t *err)
{
    accel_error_t why = { 0 };
    double sums[2] = { 0 };
    float factor;
    accel_status_t st;

    ACCEL_CHECK(st, global_sums(o, sums, err));
    if (optim_clip(local_sgd_sumsq(o, sums[0]), max, &factor, norm_out, &why) !=
        ACCEL_OK) {
        *norm_out = sqrt(sums[0]);
        return o->skip || o->run->scaling.on ? ACCEL_OK : norm_diverged(o->run, o, err);
    }
    if (factor != 1.0f)
        shard_scale(o->run->shard, o->number, factor);
    o->norm = *norm_out;
    o->clipped = true;
    return ACCEL_OK;
}

accel_status_t accel_clip_norm(accel_optim_t *o, float max, double *norm_out,
                               accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = optim_ready(o, "accel_clip_norm", err);
    double norm = 0;

    if (st == ACCEL_OK && !(max > 0))
        return accel_fail(err, A0962, "pass a positive number",
                          "accel_clip_norm: the norm of optimizer '%s' cannot be at "
                          "most %g",
                          o->name, (double)max);
    if (st == ACCEL_OK && loop_syncs(o->run)) {
        st = clip_norm(o, max, &norm, &e);
        if (st != ACCEL_OK)
            return run_report(o->run, st, &e, err);
    }
    if (st == ACCEL_OK && norm_out)
        *norm_out = norm;
    return st;
}

accel_status_t accel_clip_value(accel_optim_t *o, float limit, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = optim_ready(o, "accel_clip_value", err);

    if (st == ACCEL_OK && !(limit > 0))
        return accel_fail(err, A0962, "pass a positive number",
                          "accel_clip_value: the elements of optimizer '%s' cannot be "
                          "at most %g",
                          o->name, (double)limit);
    if (st != ACCEL_OK || !loop_syncs(o->run))
        return st;
    st = complete(o->run, o, &e);
    ACCEL_TRY(st, note_overflow(o->run, o, &e));
    if (st == ACCEL_OK)
        shard_clamp(o->run->shard, o->number, limit);
    return run_report(o->run, st, &e, err);
}

/* ---- settings between steps ------------------------------------------------------ */

/* A number that must be finite and not negative. */
static accel_status_t number_possible(const accel_optim_t *o, const char *call, float x,
                                      accel_error_t *err)
{
    accel_status_t st = optim_given(o, call, err);

    if (st != ACCEL_OK || (x >= 0 && !isinf(x)))
        return st;
    return accel_fail(err, A0962, "pass a finite number that is not negative",
                      "%s: %g is no value for optimizer '%s'", call, (double)x,
                      o->name);
}

accel_status_t accel_optim_set_clip(accel_optim_t *o, float clip, accel_error_t *err)
{
    accel_status_t st = number_possible(o, "accel_optim_set_clip", clip, err);

    if (st == ACCEL_OK && config_clipping(&o->run->config) <= 0)
        o->clip = clip;
    return st;
}

accel_status_t accel_optim_set_lr(accel_optim_t *o, float lr, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, number_possible(o, "accel_optim_set_lr", lr, err));
    o->lr = lr;
    o->lr_set = true;
    if (o->scheduled)
        schedule_set_lr(&o->schedule, lr);
    return ACCEL_OK;
}

accel_status_t accel_optim_skip(accel_optim_t *o, int on, accel_error_t *err)
{
    accel_status_t st = optim_given(o, "accel_optim_skip", err);

    if (st == ACCEL_OK)
        o->skip = on != 0;
    return st;
}

float accel_optim_lr(const accel_optim_t *o)
{
    return o ? optim_next_rate(o) : 0;
}

int64_t accel_optim_steps(const accel_optim_t *o)
{
    return o ? o->t : 0;
}
