/* SPDX-License-Identifier: Apache-2.0
 *
 * The gather ring: at most two units lie gathered at a time, in the dtype
 * of parameters. In: a
 * unit number. Out: its full parameters. Which unit is evicted depends only on the order
 * of want and done, which is the same on all ranks, so the collectives match.
 */
#include "shard/shard_impl.h"

static struct shard_slot *slot_of(struct shard *s, int unit)
{
    for (int i = 0; i < 2; i++) {
        if (s->slot[i].unit == unit)
            return &s->slot[i];
    }
    return NULL;
}

/* An empty slot, else the unpinned one used longest ago, else NULL. */
static struct shard_slot *victim(struct shard *s)
{
    struct shard_slot *a = &s->slot[0], *b = &s->slot[1];

    if (a->unit < 0)
        return a;
    if (b->unit < 0 && s->units > 1)
        return b;
    if (a->pins || s->units == 1)
        return b->pins || s->units == 1 ? NULL : b;
    return b->pins || a->used < b->used ? a : b;
}

static size_t gathered_bytes(const struct shard *s, int unit)
{
    return (size_t)s->unit[unit].padded * accel_dtype_bytes(s->o.precision.parameters);
}

static void *slot_data(const struct shard *s, const struct shard_slot *slot)
{
    if (slot == &s->slot[0])
        return s->ring;
    return s->ring + s->ring_bytes - gathered_bytes(s, slot->unit);
}

/* Own part first, at its place in the whole; then one in-place all-gather. */
static accel_status_t gather(struct shard *s, struct shard_slot *slot, int unit,
                             accel_error_t *err)
{
    const struct shard_unit *u = &s->unit[unit];
    const float *own = s->master + u->at;
    accel_status_t st;
    void *data;

    slot->unit = unit;
    slot->pins = 0;
    slot->used = ++s->clock;
    data = slot_data(s, slot);
    if (s->o.precision.parameters == ACCEL_BF16)
        s->be->narrow(s->be, (uint16_t *)data + u->first, own, u->own);
    else
        s->be->copy(s->be, (float *)data + u->first, own,
                    (size_t)u->own * sizeof(float));
    if (s->world == 1)
        return ACCEL_OK;
    shard_order_hash(s, SHARD_GATHER, unit);
    st = comm_all_gather(s->comm, data, (size_t)u->own, s->o.precision.parameters, err);
    if (st)
        slot->unit = -1;
    return st;
}

accel_status_t shard_ring_prefetch(struct shard *s, accel_error_t *err)
{
    int next = shard_order_next(s);
    struct shard_slot *slot;

    if (next < 0 || slot_of(s, next))
        return ACCEL_OK;
    slot = victim(s);
    return slot ? gather(s, slot, next, err) : ACCEL_OK;
}

accel_status_t shard_ring_want(struct shard *s, int unit, void **data_out,
                               accel_error_t *err)
{
    struct shard_slot *slot = slot_of(s, unit);
    accel_status_t st;

    if (s->in_backward) {
        st = shard_order_note(s, unit, err);
        if (st)
            return st;
    }
    if (!slot) {
        slot = victim(s);
        if (!slot)
            return accel_fail(err, A0003, "call done() for a unit before the next",
                              "unit '%s' is wanted while two others are in use",
                              s->unit[unit].def->name);
        st = gather(s, slot, unit, err);
        if (st)
            return st;
    }
    slot->used = ++s->clock;
    slot->pins++;
    if (s->in_backward && s->o.prefetch == PREFETCH_PRE) {
        st = shard_ring_prefetch(s, err);
        if (st) {
            slot->pins--;
            return st;
        }
    }
    *data_out = slot_data(s, slot);
    return ACCEL_OK;
}

void shard_ring_done(struct shard *s, int unit)
{
    struct shard_slot *slot = slot_of(s, unit);

    if (slot && slot->pins > 0)
        slot->pins--;
}

void shard_ring_drop(struct shard *s)
{
    for (int i = 0; i < 2; i++)
        s->slot[i] = (struct shard_slot){ .unit = -1 };
}
