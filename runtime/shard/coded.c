/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are gathered in 8 bits: those of linears that multiply so, half the
 * bytes of bfloat16; one rank may hold them so. In: masters of any form. Out: codes,
 * and scales that are the same on all ranks. The owner makes of master -> bfloat16 ->
 * 8 bits what each receiver would make: the same bits as without. In host memory only.
 *
 * Parts of equal elements have unequal bytes. Each rank sends as many as the largest
 * part has; what lies between two parts is closed up when they are there.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>
#include <string.h>

#include "precision/fp8.h"

/* narrowed at a time: stays in the first cache */
#define CODED_ELEMS 8192

static accel_status_t open_lists(struct shard *s, const struct units *units, int n,
                                 accel_error_t *err)
{
    struct plan_coded *list = calloc((size_t)n, sizeof(*list));

    s->coded.list = list;
    s->coded_param = calloc((size_t)n, sizeof(accel_tensor_t *));
    s->coded_amax = calloc((size_t)n, sizeof(*s->coded_amax));
    s->coded_wide = calloc(CODED_ELEMS, sizeof(*s->coded_wide));
    if (!list || !s->coded_param || !s->coded_amax || !s->coded_wide)
        return accel_fail_nomem(err, "the list of coded weights",
                                (size_t)n * sizeof(*list));
    s->coded.n = units_coded(units, list, s->coded_param);
    return ACCEL_OK;
}

/* Parameters may come from an earlier preparation, so all are told. */
accel_status_t shard_coded_open(struct shard *s, const struct units *units,
                                accel_error_t *err)
{
    const bool cut = s->world > 1 ? s->o.strategy != SHARD_NONE : s->o.precision.held;
    const int n = s->o.precision.coded && cut && !s->be->device
                      ? units_coded(units, NULL, NULL)
                      : 0;
    accel_status_t st = n > 0 ? open_lists(s, units, n, err) : ACCEL_OK;

    if (st)
        return st;
    for (int i = 0, k = 0; i < s->units; i++) {
        struct shard_unit *u = &s->unit[i];

        u->coded_at = k;
        while (k < s->coded.n && s->coded.list[k].unit == i)
            k++;
        u->coded = k - u->coded_at;
        for (int j = 0; j < units->unit[i].param_count; j++) {
            accel_tensor_t *p = units->unit[i].param[j];

            p->coded = u->coded > 0 && p->fp8;
            p->coded_before =
                2 * p->unit_offset -
                plan_gathered_bytes(shard_codes(s, i), i, p->unit_offset, 2);
        }
    }
    return ACCEL_OK;
}

void shard_coded_close(struct shard *s)
{
    free((void *)(uintptr_t)s->coded.list);
    free(s->coded_param);
    free(s->coded_amax);
    free(s->coded_wide);
}

struct plan_codes shard_codes(const struct shard *s, int unit)
{
    const struct shard_unit *u = &s->unit[unit];

    return (struct plan_codes){ u->coded ? s->coded.list + u->coded_at : NULL,
                                u->coded };
}

/* ---- scales ---------------------------------------------------------------------- */

/* The largest magnitude of this rank's part of a weight. */
static float own_amax(const struct shard *s, int number)
{
    const accel_dtype_t wide = s->o.precision.parameters;
    const accel_tensor_t *p = s->coded_param[number];
    const struct shard_unit *u = &s->unit[s->coded.list[number].unit];
    float amax = 0;
    int64_t b, e;

    if (!shard_param_range(p, u->first, u->own, &b, &e))
        return 0;
    for (int64_t i = b, n; i < e; i += n) {
        n = e - i < CODED_ELEMS ? e - i : CODED_ELEMS;
        shard_read_masters(s, s->be, u->at + p->unit_offset + i - u->first, n,
                           s->coded_wide);
        s->be->quantize(s->be, NULL, p->fp8->recipe->type[FP8_WEIGHT], s->coded_wide,
                        wide, n, NULL, &amax);
    }
    return amax;
}

/* Of the values that ops would see: what current scaling finds in a gathered weight. */
accel_status_t shard_coded_scale(struct shard *s, accel_error_t *err)
{
    accel_status_t st;

    if (s->coded.n == 0 || s->coded_scaled)
        return ACCEL_OK;
    for (int i = 0; i < s->coded.n; i++)
        s->coded_amax[i] = own_amax(s, i);
    st = s->world > 1 ? comm_all_reduce(s->data, s->coded_amax, (size_t)s->coded.n,
                                        ACCEL_F32, COMM_MAX, err)
                      : ACCEL_OK;
    for (int i = 0; i < s->coded.n && st == ACCEL_OK; i++) {
        struct fp8_linear *l = s->coded_param[i]->fp8;
        float scale[2];

        s->be->scale_of(s->be, scale, l->recipe->type[FP8_WEIGHT], l->recipe->powers,
                        &s->coded_amax[i]);
        *fp8_scale(l, FP8_WEIGHT) = scale[0];
        l->inverse[FP8_WEIGHT] = scale[1];
    }
    s->coded_scaled = st == ACCEL_OK;
    return st;
}

/* ---- a unit ---------------------------------------------------------------------- */

/* The coded weight with element `at` of the unit, or -1; from there to *end_out nothing
 * changes. */
static int coded_at(const struct shard *s, const struct shard_unit *u, int64_t at,
                    int64_t *end_out)
{
    *end_out = u->first + u->own;
    for (int i = u->coded_at; i < u->coded_at + u->coded; i++) {
        const struct plan_coded *c = &s->coded.list[i];
        const int64_t edge = at < c->at ? c->at : c->at + c->elems;

        if (at < edge && edge < *end_out)
            *end_out = edge;
    }
    for (int i = u->coded_at; i < u->coded_at + u->coded; i++) {
        const struct plan_coded *c = &s->coded.list[i];

        if (c->at <= at && at < c->at + c->elems)
            return i;
    }
    return -1;
}

/* n masters from stored element `at` on as codes, by way of the dtype of parameters. */
static void put_codes(const struct shard *s, const accel_tensor_t *p, char *to,
                      int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i += CODED_ELEMS) {
        const int64_t len = n - i < CODED_ELEMS ? n - i : CODED_ELEMS;

        shard_read_masters(s, s->be, at + i, len, s->coded_wide);
        s->be->quantize(s->be, to + i, p->fp8->recipe->type[FP8_WEIGHT], s->coded_wide,
                        s->o.precision.parameters, len, fp8_scale(p->fp8, FP8_WEIGHT),
                        NULL);
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
            put_codes(s, s->coded_param[i], to, stored, end - at);
        else
            shard_read_masters(s, s->be, stored, end - at, to);
        to += (end - at) * (i >= 0 ? 1 : 2);
    }
}

void shard_coded_close_up(const struct shard *s, const struct shard_unit *u, char *data)
{
    const int unit = (int)(u - s->unit);
    const struct plan_codes codes = shard_codes(s, unit);
    int64_t at = 0;

    for (int r = 0; r < s->world; r++) {
        const int64_t end = plan_gathered_bytes(codes, unit, (r + 1) * u->own, 2);

        memmove(data + at, data + (size_t)r * u->part_bytes, (size_t)(end - at));
        at = end;
    }
}
