/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are gathered in fp8, half the bytes of bfloat16: those of linears whose
 * matmuls are fp8. A single rank may hold them like this, too. In: masters of any
 * dtype. Out: codes, and scales that are the same on all ranks. The owner converts
 * master -> bfloat16 -> 8 bits, as each receiver would: the result is bit-identical to
 * that of a bfloat16 gather. Not from host memory to a device.
 *
 * Parts with equal numbers of elements have unequal numbers of bytes. Each rank sends
 * as many bytes as the largest part has; the gaps between parts are closed once all
 * have arrived.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>
#include <string.h>

#include "precision/fp8.h"

static accel_status_t open_lists(struct shard *s, const struct units *units, int n,
                                 accel_error_t *err)
{
    struct plan_coded *list = calloc((size_t)n, sizeof(*list));

    s->layout.rules.codes.list = list;
    s->gather.coded_param = calloc((size_t)n, sizeof(accel_tensor_t *));
    if (!list || !s->gather.coded_param)
        return accel_fail_nomem(err, "the list of coded weights",
                                (size_t)n * sizeof(*list));
    s->layout.rules.codes.n = units_coded(units, list, s->gather.coded_param);
    return ACCEL_OK;
}

accel_status_t shard_coded_open(struct shard *s, const struct units *units,
                                accel_error_t *err)
{
    const bool cut = s->world > 1 ? s->o.strategy != SHARD_NONE : s->o.precision.held;
    const int n = s->o.precision.coded && cut && !s->offloaded
                      ? units_coded(units, NULL, NULL)
                      : 0;

    return n > 0 ? open_lists(s, units, n, err) : ACCEL_OK;
}

/* Parameters may come from an earlier preparation, so all are told. */
static void mark_params(const struct shard *s)
{
    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        for (int j = 0; j < u->def->param_count; j++) {
            accel_tensor_t *p = u->def->param[j];
            const int64_t at = p->param->unit_offset;

            p->param->coded = u->codes.n > 0 && param_is_codable(p);
            p->param->coded_before = 2 * at - plan_gathered_bytes(u->codes, at, 2);
        }
    }
}

accel_status_t shard_coded_alloc(struct shard *s, accel_error_t *err)
{
    const bool device = s->be->device;
    char *at;
    accel_status_t st;

    mark_params(s);
    if (s->layout.rules.codes.n == 0)
        return ACCEL_OK;
    ACCEL_CHECK(st, s->be->alloc(s->be, MEMORY_GATHERED, s->layout.memory.coded_room,
                                 &s->gather.coded_room, err));
    at = s->gather.coded_room;
    s->gather.coded_wide = (uint16_t *)(void *)at;
    at += plan_coded_elems(device) * (int64_t)sizeof(*s->gather.coded_wide);
    s->gather.coded_spare = at;
    at += device ? s->layout.coded_part : 0;
    s->gather.coded_amax = (float *)(void *)at;
    s->gather.coded_scale = s->gather.coded_amax + s->layout.rules.codes.n;
    for (int i = 0; i < s->layout.rules.codes.n; i++)
        s->gather.coded_param[i]->param->coded_inverse =
            s->gather.coded_scale + 2 * i + 1;
    return ACCEL_OK;
}

void shard_coded_close(struct shard *s)
{
    s->be->free(s->be, s->gather.coded_room);
    free((void *)(uintptr_t)s->layout.rules.codes.list);
    free(s->gather.coded_param);
}

/* ---- scales ---------------------------------------------------------------------- */

/* The largest magnitude of this rank's part of a weight. */
static void own_amax(const struct shard *s, int number)
{
    const int64_t piece = plan_coded_elems(s->be->device);
    const accel_dtype_t wide = s->o.precision.parameters;
    const accel_tensor_t *p = s->gather.coded_param[number];
    const struct shard_unit *u =
        &s->layout.unit[s->layout.rules.codes.list[number].unit];
    int64_t b, e;

    if (!shard_param_range(p, u->first, u->own, &b, &e))
        return;
    for (int64_t i = b, n; i < e; i += n) {
        n = e - i < piece ? e - i : piece;
        shard_read_masters(s, s->be, u->at + p->param->unit_offset + i - u->first, n,
                           wide, s->gather.coded_wide);
        s->be->quantize(s->be, NULL, p->param->fp8->recipe->type[FP8_WEIGHT],
                        s->gather.coded_wide, wide, n, NULL,
                        &s->gather.coded_amax[number]);
    }
}

/* Of the values that ops would see: what current scaling finds in a gathered weight. */
accel_status_t shard_coded_scale(struct shard *s, accel_error_t *err)
{
    accel_status_t st;

    if (s->layout.rules.codes.n == 0 || s->gather.coded_scaled)
        return ACCEL_OK;
    s->be->zero(s->be, s->gather.coded_amax,
                (size_t)s->layout.rules.codes.n * sizeof(*s->gather.coded_amax));
    for (int i = 0; i < s->layout.rules.codes.n; i++)
        own_amax(s, i);
    st = s->world > 1 ? comm_all_reduce(s->data, s->gather.coded_amax,
                                        (size_t)s->layout.rules.codes.n, ACCEL_F32,
                                        COMM_MAX, err)
                      : ACCEL_OK;
    for (int i = 0; i < s->layout.rules.codes.n && st == ACCEL_OK; i++) {
        const struct fp8_recipe *r = s->gather.coded_param[i]->param->fp8->recipe;

        s->be->scale_of(s->be, s->gather.coded_scale + 2 * i, r->type[FP8_WEIGHT],
                        r->powers, &s->gather.coded_amax[i]);
    }
    s->gather.coded_scaled = st == ACCEL_OK;
    return st;
}

/* ---- a unit ---------------------------------------------------------------------- */

/* The coded weight with element `at` of the unit, or -1; from there to *end_out nothing
 * changes. */
static int coded_at(const struct shard *s, const struct shard_unit *u, int64_t at,
                    int64_t *end_out)
{
    int coded = -1;

    *end_out = u->first + u->own;
    for (int i = 0; i < u->codes.n; i++) {
        const struct plan_coded *c = &u->codes.list[i];
        const int64_t edge = at < c->at ? c->at : c->at + c->elems;

        if (at < edge && edge < *end_out)
            *end_out = edge;
        if (c->at <= at && at < c->at + c->elems)
            coded = (int)(c - s->layout.rules.codes.list);
    }
    return coded;
}

/* n masters from stored element `at` on as codes of weight `number`, by way of the
 * dtype of parameters. */
static void put_codes(const struct shard *s, int number, char *to, int64_t at,
                      int64_t n)
{
    const struct fp8_recipe *r = s->gather.coded_param[number]->param->fp8->recipe;
    const accel_dtype_t wide = s->o.precision.parameters;
    const int64_t piece = plan_coded_elems(s->be->device);

    for (int64_t i = 0; i < n; i += piece) {
        const int64_t len = n - i < piece ? n - i : piece;

        shard_read_masters(s, s->be, at + i, len, wide, s->gather.coded_wide);
        s->be->quantize(s->be, to + i, r->type[FP8_WEIGHT], s->gather.coded_wide, wide,
                        len, s->gather.coded_scale + 2 * number, NULL);
    }
}

void shard_coded_put(struct shard *s, const struct shard_unit *u, char *data)
{
    char *to = data + (size_t)s->rank * u->part_bytes;
    int64_t end;

    for (int64_t at = u->first; at < u->first + u->own; at = end) {
        const int i = coded_at(s, u, at, &end);
        const int64_t stored = u->at + at - u->first;

        if (i >= 0)
            put_codes(s, i, to, stored, end - at);
        else
            shard_read_masters(s, s->be, stored, end - at, u->type, to);
        to += (end - at) * (i >= 0 ? 1 : 2);
    }
}

/* Towards the front, where both may overlap: a device's copies must not. */
static void move_down(const struct shard *s, char *to, const char *from, size_t bytes)
{
    if (to == from)
        return;
    if (s->be->device) {
        s->be->copy(s->be, s->gather.coded_spare, from, bytes);
        s->be->copy(s->be, to, s->gather.coded_spare, bytes);
    } else {
        memmove(to, from, bytes);
    }
}

void shard_coded_close_up(const struct shard *s, const struct shard_unit *u, char *data)
{
    int64_t at = 0;

    for (int r = 0; r < s->world; r++) {
        const int64_t end = plan_gathered_bytes(u->codes, (r + 1) * u->own, 2);

        move_down(s, data + at, data + (size_t)r * u->part_bytes, (size_t)(end - at));
        at = end;
    }
}
