/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts what a checkpoint has in another format than the run: float32 where the run
 * has narrow masters or quantised moments, the reverse, or another narrow format. In:
 * what was read, in host memory. Out: the run's masters and state. Never communicates.
 * The result is independent of how the state is cut over the ranks, because no cut
 * divides a block.
 */
#include "shard/shard_impl.h"

#include <string.h>

/* What arrays in the room are aligned to. */
#define ROOM_ALIGN 16

accel_moments_t shard_saved_moments(const struct shard_saved *saved,
                                    const struct shard_trainer *t, int optim)
{
    return saved ? saved->moments[optim] : t->form;
}

accel_dtype_t shard_saved_masters(const struct shard_saved *saved,
                                  const struct shard *s)
{
    return saved ? saved->masters : s->o.precision.masters;
}

static size_t whole_rooms(size_t bytes)
{
    return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

size_t shard_master_room_bytes(int64_t n, accel_dtype_t type)
{
    return whole_rooms(type == ACCEL_F16 ? scaled_bytes(n, type)
                                         : (size_t)n * accel_dtype_bytes(type));
}

struct scaled shard_master_room(char *room, int64_t n)
{
    return scaled_in(room, n, ACCEL_F16);
}

/* Codes, and scales after them; or float32. All arrays with scales have the room of
 * the larger one. */
size_t shard_room_bytes(int64_t n, accel_moments_t form)
{
    switch (form) {
    case ACCEL_MOMENTS_8BIT:
        return whole_rooms((size_t)n + 1 + moment_scales(n) * sizeof(uint16_t));
    case ACCEL_MOMENTS_FP8:
        return whole_rooms(scaled_bytes(n, ACCEL_F16));
    default:
        return whole_rooms((size_t)n * sizeof(float));
    }
}

struct state_array shard_room_at(const struct shard_trainer *t, char *room, int k,
                                 int64_t n, accel_moments_t form)
{
    char *data = room + (size_t)k * shard_room_bytes(n, form);
    struct state_array a = { .plain.data = NULL };

    if (form == ACCEL_MOMENTS_FP8)
        a.scaled = scaled_in(data, n, optim_scaled_type(&t->o.settings, k));
    else
        a.plain.data = data;
    if (form == ACCEL_MOMENTS_8BIT)
        a.plain.scale = (uint16_t *)(void *)(data + n + n % 2);
    return a;
}

/* ---- after the read -------------------------------------------------------------- */

/* The way of one array from a checkpoint's form into the run's, on the CPU. */
struct conversion {
    struct shard *s;
    const struct shard_saved *saved;
    /* NULL: the walk only counts */
    const struct backend *cpu;
};

/* Numbers that are widened at a time: whole blocks. */
#define PIECE 4096

_Static_assert(PIECE % SCALED_BLOCK == 0 && PIECE % MOMENT_BLOCK == 0,
               "pieces are whole blocks");

/* n numbers of the run's array from `at` on. Where home is a device, a copy is taken
 * there when the call returns. */
static void put_state(const struct conversion *c, struct state_array to, int64_t at,
                      const float *from, bool positive, int64_t n)
{
    const struct backend *home = c->s->home;
    uint16_t code[PIECE], scale[PIECE / MOMENT_BLOCK];
    uint8_t exponent[PIECE / SCALED_BLOCK];
    struct state_array made = { .plain = { code, scale } };

    if (!home->device) {
        shard_narrow_state(c->cpu, to, at, from, positive, n);
    } else if (to.scaled.data) {
        const struct scaled x = scaled_from(to.scaled, at);

        made = (struct state_array){ .scaled = { code, exponent, x.type } };
        shard_narrow_state(c->cpu, made, 0, from, positive, n);
        home->from_host(home, x.data, code, (size_t)n * accel_dtype_bytes(x.type));
        home->from_host(home, x.exponent, exponent, scaled_blocks(n));
    } else if (!to.plain.scale) {
        home->from_host(home, (float *)to.plain.data + at, from,
                        (size_t)n * sizeof(*from));
    } else {
        shard_narrow_state(c->cpu, made, 0, from, positive, n);
        home->from_host(home, (char *)to.plain.data + at, code, (size_t)n);
        home->from_host(home, to.plain.scale + at / MOMENT_BLOCK, scale,
                        moment_scales(n) * sizeof(*scale));
    }
}

static void take_array(const struct conversion *c, struct state_array to,
                       struct state_array from, bool positive, int64_t n)
{
    float piece[PIECE];

    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = n - at < PIECE ? n - at : PIECE;

        shard_widen_state(c->cpu, piece, from, positive, at, count);
        put_state(c, to, at, piece, positive, count);
    }
}

/* n masters of a room of `all` from number `at` on, as float32. */
static void widen_saved(const struct conversion *c, char *room, int64_t all, int64_t at,
                        int64_t n, float *to)
{
    const accel_dtype_t type = c->saved->masters;
    const char *from = room + at * (int64_t)accel_dtype_bytes(type);

    if (type == ACCEL_F16)
        scaled_widen(to, shard_master_room(room, all), at, n);
    else if (type == ACCEL_F32)
        memcpy(to, from, (size_t)n * sizeof(*to));
    else
        c->cpu->widen(c->cpu, to, from, type, n);
}

/* Masters of elements [b, e) of p, from `room`, where the run has another type: narrow
 * ones, or float32, maybe on a device. */
static void take_masters(const struct conversion *c, const struct shard_unit *u,
                         const accel_tensor_t *p, int64_t b, int64_t e, char *room)
{
    const int64_t at = u->at + p->param->unit_offset + b - u->first;
    float piece[PIECE];

    for (int64_t i = 0; i < e - b; i += PIECE) {
        const int64_t n = e - b - i < PIECE ? e - b - i : PIECE;

        widen_saved(c, room, e - b, i, n, piece);
        if (shard_has_scaled_masters(c->s))
            shard_put_scaled(c->s->home, shard_scaled_at(c->s, at + i), piece, n);
        else
            shard_put_masters(c->s->home, shard_master_at(c->s, at + i),
                              c->s->o.precision.masters, piece, n);
    }
}

/* All arrays of elements [b, e) of p, from `room`. */
static void take_state(const struct conversion *c, const struct shard_unit *u,
                       const accel_tensor_t *p, int64_t b, int64_t e, char *room)
{
    const struct shard_trainer *t = &c->s->store.trainer[u->optim];
    const accel_moments_t form = c->saved->moments[u->optim];
    const int64_t at = u->state_at + p->param->unit_offset + b - u->first;

    for (int k = 0; k < t->states; k++)
        take_array(c, shard_array_at(t, k, at), shard_room_at(t, room, k, e - b, form),
                   optim_state_is_square(&t->o.settings, k), e - b);
}

/* Takes elements [b, e) of p, unless `c` only counts. Returns the bytes of their room,
 * which shard_boxes.c has given out in the same order. */
static size_t other_param(const struct conversion *c, const struct shard_unit *u,
                          const accel_tensor_t *p, int64_t b, int64_t e, char *room)
{
    const struct shard *s = c->s;
    const bool takes = c->cpu && (!c->saved->has || c->saved->has(c->saved->user, p));
    size_t bytes = 0;

    if (c->saved->masters != s->o.precision.masters) {
        if (takes)
            take_masters(c, u, p, b, e, room);
        bytes += shard_master_room_bytes(e - b, c->saved->masters);
    }
    if (param_is_trained(p) &&
        s->store.trainer[u->optim].form != c->saved->moments[u->optim]) {
        const struct shard_trainer *t = &s->store.trainer[u->optim];

        if (takes)
            take_state(c, u, p, b, e, room + bytes);
        bytes +=
            (size_t)t->states * shard_room_bytes(e - b, c->saved->moments[u->optim]);
    }
    return bytes;
}

/* In the order of the boxes. Returns the bytes of all that has room. */
static size_t each_other(const struct conversion *c)
{
    const struct shard *s = c->s;
    char *room = c->saved->room;
    size_t all = 0;

    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        for (int j = 0; j < u->def->param_count; j++) {
            const accel_tensor_t *p = u->def->param[j];
            int64_t b, e;

            if (shard_param_range(p, u->first, u->stored, &b, &e))
                all += other_param(c, u, p, b, e, room + all);
        }
    }
    return all;
}

accel_status_t shard_take_saved(struct shard *s, const struct shard_saved *saved,
                                accel_error_t *err)
{
    struct conversion c = { .s = s, .saved = saved };
    struct backend *cpu = NULL;
    accel_status_t st = ACCEL_OK;

    if (each_other(&c) == 0)
        return ACCEL_OK;
    c.cpu = s->home;
    if (s->home->device) {
        st = backend_cpu_open(&cpu, 0, err);
        c.cpu = cpu;
    }
    if (!st)
        each_other(&c);
    backend_close(cpu);
    return st;
}

bool shard_is_exponents(const char *name)
{
    return strncmp(name, SHARD_EXPONENT_PREFIX, sizeof(SHARD_EXPONENT_PREFIX) - 1) == 0;
}

/* Of float16 masters, or of moments of that type. */
static accel_status_t check_exponents(const accel_ckpt_box_t *box, accel_dtype_t type,
                                      const char *dir, accel_error_t *err)
{
    const uint8_t *exponent = box->data;

    for (int64_t k = 0; k < box->shape[0]; k++)
        if (!scaled_is_exponent(exponent[k], type))
            return accel_fail_at(err, A0999, dir, "use another checkpoint",
                                 "%.300s has an exponent that no save writes: number "
                                 "%lld is %d",
                                 box->name, (long long)(box->offset[0] + k),
                                 exponent[k]);
    return ACCEL_OK;
}

static accel_status_t check_codes(const accel_ckpt_box_t *box, const char *dir,
                                  accel_error_t *err)
{
    const uint16_t *scale = box->data;

    for (int64_t k = 0; k < box->shape[0]; k++)
        /* a positive number, or 0 where nothing was ever stepped */
        if (scale[k] >= 0x7f80)
            return accel_fail_at(err, A0999, dir, "use another checkpoint",
                                 "%.300s has a scale that is negative or no "
                                 "number: number %lld",
                                 box->name, (long long)(box->offset[0] + k));
    return ACCEL_OK;
}

static bool ends_with(const char *name, const char *tail)
{
    const size_t length = strlen(name), own = strlen(tail);

    return length >= own && !strcmp(name + length - own, tail);
}

/* One tensor; what is no scale passes. */
static accel_status_t check_tensor(const accel_ckpt_box_t *box, const char *dir,
                                   accel_error_t *err)
{
    const bool bytes = box->dtype == ACCEL_U8;

    if (bytes && shard_is_exponents(box->name))
        return check_exponents(box, ACCEL_F16, dir, err);
    if (strncmp(box->name, "optim/", 6) != 0 ||
        !ends_with(box->name, SHARD_SCALE_SUFFIX))
        return ACCEL_OK;
    if (bytes)
        return check_exponents(
            box,
            ends_with(box->name, "_sq" SHARD_SCALE_SUFFIX) ? ACCEL_F16 : ACCEL_F8E4M3,
            dir, err);
    return box->dtype == ACCEL_BF16 ? check_codes(box, dir, err) : ACCEL_OK;
}

accel_status_t shard_check_scales(const accel_ckpt_box_t *box, size_t boxes,
                                  const char *dir, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < boxes && st == ACCEL_OK; i++)
        st = check_tensor(&box[i], dir, err);
    return st;
}
