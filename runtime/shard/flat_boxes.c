/* SPDX-License-Identifier: Apache-2.0
 *
 * The shards as they lie in memory, as boxes of a checkpoint that only the same ranks
 * can load (LOCAL_STATE_DICT): for each unit its masters, its optimizer state and their
 * scales, in one dimension, padding included. They are not cut at parameters.
 */
#include "shard/shard_impl.h"

#include <stdio.h>

/* Elements [first, first + n) of `all`; nothing where n is 0. `format` has a place for
 * the unit's number and one for the array. */
static void put_flat(struct box_walk *w, const char *format, int unit,
                     const char *array, accel_dtype_t type, void *data, int64_t all,
                     int64_t first, int64_t n)
{
    size_t length;

    if (n <= 0)
        return;
    length = (size_t)snprintf(NULL, 0, format, unit, array) + 1;
    if (w->box) {
        char *name = w->text + w->text_bytes;

        snprintf(name, length, format, unit, array);
        w->box[w->boxes] = (accel_ckpt_box_t){ .name = name,
                                               .dtype = type,
                                               .ndim = 1,
                                               .global_shape = { all },
                                               .offset = { first },
                                               .shape = { n },
                                               .data = data };
    }
    w->boxes++;
    w->text_bytes += length;
}

/* All arrays of the optimizer's state in the part of a unit's range that is trained. */
static void walk_state(const struct shard *s, int unit, int64_t first, int64_t count,
                       struct box_walk *w)
{
    const struct shard_unit *u = &s->layout.unit[unit];
    const struct shard_trainer *t = &s->store.trainer[u->optim];
    const int64_t trained = u->trained;
    const int64_t n = (first + count < trained ? first + count : trained) - first;
    const int64_t at = u->state_at + first - u->first;

    for (int k = 0; k < t->arrays && n > 0; k++) {
        const struct state_array x = shard_array_at(t, k, at);
        const struct stored values = shard_stored_state(x, false);
        const struct stored scales = shard_stored_state(x, true);

        put_flat(w, "optim/flat/%d/%s", unit, t->state_name[k], values.type,
                 values.data, trained, first, n);
        if (scales.data)
            put_flat(w, "optim/flat/%d/%s" SHARD_SCALE_SUFFIX, unit, t->state_name[k],
                     scales.type, scales.data, shard_blocks(trained, scales.block),
                     first / scales.block, shard_blocks(n, scales.block));
    }
}

static void walk_unit(const struct shard *s, int unit, bool for_load,
                      struct box_walk *w)
{
    const struct shard_unit *u = &s->layout.unit[unit];
    int64_t first = u->first, count = u->stored, at;

    if (!for_load)
        shard_answers(s, u, &first, &count);
    at = u->at + first - u->first;
    put_flat(w, "flat/%d%s", unit, "", s->o.precision.masters, shard_master_at(s, at),
             u->padded, first, count);
    if (shard_has_scaled_masters(s))
        put_flat(w, SHARD_EXPONENT_PREFIX "flat/%d%s", unit, "", ACCEL_U8,
                 shard_scaled_at(s, at).exponent, u->padded / SCALED_BLOCK,
                 first / SCALED_BLOCK, shard_blocks(count, SCALED_BLOCK));
    if (u->optim >= 0)
        walk_state(s, unit, first, count, w);
}

static void walk_units(const struct shard *s, bool for_load, struct box_walk *w)
{
    for (int i = 0; i < s->layout.units; i++)
        walk_unit(s, i, for_load, w);
}

accel_status_t shard_flat_boxes(struct shard *s, bool for_load,
                                accel_ckpt_box_t **boxes_out, size_t *count_out,
                                accel_error_t *err)
{
    return shard_walk_boxes(s, for_load, walk_units, NULL, boxes_out, count_out, err);
}
