/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done only where each rank stores everything: the reduction of gradients in a
 * narrow dtype, and the mean of parameters with local SGD. In: this rank's copy. Out:
 * the same bits on all ranks. Sums are float32 in rank order.
 */
#include "numbers/wire.h"
#include "shard/shard_impl.h"

/* ---- gradients in a narrow dtype ------------------------------------------------- */

/* count arrays of n numbers, one after the other, as they are sent. */
static void to_wire(const struct shard *s, accel_dtype_t type, void *to,
                    const float *from, int count, int64_t n)
{
    if (wire_is_scaled(type))
        s->be->narrow_parts(s->be, to, type, from, count, n);
    else
        s->be->narrow(s->be, to, type, from, count * n);
}

/* Each rank sums its part of the unit, and sends the narrowed mean to the others, so
 * that both halves of the way are narrow. */
static accel_status_t sum_unit(const struct shard *s, const struct shard_unit *u,
                               accel_error_t *err)
{
    const accel_dtype_t type = u->reduce;
    const size_t part = wire_bytes((size_t)u->own, type);
    float *grad = s->store.grad + u->grad_at, *own = grad + s->rank * u->own;
    accel_status_t st;

    to_wire(s, type, s->reducer.wire, grad, s->world, u->own);
    ACCEL_CHECK(st, comm_reduce_scatter(s->reduce_data, s->reducer.wire, own,
                                        (size_t)u->own, type, s->reducer.grad_scale,
                                        false, err));
    to_wire(s, type, s->reducer.wire + (size_t)s->rank * part, own, 1, u->own);
    st = comm_all_gather(s->reduce_data, s->reducer.wire, part / sizeof(int32_t),
                         ACCEL_I32, err);
    for (int r = 0; r < s->world && !st; r++)
        s->be->sum_parts(s->be, grad + r * u->own, false, NULL,
                         s->reducer.wire + (size_t)r * part, type, 1, u->own, 1.0f);
    return st;
}

accel_status_t shard_sum_narrow(struct shard *s, int optim, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    shard_begin_reduce(s);
    for (int i = 0; i < s->layout.units && !st; i++)
        if (s->layout.unit[i].grad_at >= 0 && s->layout.unit[i].optim == optim)
            st = sum_unit(s, &s->layout.unit[i], err);
    shard_end_reduce(s);
    return st;
}

/* ---- local SGD ------------------------------------------------------------------- */

accel_status_t shard_mean(const struct shard *s, float *x, int64_t n,
                          accel_error_t *err)
{
    accel_status_t st =
        comm_all_reduce(s->reduce_data, x, (size_t)n, ACCEL_F32, COMM_SUM, err);

    if (!st)
        s->be->scale(s->be, x, n, 1.0f / (float)s->world);
    return st;
}

accel_status_t shard_open_mean(struct shard *s, accel_error_t *err)
{
    bool narrow = shard_has_narrow_masters(s);
    void *room = NULL;
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < s->store.trainers; i++)
        narrow = narrow || s->store.trainer[i].form != ACCEL_MOMENTS_FLOAT32;
    if (narrow && s->o.local && s->world > 1)
        st = s->be->alloc(s->be, MEMORY_WORK, SHARD_MEAN_ELEMS * sizeof(float), &room,
                          err);
    s->reducer.mean_room = room;
    return st;
}

/* The unit's trained masters: narrow ones by way of float32, a piece at a time; all
 * ranks round the same mean to the nearest. */
static accel_status_t mean_masters(const struct shard *s, const struct shard_unit *u,
                                   accel_error_t *err)
{
    const accel_dtype_t type = s->o.precision.masters;
    accel_status_t st = ACCEL_OK;

    if (!shard_has_narrow_masters(s))
        return shard_mean(s, shard_master_at(s, u->at), u->state, err);
    for (int64_t at = 0; at < u->state && !st; at += SHARD_MEAN_ELEMS) {
        const int64_t rest = u->state - at;
        const int64_t n = rest < SHARD_MEAN_ELEMS ? rest : SHARD_MEAN_ELEMS;

        if (shard_has_scaled_masters(s))
            s->be->scaled_widen(s->be, s->reducer.mean_room, ACCEL_F32,
                                shard_scaled_at(s, u->at + at), n);
        else
            s->be->widen(s->be, s->reducer.mean_room, shard_master_at(s, u->at + at),
                         type, n);
        st = shard_mean(s, s->reducer.mean_room, n, err);
        if (!st)
            shard_narrow_masters(s, u->at + at, n, s->reducer.mean_room);
    }
    return st;
}

/* Array k of the unit's state, likewise. */
static accel_status_t mean_state(const struct shard *s, const struct shard_unit *u,
                                 int k, accel_error_t *err)
{
    const struct shard_trainer *t = &s->store.trainer[u->optim];
    const struct state_array x = shard_array_at(t, k, u->state_at);
    const bool positive = optim_state_is_square(&t->o.settings, k);
    accel_status_t st = ACCEL_OK;

    if (!x.scaled.data && !x.plain.scale)
        return shard_mean(s, x.plain.data, u->state, err);
    for (int64_t at = 0; at < u->state && !st; at += SHARD_MEAN_ELEMS) {
        const int64_t rest = u->state - at;
        const int64_t n = rest < SHARD_MEAN_ELEMS ? rest : SHARD_MEAN_ELEMS;

        shard_widen_state(s->be, s->reducer.mean_room, x, positive, at, n);
        st = shard_mean(s, s->reducer.mean_room, n, err);
        if (!st)
            shard_narrow_state(s->be, x, at, s->reducer.mean_room, positive, n);
    }
    return st;
}

/* Frozen parameters are the same everywhere, and have no state. */
static accel_status_t meet_unit(const struct shard *s, const struct shard_unit *u,
                                bool state, accel_error_t *err)
{
    const struct shard_trainer *t = &s->store.trainer[u->optim];
    accel_status_t st = ACCEL_OK;

    if (!state)
        return mean_masters(s, u, err);
    for (int k = 0; k < t->arrays && !st; k++)
        st = mean_state(s, u, k, err);
    return st;
}

static accel_status_t meet(struct shard *s, bool state, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    shard_draw(s);
    shard_readers_settle(s);
    shard_begin_reduce(s);
    for (int i = 0; i < s->layout.units && s->world > 1 && !st; i++)
        if (s->layout.unit[i].optim >= 0 && s->layout.unit[i].state > 0)
            st = meet_unit(s, &s->layout.unit[i], state, err);
    shard_end_reduce(s);
    shard_wait_reduced(s);
    return st;
}

accel_status_t shard_meet(struct shard *s, accel_error_t *err)
{
    accel_status_t st = meet(s, false, err);

    shard_loaded(s);
    return st;
}

accel_status_t shard_meet_state(struct shard *s, accel_error_t *err)
{
    return meet(s, true, err);
}
