/* SPDX-License-Identifier: Apache-2.0
 *
 * Master weights in each format that a run may keep them in: float32; bfloat16, which
 * then also serve as the gathered parameters; or float16 with a scale for each 32 of
 * them. In: an element. Out: its address, its value, and means over ranks that each
 * keep all master weights.
 */
#include "shard/shard_impl.h"

#include <string.h>

#include "numbers/bf16.h"

void *shard_master_at(const struct shard *s, int64_t at)
{
    return s->store.master + at * (int64_t)accel_dtype_bytes(s->o.precision.masters);
}

bool shard_has_narrow_masters(const struct shard *s)
{
    return s->o.precision.masters != ACCEL_F32;
}

/* Narrowed at a time on their way to a device: whole blocks. */
#define PUT_ELEMS 4096

_Static_assert(PUT_ELEMS % SCALED_BLOCK == 0, "pieces are whole blocks");

/* from_host has taken the piece when it returns. */
static void put_narrow(const struct backend *home, uint16_t *to, const float *values,
                       int64_t n)
{
    uint16_t piece[PUT_ELEMS];

    for (int64_t at = 0; at < n; at += PUT_ELEMS) {
        const int64_t count = n - at < PUT_ELEMS ? n - at : PUT_ELEMS;

        for (int64_t i = 0; i < count; i++)
            piece[i] = f32_to_bf16(values[at + i]);
        home->from_host(home, to + at, piece, (size_t)count * sizeof(*piece));
    }
}

void shard_put_masters(const struct backend *home, void *to, accel_dtype_t type,
                       const float *values, int64_t n)
{
    if (home->device && type != ACCEL_F32)
        put_narrow(home, to, values, n);
    else if (home->device)
        home->from_host(home, to, values, (size_t)n * sizeof(*values));
    else if (type == ACCEL_F32)
        memcpy(to, values, (size_t)n * sizeof(*values));
    else
        home->narrow(home, to, type, values, n);
}

/* As in put_narrow. */
void shard_put_scaled(const struct backend *home, struct scaled to, const float *values,
                      int64_t n)
{
    uint16_t piece[PUT_ELEMS];
    uint8_t exponent[PUT_ELEMS / SCALED_BLOCK];
    const struct scaled made = { piece, exponent, to.type };

    if (!home->device)
        home->scaled_narrow(home, to, values, n, false);
    for (int64_t at = 0; home->device && at < n; at += PUT_ELEMS) {
        const int64_t count = n - at < PUT_ELEMS ? n - at : PUT_ELEMS;
        const struct scaled x = scaled_from(to, at);

        scaled_narrow(made, values + at, count);
        home->from_host(home, x.data, piece,
                        (size_t)count * accel_dtype_bytes(to.type));
        home->from_host(home, x.exponent, exponent, scaled_blocks(count));
    }
}

void shard_get_scaled(const struct backend *home, struct scaled from, float *values_out,
                      int64_t n)
{
    uint16_t piece[PUT_ELEMS];
    uint8_t exponent[PUT_ELEMS / SCALED_BLOCK];
    const struct scaled read = { piece, exponent, from.type };

    if (!home->device)
        home->scaled_widen(home, values_out, ACCEL_F32, from, n);
    for (int64_t at = 0; home->device && at < n; at += PUT_ELEMS) {
        const int64_t count = n - at < PUT_ELEMS ? n - at : PUT_ELEMS;
        const struct scaled x = scaled_from(from, at);

        home->to_host_bytes(home, piece, x.data,
                            (size_t)count * accel_dtype_bytes(from.type));
        home->to_host_bytes(home, exponent, x.exponent, scaled_blocks(count));
        scaled_widen(values_out + at, read, 0, count);
    }
}

bool shard_has_scaled_masters(const struct shard *s)
{
    return s->o.precision.masters == ACCEL_F16;
}

struct scaled shard_scaled_at(const struct shard *s, int64_t at)
{
    return scaled_from(scaled_in(s->store.master, s->layout.stored_elems, ACCEL_F16),
                       at);
}

void shard_read_masters(const struct shard *s, const struct backend *be, int64_t at,
                        int64_t n, accel_dtype_t type, void *to)
{
    if (shard_has_scaled_masters(s))
        be->scaled_widen(be, to, type, shard_scaled_at(s, at), n);
    else if (type == s->o.precision.masters)
        be->copy(be, to, shard_master_at(s, at), (size_t)n * accel_dtype_bytes(type));
    else
        be->narrow(be, to, type, shard_master_at(s, at), n);
}

void shard_narrow_masters(const struct shard *s, int64_t at, int64_t n,
                          const float *from)
{
    if (shard_has_scaled_masters(s))
        s->home->scaled_narrow(s->home, shard_scaled_at(s, at), from, n, false);
    else
        s->home->narrow(s->home, shard_master_at(s, at), s->o.precision.masters, from,
                        n);
}
