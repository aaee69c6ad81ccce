/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_pad_across_ranks: makes one dimension as long as the longest of any rank. The
 * ranks exchange only sizes; each pads its own values, in host memory.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"
#include "numbers/element.h"

struct padding {
    int dim;
    double value;
    bool front;
    struct element fill; /* `value` */
};

static accel_status_t check_padding(const struct piece *p, struct padding *pad,
                                    accel_error_t *err)
{
    if (pad->dim < 0)
        return accel_fail(err, A0941, "count dimensions from 0",
                          "accel_pad_across_ranks: there is no dimension %d", pad->dim);
    if (!element_of(&pad->fill, p->dtype, pad->value))
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

        element_fill(gap, p->dtype, &pad->fill, added / one);
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
    struct ranks_record mine = ranks_record(RANKS_PAD, p, NULL), *all = NULL;

    mine.option = pad->dim;
    ACCEL_CHECK(st, ranks_meet(run, &mine, SAME_CALL, st, &all, err));
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
                             struct ranks_result *to, accel_error_t *err)
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
                                 struct ranks_result *to, accel_error_t *err)
{
    int64_t longest;

    ACCEL_TRY(st, check_padding(p, pad, err));
    st = find_longest(run, p, pad, st, &longest, err);
    return st == ACCEL_OK ? pad_to(run, p, pad, longest, to, err) : st;
}

accel_tensor_t *accel_pad_across_ranks(accel_t *run, const accel_tensor_t *t, int dim,
                                       double value, int front, accel_error_t *err)
{
    struct padding pad = { .dim = dim, .value = value, .front = front != 0 };
    /* what is not changed is the tensor itself */
    struct ranks_result to = { .tensor = (accel_tensor_t *)(uintptr_t)t };
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st = ranks_ready(run, "accel_pad_across_ranks", err);

    if (st != ACCEL_OK)
        return NULL;
    st = piece_of_tensor(run, "accel_pad_across_ranks", t, &p, &e);
    st = pad_across(run, &p, &pad, st, &to, &e);
    return ranks_end(run, st, &e, err) == ACCEL_OK ? to.tensor : NULL;
}

accel_status_t accel_pad_across_ranks_array(accel_t *run, const accel_array_t *mine,
                                            int dim, double value, int front,
                                            accel_array_t *padded, accel_error_t *err)
{
    struct padding pad = { .dim = dim, .value = value, .front = front != 0 };
    struct ranks_result to = { .array = padded };
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, "accel_pad_across_ranks_array", err));
    st = piece_of_array(run, mine, &p, &e);
    ACCEL_TRY(st, ranks_room(padded, &e));
    st = pad_across(run, &p, &pad, st, &to, &e);
    return ranks_end(run, st, &e, err);
}
