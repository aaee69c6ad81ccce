/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that begin a micro-batch: accel_next and its kin, and those of
 * accel_loaders.h that need the run.
 */
#include <string.h>

#include "common/sized.h"
#include "loop/loop.h"
#include "loader/loader.h"
#include "backend/device.h"
#include "loader/loader_impl.h"
#include "handle/run.h"

/* ---- the list of a run ----------------------------------------------------------- */

static bool name_taken(const accel_t *run, const char *name)
{
    for (const struct accel_loader *l = run->loaders; l; l = l->next)
        if (strcmp(l->name, name) == 0)
            return true;
    return false;
}

accel_status_t accel_loader_new(accel_loader_t **out, accel_t *run, const char *name,
                                accel_dataset_t *data,
                                const accel_loader_options_t *options,
                                accel_error_t *err)
{
    struct loader_place place;
    struct accel_loader *l = NULL;
    accel_loader_options_t own;
    accel_status_t st;

    ACCEL_CHECK(st, run_outside(run, "accel_loader_new", err));
    if (out && name && name_taken(run, name))
        return accel_fail_at(err, A0930, name, "give each loader a name of its own",
                             "the run has a loader of this name already");
    place = run_place(run);
    ACCEL_CHECK(st,
                sized_read(SIZED(accel_loader_options_t, user), &own, options, err));
    ACCEL_CHECK(st, loader_open(out ? &l : NULL, &place, name, data,
                                options ? &own : NULL, err));
    l->run = run;
    st = loaders_claim(l, err);
    if (st != ACCEL_OK) {
        loader_free(l);
        return st;
    }
    l->next = run->loaders;
    run->loaders = l;
    *out = l;
    return ACCEL_OK;
}

void accel_loader_close(accel_loader_t *l)
{
    if (!l)
        return;
    for (struct accel_loader **at = &l->run->loaders; *at; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            break;
        }
    loader_free(l);
}

void loaders_rest(accel_t *run)
{
    for (struct accel_loader *l = run->loaders; l; l = l->next)
        prefetch_close(&l->ahead);
}

void loaders_close(accel_t *run)
{
    if (run->prepared && run->status == ACCEL_OK)
        loaders_tell(run);
    loaders_forget(run);
    while (run->loaders)
        accel_loader_close(run->loaders);
    loader_free(run->job_loader);
}

accel_status_t loaders_agree(accel_t *run, accel_error_t *err)
{
    const struct loader_place place = run_place(run);
    accel_status_t st = loader_agree(&place, err);

    return st == ACCEL_ESTOPPED ? loop_stop_waiting(run, err) : st;
}

/* ---- batches --------------------------------------------------------------------- */

/* An epoch without a batch, as drop_last may leave it. A program that asks again before
 * another step would ask for ever. */
static accel_status_t note_idle(accel_t *run, struct accel_loader *l,
                                accel_error_t *err)
{
    const int64_t before = l->idle_at;

    l->idle_at = run->progress.cursor;
    if (before != l->idle_at)
        return ACCEL_OK;
    return accel_fail_at(err, A0934, l->name, "use a smaller batch, or no drop_last",
                         "an epoch does not fill a step of %lld samples, and drop_last "
                         "leaves out what is not full",
                         (long long)plan_step_batch(&l->plan));
}

/* The loader's next batch as a micro-batch. In inference mode there is no backward that
 * would be due. */
static accel_status_t next_batch(accel_t *run, struct accel_loader *l,
                                 accel_tensor_t **next, bool *got_out,
                                 accel_error_t *err)
{
    const char *outer = graph_enter(&run->graph, "a function of a loader");
    const bool fresh = l->plan.base == 0 && !l->last_good && !l->over;
    accel_status_t st = loader_advance(l, got_out, err);

    run->graph.inside = outer;
    if (st == ACCEL_ESTOPPED)
        return loop_stop_waiting(run, err);
    if (st == ACCEL_OK && !*got_out && fresh)
        return note_idle(run, l, err);
    if (st != ACCEL_OK || !*got_out)
        return st;
    l->idle_at = -1;
    if (run->graph.evaluating)
        group_leave(run);
    else
        group_next(run, loader_state(l).at_end);
    batch_begin(run, loader_first_sample(l), loader_state(l).count);
    return loader_tensors(l, next, err);
}

/* The caller's array is written only when all tensors are made. */
static void hand_over(accel_t *run, accel_tensor_t **batch, accel_tensor_t *const *next,
                      int n)
{
    memcpy(batch, next, (size_t)n * sizeof(*next));
    /* a device may record the micro-batch from here on */
    if (run->graph.recording)
        run->backend->step_begin(run->backend);
}

accel_status_t accel_loader_next(accel_loader_t *l, accel_tensor_t **batch, int n,
                                 int *got_out, accel_error_t *err)
{
    accel_tensor_t *next[DATA_MAX_FIELDS];
    accel_error_t e = { 0 };
    accel_t *run = l ? l->run : NULL;
    accel_status_t st;
    bool got = false;

    ACCEL_CHECK(st, run_ready(run, "accel_loader_next", err));
    if (n != l->fields || !batch || !got_out)
        return accel_fail_at(
            err, A0909, l->name, "see accel_loader_next in accel_loaders.h",
            "accel_loader_next was given %d tensors, not %d", n, l->fields);
    st = next_batch(run, l, next, &got, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    *got_out = got;
    if (got)
        hand_over(run, batch, next, n);
    return ACCEL_OK;
}

/* ---- the samples of the job ------------------------------------------------------ */

accel_status_t job_batch(accel_t *run, struct accel_loader *l,
                         accel_tensor_t **batch_out, accel_error_t *err)
{
    const char *outer = graph_enter(&run->graph, "the fetch function of a dataset");
    bool got;
    accel_status_t st = loader_advance(l, &got, err);

    run->graph.inside = outer;
    return st == ACCEL_OK ? loader_tensors(l, batch_out, err) : st;
}

/* Begins a micro-batch of the order of the run. Returns the number of this rank's first
 * sample. */
static int64_t next_micro(accel_t *run)
{
    int64_t first = run_first_sample(run);

    group_next(run, false);
    batch_begin(run, first, run->job.batch);
    return first;
}

/* An error of the call, not of the run: the program may go on after it. */
static accel_status_t wrong_count(const char *call, int n, int have, const char *what,
                                  accel_error_t *err)
{
    return accel_fail(err, A0909, "see the call in accel.h",
                      "%s was given %d %s, not %d", call, n, what, have);
}

accel_status_t accel_next(accel_t *run, accel_tensor_t **batch, int n,
                          accel_error_t *err)
{
    accel_tensor_t *next[DATA_MAX_FIELDS];
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, run_ready(run, "accel_next", err));
    if (!run->job.data)
        return accel_fail(err, A0901, "call accel_next_samples and feed the samples",
                          "accel_next for a job without data");
    if (n != run->job_loader->fields || !batch)
        return wrong_count("accel_next", n, run->job_loader->fields, "tensors", err);
    (void)next_micro(run);
    st = job_batch(run, job_loader_at(run, false), next, &e);
    if (st == ACCEL_ESTOPPED)
        st = loop_stop_waiting(run, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    phase_end(run, PHASE_DATA);
    hand_over(run, batch, next, n);
    return ACCEL_OK;
}

/* For a job without data the program gets the numbers of its samples; the library
 * advances the cursor as usual. */
accel_status_t accel_next_samples(accel_t *run, int64_t *index, int count,
                                  accel_error_t *err)
{
    accel_status_t st;
    int64_t first;

    ACCEL_CHECK(st, run_ready(run, "accel_next_samples", err));
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
