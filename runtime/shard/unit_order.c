/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of units: the order in which the last backward asked for them, which tells
 * what to prefetch, and a hash of all gathers and reductions of a step, which is
 * compared over the ranks at its end. A rank that used its units in another order has
 * exchanged the wrong buffers: that is an error, and such data is never trained on. The
 * collectives themselves detect sizes that differ; this detects wrong units of equal
 * sizes.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

/* Called for every want of a backward. order[0, order_at) is what this backward did so
 * far; beyond it, up to order_len, is what the previous one did. When the two differ,
 * the old tail is dropped and nothing is predicted until the next backward. */
accel_status_t shard_order_note(struct shard *s, int unit, accel_error_t *err)
{
    if (unit == s->order.last)
        return ACCEL_OK;
    s->order.last = unit;
    if (s->order.at < s->order.len && s->order.unit[s->order.at] == unit) {
        s->order.at++;
        return ACCEL_OK;
    }
    if (s->order.at == s->order.cap) {
        int cap = s->order.cap ? 2 * s->order.cap : 64;
        int *grown = realloc(s->order.unit, (size_t)cap * sizeof(*grown));

        if (!grown)
            return accel_fail_nomem(err, "unit order", (size_t)cap * sizeof(*grown));
        s->order.unit = grown;
        s->order.cap = cap;
    }
    s->order.unit[s->order.at++] = unit;
    s->order.len = s->order.at;
    return ACCEL_OK;
}

int shard_order_next(const struct shard *s, int ring)
{
    for (int i = s->order.at; i < s->order.len; i++)
        if (s->layout.unit[s->order.unit[i]].ring == ring &&
            s->order.unit[i] != s->order.last)
            return s->order.unit[i];
    return -1;
}

/* Chains one collective into the hash of this step. */
void shard_order_hash(struct shard *s, enum shard_event what, int unit)
{
    uint64_t x = s->order.hash ^ ((uint64_t)what << 32 | (uint32_t)unit);

    /* splitmix64's mixer: every bit of the history reaches every bit of the hash. */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    s->order.hash = x ^ x >> 31;
}

/* Starts the next step's hash, also on failure. */
accel_status_t shard_order_check(struct shard *s, accel_error_t *err)
{
    /* max(h) and max(~h) = ~min(h): equal on all ranks exactly when the two
     * are complements */
    int64_t pair[2] = { (int64_t)s->order.hash, (int64_t)~s->order.hash };
    accel_status_t st = comm_all_reduce(s->comm, pair, 2, ACCEL_I64, COMM_MAX, err);

    s->order.hash = 0;
    if (st)
        return st;
    if (pair[0] != ~pair[1])
        return accel_fail(err, A0504,
                          "call the same modules in the same order on all ranks; "
                          "a branch on data or rank must not skip a module",
                          "the ranks gathered the units in different orders");
    return ACCEL_OK;
}
