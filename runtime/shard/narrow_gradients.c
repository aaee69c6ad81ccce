/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that rest in e4m3 with a scale for each 32 of them. Sums of micro-batches
 * and ranks are float32, in one piece that has room for a unit's part: what rests is
 * widened into it, and narrowed again when the next micro-batch has been added. In: a
 * unit. Out: the same numbers in the other form.
 *
 * A sum that goes on is rounded by chance: a micro-batch whose gradient is less than
 * half a step of the sum would be lost each time. All else is rounded to the nearest.
 */
#include "shard/shard_impl.h"

#include "backend/moments.h"
#include "common/bf16.h"

/* Elements of one thread's share: whole blocks. */
#define SHARE 4096

_Static_assert(SHARE % SCALED_BLOCK == 0, "shares are whole blocks");

bool shard_has_narrow_gradients(const struct shard *s)
{
    return s->o.precision.gradients != ACCEL_F32;
}

struct scaled shard_gradient_at(const struct shard *s, int64_t at)
{
    return scaled_from(
        scaled_in(s->narrow_grad, s->grad_elems, s->o.precision.gradients), at);
}

float *shard_widen_gradient(const struct shard *s, const struct shard_unit *u)
{
    const struct scaled x = shard_gradient_at(s, u->grad_at);
    const int64_t n = u->stored;

#pragma omp parallel for schedule(static) num_threads(s->be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SHARE)
        scaled_widen(s->piece + i, x, i, n - i < SHARE ? n - i : SHARE);
    return s->piece;
}

void shard_narrow_gradient(const struct shard *s, const struct shard_unit *u)
{
    const struct scaled x = shard_gradient_at(s, u->grad_at);
    const int64_t n = u->stored;

#pragma omp parallel for schedule(static) num_threads(s->be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SHARE)
        scaled_narrow(scaled_from(x, i), s->piece + i, n - i < SHARE ? n - i : SHARE);
}

/* Draws are hashes of the number itself, its place in the unit and how many
 * micro-batches it is the sum of: the same on any number of ranks and after a resume,
 * with no state. Without the last a number that is rounded down would come again with
 * the next equal gradient, and be rounded down again. */
static inline __attribute__((always_inline)) f8_t drawn(float x, float by, uint32_t at,
                                                        uint32_t salt)
{
    const struct moment_key key = { moment_bits(x), salt };

    return (f8_t)moment_e4m3_of(x * by, moment_word(key, at, 0) & 0xfffffu);
}

ACCEL_MULTIVERSION
static void narrow_drawn(f8_t *restrict to, const float *restrict x, int64_t n,
                         float by, int64_t first, uint32_t sums)
{
    const uint32_t low = (uint32_t)first;
    const uint32_t salt = (uint32_t)(first >> 32) + sums * 0x9e3779b9u;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] = drawn(x[i], by, low + (uint32_t)i, salt);
}

void shard_narrow_sum(const struct shard *s, const struct shard_unit *u)
{
    const struct scaled to = shard_gradient_at(s, u->grad_at);
    const int64_t n = u->stored;

#pragma omp parallel for schedule(static) num_threads(s->be->threads) if (n > SHARE)
    for (int64_t i = 0; i < n; i += SCALED_BLOCK) {
        const uint8_t e = scaled_exponent(s->piece + i, SCALED_BLOCK, to.type);

        to.exponent[i / SCALED_BLOCK] = e;
        narrow_drawn((f8_t *)to.data + i, s->piece + i, SCALED_BLOCK, wire_inverse(e),
                     u->first + i, u->sums);
    }
}

/* The units of the optimizer that have a gradient, from number *at on, which moves
 * behind it; NULL: no more. */
static const struct shard_unit *next_unit(const struct shard *s, int optim, int *at)
{
    for (; *at < s->units; ++*at) {
        const struct shard_unit *u = &s->unit[*at];

        if (u->def->optim == optim && u->grad_at >= 0) {
            ++*at;
            return u;
        }
    }
    return NULL;
}

void shard_change_gradients(const struct shard *s, int optim, shard_change_f *change,
                            float by)
{
    const struct shard_unit *u;

    for (int at = 0; (u = next_unit(s, optim, &at));) {
        change(s->be, shard_widen_gradient(s, u), u->stored, by);
        shard_narrow_gradient(s, u);
    }
}

void shard_zero_gradients(const struct shard *s, int optim)
{
    const struct shard_unit *u;

    for (int at = 0; (u = next_unit(s, optim, &at));) {
        const struct scaled x = shard_gradient_at(s, u->grad_at);

        s->be->zero(s->be, x.data, (size_t)u->stored * accel_dtype_bytes(x.type));
        s->be->zero(s->be, x.exponent, scaled_blocks(u->stored));
    }
}
