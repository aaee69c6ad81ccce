/* SPDX-License-Identifier: Apache-2.0
 *
 * The samples of the job: how many a run takes, which are this rank's, and the loader
 * of accel_next and accel_evaluate. In: the run's count of samples. Out: batches, in
 * the keyed order of all epochs or of the held-out part. The loader is set to its
 * position before it is used, so the count is all that there is to save.
 */
#include "loader/loader_impl.h"
#include "handle/run.h"

/* Positions of an order without an end: the sampler goes from epoch to epoch. */
#define ENDLESS (INT64_MAX / 2)

struct loader_place run_place(accel_t *run)
{
    return (struct loader_place){ .graph = &run->graph,
                                  .comm = run->comm,
                                  .rank = run->mesh.data.rank,
                                  .ranks = run->mesh.data.size,
                                  .failure = &run->loader_failure };
}

int64_t run_step_samples(const accel_t *run)
{
    return (int64_t)run->loop.micro * run->mesh.data.size * run->job.batch;
}

int64_t run_first_sample(const accel_t *run)
{
    return run->progress.cursor + run_step_samples(run) +
           (int64_t)run->mesh.data.rank * run->job.batch;
}

/* The size is checked by division, before anything is multiplied. */
accel_status_t job_loader_open(accel_t *run, accel_error_t *err)
{
    const accel_job_t *j = &run->job;
    const accel_loader_options_t o = {
        .batch = j->batch, .seed = j->seed, .uneven = 1, .join = 1
    };
    struct loader_place place = run_place(run);
    const accel_field_t *f;
    int64_t sample;
    int fields;

    if (!j->data)
        return ACCEL_OK;
    fields = data_fields(j->data, &f);
    sample = host_sample_bytes(f, fields);
    if (sample > HOST_BATCH_MAX / j->batch)
        return accel_fail(err, A0902, "use a smaller batch and more accumulation",
                          "a micro-batch of %d samples of %lld bytes is too large",
                          j->batch, (long long)sample);
    place.alone = true;
    return loader_open(&run->job_loader, &place, "job", j->data, &o, err);
}

struct accel_loader *job_loader_at(accel_t *run, bool held_out)
{
    struct accel_loader *l = run->job_loader;
    struct sampler *s = &l->sampler;

    l->held_out = held_out;
    s->kind = held_out ? ACCEL_SAMPLER_SEQUENTIAL : ACCEL_SAMPLER_KEYED;
    s->population =
        held_out ? data_holdout_samples(l->data) : accel_dataset_samples(l->data);
    s->places = held_out ? s->population : ENDLESS;
    loader_seek(l, 0, held_out ? 0 : run->progress.cursor + run_step_samples(run),
                false);
    return l;
}
