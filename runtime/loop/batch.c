/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes into a forward: the samples of the dataset, or the program's own values, as
 * tensors of the micro-batch. In: host memory. Out: tensors, with float values in the
 * compute dtype. Decides which samples a rank takes, never how they are used.
 */
#include <stdlib.h>
#include <string.h>

#include "preemption/preemption.h"
#include "loop/loop.h"
#include "state/state.h"
#include "backend/device.h"
#include "tensor/tape.h"
#include "handle/run.h"

/* The size is checked by division, before anything is multiplied. */
accel_status_t batch_open(accel_t *run, accel_error_t *err)
{
    const accel_field_t *f = NULL;
    int n = run->job.data ? data_fields(run->job.data, &f) : 0;
    int64_t sample = host_sample_bytes(f, n);
    accel_status_t st;

    if (sample > HOST_BATCH_MAX / run->job.batch)
        return accel_fail(err, A0902, "use a smaller batch and more accumulation",
                          "a micro-batch of %d samples of %lld bytes is too large",
                          run->job.batch, (long long)sample);
    run->loop.losses_room = (run->job.accumulate + 15) / 16 * 16;
    st = host_batch_open(&run->loop.host, run->backend,
                         (size_t)run->loop.losses_room * sizeof(float), run->job.batch,
                         f, n, err);
    run->loop.losses = (float *)run->loop.host.memory;
    return st;
}

/* A sample that this rank alone cannot have: the others would wait for a rank that goes
 * home now. It goes on with zeros, and all end where they next meet. */
static accel_status_t miss_sample(accel_t *run, const accel_field_t *f, int n,
                                  void *const *dst, accel_status_t st,
                                  const accel_error_t *err)
{
    struct loader_failure *failure = &run->loader_failure;

    if (run->boot.size == 1)
        return st;
    for (int i = 0; i < n; i++)
        memset(dst[i], 0, (size_t)host_sample_bytes(&f[i], 1));
    if (!failure->failed) {
        failure->error = *err;
        failure->error.code = st;
    }
    failure->failed = true;
    return ACCEL_OK;
}

/* data_global_index maps a place in the run's order to a sample; held-out samples are
 * taken in their own order. */
accel_status_t batch_take(accel_t *run, int64_t first, int count, bool held_out,
                          accel_error_t *err)
{
    const char *outer = graph_enter(&run->graph, "the fetch function of a dataset");
    const accel_job_t *j = &run->job;
    const accel_field_t *f;
    int n = data_fields(j->data, &f);
    void *dst[DATA_MAX_FIELDS];
    const int64_t begun = sample_wait_begin();
    accel_status_t st = ACCEL_OK;
    bool over = false;

    for (int i = 0; i < count && st == ACCEL_OK; i++) {
        /* training samples: the permutation is over these */
        int64_t all = accel_dataset_samples(j->data);

        host_batch_sample(&run->loop.host, f, n, i, dst);
        if (!over)
            st = held_out
                     ? data_holdout_sample(j->data, first + i, dst, err)
                     : data_sample(j->data, data_global_index(j->seed, all, first + i),
                                   dst, err);
        /* a stop may have ended what the sample comes from */
        over = over || sample_wait_over(begun) || (st != ACCEL_OK && signals_pending());
        if (over) {
            st = ACCEL_ESTOPPED;
            *err = (accel_error_t){ .code = st };
        }
        if (st != ACCEL_OK)
            st = miss_sample(run, f, n, dst, st, err);
    }
    sample_wait_end();
    run->graph.inside = outer;
    return st;
}

accel_status_t batch_tensors(accel_t *run, int count, accel_tensor_t **batch_out,
                             accel_error_t *err)
{
    const accel_field_t *f;
    int n = data_fields(run->job.data, &f);

    for (int i = 0; i < n; i++) {
        batch_out[i] = nn_batch_tensor(&run->graph, count, &f[i]);
        if (!batch_out[i]) {
            *err = run->graph.error;
            return err->code;
        }
        host_upload(run->backend, batch_out[i], f[i].dtype,
                    run->loop.host.memory + run->loop.host.at[i]);
    }
    return ACCEL_OK;
}

/* Returns the number of this rank's first sample in the order of the run. */
static int64_t next_micro(accel_t *run)
{
    int64_t first = run_first_sample(run->progress.cursor, run->loop.micro,
                                     run->boot.size, run->boot.rank, run->job.batch);

    group_next(run, false);
    batch_begin(run, first, run->job.batch);
    return first;
}

void batch_begin(accel_t *run, int64_t first, int64_t count)
{
    phase_end(run, PHASE_OTHER);
    /* data of the micro-batch before is freed */
    graph_reset(&run->graph);
    run->graph.micro = run->loop.micro + 1;
    run->graph.micros = run->loop.group.rule.every;
    run->graph.recording = run->graph.training = !run->graph.evaluating;
    run->graph.draws =
        (struct draws){ .seed = run->job.seed, .first_sample = first, .batch = count };
}

/* An error of the call, not of the run: the program may go on after it. */
static accel_status_t wrong_count(const char *call, int n, int have, const char *what,
                                  accel_error_t *err)
{
    return accel_fail(err, A0909, "see the call in accel.h",
                      "%s was given %d %s, not %d", call, n, what, have);
}

/* The caller's array is written only when all tensors are made. */
accel_status_t accel_next(accel_t *run, accel_tensor_t **batch, int n,
                          accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = run_ready(run, "accel_next", err);
    accel_tensor_t *next[DATA_MAX_FIELDS];
    const accel_field_t *f;
    int fields;

    if (st != ACCEL_OK)
        return st;
    if (!run->job.data)
        return accel_fail(err, A0901, "call accel_next_samples and feed the samples",
                          "accel_next for a job without data");
    fields = data_fields(run->job.data, &f);
    if (n != fields || !batch)
        return wrong_count("accel_next", n, fields, "tensors", err);
    st = batch_take(run, next_micro(run), run->job.batch, false, &e);
    if (st == ACCEL_ESTOPPED)
        st = loop_stop_waiting(run, &e);
    ACCEL_TRY(st, batch_tensors(run, run->job.batch, next, &e));
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    for (int i = 0; i < n; i++)
        batch[i] = next[i];
    phase_end(run, PHASE_DATA);
    /* a device may record the micro-batch from here on */
    if (run->graph.recording)
        run->backend->step_begin(run->backend);
    return ACCEL_OK;
}

/* For a job without data the program gets the numbers of its samples; the library
 * advances the cursor as usual. */
accel_status_t accel_next_samples(accel_t *run, int64_t *index, int count,
                                  accel_error_t *err)
{
    accel_status_t st = run_ready(run, "accel_next_samples", err);
    int64_t first;

    if (st != ACCEL_OK)
        return st;
    if (run->job.data)
        return accel_fail(err, A0901, "call accel_next",
                          "accel_next_samples for a job with data");
    if (count != run->job.batch)
        return wrong_count("accel_next_samples", count, run->job.batch, "samples", err);
    first = next_micro(run);
    for (int i = 0; index && i < count; i++)
        index[i] = first + i;
    return ACCEL_OK;
}

/* Whatever the data of the run are: its sample numbers are counted all the same. */
accel_status_t accel_batch_begin(accel_t *run, accel_error_t *err)
{
    accel_status_t st = run_ready(run, "accel_batch_begin", err);

    if (st == ACCEL_OK)
        (void)next_micro(run);
    return st;
}

/* Inputs are also made inside a forward, even in the one that
 * accel_prepare runs for its plan. */
static bool input_possible(accel_t *run, accel_error_t *err)
{
    if (run_given(run, "accel_input", err) != ACCEL_OK)
        return false;
    return run->graph.depth > 0 || run_ready(run, "accel_input", err) == ACCEL_OK;
}

/* Float values become the compute dtype; integers stay what they are. */
accel_tensor_t *accel_input(accel_t *run, accel_dtype_t dtype, int ndim,
                            const int64_t *dims, const void *host, accel_error_t *err)
{
    struct graph *g = run ? &run->graph : NULL;
    accel_tensor_t *t = NULL;

    if (!input_possible(run, err))
        return NULL;
    g->op = "input";
    if (host && dims)
        t = host_tensor(g, dtype, ndim, dims, host);
    else
        graph_fail(g, A0601, g->op, "pass sizes and values",
                   "the %s of the tensor are NULL", host ? "sizes" : "values");
    if (!t && err)
        *err = g->error;
    return t;
}
