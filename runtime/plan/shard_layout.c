/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of the shards of one rank. In: units, one after the other. Out: where each
 * lies, and the bytes of each kind of memory.
 */
#include "plan/shard_layout.h"

#include "numbers/scaled.h"

/* elements per rank: 128 bytes of float32 */
#define PAD 32

int64_t plan_padded_elems(int64_t elems, int ranks)
{
    int64_t step = (int64_t)PAD * ranks;

    if (elems < 0 || ranks < 1 || elems > INT64_MAX - step)
        return -1;
    return (elems + step - 1) / step * step;
}

int64_t plan_resting_bytes(int64_t n, accel_dtype_t type)
{
    return wire_is_scaled(type) ? (int64_t)scaled_bytes(n, type)
                                : n * (int64_t)accel_dtype_bytes(type);
}

/* ---- weights that are gathered in fp8 -------------------------------------------- */

struct plan_codes plan_codes_of(struct plan_codes codes, int unit)
{
    struct plan_codes own = { codes.list, 0 };

    while (codes.n > 0 && own.list->unit < unit) {
        own.list++;
        codes.n--;
    }
    while (own.n < codes.n && own.list[own.n].unit == unit)
        own.n++;
    return own;
}

/* The coded elements among the first `end`. */
static int64_t coded_before(struct plan_codes own, int64_t end)
{
    int64_t sum = 0;

    for (int i = 0; i < own.n; i++) {
        const int64_t there = end - own.list[i].at;

        sum += there < 0 ? 0 : there < own.list[i].elems ? there : own.list[i].elems;
    }
    return sum;
}

int64_t plan_gathered_bytes(struct plan_codes own, int64_t end, int64_t elem)
{
    return end * elem - coded_before(own, end) * (elem - 1);
}

int64_t plan_part_bytes(struct plan_codes own, int64_t padded, int ranks, int64_t elem)
{
    const int64_t part = padded / ranks;
    int64_t most = 0;

    if (own.n == 0)
        return part * elem;
    for (int r = 0; r < ranks; r++) {
        const int64_t bytes = plan_gathered_bytes(own, (r + 1) * part, elem) -
                              plan_gathered_bytes(own, r * part, elem);

        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t plan_coded_elems(bool device)
{
    return device ? (int64_t)4 << 20 : 8192;
}

/* Besides the codes: numbers in the dtype of parameters, on a device a part that is
 * moved, and a largest magnitude, a scale and its inverse for each weight. */
static size_t coded_room(const struct shard_layout *l)
{
    const bool device = l->rules.device;

    return (size_t)(plan_coded_elems(device) * 2 + (device ? l->coded_part : 0) +
                    l->rules.codes.n * 3 * (int64_t)sizeof(float));
}

/* ---- units ----------------------------------------------------------------------- */

/* The trained range may end inside this rank's part, before it, or after it. */
bool shard_unit_size(const struct shard_rules *r, int unit, struct shard_unit *u)
{
    int64_t rest;

    u->padded = plan_padded_elems(u->elems, r->ranks);
    if (u->padded < 0)
        return false;
    u->own = u->padded / r->ranks;
    u->first = r->cut ? r->rank * u->own : 0;
    u->stored = r->cut ? u->own : u->padded;
    u->trained = u->optim < 0 ? 0 : u->frozen ? u->elems - u->frozen : u->padded;
    rest = u->trained - u->first;
    u->state = rest < 0 ? 0 : rest < u->stored ? rest : u->stored;
    u->codes = plan_codes_of(r->codes, unit);
    u->part_bytes = (size_t)plan_part_bytes(u->codes, u->padded, r->ranks,
                                            (int64_t)accel_dtype_bytes(u->type));
    return true;
}

/* The unit's ring, new where this is the first. */
static struct shard_ring *ring_for(struct shard_layout *l, struct shard_unit *u)
{
    for (u->ring = 0; u->ring < l->rings; u->ring++)
        if (l->ring[u->ring].type == u->type &&
            l->ring[u->ring].reduce_type == u->reduce)
            return &l->ring[u->ring];
    l->ring[l->rings] =
        (struct shard_ring){ .type = u->type, .reduce_type = u->reduce };
    return &l->ring[l->rings++];
}

static void add_to_ring(struct shard_ring *r, size_t bytes, int64_t trained)
{
    r->units++;
    if (trained > r->largest_trained)
        r->largest_trained = trained;
    if (bytes > r->largest) {
        r->second = r->largest;
        r->largest = bytes;
    } else if (bytes > r->second) {
        r->second = bytes;
    }
}

bool shard_layout_add(struct shard_layout *l, struct shard_unit *u)
{
    const struct shard_rules *r = &l->rules;
    size_t bytes;

    if (!shard_unit_size(r, l->units, u) || u->padded > INT64_MAX / 64 - l->all_elems)
        return false;
    l->units++;
    l->all_elems += u->padded;
    u->at = l->stored_elems;
    l->stored_elems += u->stored;
    if (u->optim >= 0) {
        u->state_at = l->state_elems[u->optim];
        l->state_elems[u->optim] += u->state;
    }
    u->grad_at = u->trained > 0 ? l->grad_elems : -1;
    if (u->trained > 0)
        l->grad_elems += r->cut_gradients ? u->own : u->padded;
    u->copy_at = l->copy_bytes;
    if (u->type != r->masters)
        l->copy_bytes += (size_t)u->stored * accel_dtype_bytes(u->type);
    bytes = u->part_bytes * (size_t)r->ranks;
    u->all_at = l->all_bytes;
    l->all_bytes += bytes;
    if (u->codes.n && r->ranks > 1 && (int64_t)u->part_bytes > l->coded_part)
        l->coded_part = (int64_t)u->part_bytes;
    add_to_ring(ring_for(l, u), bytes, u->trained > 0 ? u->padded : 0);
    return true;
}

/* ---- bytes ----------------------------------------------------------------------- */

/* Regions and reduce buffers lie one after the other. */
static void place_rings(struct shard_layout *l, size_t *slots_out)
{
    int64_t reduce = 0;

    *slots_out = 0;
    for (int i = 0; i < l->rings; i++) {
        struct shard_ring *r = &l->ring[i];

        r->at = *slots_out;
        r->bytes = r->largest + r->second;
        r->reduce_at = reduce;
        *slots_out += r->bytes;
        reduce += r->largest_trained;
        if (r->largest_trained > l->largest_trained)
            l->largest_trained = r->largest_trained;
    }
}

/* The largest gradient of a unit, in parts for the ranks that have copies. */
static size_t wire_buffer(const struct shard_layout *l)
{
    const size_t copies = (size_t)l->rules.narrow_copies;
    size_t most = 0;

    for (int i = 0; i < l->rings && copies > 0; i++) {
        const struct shard_ring *r = &l->ring[i];
        const size_t bytes =
            wire_bytes((size_t)r->largest_trained / copies, r->reduce_type) * copies;

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Nothing is gathered where masters serve: whole, in the unit's dtype, and where they
 * are computed with. */
void shard_layout_end(struct shard_layout *l)
{
    const struct shard_rules *r = &l->rules;
    const bool whole = (!r->cut || r->ranks == 1) && !r->offloaded;
    const bool held = whole && r->codes.n > 0;
    const bool narrow = r->gradients != ACCEL_F32 && !r->narrow_copies;
    struct shard_memory *m = &l->memory;
    size_t slots;

    place_rings(l, &slots);
    l->resident = whole && !held && r->masters != ACCEL_F16;
    l->keep = held || (!whole && r->keep);
    m->master = (size_t)plan_resting_bytes(l->stored_elems, r->masters);
    m->gradient_shard = (size_t)plan_resting_bytes(l->grad_elems, r->gradients);
    m->gather_slots = l->resident ? l->copy_bytes : l->keep ? l->all_bytes : slots;
    m->wire_buffer = wire_buffer(l);
    if (narrow || (r->cut_gradients && (r->ranks > 1 || r->streamed)))
        for (int i = 0; i < l->rings; i++)
            m->reduce_buffer += (size_t)l->ring[i].largest_trained * sizeof(float);
    if (narrow || (r->cut_gradients && r->streamed))
        l->piece_bytes = (size_t)l->largest_trained / (size_t)(r->cut ? r->ranks : 1) *
                         sizeof(float);
    m->reduce_buffer += l->piece_bytes;
    if (r->streamed)
        m->narrow_master = l->copy_bytes;
    if (r->codes.n > 0)
        m->coded_room = coded_room(l);
}
