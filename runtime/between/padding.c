/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_pad_across_ranks: one dimension as long as the longest of any rank. The ranks
 * exchange sizes only; each fills up its own values, in host memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "between/between_impl.h"
#include "common/floats.h"

struct padding {
    int dim;
    double value;
    bool front;
    /* `value` as one element */
    union {
        float f32;
        double f64;
        uint16_t narrow;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint8_t u8;
        int8_t i8;
    } fill;
};

/* An integer dtype has the value if it is whole and within [low, high]. */
static bool is_whole(double v, double low, double high)
{
    return v >= low && v <= high && floor(v) == v;
}

/* Fills in pad->fill. False: the dtype has no such value. */
static bool fill_of(struct padding *pad, accel_dtype_t t)
{
    double v = pad->value;

    switch (t) {
    case ACCEL_F32:
        pad->fill.f32 = (float)v;
        return true;
    case ACCEL_BF16:
    case ACCEL_F16:
        floats_narrow(&pad->fill.narrow, t, &(float){ (float)v }, 1);
        return true;
    case ACCEL_F64:
        pad->fill.f64 = v;
        return true;
    case ACCEL_I32:
        pad->fill.i32 = is_whole(v, INT32_MIN, INT32_MAX) ? (int32_t)v : 0;
        return is_whole(v, INT32_MIN, INT32_MAX);
    case ACCEL_I64:
        /* 2^53: from there on a double skips numbers */
        pad->fill.i64 = is_whole(v, -0x1p53, 0x1p53) ? (int64_t)v : 0;
        return is_whole(v, -0x1p53, 0x1p53);
    case ACCEL_U16:
        pad->fill.u16 = is_whole(v, 0, UINT16_MAX) ? (uint16_t)v : 0;
        return is_whole(v, 0, UINT16_MAX);
    case ACCEL_I8:
        pad->fill.i8 = is_whole(v, INT8_MIN, INT8_MAX) ? (int8_t)v : 0;
        return is_whole(v, INT8_MIN, INT8_MAX);
    default:
        pad->fill.u8 = is_whole(v, 0, UINT8_MAX) ? (uint8_t)v : 0;
        return t == ACCEL_U8 && is_whole(v, 0, UINT8_MAX);
    }
}

static accel_status_t check_padding(const struct piece *p, struct padding *pad,
                                    accel_error_t *err)
{
    if (pad->dim < 0)
        return accel_fail(err, A0941, "count dimensions from 0",
                          "accel_pad_across_ranks: there is no dimension %d", pad->dim);
    if (!fill_of(pad, p->dtype))
        return accel_fail(err, A0941, "pad with a value of the dtype",
                          "accel_pad_across_ranks: %s does not have the value %g",
                          accel_dtype_name(p->dtype), pad->value);
    return ACCEL_OK;
}

/* from [outer][own][inner] -> to [outer][longest][inner], both in host memory. */
static void pad_rows(char *to, const char *from, const struct piece *p,
                     const struct padding *pad, int64_t longest)
{
    size_t one = accel_dtype_bytes(p->dtype), own, added;
    int64_t outer = 1, inner = 1;

    for (int d = 0; d < pad->dim; d++)
        outer *= p->dims[d];
    for (int d = pad->dim + 1; d < p->ndim; d++)
        inner *= p->dims[d];
    own = (size_t)(p->dims[pad->dim] * inner) * one;
    added = (size_t)((longest - p->dims[pad->dim]) * inner) * one;
    for (int64_t o = 0; o < outer; o++) {
        char *gap = pad->front ? to : to + own;

        for (size_t i = 0; i < added; i += one)
            memcpy(gap + i, &pad->fill, one);
        if (own > 0)
            memcpy(pad->front ? to + added : to, from, own);
        to += own + added;
        from += own;
    }
}

/* Between a device and the host for tensors, straight for arrays. */
static accel_status_t pad_values(const struct piece *p, const struct padding *pad,
                                 const struct piece *out, accel_error_t *err)
{
    size_t from = piece_bytes(p), to = piece_bytes(out);
    const struct backend *be = p->be;
    char *host;

    if (!be) {
        pad_rows(out->data, p->data, p, pad, out->dims[pad->dim]);
        return ACCEL_OK;
    }
    host = malloc(from + to + 1);
    if (!host)
        return accel_fail_nomem(err, "padding", from + to);
    be->to_host_bytes(be, host, p->data, from);
    pad_rows(host + from, host, p, pad, out->dims[pad->dim]);
    be->from_host(be, out->data, host + from, to);
    free(host);
    return ACCEL_OK;
}

/* Collective: the longest of all ranks that have the dimension; ranks may differ in
 * everything else. */
static accel_status_t find_longest(accel_t *run, const struct piece *p,
                                   const struct padding *pad, accel_status_t st,
                                   int64_t *longest_out, accel_error_t *err)
{
    struct between_record mine = between_record(BETWEEN_PAD, p, NULL), *all = NULL;

    mine.option = pad->dim;
    st = between_meet(run, &mine, SAME_CALL, st, &all, err);
    if (st != ACCEL_OK)
        return st;
    *longest_out = 0;
    for (int r = 0; r < run->boot.size; r++)
        if (pad->dim < all[r].ndim && all[r].dims[pad->dim] > *longest_out)
            *longest_out = all[r].dims[pad->dim];
    free(all);
    return ACCEL_OK;
}

/* The result, unless the values are as long already and need none. */
static accel_status_t pad_to(accel_t *run, const struct piece *p,
                             const struct padding *pad, int64_t longest,
                             struct between_result *to, accel_error_t *err)
{
    bool same = pad->dim >= p->ndim || p->dims[pad->dim] == longest;
    int64_t dims[TENSOR_MAX_DIMS];
    struct piece out;
    accel_status_t st;

    if (same && !to->array)
        return ACCEL_OK;
    memcpy(dims, p->dims, sizeof(dims));
    if (!same)
        dims[pad->dim] = longest;
    st = result_make(run, p, to, p->ndim, dims, &out, err);
    if (st == ACCEL_OK && same)
        piece_copy(p, out.data, p->data, piece_bytes(p));
    else if (st == ACCEL_OK && out.elems > 0)
        st = pad_values(p, pad, &out, err);
    if (st == ACCEL_OK)
        result_done(to, &out);
    return st;
}

/* Both forms: exchange sizes, then fill up. */
static accel_status_t pad_across(accel_t *run, const struct piece *p,
                                 struct padding *pad, accel_status_t st,
                                 struct between_result *to, accel_error_t *err)
{
    int64_t longest;

    if (st == ACCEL_OK)
        st = check_padding(p, pad, err);
    st = find_longest(run, p, pad, st, &longest, err);
    return st == ACCEL_OK ? pad_to(run, p, pad, longest, to, err) : st;
}

accel_tensor_t *accel_pad_across_ranks(accel_t *run, const accel_tensor_t *t, int dim,
                                       double value, int front, accel_error_t *err)
{
    struct padding pad = { .dim = dim, .value = value, .front = front != 0 };
    /* what is not changed is the tensor itself */
    struct between_result to = { .tensor = (accel_tensor_t *)(uintptr_t)t };
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st = between_ready(run, "accel_pad_across_ranks", err);

    if (st != ACCEL_OK)
        return NULL;
    st = piece_of_tensor(run, "accel_pad_across_ranks", t, &p, &e);
    st = pad_across(run, &p, &pad, st, &to, &e);
    if (st != ACCEL_OK && err)
        *err = e;
    return st == ACCEL_OK ? to.tensor : NULL;
}

accel_status_t accel_pad_across_ranks_array(accel_t *run, const accel_array_t *mine,
                                            int dim, double value, int front,
                                            accel_array_t *padded, accel_error_t *err)
{
    struct padding pad = { .dim = dim, .value = value, .front = front != 0 };
    struct between_result to = { .array = padded };
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st = between_ready(run, "accel_pad_across_ranks_array", err);

    if (st != ACCEL_OK)
        return st;
    st = piece_of_array(run, mine, &p, &e);
    if (st == ACCEL_OK)
        st = between_room(padded, &e);
    st = pad_across(run, &p, &pad, st, &to, &e);
    if (st != ACCEL_OK && err)
        *err = e;
    return st;
}
