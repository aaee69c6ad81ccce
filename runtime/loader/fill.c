/* SPDX-License-Identifier: Apache-2.0
 *
 * From the number of a step to its samples in a slot. Planning decides which samples
 * (in the order of steps, one thread at a time); filling reads them (several threads at
 * once, if the dataset allows it). A failure ends reading; whoever takes the slot gets
 * it.
 */
#include <string.h>

#include "preemption/preemption.h"
#include "numbers/floats.h"
#include "loader/loader_impl.h"
#include "handle/run.h"

/* The places of step `at` that this rank reads: its own part or, where it sends them
 * around, those of all ranks. Returns how many. */
static int step_places(const struct accel_loader *l, int64_t at, int64_t real,
                       int64_t places, int64_t *place_out)
{
    int first = l->plan.dispatch ? 0 : l->place.rank, n = 0;
    int end = l->plan.dispatch ? l->plan.ranks : first + 1;

    for (int rank = first; rank < end; rank++) {
        struct batch_part part = plan_part(&l->plan, at, real, rank);

        for (int i = 0; i < part.count; i++)
            place_out[n++] = plan_place(&part, places, i);
    }
    return n;
}

static int64_t first_place(const struct accel_loader *l, int64_t step)
{
    return l->plan.base + step * plan_step_batch(&l->plan);
}

/* Keeps the first failure of a slot. */
static bool slot_failed(struct loader_slot *s, accel_status_t st)
{
    s->st = st;
    return st != ACCEL_OK;
}

/* The sampler knows which samples these are: its tables and caches are for one
 * thread. */
static bool ring_plan(void *user, int slot, int64_t step)
{
    struct accel_loader *l = user;
    struct loader_slot *s = &l->slot[slot];
    int64_t places = l->iterable ? l->stream.places : l->sampler.places;
    accel_status_t st = ACCEL_OK;

    s->step = step;
    s->st = ACCEL_OK;
    s->none = s->last = false;
    s->count = 0;
    if (places < 0)
        return true;
    s->real = plan_step_real(&l->plan, places, step);
    s->none = s->real == 0;
    s->last = step + 1 == plan_steps(&l->plan, places);
    if (s->none)
        return false;
    s->count = step_places(l, first_place(l, step), s->real, places, s->index);
    for (int i = 0; i < s->count && !l->iterable && st == ACCEL_OK; i++)
        st = sampler_at(&l->sampler, s->index[i], &s->index[i], &s->error);
    return !slot_failed(s, st);
}

static accel_status_t read_numbered(const struct accel_loader *l, struct loader_slot *s)
{
    accel_status_t st = ACCEL_OK;
    void *dst[DATA_MAX_FIELDS];

    for (int i = 0; i < s->count && st == ACCEL_OK; i++) {
        host_batch_sample(&s->host, l->field, l->fields, i, dst);
        st = l->held_out ? data_holdout_sample(l->data, s->index[i], dst, &s->error)
                         : data_sample(l->data, s->index[i], dst, &s->error);
    }
    return st;
}

/* Reads the places [from, count) of the slot's list. A place that is not there ends
 * them: then *end_out is its number in the list. */
static accel_status_t read_places(struct accel_loader *l, struct loader_slot *s,
                                  int from, int *end_out)
{
    accel_status_t st = ACCEL_OK;
    void *dst[DATA_MAX_FIELDS];
    bool got = true;

    for (*end_out = from; *end_out < s->count && st == ACCEL_OK && got;
         *end_out += got && st == ACCEL_OK) {
        host_batch_sample(&s->host, l->field, l->fields, *end_out, dst);
        st = stream_read(&l->stream, s->index[*end_out], dst, &got, &s->error);
    }
    return st;
}

/* The length of the epoch shows only at its end: reads the whole step, of which the
 * samples of other ranks are dropped, and then knows what it has. */
static accel_status_t read_unknown(struct accel_loader *l, struct loader_slot *s,
                                   int *got_out)
{
    int64_t at = first_place(l, s->step), each = plan_step_batch(&l->plan);
    accel_status_t st;
    bool got;

    s->count = step_places(l, at, each, INT64_MAX, s->index);
    st = read_places(l, s, 0, got_out);
    if (st == ACCEL_OK && l->stream.places < 0 && l->stream.at < at + each)
        st = stream_read(&l->stream, at + each - 1, NULL, &got, &s->error);
    s->real = each;
    if (st != ACCEL_OK || l->stream.places < 0)
        return st;
    s->real = plan_step_real(&l->plan, l->stream.places, s->step);
    s->none = s->real == 0;
    s->last = s->step + 1 == plan_steps(&l->plan, l->stream.places);
    s->count = s->none ? 0 : step_places(l, at, s->real, l->stream.places, s->index);
    return st;
}

/* A source that gives nothing, again and again, is one that is not there. */
static accel_status_t nothing_came(struct accel_loader *l, struct loader_slot *s)
{
    if (l->stream.places != 0)
        return ACCEL_OK;
    return accel_fail_at(
        &s->error, A0934, l->name, "see whether its source is there, and what it says",
        "epoch %lld has no sample: next returned 0 at once", (long long)l->epoch);
}

static accel_status_t read_stream(struct accel_loader *l, struct loader_slot *s)
{
    accel_status_t st = ACCEL_OK;
    int got = 0;

    if (l->stream.places < 0)
        st = read_unknown(l, s, &got);
    ACCEL_TRY(st, nothing_came(l, s));
    ACCEL_TRY(st, read_places(l, s, got, &got));
    for (int i = 0; i < s->count; i++)
        s->index[i] = -1;
    return st;
}

/* Float values become the compute dtype here, ahead of the step, where that makes them
 * smaller: in place, a piece at a time. */
static void narrow_floats(const struct accel_loader *l, accel_batch_t *batch)
{
    enum { PIECE = 1024 };
    const accel_dtype_t compute = l->place.graph->compute;
    uint16_t piece[PIECE];

    for (int f = 0; f < batch->fields && compute != ACCEL_F32; f++) {
        struct accel_batch_field *field = &batch->field[f];
        int64_t elems = 1;

        if (field->dtype != ACCEL_F32)
            continue;
        for (int i = 0; i < field->ndim; i++)
            elems *= field->dims[i];
        for (int64_t at = 0; at < elems; at += PIECE) {
            size_t n = (size_t)(elems - at < PIECE ? elems - at : PIECE);

            floats_narrow(piece, compute, (float *)field->data + at, n);
            memcpy((uint16_t *)field->data + at, piece, n * sizeof(*piece));
        }
        field->dtype = compute;
    }
}

/* A stop that goes to all processes ends those, too, that the samples come from. What
 * then looks like a failure, or like the end of an epoch where the program's own thread
 * reads, is the stop. */
static bool stop_did_it(const struct accel_loader *l, accel_status_t st, bool was_open)
{
    const bool ended = was_open && l->stream.places >= 0;

    return signals_pending() && (st != ACCEL_OK || (ended && l->ahead.started == 0));
}

static bool ring_fill(void *user, int slot, int64_t step)
{
    struct accel_loader *l = user;
    struct loader_slot *s = &l->slot[slot];
    const bool open = l->iterable && l->stream.places < 0;
    accel_status_t st = l->iterable ? read_stream(l, s) : read_numbered(l, s);

    (void)step;
    if (stop_did_it(l, st, open)) {
        st = ACCEL_ESTOPPED;
        s->error = (accel_error_t){ .code = st };
    }
    if (st == ACCEL_OK && s->count > 0)
        st = collate_batch(&l->collate, &s->host, l->field, l->fields, s->count,
                           s->index, s->lengths, &s->batch, &s->error);
    if (st == ACCEL_OK && s->count > 0)
        narrow_floats(l, &s->batch);
    return !slot_failed(s, st) && !s->none && !s->last;
}

/* The program's functions see no such batch. */
void fill_zeros(struct accel_loader *l, struct loader_slot *s)
{
    const struct collate plain = { 0 };

    memset(s->host.memory, 0, s->host.bytes);
    (void)collate_batch(&plain, &s->host, l->field, l->fields, s->count, s->index,
                        s->lengths, &s->batch, NULL);
}

const struct prefetch_ops loader_ring = { ring_plan, ring_fill };
