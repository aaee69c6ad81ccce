/* SPDX-License-Identifier: Apache-2.0
 *
 * A loader from one batch to the next: which step comes, when an epoch ends, and what
 * happens when a rank cannot have its samples. See loader.h.
 *
 * Ranks must make the same collectives whatever happens to one of them, and no batch
 * may need an extra collective. So ranks agree on a failure where they meet anyway: at
 * the first batch of an epoch (one reduction), at its end (another), and in the
 * reduction of accel_step. In between, the rank that failed repeats its previous batch.
 * With dispatch, rank 0 sends the outcome with each batch. If every rank reads an
 * iterable dataset of unknown length itself, the ranks agree at each batch, because
 * nobody knows how many there will be.
 *
 * A wait for a sample that a stop has ended is such a failure, with status
 * ACCEL_ESTOPPED and no text: where the ranks agree on it, the run stops
 * (loop/stop_waiting.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/loader.h"
#include "backend/device.h"
#include "loader/loader_impl.h"
#include "ops/ops.h"

int64_t loader_places(const struct accel_loader *l)
{
    return l->iterable ? data_stream_samples(l->data) : l->sampler.places;
}

/* Does this rank read for itself? */
static bool reads(const struct accel_loader *l)
{
    return !l->plan.dispatch || l->place.rank == 0;
}

int64_t loader_capacity(const struct accel_loader *l)
{
    return l->plan.dispatch ? plan_step_batch(&l->plan) : plan_rank_batch(&l->plan);
}

struct loader_state loader_state(const struct accel_loader *l)
{
    return l->state;
}

/* Places of an epoch stay below 2^48, those of a stream in practice, too. */
int64_t loader_first_sample(const struct accel_loader *l)
{
    return (l->epoch << 40) + l->first_place;
}

/* ---- failures of one rank -------------------------------------------------------- */

/* The lowest rank that failed sends its error. */
accel_status_t loader_agree(const struct loader_place *place, accel_error_t *err)
{
    const struct loader_failure *own = place->failure;
    int64_t who = own->failed ? place->ranks - place->rank : 0;
    accel_error_t e = own->error;
    accel_status_t st;

    if (place->ranks == 1) {
        if (own->failed && err)
            *err = e;
        return own->failed ? e.code : ACCEL_OK;
    }
    st = comm_all_reduce(place->comm, &who, 1, ACCEL_I64, COMM_MAX, err);
    if (st != ACCEL_OK || who == 0)
        return st;
    if (own->failed && !e.where[0])
        snprintf(e.where, sizeof(e.where), "rank %d", place->rank);
    st = comm_broadcast(place->comm, &e, sizeof(e), (int)(place->ranks - who), err);
    if (st == ACCEL_OK && err)
        *err = e;
    return st == ACCEL_OK ? e.code : st;
}

/* ---- steps ----------------------------------------------------------------------- */

static void begin_reading(struct accel_loader *l)
{
    if (!reads(l))
        return;
    if (l->iterable)
        stream_begin(&l->stream, l->epoch);
    else
        sampler_begin(&l->sampler, l->epoch);
    prefetch_begin(&l->ahead);
}

/* The slot of step `step`, once it is read, or where nobody waits any longer. */
static struct loader_slot *await_slot(struct accel_loader *l, int64_t step)
{
    const int slot = prefetch_take(&l->ahead, step);

    if (slot >= 0)
        return &l->slot[slot];
    l->stopped = (struct loader_slot){ .step = step, .st = ACCEL_ESTOPPED };
    l->stopped.error.code = ACCEL_ESTOPPED;
    return &l->stopped;
}

/* The slot of the next step, which may be none or a failure. Where the end of the epoch
 * shows only after it, waits for the step after it, too. */
static struct loader_slot *take_slot(struct accel_loader *l)
{
    struct loader_slot *s = await_slot(l, l->step);

    if (s->step != l->step)
        s->none = s->st == ACCEL_OK;
    else if (s->st == ACCEL_OK && !s->none && !s->last && loader_places(l) < 0) {
        struct loader_slot *after = await_slot(l, l->step + 1);

        if (after == &l->stopped)
            return after;
        s->last = after->st == ACCEL_OK && after->none;
    }
    return s;
}

/* This rank's part of a slot. With dispatch a slot has those of all ranks. */
static struct batch_part own_part(struct accel_loader *l, const struct loader_slot *s)
{
    struct batch_part part = { 0 };

    l->offset = 0;
    for (int r = l->plan.dispatch ? 0 : l->place.rank; r <= l->place.rank; r++) {
        l->offset += part.count;
        part = plan_part(&l->plan, l->plan.base + l->step * plan_step_batch(&l->plan),
                         s->real, r);
    }
    return part;
}

static void hand_out(struct accel_loader *l, struct loader_slot *s)
{
    struct batch_part part = own_part(l, s);
    int64_t each = plan_step_batch(&l->plan), places = loader_places(l);
    bool unknown = places < 0 && !s->last;

    l->first_place = part.first;
    l->taken = l->plan.base + l->step * each + s->real;
    l->state = (struct loader_state){
        .at_end = s->last,
        .step_real = s->real,
        .count = part.count,
        .real = part.real,
        .remainder = unknown             ? -1
                     : places >= 0       ? plan_remainder(&l->plan, places)
                     : l->plan.drop_last ? -1
                                         : s->real % each,
    };
    /* A rank that stays away from the last step is at its end before it. */
    if (l->plan.ends == ENDS_UNEVEN && places >= 0 &&
        l->step + 1 == plan_length(&l->plan, places, l->place.rank))
        l->state.at_end = true;
    l->last_good = s;
    l->over = s->last;
    l->step++;
}

static accel_status_t end_epoch(struct accel_loader *l, accel_error_t *err)
{
    accel_status_t st = l->plan.dispatch ? ACCEL_OK : loader_agree(&l->place, err);

    if (reads(l))
        prefetch_stop(&l->ahead);
    l->epoch++;
    l->step = l->plan.base = l->taken = 0;
    l->begun = l->over = false;
    l->last_good = NULL;
    return st;
}

/* A step that this rank could not read: it makes as many batches as the others, until
 * they meet. */
static void repeat_last(struct accel_loader *l)
{
    int64_t places = loader_places(l), each = plan_step_batch(&l->plan);
    int64_t last = plan_steps(&l->plan, places) - 1;

    l->state.step_real = plan_step_real(&l->plan, places, l->step);
    l->taken = l->plan.base + l->step * each + l->state.step_real;
    l->over = l->state.at_end = l->step >= last;
    l->step++;
}

/* The next step without dispatch: each rank has read its own part. */
static accel_status_t advance_sharded(struct accel_loader *l, bool first, bool *got_out,
                                      accel_error_t *err)
{
    int64_t places = loader_places(l);
    struct loader_slot *s = take_slot(l);
    struct loader_failure *f = l->place.failure;
    accel_status_t st = ACCEL_OK;

    if (s->st != ACCEL_OK && !f->failed) {
        *f = (struct loader_failure){ .failed = true, .error = s->error };
        f->error.code = s->st;
    }
    if ((first && !l->place.alone) || places < 0 || l->place.ranks == 1)
        st = loader_agree(&l->place, err);
    if (st != ACCEL_OK)
        return st;
    if (s->none && s->st == ACCEL_OK)
        return end_epoch(l, err);
    if (s->st != ACCEL_OK && l->place.alone) {
        s = &l->slot[0];
        fill_zeros(l, s);
    } else if (s->st != ACCEL_OK) {
        repeat_last(l);
        *got_out = true;
        return ACCEL_OK;
    }
    if (own_part(l, s).count == 0)
        return end_epoch(l, err);
    hand_out(l, s);
    prefetch_release(&l->ahead, l->step - 1);
    *got_out = true;
    return ACCEL_OK;
}

static accel_status_t advance_dispatched(struct accel_loader *l, bool *got_out,
                                         accel_error_t *err)
{
    struct loader_slot *s = NULL;
    accel_status_t st;

    ACCEL_CHECK(st, dispatch_step(l, reads(l) ? take_slot(l) : NULL, &s, err));
    if (s->none || own_part(l, s).count == 0)
        return end_epoch(l, err);
    hand_out(l, s);
    if (reads(l))
        prefetch_release(&l->ahead, l->step - 1);
    *got_out = true;
    return ACCEL_OK;
}

accel_status_t loader_advance(struct accel_loader *l, bool *got_out, accel_error_t *err)
{
    bool first = !l->begun;

    *got_out = false;
    if (l->over)
        return end_epoch(l, err);
    if (first)
        begin_reading(l);
    l->begun = true;
    if (l->plan.dispatch)
        return advance_dispatched(l, got_out, err);
    return advance_sharded(l, first, got_out, err);
}

/* The bytes of this rank's samples of one field. */
struct own_values {
    const char *host;
    size_t bytes;
    size_t offset; /* in a buffer of the stage */
};

/* A tensor for one field of the last batch, without values, and where they are. NULL:
 * sticky error. */
static accel_tensor_t *field_tensor(struct accel_loader *l, int f,
                                    struct own_values *v_out)
{
    const struct accel_batch_field *from = &l->last_good->batch.field[f];
    bool is_float = accel_dtype_is_float(from->dtype);
    struct graph *g = l->place.graph;
    int64_t dims[4] = { l->state.count };
    int64_t sample = (int64_t)accel_dtype_bytes(from->dtype);

    for (int i = 1; i < from->ndim; i++) {
        dims[i] = from->dims[i];
        sample *= from->dims[i];
    }
    g->op = "input";
    *v_out = (struct own_values){ .host = (const char *)from->data + l->offset * sample,
                                  .bytes = (size_t)(sample * l->state.count),
                                  .offset = (size_t)l->last_good->host.at[f] };
    return graph_tensor(g, is_float ? g->compute : from->dtype, from->ndim, dims);
}

/* All copies to the device's buffer first, then those out of it. What must be widened
 * goes the other way. */
static void fill_staged(struct accel_loader *l, accel_tensor_t *const *t,
                        const struct own_values *v)
{
    const accel_batch_t *b = &l->last_good->batch;

    stage_begin(&l->stage);
    for (int f = 0; f < l->fields; f++)
        if (b->field[f].dtype == t[f]->dtype)
            stage_put(&l->stage, v[f].offset, v[f].host, v[f].bytes);
    stage_filled(&l->stage);
    for (int f = 0; f < l->fields; f++)
        if (b->field[f].dtype == t[f]->dtype)
            stage_get(&l->stage, t[f]->data, v[f].offset, v[f].bytes);
        else
            host_upload(l->backend, t[f], b->field[f].dtype, v[f].host);
    stage_end(&l->stage);
}

accel_status_t loader_tensors(struct accel_loader *l, accel_tensor_t **batch_out,
                              accel_error_t *err)
{
    struct own_values v[DATA_MAX_FIELDS];

    for (int f = 0; f < l->fields; f++) {
        batch_out[f] = field_tensor(l, f, &v[f]);
        if (!batch_out[f]) {
            *err = l->place.graph->error;
            return err->code;
        }
    }
    if (stage_is_open(&l->stage))
        fill_staged(l, batch_out, v);
    else
        for (int f = 0; f < l->fields; f++)
            host_upload(l->backend, batch_out[f], l->last_good->batch.field[f].dtype,
                        v[f].host);
    return ACCEL_OK;
}

/* ---- places ---------------------------------------------------------------------- */

void loader_seek(struct accel_loader *l, int64_t epoch, int64_t taken, bool over)
{
    if (reads(l))
        prefetch_stop(&l->ahead);
    l->epoch = epoch;
    l->plan.base = l->taken = taken;
    l->step = 0;
    l->begun = false;
    l->over = over;
    l->kept = (struct loader_spot){ epoch, taken, over };
    l->last_good = NULL;
    l->state = (struct loader_state){ .remainder = -1, .at_end = over };
}

accel_status_t accel_loader_set_epoch(accel_loader_t *l, int64_t epoch,
                                      accel_error_t *err)
{
    if (!l || epoch < 0 || epoch > INT32_MAX)
        return accel_fail(err, A0930, "number epochs from 0",
                          "accel_loader_set_epoch: epoch %lld", (long long)epoch);
    loader_seek(l, epoch, 0, false);
    return ACCEL_OK;
}

/* Counts steps of all ranks: each rank leaves out as many batches. */
accel_status_t accel_loader_skip(accel_loader_t *l, int64_t batches, accel_error_t *err)
{
    int64_t each, places;

    if (!l || batches < 0 || batches > INT32_MAX)
        return accel_fail(err, A0930, "skip 0 batches or more",
                          "accel_loader_skip: %lld batches", (long long)batches);
    each = plan_step_batch(&l->plan);
    places = loader_places(l);
    if (batches > 0 && !l->over) {
        int64_t to = l->plan.base + (l->step + batches) * each;

        loader_seek(l, l->epoch, places >= 0 && to > places ? places : to, false);
    }
    return ACCEL_OK;
}

int64_t accel_loader_length(const accel_loader_t *l)
{
    struct batch_plan whole;
    int64_t places = l ? loader_places(l) : -1;

    if (places < 0)
        return -1;
    whole = l->plan;
    whole.base = 0;
    return plan_length(&whole, places, l->place.rank);
}

int64_t accel_loader_epoch(const accel_loader_t *l)
{
    return l ? l->epoch : 0;
}

int accel_loader_at_end(const accel_loader_t *l)
{
    return l && l->state.at_end;
}

int64_t accel_loader_remainder(const accel_loader_t *l)
{
    return l ? l->state.remainder : -1;
}

int accel_loader_real(const accel_loader_t *l)
{
    return l ? l->state.real : 0;
}

/* In a full step all samples count. Of others each rank knows how many of its own do,
 * whatever the mode. */
accel_batch_end_t accel_loader_end(const accel_loader_t *l)
{
    if (!l || l->state.step_real == plan_step_batch(&l->plan))
        return (accel_batch_end_t){ .at_end = accel_loader_at_end(l) };
    return (accel_batch_end_t){ .at_end = l->state.at_end,
                                .remainder = l->state.remainder,
                                .counted = 1,
                                .count = l->state.real };
}

accel_tensor_t *accel_loader_loss(const accel_loader_t *l, accel_tensor_t *loss)
{
    return l && l->state.count > 0 && l->state.real == 0 ? op_uncounted(loss) : loss;
}
