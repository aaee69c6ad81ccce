/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients on their way from the full unit to the shard: one float32 reduce buffer, handed
 * in (reduce-scatter, float32 sums in rank order, added to the gradient shard) when
 * backward moves on to another unit. Where each rank stores everything, they are added up
 * in place and all-reduced once, after the last micro-batch. So are copies of shards.
 */
#include "common/wire.h"
#include "shard/shard_impl.h"

/* The reduce queue takes over what compute has left in the gradients. */
static void begin_reduce(struct shard *s)
{
    s->be->record(s->be, s->computed, QUEUE_COMPUTE);
    s->be->wait(s->be, QUEUE_REDUCE, s->computed);
    s->be->use(s->be, QUEUE_REDUCE);
}

static void end_reduce(struct shard *s)
{
    s->be->record(s->be, s->reduced, QUEUE_REDUCE);
    s->be->use(s->be, QUEUE_COMPUTE);
    s->reducing = true;
}

/* Compute may change the reduce buffer, or read the gradient, from here on. */
static void wait_reduced(struct shard *s)
{
    if (s->reducing)
        s->be->wait(s->be, QUEUE_COMPUTE, s->reduced);
    s->reducing = false;
}

/* Own part of the unit's gradient, all ranks' summed, into (or onto what is in) `out`. */
static accel_status_t sum_up(struct shard *s, int unit, float *out, bool accumulate,
                             accel_error_t *err)
{
    const size_t own = (size_t)s->unit[unit].own;
    accel_dtype_t wire = s->o.precision.reduce;

    if (s->world > 1) {
        shard_order_hash(s, SHARD_REDUCE, unit);
        return comm_reduce_scatter(s->reduce_data, s->reduce, out, own, wire,
                                   s->grad_scale, accumulate, err);
    }
    s->be->sum_parts(s->be, out, accumulate, s->reduce, wire, 1, (int64_t)own,
                     s->grad_scale);
    return ACCEL_OK;
}

/* The gradient shard is at home: earlier micro-batches come here first, the sum goes back. */
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

/* The reduce buffer as it travels. */
static void narrow_in_place(struct shard *s, const struct shard_unit *u)
{
    const accel_dtype_t wire = s->o.precision.reduce;

    if (wire == ACCEL_BF16)
        s->be->narrow(s->be, s->reduce, s->reduce, u->padded);
    else if (wire_is_scaled(wire))
        s->be->narrow_parts(s->be, s->reduce, wire, s->reduce, s->world, u->own);
}

static accel_status_t hand_in(struct shard *s, accel_error_t *err)
{
    const struct shard_unit *u;
    accel_status_t st;
    int unit = s->open;

    if (unit < 0)
        return ACCEL_OK;
    u = &s->unit[unit];
    s->open = -1;
    begin_reduce(s);
    narrow_in_place(s, u);
    st = s->offloaded ? sum_up_at_home(s, unit, err)
                      : sum_up(s, unit, s->grad + u->grad_at, true, err);
    end_reduce(s);
    return st;
}

accel_status_t shard_grad(struct shard *s, int unit, float **grad_out,
                          accel_error_t *err)
{
    accel_status_t st;

    if (!s->reduce) {
        *grad_out = s->grad + s->unit[unit].grad_at;
        return ACCEL_OK;
    }
    if (s->open != unit) {
        bool moved_on = s->open >= 0;

        st = hand_in(s, err);
        if (st)
            return st;
        if (moved_on && s->in_backward && s->o.prefetch == PREFETCH_POST) {
            st = shard_ring_prefetch(s, err);
            if (st)
                return st;
        }
        wait_reduced(s);
        s->be->zero(s->be, s->reduce, (size_t)s->unit[unit].padded * sizeof(float));
        s->open = unit;
    }
    *grad_out = s->reduce;
    return ACCEL_OK;
}

accel_status_t shard_backward_begin(struct shard *s, int accumulate, accel_error_t *err)
{
    if (accumulate < 1)
        return accel_fail(err, A0616, "use at least one (accumulate)",
                          "%d micro-batches per step", accumulate);
    s->grad_scale = 1.0f / ((float)comm_size(s->comm) * (float)accumulate);
    s->in_backward = true;
    s->open = s->last_unit = -1;
    s->order_at = 0;
    return ACCEL_OK;
}

/* The gradients stored here, summed with those of other ranks. */
static accel_status_t sum_with(struct shard *s, struct comm *others, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (s->reduce) /* what is summed came by this queue */
        s->be->use(s->be, QUEUE_REDUCE);
    else
        begin_reduce(s);
    for (int i = 0; i < s->units && !st; i++) {
        const struct shard_unit *u = &s->unit[i];

        if (u->grad_at >= 0)
            st = comm_all_reduce(others, s->grad + u->grad_at, (size_t)u->stored,
                                 ACCEL_F32, COMM_SUM, err);
    }
    end_reduce(s);
    return st;
}

/* After the last micro-batch: what no reduce-scatter has summed and scaled. */
static accel_status_t reduce_all(struct shard *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (s->world > 1 && !s->reduce)
        st = sum_with(s, s->reduce_data, err);
    if (!st && s->copies) {
        shard_settle_home(s);
        st = sum_with(s, s->copies, err);
    }
    wait_reduced(s);
    if (!st && !s->reduce && s->grad_scale != 1.0f)
        s->be->scale(s->be, s->grad, s->grad_elems, s->grad_scale);
    return st;
}

accel_status_t shard_backward_end(struct shard *s, bool last, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (s->reduce)
        st = hand_in(s, err);
    s->in_backward = false;
    s->order_len = s->order_at;
    if (st || !last)
        return st;
    if (s->reduce)
        st = shard_order_check(s, err);
    return st ? st : reduce_all(s, err);
}
