/* SPDX-License-Identifier: Apache-2.0
 *
 * The gather rings. At most two units of one dtype are gathered at a time, or all of
 * them until the masters change (keep); for 8-bit floats see fp8_gather.c. In: a unit
 * number. Out: its full parameters. Which unit is evicted depends only on the order of
 * want and done. That is the same on all ranks, so the collectives match.
 */
#include "shard/shard_impl.h"

static const struct shard_ring *ring_of(const struct shard *s, int unit)
{
    return &s->layout.ring[s->layout.unit[unit].ring];
}

/* The two slots of the unit's ring. */
static struct shard_slot *slots_of(const struct shard *s, int unit)
{
    return &s->gather.slot[2 * s->layout.unit[unit].ring];
}

/* The slot that holds the unit, or NULL. */
static struct shard_slot *slot_of(struct shard *s, int unit)
{
    if (s->layout.keep)
        return s->gather.slot[unit].unit == unit ? &s->gather.slot[unit] : NULL;
    for (int i = 0; i < 2; i++) {
        if (slots_of(s, unit)[i].unit == unit)
            return &slots_of(s, unit)[i];
    }
    return NULL;
}

/* The slot for a unit that is not there: its own (keep), else an empty one, else the
 * unpinned one that was used longest ago. NULL: both are pinned. A single unit has one
 * slot, since its region has no room for two. */
static struct shard_slot *victim(struct shard *s, int unit)
{
    struct shard_slot *a, *b;
    bool single;

    if (s->layout.keep)
        return &s->gather.slot[unit];
    a = slots_of(s, unit);
    b = a + 1;
    single = ring_of(s, unit)->units == 1;
    if (a->unit < 0)
        return a;
    if (b->unit < 0 && !single)
        return b;
    if (a->pins || single)
        return b->pins || single ? NULL : b;
    return b->pins || a->used < b->used ? a : b;
}

/* The address of a slot. The second one depends on the size of its unit: it ends where
 * the region ends. */
static void *slot_data(const struct shard *s, const struct shard_slot *slot)
{
    const struct shard_ring *r = ring_of(s, slot->unit);
    char *memory = s->gather.gathered + r->at;

    if (s->layout.keep)
        return s->gather.gathered + s->layout.unit[slot->unit].all_at;
    if (slot == slots_of(s, slot->unit))
        return memory;
    return memory + r->bytes - s->layout.unit[slot->unit].part_bytes * (size_t)s->world;
}

/* Puts the gather queue behind the masters' last change and the slot's last reader; the
 * later mark implies the earlier. What the other slot held before may reach into this
 * one, but its readers were waited for when it was overwritten, by this same queue. */
static void begin_gather(struct shard *s, struct shard_slot *slot)
{
    bool reader = slot->left > s->gather.changed;
    uint64_t mark = reader ? slot->left : s->gather.changed;

    if (mark > s->gather.mark_seen) {
        s->be->wait(s->be, QUEUE_GATHER, reader ? slot->read : s->gather.updated);
        s->gather.mark_seen = mark;
    }
    s->be->use(s->be, QUEUE_GATHER);
}

/* Numbers the gather, so that wait_gathered can skip what compute has waited for. */
static void end_gather(struct shard *s, struct shard_slot *slot)
{
    s->be->record(s->be, slot->ready, QUEUE_GATHER);
    s->be->use(s->be, QUEUE_COMPUTE);
    slot->gathered = ++s->gather.gathers;
}

/* Puts the compute queue behind the gather of this slot. */
static void wait_gathered(struct shard *s, const struct shard_slot *slot)
{
    if (slot->gathered <= s->gather.gather_seen)
        return;
    s->be->wait(s->be, QUEUE_COMPUTE, slot->ready);
    s->gather.gather_seen = slot->gathered;
}

/* Writes what this rank stores to its place in the slot, in the dtype of the unit.
 * When offloaded, the copy may still be running on return; what it reads does not
 * change before the next step, which waits for the device. */
static void put_own(struct shard *s, int unit, void *data)
{
    const struct shard_unit *u = &s->layout.unit[unit];
    bool *fresh = &s->gather.fresh[unit];
    const size_t elem = accel_dtype_bytes(u->type);
    const bool same = u->type == s->o.precision.masters;
    char *to = (char *)data + (size_t)u->first * elem;

    if (u->codes.n > 0) {
        shard_coded_put(s, u, data);
        return;
    }
    if (!s->offloaded) {
        shard_read_masters(s, s->be, u->at, u->stored, u->type, to);
        return;
    }
    if (!same && !*fresh)
        shard_read_masters(s, s->home, u->at, u->own, u->type,
                           s->gather.copy + u->copy_at);
    *fresh = !same;
    s->be->copy(s->be, to,
                same ? shard_master_at(s, u->at) : s->gather.copy + u->copy_at,
                (size_t)u->own * elem);
}

/* The own part first, at its place in the whole; then one in-place all-gather, unless
 * scaled masters are whole here. */
static accel_status_t gather(struct shard *s, struct shard_slot *slot, int unit,
                             accel_error_t *err)
{
    const struct shard_unit *u = &s->layout.unit[unit];
    accel_status_t st;
    void *data;

    slot->unit = unit;
    slot->pins = 0;
    slot->used = ++s->gather.clock;
    data = slot_data(s, slot);
    begin_gather(s, slot);
    st = shard_coded_scale(s, err);
    if (st == ACCEL_OK)
        put_own(s, unit, data);
    if (st == ACCEL_OK && s->world > 1 && s->o.strategy != SHARD_NONE) {
        shard_order_hash(s, SHARD_GATHER, unit);
        st = u->codes.n > 0
                 ? comm_all_gather(s->data, data, u->part_bytes, ACCEL_U8, err)
                 : comm_all_gather(s->data, data, (size_t)u->own, u->type, err);
    }
    if (st == ACCEL_OK && u->codes.n > 0)
        shard_coded_close_up(s, u, data);
    end_gather(s, slot);
    /* a failed gather left no unit there */
    if (st)
        slot->unit = -1;
    return st;
}

/* Never evicts a pinned unit: without a slot the unit is gathered when it is wanted. */
accel_status_t shard_ring_prefetch(struct shard *s, int unit, accel_error_t *err)
{
    int next = shard_order_next(s, s->layout.unit[unit].ring);
    struct shard_slot *slot;

    if (next < 0 || slot_of(s, next))
        return ACCEL_OK;
    slot = victim(s, next);
    return slot ? gather(s, slot, next, err) : ACCEL_OK;
}

/* Pins the unit. In backward the next one is prefetched right after this one was found
 * (PREFETCH_PRE), so that its gather overlaps with this one's kernels. */
accel_status_t shard_ring_want(struct shard *s, int unit, void **data_out,
                               accel_error_t *err)
{
    struct shard_slot *slot = slot_of(s, unit);
    accel_status_t st;

    if (s->order.in_backward) {
        ACCEL_CHECK(st, shard_order_note(s, unit, err));
    }
    if (!slot) {
        slot = victim(s, unit);
        if (!slot)
            return accel_fail(err, A0003, "call done() for one of them first",
                              "unit '%s' is wanted while two other units are in use",
                              s->layout.unit[unit].def->name);
        ACCEL_CHECK(st, gather(s, slot, unit, err));
    }
    slot->used = ++s->gather.clock;
    slot->pins++;
    wait_gathered(s, slot);
    if (s->order.in_backward && s->o.prefetch == PREFETCH_PRE) {
        st = shard_ring_prefetch(s, unit, err);
        if (st) {
            slot->pins--;
            return st;
        }
    }
    *data_out = slot_data(s, slot);
    return ACCEL_OK;
}

/* The mark is set at every done: the last one counts as the slot's last reader. */
void shard_ring_done(struct shard *s, int unit)
{
    struct shard_slot *slot = slot_of(s, unit);

    if (!slot || slot->pins == 0)
        return;
    slot->pins--;
    slot->left = ++s->gather.marks;
    s->be->record(s->be, slot->read, QUEUE_COMPUTE);
}

/* Waiting for the newest gather implies all others: they share a queue. */
void shard_ring_settle(struct shard *s)
{
    for (int i = 0; i < s->gather.slots; i++)
        if (s->gather.slot[i].gathered == s->gather.gathers)
            wait_gathered(s, &s->gather.slot[i]);
}

void shard_ring_drop(struct shard *s, int optim)
{
    for (int i = 0; i < s->gather.slots; i++) {
        struct shard_slot *slot = &s->gather.slot[i];

        if (optim != SHARD_ALL && slot->unit >= 0 &&
            s->layout.unit[slot->unit].optim != optim)
            continue;
        slot->unit = -1;
        slot->pins = 0;
        slot->used = 0;
    }
    for (int i = 0; i < s->layout.units; i++)
        if (optim == SHARD_ALL || s->layout.unit[i].optim == optim)
            s->gather.fresh[i] = false;
    s->gather.copied = s->gather.coded_scaled = false;
    s->be->record(s->be, s->gather.updated, QUEUE_COMPUTE);
    s->gather.changed = ++s->gather.marks;
}

/* Masters, state and what PowerSGD keeps are all written in the compute queue, or
 * after what it has begun. */
void shard_read_begin(struct shard *s)
{
    s->be->record(s->be, s->gather.boxes_read, QUEUE_COMPUTE);
    s->be->wait(s->be, QUEUE_SAVE, s->gather.boxes_read);
    s->be->use(s->be, QUEUE_SAVE);
}

void shard_read_end(struct shard *s)
{
    s->be->record(s->be, s->gather.boxes_read, QUEUE_SAVE);
    s->be->use(s->be, QUEUE_COMPUTE);
    s->gather.reading = true;
}

void shard_readers_settle(struct shard *s)
{
    shard_ring_settle(s);
    if (s->gather.reading)
        s->be->wait(s->be, QUEUE_COMPUTE, s->gather.boxes_read);
    s->gather.reading = false;
}

/* Offloaded: device-to-host copies are complete after this, and what the device reads
 * at home may change. The device keeps a failure and reports it with its next check. */
void shard_settle_home(struct shard *s)
{
    accel_error_t kept;

    if (s->offloaded)
        s->be->sync(s->be, &kept);
}

void shard_settle(struct shard *s)
{
    shard_readers_settle(s);
    shard_settle_home(s);
}

void shard_loaded(struct shard *s)
{
    shard_ring_drop(s, SHARD_ALL);
}
