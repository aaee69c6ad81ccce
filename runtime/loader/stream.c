/* SPDX-License-Identifier: Apache-2.0
 *
 * Positions of an iterable dataset: see stream.h.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "loader/stream.h"

accel_status_t stream_open(struct stream *s, const accel_dataset_t *data,
                           accel_error_t *err)
{
    const accel_field_t *field;
    int fields = data_fields(data, &field);
    size_t bytes = 0;

    *s = (struct stream){ .data = data, .at = -1, .places = -1 };
    for (int f = 0; f < fields; f++)
        bytes += ((size_t)data_field_bytes(&field[f]) + 63) / 64 * 64;
    s->dropped = malloc(bytes);
    if (!s->dropped)
        return accel_fail_nomem(err, "a sample", bytes);
    bytes = 0;
    for (int f = 0; f < fields; f++) {
        s->dropped_field[f] = s->dropped + bytes;
        bytes += ((size_t)data_field_bytes(&field[f]) + 63) / 64 * 64;
    }
    return ACCEL_OK;
}

void stream_begin(struct stream *s, int64_t epoch)
{
    s->epoch = epoch;
    s->at = -1;
    s->places = data_stream_samples(s->data);
}

/* The end of the epoch, where the dataset says so. */
static accel_status_t ended(struct stream *s, accel_error_t *err)
{
    if (s->places >= 0)
        return accel_fail(err, A0933, "give the number of samples, or 0",
                          "the iterable dataset ended after %" PRId64
                          " samples of epoch %" PRId64 ", but announced %" PRId64,
                          s->at, s->epoch, s->places);
    s->places = s->at;
    return ACCEL_OK;
}

accel_status_t stream_read(struct stream *s, int64_t place, void *const *dst,
                           bool *got_out, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    *got_out = false;
    if (s->places >= 0 && place >= s->places)
        return ACCEL_OK;
    if (s->at < 0 || s->at > place) {
        st = data_rewind(s->data, s->epoch, err);
        s->at = st == ACCEL_OK ? 0 : -1;
    }
    while (st == ACCEL_OK && !*got_out) {
        bool wanted = s->at == place, more = false;

        st = data_next(s->data, wanted && dst ? dst : s->dropped_field, &more, err);
        if (st == ACCEL_OK && !more)
            return ended(s, err);
        s->at += st == ACCEL_OK;
        *got_out = st == ACCEL_OK && wanted;
    }
    return st;
}

void stream_close(struct stream *s)
{
    free(s->dropped);
    s->dropped = NULL;
}
