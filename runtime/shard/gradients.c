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
    s->be->record(s->be, s->computed, QUEUE_COMPUTE);
    s->be->wait(s->be, QUEUE_REDUCE, s->computed);
    s->be->use(s->be, QUEUE_REDUCE);
}

/* The reduction overlaps with the backward of the next unit until that needs the
 * buffer. */
void shard_end_reduce(struct shard *s)
{
    s->be->record(s->be, s->reduced, QUEUE_REDUCE);
    s->be->use(s->be, QUEUE_COMPUTE);
    s->reducing = true;
}

void shard_wait_reduced(struct shard *s)
{
    if (s->reducing)
        s->be->wait(s->be, QUEUE_COMPUTE, s->reduced);
    s->reducing = false;
}

/* ---- from a backward to the shards ----------------------------------------------- */

/* What the reduce buffer is brought to: one rank sends nothing. */
static accel_dtype_t wire_of(const struct shard *s, const struct shard_unit *u)
{
    return s->world > 1 || s->offloaded ? u->reduce : ACCEL_F32;
}

/* The reduce buffer that the unit's gradient is in. */
static float *buffer_of(const struct shard *s, int unit)
{
    return s->ring[s->unit[unit].ring].reduce;
}

/* This rank's part of the unit's gradient, summed over all ranks and scaled, into `out`
 * or (accumulate) onto what it holds. */
static accel_status_t sum_up(struct shard *s, int unit, float *out, bool accumulate,
                             accel_error_t *err)
{
    const size_t own = (size_t)s->unit[unit].own;
    const accel_dtype_t wire = wire_of(s, &s->unit[unit]);

    if (s->world > 1) {
        shard_order_hash(s, SHARD_REDUCE, unit);
        return comm_reduce_scatter(s->reduce_data, buffer_of(s, unit), out, own, wire,
                                   s->grad_scale, accumulate, err);
    }
    s->be->sum_parts(s->be, out, accumulate, NULL, buffer_of(s, unit), wire, 1,
                     (int64_t)own, s->grad_scale);
    return ACCEL_OK;
}

/* Offloaded: the sum of earlier micro-batches comes to the device first, then the new
 * sum goes home. The first micro-batch of a step has nothing to fetch. */
static accel_status_t sum_up_at_home(struct shard *s, int unit, accel_error_t *err)
{
    struct shard_unit *u = &s->unit[unit];
    float *home = s->grad + u->grad_at;
    const size_t bytes = (size_t)u->own * sizeof(float);
    accel_status_t st;

    if (u->partial)
        s->be->copy(s->be, s->piece, home, bytes);
    st = sum_up(s, unit, s->piece, u->partial, err);
    s->be->copy(s->be, home, s->piece, bytes);
    u->partial = true;
    return st;
}

/* What rests is the sum of earlier micro-batches, unless this is the first one. */
static accel_status_t sum_up_narrow(struct shard *s, int unit, accel_error_t *err)
{
    struct shard_unit *u = &s->unit[unit];
    accel_status_t st;

    if (u->partial)
        shard_widen_gradient(s, u);
    st = sum_up(s, unit, s->piece, u->partial, err);
    if (st == ACCEL_OK && u->partial)
        shard_narrow_sum(s, u);
    else if (st == ACCEL_OK)
        shard_narrow_gradient(s, u);
    u->partial = true;
    u->sums++;
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
static accel_status_t hand_in(struct shard *s, struct shard_ring *r, accel_error_t *err)
{
    const struct shard_unit *u;
    accel_status_t st;
    int unit = r->open;

    if (unit < 0)
        return ACCEL_OK;
    u = &s->unit[unit];
    r->open = -1;
    shard_begin_reduce(s);
    narrow_in_place(s, u, r->reduce);
    st = s->offloaded ? sum_up_at_home(s, unit, err)
         : shard_has_narrow_gradients(s)
             ? sum_up_narrow(s, unit, err)
             : sum_up(s, unit, s->grad + u->grad_at, true, err);
    shard_end_reduce(s);
    return st;
}

/* Neighbours are one range, so that a run with one optimizer has one. */
bool shard_next_gradients(const struct shard *s, int optim, int *at, float **first_out,
                          int64_t *count_out)
{
    int64_t first = 0, count = 0;

    for (; *at < s->units; ++*at) {
        const struct shard_unit *u = &s->unit[*at];

        if (u->def->optim != optim || u->grad_at < 0)
            continue;
        if (count && first + count != u->grad_at)
            break;
        first = count ? first : u->grad_at;
        count += u->stored;
    }
    *first_out = s->grad + first;
    *count_out = count;
    return count > 0;
}

void shard_multiply(const struct shard *s, const struct backend *be, int optim,
                    float by)
{
    int64_t count;
    float *first;

    if (shard_has_narrow_gradients(s)) {
        shard_change_gradients(s, optim, be->scale, by);
        return;
    }
    for (int at = 0; shard_next_gradients(s, optim, &at, &first, &count);)
        be->scale(be, first, count, by);
}

void shard_reopen(struct shard *s, struct shard_trainer *t)
{
    if (t->reduced != 1.0f) {
        shard_settle_home(s);
        shard_wait_reduced(s);
        shard_multiply(s, s->home, (int)(t - s->trainer), 1.0f / t->reduced);
    }
    t->reduced = 0;
}

/* A backward is about to add to the unit's gradient. */
static void touch(struct shard *s, int unit)
{
    struct shard_trainer *t = &s->trainer[s->unit[unit].def->optim];

    if (t->reduced != 0)
        shard_reopen(s, t);
    t->dirty = true;
}

/* Without a reduce buffer backward writes into the gradient itself. With one it is
 * zeroed for each unit, since kernels add to it. PREFETCH_POST gathers the next unit
 * behind the reduction of the previous one. */
accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err)
{
    struct shard_ring *r;
    accel_status_t st;

    touch(s, unit);
    if (!s->reduce) {
        *grad_out = s->grad + s->unit[unit].grad_at;
        return ACCEL_OK;
    }
    r = &s->ring[s->unit[unit].ring];
    if (r->open != unit) {
        bool moved_on = r->open >= 0;

        ACCEL_CHECK(st, hand_in(s, r, err));
        if (moved_on && s->in_backward && s->o.prefetch == PREFETCH_POST) {
            ACCEL_CHECK(st, shard_ring_prefetch(s, unit, err));
        }
        shard_wait_reduced(s);
        s->be->zero(s->be, r->reduce, (size_t)s->unit[unit].padded * sizeof(float));
        r->open = unit;
    }
    *grad_out = r->reduce;
    return ACCEL_OK;
}

/* Marks all reduce buffers as without a unit. */
static void close_units(struct shard *s)
{
    for (int i = 0; i < s->rings; i++)
        s->ring[i].open = -1;
}

/* The scale counts all ranks, copies included: comm, not data. */
accel_status_t shard_backward_begin(struct shard *s, int accumulate, accel_error_t *err)
{
    if (accumulate < 1)
        return accel_fail(err, A0616, "set accumulate to at least 1",
                          "invalid number of micro-batches per step: %d", accumulate);
    s->grad_scale = 1.0f / ((s->o.local ? 1.0f : (float)comm_size(s->comm)) *
                            (float)accumulate * s->loss_scale);
    s->in_backward = true;
    s->last_unit = -1;
    close_units(s);
    s->order_at = 0;
    return ACCEL_OK;
}

void shard_step_scale(struct shard *s, float factor)
{
    s->step_scale = factor;
}

/* Behind a reduce buffer gradients have no loss scale any more. Without one they have
 * it until they are complete, and get it back if a backward adds to them then. */
void shard_loss_scale(struct shard *s, float scale)
{
    const float by = scale / s->loss_scale;

    s->loss_scale = scale;
    s->grad_scale /= by;
    for (int i = 0; i < s->trainers && !s->reduce && by != 1.0f; i++) {
        struct shard_trainer *t = &s->trainer[i];
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
    return s->trainer[optim].reduced != 0;
}

bool shard_has_gradient(const struct shard *s, int optim)
{
    return s->trainer[optim].dirty;
}

/* What the previous backward did beyond this one's length is forgotten. */
accel_status_t shard_backward_end(struct shard *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    s->be->settle(s->be);
    for (int i = 0; i < s->rings && s->reduce && st == ACCEL_OK; i++)
        st = hand_in(s, &s->ring[i], err);
    s->in_backward = false;
    s->order_len = s->order_at;
    return st;
}

/* ---- the gradients that lie here ------------------------------------------------- */

/* The gradients are zero, and nothing of them has been reduced. */
static void forget_gradients(struct shard *s, int optim)
{
    s->trainer[optim].dirty = false;
    s->trainer[optim].reduced = 0;
    for (int i = 0; i < s->units; i++)
        if (s->unit[i].def->optim == optim) {
            s->unit[i].partial = false;
            s->unit[i].sums = 0;
        }
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
    s->copied = false;
    for (int i = 0; i < s->units; i++)
        if (s->unit[i].def->optim == optim)
            s->unit[i].fresh = false;
}

void shard_scale(struct shard *s, int optim, float factor)
{
    shard_settle_home(s);
    shard_multiply(s, s->home, optim, factor);
}

/* NaN stays what it is: the step finds it. */
void shard_clamp(struct shard *s, int optim, float limit)
{
    int64_t count;
    float *first;

    shard_settle_home(s);
    if (shard_has_narrow_gradients(s)) {
        shard_change_gradients(s, optim, s->home->clamp, limit);
        return;
    }
    for (int at = 0; shard_next_gradients(s, optim, &at, &first, &count);)
        s->home->clamp(s->home, first, count, limit);
}

/* Slots lose their pins with their units: nobody holds values any more. */
void shard_abandon(struct shard *s)
{
    s->in_backward = false;
    s->last_unit = -1;
    close_units(s);
    s->order_at = s->order_len = 0;
    s->hash = 0;
    shard_ring_settle(s);
    for (int i = 0; i < s->trainers; i++)
        shard_zero(s, i);
    shard_loaded(s);
}
