/* SPDX-License-Identifier: Apache-2.0
 *
 * The path of gradients from the full unit to the shard. A ring's float32 reduce buffer
 * is reduce-scattered (float32 sums in rank order, added to the gradient shard) when
 * backward moves to another unit of that ring. Where each rank stores everything,
 * gradients are accumulated in place. In: the order in which backward asks for units.
 * Out: sums that gradient_reduction.c completes.
 */
#include "numbers/wire.h"
#include "shard/shard_impl.h"

/* ---- the queue of reductions ----------------------------------------------------- */

void shard_begin_reduce(struct shard *s)
{
    s->be->settle(s->be);
    s->be->record(s->be, s->reducer.computed, QUEUE_COMPUTE);
    s->be->wait(s->be, QUEUE_REDUCE, s->reducer.computed);
    s->be->use(s->be, QUEUE_REDUCE);
}

/* The reduction overlaps with the backward of the next unit until that needs the
 * buffer. */
void shard_end_reduce(struct shard *s)
{
    s->be->record(s->be, s->reducer.reduced, QUEUE_REDUCE);
    s->be->use(s->be, QUEUE_COMPUTE);
    s->reducer.reducing = true;
}

void shard_wait_reduced(struct shard *s)
{
    if (s->reducer.reducing)
        s->be->wait(s->be, QUEUE_COMPUTE, s->reducer.reduced);
    s->reducer.reducing = false;
}

/* ---- from a backward to the shards ----------------------------------------------- */

/* What the reduce buffer is brought to: one rank sends nothing. */
static accel_dtype_t wire_of(const struct shard *s, const struct shard_unit *u)
{
    return s->world > 1 || s->offloaded ? u->reduce : ACCEL_F32;
}

/* The reduce buffer of a ring. */
static float *buffer_of(const struct shard *s, int ring)
{
    return s->reducer.buffer + s->layout.ring[ring].reduce_at;
}

/* This rank's part of the unit's gradient, summed over all ranks and scaled, into `out`
 * or (accumulate) onto what it holds. */
static accel_status_t sum_up(struct shard *s, int unit, float *out, bool accumulate,
                             accel_error_t *err)
{
    const size_t own = (size_t)s->layout.unit[unit].own;
    const float *whole = buffer_of(s, s->layout.unit[unit].ring);
    const accel_dtype_t wire = wire_of(s, &s->layout.unit[unit]);

    if (s->world > 1) {
        shard_order_hash(s, SHARD_REDUCE, unit);
        return comm_reduce_scatter(s->reduce_data, whole, out, own, wire,
                                   s->reducer.grad_scale, accumulate, err);
    }
    s->be->sum_parts(s->be, out, accumulate, NULL, whole, wire, 1, (int64_t)own,
                     s->reducer.grad_scale);
    return ACCEL_OK;
}

/* Offloaded: the sum of earlier micro-batches comes to the device first, then the new
 * sum goes home. The first micro-batch of a step has nothing to fetch. */
static accel_status_t sum_up_at_home(struct shard *s, int unit, accel_error_t *err)
{
    const struct shard_unit *u = &s->layout.unit[unit];
    const bool partial = s->reducer.sums[unit]++ > 0;
    float *home = s->store.grad + u->grad_at;
    const size_t bytes = (size_t)u->own * sizeof(float);
    accel_status_t st;

    if (partial)
        s->be->copy(s->be, s->reducer.piece, home, bytes);
    st = sum_up(s, unit, s->reducer.piece, partial, err);
    s->be->copy(s->be, home, s->reducer.piece, bytes);
    return st;
}

/* What rests is the sum of earlier micro-batches, unless this is the first one. */
static accel_status_t sum_up_narrow(struct shard *s, int unit, accel_error_t *err)
{
    const struct shard_unit *u = &s->layout.unit[unit];
    const uint32_t sums = s->reducer.sums[unit]++;
    accel_status_t st;

    if (sums > 0)
        shard_widen_gradient(s, u);
    st = sum_up(s, unit, s->reducer.piece, sums > 0, err);
    if (st == ACCEL_OK && sums > 0)
        shard_narrow_sum(s, u, sums);
    else if (st == ACCEL_OK)
        shard_narrow_gradient(s, u);
    return st;
}

/* Brings the reduce buffer to the dtype of the wire. Scaled dtypes (fp8) are narrowed
 * in one part per rank, each with scales of its own. */
static void narrow_in_place(struct shard *s, const struct shard_unit *u, float *x)
{
    const accel_dtype_t wire = wire_of(s, u);

    if (wire == ACCEL_BF16)
        s->be->narrow(s->be, x, wire, x, u->padded);
    else if (wire_is_scaled(wire))
        s->be->narrow_parts(s->be, x, wire, x, s->world, u->own);
}

/* Reduces the ring's open unit, if there is one, into the gradient shard. */
static accel_status_t hand_in(struct shard *s, int ring, accel_error_t *err)
{
    const struct shard_unit *u;
    accel_status_t st;
    const int unit = s->reducer.open[ring];

    if (unit < 0)
        return ACCEL_OK;
    u = &s->layout.unit[unit];
    s->reducer.open[ring] = -1;
    shard_begin_reduce(s);
    narrow_in_place(s, u, buffer_of(s, ring));
    st = s->offloaded ? sum_up_at_home(s, unit, err)
         : shard_has_narrow_gradients(s)
             ? sum_up_narrow(s, unit, err)
             : sum_up(s, unit, s->store.grad + u->grad_at, true, err);
    shard_end_reduce(s);
    return st;
}

/* Neighbours are one range, so that a run with one optimizer has one. */
bool shard_next_gradients(const struct shard *s, int optim, int *at, float **first_out,
                          int64_t *count_out)
{
    int64_t first = 0, count = 0;

    for (; *at < s->layout.units; ++*at) {
        const struct shard_unit *u = &s->layout.unit[*at];

        if (u->optim != optim || u->grad_at < 0)
            continue;
        if (count && first + count != u->grad_at)
            break;
        first = count ? first : u->grad_at;
        count += u->stored;
    }
    *first_out = s->store.grad + first;
    *count_out = count;
    return count > 0;
}

void shard_change_gradients(const struct shard *s, const struct backend *be, int optim,
                            shard_change_f *change, float by)
{
    const bool narrow = shard_has_narrow_gradients(s);
    int64_t count;
    float *first;

    for (int at = 0; !narrow && shard_next_gradients(s, optim, &at, &first, &count);)
        change(be, first, count, by);
    for (int i = 0; i < s->layout.units && narrow; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        if (u->optim != optim || u->grad_at < 0)
            continue;
        change(be, shard_widen_gradient(s, u), u->stored, by);
        shard_narrow_gradient(s, u);
    }
}

void shard_reopen(struct shard *s, struct shard_trainer *t)
{
    if (t->reduced != 1.0f) {
        shard_settle_home(s);
        shard_wait_reduced(s);
        shard_change_gradients(s, s->home, (int)(t - s->store.trainer), s->home->scale,
                               1.0f / t->reduced);
    }
    t->reduced = 0;
}

/* A backward is about to add to the unit's gradient. */
static void touch(struct shard *s, int unit)
{
    struct shard_trainer *t = &s->store.trainer[s->layout.unit[unit].optim];

    if (t->reduced != 0)
        shard_reopen(s, t);
    t->dirty = true;
}

/* Without a reduce buffer backward writes into the gradient itself. With one it is
 * zeroed for each unit, since kernels add to it. PREFETCH_POST gathers the next unit
 * after the reduction of the previous one. */
accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err)
{
    const int ring = s->layout.unit[unit].ring;
    const int open = s->reducer.open[ring];
    accel_status_t st;

    touch(s, unit);
    if (!s->reducer.buffer) {
        *grad_out = s->store.grad + s->layout.unit[unit].grad_at;
        return ACCEL_OK;
    }
    if (open != unit) {
        ACCEL_CHECK(st, hand_in(s, ring, err));
        if (open >= 0 && s->order.in_backward && s->o.prefetch == PREFETCH_POST) {
            ACCEL_CHECK(st, shard_ring_prefetch(s, unit, err));
        }
        shard_wait_reduced(s);
        s->be->zero(s->be, buffer_of(s, ring),
                    (size_t)s->layout.unit[unit].padded * sizeof(float));
        s->reducer.open[ring] = unit;
    }
    *grad_out = buffer_of(s, ring);
    return ACCEL_OK;
}

void shard_close_units(struct shard *s)
{
    for (int i = 0; i < s->layout.rings; i++)
        s->reducer.open[i] = -1;
}

/* The scale counts all ranks, copies included: comm, not data. */
accel_status_t shard_backward_begin(struct shard *s, int accumulate, accel_error_t *err)
{
    if (accumulate < 1)
        return accel_fail(err, A0616, "set accumulate to at least 1",
                          "invalid number of micro-batches per step: %d", accumulate);
    s->reducer.grad_scale = 1.0f / ((s->o.local ? 1.0f : (float)comm_size(s->comm)) *
                                    (float)accumulate * s->reducer.loss_scale);
    s->order.in_backward = true;
    s->order.last = -1;
    shard_close_units(s);
    s->order.at = 0;
    return ACCEL_OK;
}

void shard_step_scale(struct shard *s, float factor)
{
    s->reducer.step_scale = factor;
}

/* Behind a reduce buffer gradients have no loss scale any more. Without one they have
 * it until they are complete, and get it back if a backward adds to them then. */
void shard_loss_scale(struct shard *s, float scale)
{
    const float by = scale / s->reducer.loss_scale;

    s->reducer.loss_scale = scale;
    s->reducer.grad_scale /= by;
    for (int i = 0; i < s->store.trainers && !s->reducer.buffer && by != 1.0f; i++) {
        struct shard_trainer *t = &s->store.trainer[i];
        int64_t count;
        float *first;

        t->reduced /= by;
        for (int at = 0; t->dirty && t->reduced == 0 &&
                         shard_next_gradients(s, i, &at, &first, &count);)
            s->be->scale(s->be, first, count, by);
    }
}

bool shard_is_reduced(const struct shard *s, int optim)
{
    return s->store.trainer[optim].reduced != 0;
}

bool shard_has_gradient(const struct shard *s, int optim)
{
    return s->store.trainer[optim].dirty;
}

/* What the previous backward did beyond this one's length is forgotten. */
accel_status_t shard_backward_end(struct shard *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    s->be->settle(s->be);
    for (int i = 0; i < s->layout.rings && s->reducer.buffer && st == ACCEL_OK; i++)
        st = hand_in(s, i, err);
    s->order.in_backward = false;
    s->order.len = s->order.at;
    return st;
}

/* ---- the gradients that lie here ------------------------------------------------- */

/* The gradients are zero, and nothing of them has been reduced. */
static void forget_gradients(struct shard *s, int optim)
{
    s->store.trainer[optim].dirty = false;
    s->store.trainer[optim].reduced = 0;
    for (int i = 0; i < s->layout.units; i++)
        if (s->layout.unit[i].optim == optim)
            s->reducer.sums[i] = 0;
}

void shard_zero(struct shard *s, int optim)
{
    int64_t count;
    float *first;

    shard_settle_home(s);
    shard_wait_reduced(s);
    if (shard_has_narrow_gradients(s))
        shard_zero_gradients(s, optim);
    for (int at = 0; !shard_has_narrow_gradients(s) &&
                     shard_next_gradients(s, optim, &at, &first, &count);)
        s->home->zero(s->home, first, (size_t)count * sizeof(*first));
    forget_gradients(s, optim);
}

void shard_updated(struct shard *s, int optim)
{
    forget_gradients(s, optim);
    shard_ring_drop(s, optim);
}

void shard_scale(struct shard *s, int optim, float factor)
{
    shard_settle_home(s);
    shard_change_gradients(s, s->home, optim, s->home->scale, factor);
}

/* NaN stays what it is: the step finds it. */
void shard_clamp(struct shard *s, int optim, float limit)
{
    shard_settle_home(s);
    shard_change_gradients(s, s->home, optim, s->home->clamp, limit);
}

/* Slots lose their pins with their units: nobody holds values any more. */
void shard_abandon(struct shard *s)
{
    s->order.in_backward = false;
    s->order.last = -1;
    shard_close_units(s);
    s->order.at = s->order.len = 0;
    s->order.hash = 0;
    shard_ring_settle(s);
    for (int i = 0; i < s->store.trainers; i++)
        shard_zero(s, i);
    shard_loaded(s);
}
