/* SPDX-License-Identifier: Apache-2.0
 *
 * Where master weights are, in whatever form the run keeps them: float32; bfloat16,
 * which then serve as the gathered parameters, too; or float16 with a scale for each 32
 * of them. In: an element. Out: its place, its value, and means over ranks that each
 * keep all of them.
 */
#include "shard/shard_impl.h"

#include <string.h>

#include "common/bf16.h"
#include "common/floats.h"

void *shard_master_at(const struct shard *s, int64_t at)
{
    return s->master + at * (int64_t)accel_dtype_bytes(s->o.precision.masters);
}

bool shard_has_narrow_masters(const struct shard *s)
{
    return s->o.precision.masters != ACCEL_F32;
}

/* Narrowed at a time on their way to a device. */
#define PUT_ELEMS 4096

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

bool shard_has_scaled_masters(const struct shard *s)
{
    return s->o.precision.masters == ACCEL_F16;
}

size_t shard_masters_bytes(const struct shard *s)
{
    return shard_has_scaled_masters(s)
               ? scaled_bytes(s->stored_elems, ACCEL_F16)
               : (size_t)s->stored_elems * accel_dtype_bytes(s->o.precision.masters);
}

struct scaled shard_scaled_at(const struct shard *s, int64_t at)
{
    return scaled_from(scaled_in(s->master, s->stored_elems, ACCEL_F16), at);
}

/* Elements that go through a stack at a time: whole blocks. */
#define PIECE 4096

_Static_assert(PIECE % SCALED_BLOCK == 0, "pieces are whole blocks");

void shard_read_scaled(const struct shard *s, int64_t at, int64_t n, void *to,
                       accel_dtype_t type)
{
    const struct scaled x = shard_scaled_at(s, at);

#pragma omp parallel for schedule(static) num_threads(s->be->threads) if (n > PIECE)
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t length = n - i < PIECE ? n - i : PIECE;
        float values[PIECE];

        scaled_widen(values, x, i, length);
        floats_narrow((char *)to + i * (int64_t)accel_dtype_bytes(type), type, values,
                      (size_t)length);
    }
}

void shard_narrow_masters(const struct shard *s, int64_t at, int64_t n,
                          const float *from)
{
    if (shard_has_scaled_masters(s))
        scaled_narrow(shard_scaled_at(s, at), from, n);
    else
        s->home->narrow(s->home, shard_master_at(s, at), s->o.precision.masters, from,
                        n);
}

/* Narrow ones by way of float32, a piece at a time; all ranks round the same mean to
 * the nearest. */
accel_status_t shard_mean_masters(const struct shard *s, const struct shard_unit *u,
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
            scaled_widen(s->mean_room, shard_scaled_at(s, u->at), at, n);
        else
            s->be->widen(s->be, s->mean_room, shard_master_at(s, u->at + at), type, n);
        st = shard_mean(s, s->mean_room, n, err);
        if (!st)
            shard_narrow_masters(s, u->at + at, n, s->mean_room);
    }
    return st;
}
