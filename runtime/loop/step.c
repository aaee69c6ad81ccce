/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: backward of a micro-batch, then the optimizer's step. What the ranks must
 * agree on in a step (loss, gradient norm, stop, save) travels in one reduction, so
 * that all of them stop, save and go on at the same step.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backend/device.h"
#include "optim/optim.h"
#include "run/run.h"

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

/* Backward of one micro-batch. The loss goes to its place behind the forward; nobody
 * waits for a device here. */
static accel_status_t step_backward(accel_t *run, accel_tensor_t *loss,
                                    accel_error_t *err)
{
    bool last = run->loop.micro + 1 == run->job.accumulate;
    const struct backend *be = run->backend;
    accel_status_t st = graph_check_loss(&run->graph, loss, err);

    if (st == ACCEL_OK)
        be->copy(be, &run->loop.losses[run->loop.micro], loss->data, sizeof(float));
    if (st == ACCEL_OK)
        st = shard_backward_begin(run->shard, run->job.accumulate, err);
    if (st == ACCEL_OK)
        st = graph_backward(&run->graph, loss, 1.0f, err);
    if (st == ACCEL_OK)
        st = shard_backward_end(run->shard, err);
    be->step_end(be);
    /* while the GPU is still busy, so that no step waits for the answer */
    if (last && observe_due(&run->observe, run->progress.step + 1))
        throttle_check(run);
    if (st == ACCEL_OK)
        st = be->check(be, err);
    if (st == ACCEL_OK) {
        run->loop.micro++;
        run->loop.in_micro = false;
    }
    return st;
}

/* A failure is the run's: run_report keeps it, and accel_more turns false. */
accel_status_t accel_backward(accel_t *run, accel_tensor_t *loss, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = run_ready(run, "accel_backward", err);

    if (st != ACCEL_OK)
        return st;
    return run_report(run, step_backward(run, loss, &e), &e, err);
}

/* The values of a step that all ranks share after the reduction. */
struct agreed {
    double loss, grad_sumsq;
    /* signal that asked some rank to stop; 0: none */
    int stop;
    /* a checkpoint of this step is due */
    bool save;
};

/* The sum of the losses of this rank's micro-batches. */
static double loss_sum(const accel_t *run)
{
    double sum = run->loop.loss_sum;

    for (int i = 0; run->job.model && i < run->loop.micro; i++)
        sum += run->loop.losses[i];
    return sum;
}

/* Collective: the one reduction of a step, of this rank's values after its wait for
 * the device. Flags of single ranks become counts; any count above 0 counts for all.
 * Time for a save is measured by each rank's clock, and the first rank to reach it
 * decides. */
static accel_status_t step_agree(accel_t *run, double sumsq, struct agreed *a_out,
                                 accel_error_t *err)
{
    const struct config *c = &run->config;
    double minutes = (double)(clock_ns() - run->progress.last_save_ns) / 60e9;
    bool due = c->ckpt_every_minutes > 0 && minutes >= c->ckpt_every_minutes;
    int sig = signals_pending();
    double mean = loss_sum(run) / run->job.accumulate / run->boot.size;
    double v[6] = {
        mean,
        sumsq,
        sig == SIGTERM,
        sig != 0 && sig != SIGTERM && sig != SIGINT,
        due,
        sig == SIGINT,
    };
    accel_status_t st = comm_all_reduce(run->comm, v, 6, ACCEL_F64, COMM_SUM, err);

    if (st != ACCEL_OK)
        return st;
    a_out->loss = v[0];
    a_out->grad_sumsq = v[1];
    /* A warning on any rank counts as one, since slurmctld may send SIGTERM
     * right behind it. Whoever presses Ctrl-C wants the run to end, whatever
     * other signals arrive. */
    a_out->stop = v[5] > 0   ? SIGINT
                  : v[3] > 0 ? (c->preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1)
                  : v[2] > 0 ? SIGTERM
                             : 0;
    if (a_out->stop)
        signals_agreed(a_out->stop);
    a_out->save = v[4] > 0 ||
                  (c->ckpt_every_steps > 0 &&
                   (run->progress.step + 1) % c->ckpt_every_steps == 0) ||
                  run->progress.step + 1 == run->job.steps;
    return ACCEL_OK;
}

/* What the optimizer did with the agreed values: learning rate, and the
 * norm before clipping. */
struct applied {
    double lr, norm;
};

/* All ranks see the same values, so rank 0 alone says it. Called before the update: the
 * weights are still those of the step before. */
static accel_status_t diverged(const accel_t *run, const struct agreed *a,
                               accel_error_t *err)
{
    const char *what = isfinite(a->loss) ? "the norm of the gradients" : "the loss";

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

/* Clips, updates this rank's shard, and moves step and cursor on. Steps count from 1
 * for schedule and bias correction. */
static accel_status_t update(accel_t *run, const struct agreed *a,
                             struct applied *did_out, accel_error_t *err)
{
    const accel_job_t *j = &run->job;
    accel_error_t why = { 0 };
    float factor;

    if (!isfinite(a->loss) ||
        optim_clip(a->grad_sumsq, j->clip, &factor, &did_out->norm, &why) != ACCEL_OK)
        return diverged(run, a, err);
    did_out->lr =
        optim_lr(j->optimizer.lr, j->warmup, j->steps, run->progress.step + 1);
    shard_update(run->shard, 0, (float)did_out->lr, run->progress.step + 1, factor);
    run->progress.step++;
    run->progress.cursor = run_first_sample(run->progress.cursor, j->accumulate,
                                            run->boot.size, 0, j->batch);
    run->loop.micro = 0;
    run->loop.loss_sum = 0;
    return ACCEL_OK;
}

/* Hands the step's numbers to observe/. Items are tokens for
 * token data, else samples. */
static void step_record(accel_t *run, double loss, const struct applied *did,
                        double eval_loss)
{
    const accel_job_t *j = &run->job;
    int64_t now = clock_ns();
    struct observe_step s = {
        .step = run->progress.step,
        .loss = loss,
        .lr = did->lr,
        .grad_norm = did->norm,
        .step_ms = (double)(now - run->loop.step_start_ns) / 1e6,
        .items = (int64_t)j->batch * run->boot.size * j->accumulate,
        .eval_loss = eval_loss,
    };

    if (j->data && data_seq(j->data) > 0) {
        s.items *= data_seq(j->data);
        s.tokens = true;
    }
    observe_step(&run->observe, &s);
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
    double eval_loss = NAN, sumsq;
    struct applied did = { 0 };
    struct agreed a;
    bool finished;
    accel_status_t st;

    st = shard_reduce(run->shard, 0, err);
    if (st == ACCEL_OK)
        st = hooks_call(run, err);
    if (st == ACCEL_OK)
        st = shard_grad_sumsq(run->shard, 0, &sumsq, err);
    if (st == ACCEL_OK)
        st = step_agree(run, sumsq, &a, err);
    if (st == ACCEL_OK) {
        stop_announce(run, a.stop); /* rank 0 may not have got it itself */
        st = update(run, &a, &did, err);
    }
    graph_reset(&run->graph);
    finished = run->progress.step >= run->job.steps;
    if (st == ACCEL_OK && !a.stop && run->job.eval_every > 0 &&
        (finished || run->progress.step % run->job.eval_every == 0))
        st = accel_evaluate(run, 0, &eval_loss, err);
    if (st == ACCEL_OK) {
        tell_choices(run);
        step_record(run, a.loss, &did, eval_loss);
    }
    if (st == ACCEL_OK && a.stop && !finished)
        accel_logf(&run->log, ACCEL_LOG_INFO, "received %s: saving step %lld",
                   stop_signal_name(a.stop), (long long)run->progress.step);
    if (st == ACCEL_OK && (a.stop || finished))
        st = save_last(run, err);
    else if (st == ACCEL_OK && a.save)
        st = save_or_go_on(run, err);
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
    accel_status_t st = run_ready(run, "accel_step", err);

    if (st == ACCEL_OK && run->loop.in_micro)
        return accel_fail(err, A0901,
                          "call accel_backward or accel_finish_backward first",
                          "accel_step before the backward of its micro-batch");
    if (st == ACCEL_OK)
        st = own_units_done(run, err);
    if (st != ACCEL_OK || run->loop.micro < run->job.accumulate)
        return st;
    return run_report(run, step(run, &e), &e, err);
}

/* Only between steps: a checkpoint has no gradients. */
accel_status_t accel_save(accel_t *run, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = run_ready(run, "accel_save", err);

    if (st != ACCEL_OK)
        return st;
    if (run->loop.micro != 0)
        return accel_fail(err, A0901, "call it after accel_step",
                          "accel_save in the middle of a gradient accumulation");
    return run_report(run, save_checkpoint(run, &e), &e, err);
}
