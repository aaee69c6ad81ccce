/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives up a micro-batch or a step in the middle. Parameters and optimizer state are
 * untouched at that point, so only what is in flight is dropped.
 */
#include "shard/shard_impl.h"

/* Slots lose their pins with their units: nobody holds values any more. */
void shard_abandon(struct shard *s)
{
    s->in_backward = false;
    s->last_unit = -1;
    shard_close_units(s);
    s->order_at = s->order_len = 0;
    s->hash = 0;
    shard_ring_settle(s);
    for (int i = 0; i < s->trainers; i++)
        shard_zero(s, i);
    shard_loaded(s);
}
