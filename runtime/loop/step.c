/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: the backward of a micro-batch, and the end of a step. What the ranks must
 * agree on in a step (loss, gradient norm, stop, save) goes through one reduction, so
 * that all of them stop, save and continue at the same step.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "preemption/preemption.h"
#include "loop/loop.h"
#include "place/place.h"
#include "loader/loader.h"
#include "state/save/staging.h"
#include "training/ema.h"
#include "training/local_sgd.h"
#include "training/loss_scale.h"
#include "training/fp8_scaling.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "backend/device.h"
#include "handle/run.h"

/* False after a failure as well: a loop on accel_more ends by itself. */
int accel_more(const accel_t *run)
{
    return run && run->prepared && run->status == ACCEL_OK &&
           run->progress.step < run->job.steps;
}

/* Counts steps of earlier lives as well. */
int64_t accel_steps_done(const accel_t *run)
{
    return run ? run->progress.step : 0;
}

/* Puts the loss to the others of the step, after the forward; nobody waits for a
 * device here, unless a step has more losses than there is room for. */
static accel_status_t keep_loss(accel_t *run, const accel_tensor_t *loss,
                                accel_error_t *err)
{
    const struct backend *be = run->backend;
    struct loop *l = &run->loop;
    accel_status_t st = ACCEL_OK;

    if (l->loss_count == l->losses_room) {
        st = be->sync(be, err);
        for (int i = 0; i < l->loss_count; i++)
            l->loss_sum += l->losses[i];
        l->loss_count = 0;
    }
    be->copy(be, &l->losses[l->loss_count++], loss->data, sizeof(float));
    return st;
}

/* A micro-batch of a loop of one's own may have several backwards. */
static accel_status_t step_backward(accel_t *run, accel_tensor_t *loss,
                                    accel_error_t *err)
{
    const struct backend *be = run->backend;
    accel_status_t st = graph_check_loss(&run->graph, loss, err);

    phase_end(run, PHASE_FORWARD);
    ACCEL_TRY(st, keep_loss(run, loss, err));
    if (st == ACCEL_OK)
        st =
            shard_backward_begin(run->shard, accumulate_divisor(&run->loop.group), err);
    ACCEL_TRY(st, graph_backward(&run->graph, loss, (float)accel_loss_scale(run), err));
    ACCEL_TRY(st, shard_backward_end(run->shard, err));
    ACCEL_TRY(st, group_reduce(run, err));
    be->step_end(be);
    /* while the GPU is still busy, so that no step waits for the answer */
    if (accumulate_syncs(&run->loop.group) &&
        observe_due(&run->observe, run->progress.step + 1))
        throttle_check(run);
    ACCEL_TRY(st, be->check(be, err));
    if (st == ACCEL_OK) {
        run->loop.micro += run->loop.in_micro || !run->own_loop;
        run->loop.in_micro = false;
    }
    phase_end(run, PHASE_BACKWARD);
    return st;
}

/* A failure is the run's: run_report keeps it, and accel_more turns false. */
accel_status_t accel_backward(accel_t *run, accel_tensor_t *loss, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, "accel_backward", err));
    return run_report(run, step_backward(run, loss, &e), &e, err);
}

/* Numbers in the reduction of a step, without the sums of squares. */
#define AGREED 10

/* The values of a step that all ranks share after the reduction. */
struct agreed {
    double loss;
    /* of the optimizers that step now, in the order of the run's list */
    double sumsq[ACCEL_MAX_OPTIMS];
    /* signal that asked some rank to stop; 0: none */
    int stop;
    /* a checkpoint of this step is due */
    bool save;
    /* the loss scale was too large: the next iteration tries the same step again */
    bool skipped;
    /* a loader of some rank could not have its samples */
    bool loader_failed;
    /* an own schedule of some rank gives no rate */
    bool rate_failed;
    /* no rank writes a checkpoint any more, or copies one from its node */
    bool written, copied;
};

/* The optimizers that accel_step steps: those with gradients that have not stepped in
 * this iteration. That of a job needs no gradient. */
struct stepping {
    struct accel_optim *optim[ACCEL_MAX_OPTIMS];
    int count;
    /* the first that has no rate on this rank; code ACCEL_OK: all have one */
    accel_error_t rate;
};

static struct stepping who_steps(accel_t *run)
{
    struct stepping s = { 0 };

    for (int i = 0; i < run->optims; i++)
        if (!run->optim[i].updated &&
            (!run->own_loop || shard_has_gradient(run->shard, i)))
            s.optim[s.count++] = &run->optim[i];
    for (int i = 0; i < s.count && s.rate.code == ACCEL_OK; i++)
        (void)optim_rate(s.optim[i], &s.rate);
    return s;
}

/* The sum of this rank's losses. */
static double loss_sum(const accel_t *run)
{
    double sum = run->loop.loss_sum;

    for (int i = 0; i < run->loop.loss_count; i++)
        sum += run->loop.losses[i];
    return sum;
}

/* Collective: the one reduction of a step, of this rank's values after its wait for
 * the device. Flags of single ranks become counts; any count above 0 counts for all.
 * Time for a save is measured by each rank's clock, and the first rank to reach it
 * decides. */
static accel_status_t step_agree(accel_t *run, const struct stepping *s,
                                 struct agreed *a, accel_error_t *err)
{
    const struct config *c = &run->config;
    double minutes = (double)(clock_ns() - run->progress.last_save_ns) / 60e9;
    bool due = c->ckpt_every_minutes > 0 && minutes >= c->ckpt_every_minutes;
    int sig = signals_pending();
    double v[AGREED + ACCEL_MAX_OPTIMS] = {
        loss_sum(run) / run->loop.micro / run->boot.size,
        sig == SIGTERM,
        sig != 0 && sig != SIGTERM && sig != SIGINT,
        due,
        sig == SIGINT,
        run->loader_failure.failed,
        s->rate.code != ACCEL_OK,
        background_writes(&run->background),
        background_writes(&run->staging.drain),
        background_failed(&run->background),
    };
    const size_t optims = (size_t)s->count;
    accel_status_t st;

    memcpy(v + AGREED, a->sumsq, optims * sizeof(*v));
    st = comm_all_reduce(run->comm, v, AGREED + optims, ACCEL_F64, COMM_SUM, err);
    phase_end(run, PHASE_WAIT);
    if (st != ACCEL_OK)
        return st;
    a->loss = v[0];
    memcpy(a->sumsq, v + AGREED, optims * sizeof(*v));
    a->stop = stop_agreed(run, v[4], v[2], v[1]);
    a->save = v[3] > 0;
    a->loader_failed = v[5] > 0;
    a->rate_failed = v[6] > 0;
    a->written = v[7] == 0;
    a->copied = v[8] == 0;
    if (v[9] > 0)
        background_hurry(&run->background);
    return ACCEL_OK;
}

/* Did the loss scale make every optimizer of this iteration skip its step? Without a
 * scale, which ends the run when it is spent, such iterations might go on for ever. */
static bool all_skipped(const accel_t *run)
{
    int updated = 0, skipped = 0;

    for (int i = 0; i < run->optims; i++) {
        updated += run->optim[i].updated;
        skipped += run->optim[i].skipped;
    }
    return run->scaling.on && skipped > 0 && updated == 0;
}

/* Steps the optimizers, and moves step and cursor on. Schedules stay where all steps
 * are skipped, and so does the count of steps: they end together. A loss that is not
 * finite ends the run before: the weights are still those of the step before. */
static accel_status_t update(accel_t *run, const struct stepping *s, struct agreed *a,
                             accel_error_t *err)
{
    const int64_t every = run->config.ckpt_every_steps;
    accel_status_t st =
        isfinite(a->loss) ? ACCEL_OK : loop_diverged(run, "the loss", err);

    /* the device has just been waited for: its copy for a checkpoint has had a step */
    ACCEL_TRY(st, background_copied(run, err));
    for (int i = 0; i < s->count && st == ACCEL_OK; i++)
        st = optim_apply(run, s->optim[i], a->sumsq[i], err);
    if (st == ACCEL_OK && !loss_scale_end_step(run))
        st = loop_diverged(run, "the gradient, at any loss scale,", err);
    if (st != ACCEL_OK)
        return st;
    a->skipped = all_skipped(run);
    run->progress.step += !a->skipped;
    a->save |= !a->skipped && every > 0 && run->progress.step % every == 0;
    run->progress.cursor += run_step_samples(run);
    return ACCEL_OK;
}

/* The norm of the gradients of all optimizers together. */
static double all_norms(const accel_t *run)
{
    double sum = 0;

    for (int i = 1; i < run->optims; i++)
        sum += run->optim[i].norm * run->optim[i].norm;
    return run->optims == 1 ? run->optim[0].norm
                            : sqrt(sum + run->optim[0].norm * run->optim[0].norm);
}

/* Makes the one record of the step. What is counted in a second is tokens for token
 * data, else samples. */
static void step_record(accel_t *run, const struct agreed *a, double eval_loss)
{
    const accel_job_t *j = &run->job;
    const int64_t length = j->data ? data_seq(j->data) : 0;
    const int64_t samples = run_step_samples(run);
    struct step_record r = { .grad_norm = all_norms(run),
                             .tokens = length > 0,
                             .eval_loss = eval_loss };
    accel_step_info_t *s = &r.info;
    accel_item_t item[STEP_ITEMS];

    s->step = run->progress.step + a->skipped;
    s->loss = a->loss;
    s->total_ms = (double)(clock_ns() - run->loop.step_start_ns) / 1e6;
    if (s->total_ms > 0)
        s->rate = (double)(samples * (r.tokens ? length : 1)) / (s->total_ms * 1e-3);
    s->loss_scale = accel_loss_scale(run);
    s->optims = run->optims;
    for (int i = 0; i < run->optims; i++) {
        s->lr[i] = run->optim[i].last_lr;
        s->norm[i] = run->optim[i].norm;
        s->updated[i] = run->optim[i].updated;
        s->skipped[i] = run->optim[i].skipped;
        run->optim[i].updated = run->optim[i].skipped = 0;
    }
    observe_step(&run->observe, &r);
    track_write(&run->track, s->step, item, step_items(&r, item));
    run->loop.last = *s;
    phases_take(run);
}

/* A library of the device first sees a shape when a kernel runs with it. Which engine
 * it takes, what it refuses and what would help is known then, when the plan has long
 * been printed. */
static void tell_choices(accel_t *run)
{
    const size_t length = strlen(run->backend->isa);
    const char *advice = run->backend->advice;

    if (length > run->loop.isa_shown)
        accel_logf(&run->log, ACCEL_LOG_INFO, "compute: %s, %s", run->backend->name,
                   run->backend->isa);
    run->loop.isa_shown = length;
    /* once per run, not once per rank */
    if (advice && run->boot.rank == 0 && !run->loop.advice_shown)
        accel_logf(&run->log, ACCEL_LOG_WARN, "%s", advice);
    run->loop.advice_shown = run->loop.advice_shown || advice;
}

/* The end of a step, in the order that keeps ranks together: agree, update,
 * evaluate, log, save, stop. A stop skips the evaluation, since time is short, and
 * saves even if no save is due. */
static accel_status_t step(accel_t *run, accel_error_t *err)
{
    const struct stepping who = who_steps(run);
    double eval_loss = NAN;
    struct agreed a = { 0 };
    bool finished;
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < who.count && st == ACCEL_OK; i++)
        st = optim_gather(run, who.optim[i], &a.sumsq[i], err);
    ACCEL_TRY(st, step_agree(run, &who, &a, err));
    /* the step is of no use: some rank repeated a batch in it */
    if (st == ACCEL_OK && a.loader_failed)
        st = loaders_agree(run, err);
    if (st == ACCEL_OK && a.rate_failed)
        st = optim_rate_failed(&who.rate, err);
    /* the device has come to its end: the optimizers' work is not waited for */
    ACCEL_TRY(st, fp8_scales_end_step(run, err));
    if (st == ACCEL_OK) {
        stop_announce(run, a.stop); /* rank 0 may not have got it itself */
        st = update(run, &who, &a, err);
    }
    graph_reset(&run->graph);
    finished = run->progress.step >= run->job.steps;
    ACCEL_TRY(st, local_sgd_end_step(run, a.stop || finished, err));
    if (st == ACCEL_OK && !a.stop && !a.skipped && run->job.eval_every > 0 &&
        (finished || run->progress.step % run->job.eval_every == 0))
        st = accel_evaluate(run, 0, &eval_loss, err);
    if (st == ACCEL_OK) {
        tell_choices(run);
        step_record(run, &a, eval_loss);
        regions_report(run);
        loaders_keep(run);
        run->loop.micro = run->loop.loss_count = 0;
        run->loop.loss_sum = 0;
    }
    if (st == ACCEL_OK && a.written && !a.stop)
        st = save_finish(run, err);
    if (st == ACCEL_OK && finished)
        st = save_last(run, err);
    else if (st == ACCEL_OK && a.stop)
        st = save_stop(run, a.stop, err);
    else if (st == ACCEL_OK && a.save)
        st = save_or_go_on(run, err);
    if (st == ACCEL_OK && a.copied && !a.stop && !finished)
        st = staging_go_on(run, true, err);
    if (finished || st != ACCEL_OK) /* nothing is left to save */
        signals_leave_interrupt();
    run->loop.step_start_ns = clock_ns();
    if (st == ACCEL_OK && a.stop && !finished)
        st = run_stop(run, a.stop, err);
    return st;
}

/* Does nothing until the last micro-batch of the step is done. */
accel_status_t accel_step(accel_t *run, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = run_trains(run, "accel_step", err);

    if (st == ACCEL_OK && run->loop.in_micro)
        return accel_fail(err, A0901,
                          "call accel_backward or accel_finish_backward first",
                          "accel_step before the backward of its micro-batch");
    ACCEL_TRY(st, own_units_done(run, err));
    if (st != ACCEL_OK || !loop_syncs(run))
        return st;
    return run_report(run, step(run, &e), &e, err);
}

/* Only between steps: a checkpoint has no gradients. Nor has it the place of a loader
 * after a batch that some rank could not have. */
accel_status_t accel_save(accel_t *run, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, "accel_save", err));
    if (run->loop.micro != 0)
        return accel_fail(err, A0901, "call it after accel_step",
                          "accel_save in the middle of a gradient accumulation");
    st = loaders_agree(run, &e);
    ACCEL_TRY(st, save_checkpoint(run, &e));
    return run_report(run, st, &e, err);
}
