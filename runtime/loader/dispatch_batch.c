/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank reads, and all ranks get the batch: a header that describes it, then the
 * fields. The header also carries a failure, so that all ranks end at the same batch.
 * Every rank gets the samples of all ranks, as with Accelerate, and takes its part from
 * them.
 */
#include <string.h>

#include "loader/loader_impl.h"

/* What rank 0 says before it sends. */
struct dispatch_header {
    int64_t real, count;
    int32_t status, none, last;
    int32_t dtype[DATA_MAX_FIELDS], ndim[DATA_MAX_FIELDS];
    int64_t dims[DATA_MAX_FIELDS][4];
};

static void fill_header(const struct accel_loader *l, const struct loader_slot *s,
                        struct dispatch_header *h)
{
    *h = (struct dispatch_header){ .real = s->real,
                                   .count = s->count,
                                   .status = s->st,
                                   .none = s->none,
                                   .last = s->last };
    for (int f = 0; f < l->fields && !s->none && s->st == ACCEL_OK; f++) {
        h->dtype[f] = s->batch.field[f].dtype;
        h->ndim[f] = s->batch.field[f].ndim;
        memcpy(h->dims[f], s->batch.field[f].dims, sizeof(h->dims[f]));
    }
}

static void take_header(const struct accel_loader *l, struct loader_slot *s,
                        const struct dispatch_header *h)
{
    s->real = h->real;
    s->count = (int)h->count;
    s->none = h->none;
    s->last = h->last;
    s->batch.count = s->count;
    s->batch.fields = l->fields;
    for (int f = 0; f < l->fields && !s->none; f++) {
        s->batch.field[f] =
            (struct accel_batch_field){ .data = s->host.memory + s->host.at[f],
                                        .dtype = (accel_dtype_t)h->dtype[f],
                                        .ndim = h->ndim[f] };
        memcpy(s->batch.field[f].dims, h->dims[f], sizeof(h->dims[f]));
    }
}

/* Rank 0's error, on all ranks. */
static accel_status_t send_error(struct accel_loader *l, struct loader_slot *s,
                                 accel_error_t *err)
{
    accel_error_t e = s->error;
    accel_status_t st;

    if (!e.where[0])
        strcpy(e.where, "rank 0");
    st = comm_broadcast(l->place.comm, &e, sizeof(e), 0, err);
    if (st == ACCEL_OK && err)
        *err = e;
    return st == ACCEL_OK ? e.code : st;
}

accel_status_t dispatch_step(struct accel_loader *l, struct loader_slot *s,
                             struct loader_slot **slot_out, accel_error_t *err)
{
    struct dispatch_header h = { 0 };
    accel_status_t st;

    if (s)
        fill_header(l, s, &h);
    else
        s = &l->slot[0];
    ACCEL_CHECK(st, comm_broadcast(l->place.comm, &h, sizeof(h), 0, err));
    if (h.status != ACCEL_OK)
        return send_error(l, s, err);
    if (l->place.rank != 0)
        take_header(l, s, &h);
    for (int f = 0; f < l->fields && !s->none && st == ACCEL_OK; f++) {
        struct accel_batch_field *field = &s->batch.field[f];
        size_t bytes = accel_dtype_bytes(field->dtype);

        for (int i = 0; i < field->ndim; i++)
            bytes *= (size_t)field->dims[i];
        st = comm_broadcast(l->place.comm, field->data, bytes, 0, err);
    }
    *slot_out = s;
    return st;
}
