/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean loss over the held-out samples, without gradients. Ranks take micro-batches
 * in rank order. Each call gathers units, so every rank makes the same number of calls;
 * the losses of calls beyond the end do not count. Stops early when a rank is told to
 * stop.
 */
#include <math.h>

#include "preemption/preemption.h"
#include "loader/loader.h"
#include "loop/loop.h"
#include "training/local_sgd.h"
#include "state/save/save.h"
#include "state/save/background.h"
#include "handle/run.h"

/* The next micro-batch of the held-out part. Adds to sums[4], over all ranks: loss
 * times samples, samples, ranks told to stop, ranks without their samples.
 * Collective. */
static accel_status_t evaluate_batch(accel_t *run, accel_module_t *root,
                                     struct accel_loader *l, double sums[4],
                                     accel_error_t *err)
{
    accel_tensor_t *in[DATA_MAX_FIELDS], *loss;
    const accel_field_t *f;
    double part[4] = { 0 };
    float value;
    accel_status_t st;

    /* tensors of the micro-batch before are freed */
    graph_reset(&run->graph);
    st = job_batch(run, l, in, err);
    if (st == ACCEL_ESTOPPED) {
        run->loader_failure = (struct loader_failure){ 0 };
        sums[2] = 1;
        return ACCEL_OK;
    }
    if (st != ACCEL_OK)
        return st;
    loss = accel_call(root, in, data_fields(run->job.data, &f));
    if (!loss) {
        *err = run->graph.error;
        return err->code;
    }
    ACCEL_CHECK(st, accel_tensor_read(loss, &value, 1, err));
    /* beyond the end there is one sample that counts for nothing, for the collectives'
     * sake */
    part[1] = loader_state(l).real;
    part[0] = part[1] > 0 ? (double)value * part[1] : 0;
    part[2] = signals_pending() ? 1 : 0;
    /* the rest is not seen, whether it could be had or not */
    if (run->loader_failure.error.code == ACCEL_ESTOPPED)
        run->loader_failure = (struct loader_failure){ 0 };
    part[3] = run->loader_failure.failed;
    st = comm_all_reduce(run->comm, part, 4, ACCEL_F64, COMM_SUM, err);
    for (int i = 0; i < 4; i++)
        sums[i] += part[i];
    return st == ACCEL_OK && sums[3] > 0 ? loaders_agree(run, err) : st;
}

/* batches > 0 limits the rounds. The mean is over samples, not over micro-batches,
 * so that the last, smaller ones count less. A run that is told to stop gets NAN:
 * the rest was not seen. */
static accel_status_t evaluate(accel_t *run, accel_module_t *root, int batches,
                               double *loss_out, accel_error_t *err)
{
    struct accel_loader *l = run->job.data ? job_loader_at(run, true) : NULL;
    int64_t rounds = l ? accel_loader_length(l) : 0;
    double sums[4] = { 0 };
    accel_status_t st = ACCEL_OK;

    if (!loss_out)
        return accel_fail(err, A0908, "pass the address of a double",
                          "accel_evaluate: loss_out is NULL");
    if (!root || root->g != &run->graph)
        return accel_fail(
            err, A0908, "compute the loss with accel_unit_want or accel_inference_mode",
            "accel_evaluate needs a model of the run");
    if (rounds == 0)
        return accel_fail(err, A0908, "open the dataset with a holdout fraction",
                          "the dataset has no held-out samples");
    if (batches > 0 && batches < rounds)
        rounds = batches;
    st = local_sgd_meet(run, false, err);
    /* an evaluation may be long, and a checkpoint waits to be written */
    ACCEL_TRY(st, background_copied(run, err));
    /* no tape, no dropout */
    run->graph.recording = run->graph.training = false;
    for (int64_t i = 0; i < rounds && st == ACCEL_OK && sums[2] == 0; i++)
        st = evaluate_batch(run, root, l, sums, err);
    run->graph.recording = run->graph.training = !run->graph.evaluating;
    graph_reset(&run->graph);
    if (st == ACCEL_OK)
        *loss_out = sums[2] == 0 ? sums[0] / sums[1] : NAN;
    if (st == ACCEL_OK)
        retention_note(run, "eval_loss", *loss_out);
    return st;
}

static accel_status_t evaluate_model(accel_t *run, accel_module_t *root, int batches,
                                     double *loss_out, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    phases_evaluate(run, true);
    st = evaluate(run, root, batches, loss_out, &e);
    phases_evaluate(run, false);
    return run_report(run, st, &e, err);
}

accel_status_t accel_evaluate(accel_t *run, int batches, double *loss_out,
                              accel_error_t *err)
{
    const struct run_model *model;
    accel_status_t st = run_ready(run, "accel_evaluate", err);

    ACCEL_TRY(st, models_only(run, "accel_evaluate", "call accel_model_evaluate",
                              &model, err));
    return st != ACCEL_OK ? st
                          : evaluate_model(run, model ? model->root : NULL, batches,
                                           loss_out, err);
}

accel_status_t accel_model_evaluate(accel_t *run, accel_module_t *root, int batches,
                                    double *loss_out, accel_error_t *err)
{
    accel_status_t st = run_ready(run, "accel_model_evaluate", err);

    return st != ACCEL_OK ? st : evaluate_model(run, root, batches, loss_out, err);
}
