/* SPDX-License-Identifier: Apache-2.0
 *
 * Mean loss over the held-out samples, no gradients. Ranks take micro-batches in rank
 * order; places beyond the end are ignored targets, so that every rank makes the same
 * number of collective calls. Stops early when a rank is told to stop.
 */
#include <math.h>

#include "train/run.h"

/* Fills one micro-batch from held-out sample `first` on; returns the samples in it. */
static accel_status_t fill_holdout(accel_t *run, int64_t first, int32_t *ids,
                                   int32_t *targets, int *count_out, accel_error_t *err)
{
    const accel_job_t *j = &run->job;
    int64_t seq = data_seq(j->data), total = data_holdout_samples(j->data);

    *count_out = 0;
    for (int i = 0; i < j->batch; i++) {
        int32_t *to_ids = ids + i * seq, *to_targets = targets + i * seq;

        if (first + i < total) {
            accel_status_t st =
                data_holdout_sample(j->data, first + i, to_ids, to_targets, err);

            if (st != ACCEL_OK)
                return st;
            ++*count_out;
            continue;
        }
        for (int64_t t = 0; t < seq; t++) {
            to_ids[t] = 0;
            to_targets[t] = -1;
        }
    }
    return ACCEL_OK;
}

/* One micro-batch: adds its loss times samples, its samples and the stop flag. */
static accel_status_t evaluate_batch(accel_t *run, int64_t first, double sums[3],
                                     accel_error_t *err)
{
    accel_tensor_t *in[2], *loss;
    double part[3] = { 0 };
    float value;
    int count = 0;
    accel_status_t st;

    graph_reset(&run->graph);
    st = fill_holdout(run, first, run->host_batch,
                      run->host_batch + run->job.batch * data_seq(run->job.data),
                      &count, err);
    if (st == ACCEL_OK)
        st = run_batch_tensors(run, in, err);
    if (st != ACCEL_OK)
        return st;
    loss = accel_call(run->job.model, in, 2);
    if (!loss) {
        *err = run->graph.error;
        return err->code;
    }
    st = accel_tensor_read(loss, &value, 1, err);
    if (st != ACCEL_OK)
        return st;
    part[0] = count > 0 ? (double)value * count : 0;
    part[1] = count;
    part[2] = signals_pending() ? 1 : 0;
    st = comm_all_reduce(run->comm, part, 3, ACCEL_F64, COMM_SUM, err);
    for (int i = 0; i < 3; i++)
        sums[i] += part[i];
    return st;
}

static accel_status_t evaluate(accel_t *run, int batches, double *loss_out,
                               accel_error_t *err)
{
    int64_t per_round = (int64_t)run->job.batch * run->boot.size;
    int64_t rounds = (data_holdout_samples(run->job.data) + per_round - 1) / per_round;
    double sums[3] = { 0 };
    accel_status_t st = ACCEL_OK;

    if (rounds == 0)
        return accel_fail(err, A0908, "open the dataset with a holdout fraction",
                          "the dataset has no held-out samples");
    if (batches > 0 && batches < rounds)
        rounds = batches;
    run->graph.recording = run->graph.training = false;
    for (int64_t i = 0; i < rounds && st == ACCEL_OK && sums[2] == 0; i++)
        st = evaluate_batch(
            run, i * per_round + (int64_t)run->boot.rank * run->job.batch, sums, err);
    run->graph.recording = run->graph.training = !run->graph.evaluating;
    graph_reset(&run->graph);
    if (st == ACCEL_OK)
        *loss_out = sums[2] == 0 ? sums[0] / sums[1] : NAN;
    return st;
}

accel_status_t accel_evaluate(accel_t *run, int batches, double *loss_out,
                              accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = run_ready(run, "accel_evaluate", err);

    if (st != ACCEL_OK)
        return st;
    return run_report(run, evaluate(run, batches, loss_out, &e), &e, err);
}
