/* SPDX-License-Identifier: Apache-2.0
 *
 * Completes an optimizer's gradients before its step: what no reduce-scatter has summed
 * and scaled. In: gradients of this rank. Out: means over the ranks, in the gradient
 * shard. Where each rank stores everything that is one sum of all, in float32, in a
 * narrow dtype or compressed, and nothing with local SGD; copies of gradient shards are
 * summed, too.
 */
#include "shard/shard_impl.h"

/* All-reduces the gradients stored here with those of `others`, in float32. */
static accel_status_t sum_with(struct shard *s, int optim, struct comm *others,
                               accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    /* The reduce-scatter that made the values went by this queue, so no event
     * is needed. */
    if (s->reducer.buffer)
        s->be->use(s->be, QUEUE_REDUCE);
    else
        shard_begin_reduce(s);
    for (int i = 0; i < s->layout.units && !st; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        const bool narrow = shard_has_narrow_gradients(s);

        if (u->grad_at < 0 || u->optim != optim)
            continue;
        st = comm_all_reduce(
            others, narrow ? shard_widen_gradient(s, u) : s->store.grad + u->grad_at,
            (size_t)u->stored, ACCEL_F32, COMM_SUM, err);
        if (narrow && !st)
            shard_narrow_gradient(s, u);
    }
    shard_end_reduce(s);
    return st;
}

/* Sums over the ranks where each stores everything; *scale_out is what is left to
 * multiply by. */
static accel_status_t sum_copies(struct shard *s, int optim, float *scale_out,
                                 accel_error_t *err)
{
    s->store.trainer[optim].reduced *= (float)s->world;
    if (!s->reducer.wire)
        return sum_with(s, optim, s->reduce_data, err);
    *scale_out = s->reducer.step_scale;
    return shard_sum_narrow(s, optim, err);
}

/* What no reduce-scatter has summed and scaled. Without a reduce buffer (NO_SHARD, or
 * one rank) that is everything. */
static accel_status_t complete(struct shard *s, int optim, accel_error_t *err)
{
    float scale =
        (s->reducer.buffer ? 1.0f : s->reducer.grad_scale) * s->reducer.step_scale;
    accel_status_t st = ACCEL_OK;

    if (shard_compresses(s, optim)) {
        s->store.trainer[optim].reduced = scale * (float)s->world;
        return shard_compress(s, optim, scale * (float)s->world, err);
    }
    s->store.trainer[optim].sums++;
    s->store.trainer[optim].reduced = scale;
    if (s->world > 1 && !s->reducer.buffer && !s->o.local)
        st = sum_copies(s, optim, &scale, err);
    if (!st && s->copies) {
        shard_settle_home(s);
        st = sum_with(s, optim, s->copies, err);
        s->store.trainer[optim].reduced *= (float)comm_size(s->copies);
    }
    shard_wait_reduced(s);
    if (st == ACCEL_OK && scale != 1.0f)
        shard_change_gradients(s, s->be, optim, s->be->scale, scale);
    return st;
}

/* The ranks compare the order of their units once for all backwards before it. */
accel_status_t shard_reduce(struct shard *s, int optim, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (s->store.trainer[optim].reduced != 0)
        return ACCEL_OK;
    if (s->reducer.buffer)
        st = shard_order_check(s, err);
    return st ? st : complete(s, optim, err);
}

accel_status_t shard_reduce_early(struct shard *s, int optim, accel_error_t *err)
{
    accel_status_t st = shard_reduce(s, optim, err);

    if (st == ACCEL_OK)
        shard_reopen(s, &s->store.trainer[optim]);
    return st;
}
