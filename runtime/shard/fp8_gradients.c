/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are stored in e4m3 with a scale for each 32 of them. Sums over
 * micro-batches and ranks are float32, in one buffer for a unit's part: stored
 * gradients are dequantised into it, and quantised again when the next micro-batch has
 * been added. In: a unit. Out: the same numbers in the other format.
 *
 * A sum that is not yet complete uses stochastic rounding: otherwise a micro-batch
 * whose gradient is less than half a step of the sum would be lost each time. All else
 * is rounded to nearest.
 */
#include "shard/shard_impl.h"

bool shard_has_narrow_gradients(const struct shard *s)
{
    return s->o.precision.gradients != ACCEL_F32;
}

struct scaled shard_gradient_at(const struct shard *s, int64_t at)
{
    return scaled_from(
        scaled_in(s->store.narrow_grad, s->layout.grad_elems, s->o.precision.gradients),
        at);
}

float *shard_widen_gradient(const struct shard *s, const struct shard_unit *u)
{
    s->be->scaled_widen(s->be, s->reducer.piece, ACCEL_F32,
                        shard_gradient_at(s, u->grad_at), u->stored);
    return s->reducer.piece;
}

void shard_narrow_gradient(const struct shard *s, const struct shard_unit *u)
{
    s->be->scaled_narrow(s->be, shard_gradient_at(s, u->grad_at), s->reducer.piece,
                         u->stored, false);
}

void shard_narrow_sum(const struct shard *s, const struct shard_unit *u, uint32_t sums)
{
    s->be->scaled_narrow_sum(s->be, shard_gradient_at(s, u->grad_at), s->reducer.piece,
                             u->stored, u->first, sums);
}

void shard_zero_gradients(const struct shard *s, int optim)
{
    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];
        struct scaled x;

        if (u->optim != optim || u->grad_at < 0)
            continue;
        x = shard_gradient_at(s, u->grad_at);
        s->be->zero(s->be, x.data, (size_t)u->stored * accel_dtype_bytes(x.type));
        s->be->zero(s->be, x.exponent, scaled_blocks(u->stored));
    }
}
