/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterable datasets: the program's next and rewind in, samples in their order out. And
 * what a dataset says about threads.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "data/data_impl.h"

accel_status_t accel_dataset_iterable_new(accel_dataset_t **out,
                                          const accel_iterable_t *source,
                                          const accel_field_t *fields, int n,
                                          accel_error_t *err)
{
    accel_iterable_t own;
    accel_dataset_t *d;
    accel_status_t st = data_check_fields(fields, n, err);

    ACCEL_TRY(st, sized_read(SIZED(accel_iterable_t, samples), &own, source, err));
    if (st != ACCEL_OK)
        return st;
    if (!out || !own.next || !own.rewind || own.samples < 0 ||
        own.samples > (int64_t)1 << 48)
        return accel_fail(err, A0708,
                          "see accel_dataset_iterable_new in accel_loaders.h",
                          "an iterable dataset must have next and rewind, and at least "
                          "0 samples");
    d = calloc(1, sizeof(*d));
    if (!d)
        return accel_fail_nomem(err, "dataset", sizeof(*d));
    memcpy(d->field, fields, (size_t)n * sizeof(*fields));
    d->fields = n;
    d->source = own;
    d->samples = own.samples;
    d->threads = 1;
    *out = d;
    return ACCEL_OK;
}

accel_status_t accel_dataset_set_threads(accel_dataset_t *d, int threads,
                                         accel_error_t *err)
{
    if (!d || threads < 1 || (d->source.next && threads > 1))
        return accel_fail(err, A0708, "an iterable dataset is read by one thread",
                          "a dataset that may be read on %d threads", threads);
    if (d->fetch)
        d->threads = threads;
    return ACCEL_OK;
}

int data_threads(const accel_dataset_t *d)
{
    return d->threads;
}

bool data_is_iterable(const accel_dataset_t *d)
{
    return d->source.next != NULL;
}

int64_t data_stream_samples(const accel_dataset_t *d)
{
    return d->source.samples > 0 ? d->source.samples : -1;
}

accel_status_t data_rewind(const accel_dataset_t *d, int64_t epoch, accel_error_t *err)
{
    int failed = d->source.rewind(d->source.user, epoch);

    if (!failed)
        return ACCEL_OK;
    return accel_fail(err, A0713, "see the messages of the program's rewind function",
                      "epoch %" PRId64 " cannot begin: rewind returned %d", epoch,
                      failed);
}

accel_status_t data_next(const accel_dataset_t *d, void *const *dst, bool *more_out,
                         accel_error_t *err)
{
    int got = d->source.next(d->source.user, dst);

    if (got != 0 && got != 1)
        return accel_fail(err, A0713, "see the messages of the program's next function",
                          "the next sample is not available: next returned %d", got);
    *more_out = got == 1;
    return ACCEL_OK;
}
