/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_reduce: sum, mean and maximum over the ranks. float32 and bfloat16 tensors are
 * reduced where they are, in float32; all other values are reduced in host memory, as
 * float64 or int64. Sums are in rank order, so all ranks get the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"
#include "numbers/floats.h"

struct reduction {
    accel_reduction_t how;
    double scale;
};

static enum comm_op op_of_reduction(const struct reduction *r)
{
    return r->how == ACCEL_REDUCE_MAX ? COMM_MAX : COMM_SUM;
}

/* What a sum or maximum is multiplied by. */
static double factor_of(const accel_t *run, const struct reduction *r)
{
    return r->how == ACCEL_REDUCE_MEAN ? r->scale / run->boot.size : r->scale;
}

static bool is_narrow_integer(accel_dtype_t t)
{
    return t == ACCEL_I32 || t == ACCEL_U16 || t == ACCEL_U8 || t == ACCEL_I8;
}

static bool is_integer(accel_dtype_t t)
{
    return t == ACCEL_I64 || is_narrow_integer(t);
}

/* The dtype that values are reduced in. */
static accel_dtype_t working_dtype(accel_dtype_t t)
{
    return is_integer(t) ? ACCEL_I64 : t == ACCEL_F64 ? ACCEL_F64 : ACCEL_F32;
}

static accel_status_t check_reduction(const struct piece *p, const struct reduction *r,
                                      accel_error_t *err)
{
    if ((unsigned)r->how > ACCEL_REDUCE_MAX)
        return accel_fail(err, A0941, "use ACCEL_REDUCE_SUM, _MEAN or _MAX",
                          "accel_reduce: there is no reduction %d", (int)r->how);
    if (is_integer(p->dtype) && (r->how == ACCEL_REDUCE_MEAN || r->scale != 1))
        return accel_fail(err, A0941, "reduce integers with scale 1, or as float32",
                          "accel_reduce: %s has no fractions for a mean or a scale",
                          accel_dtype_name(p->dtype));
    return ACCEL_OK;
}

/* ---- on the device --------------------------------------------------------------- */

/* `out` has the values of this rank. Narrow floats pass through float32 scratch, so
 * that the result is rounded once. */
static accel_status_t reduce_there(accel_t *run, const struct reduction *r,
                                   const struct piece *out, accel_error_t *err)
{
    const struct backend *be = out->be;
    bool narrow = out->dtype == ACCEL_BF16 || out->dtype == ACCEL_F16;
    double factor = factor_of(run, r);
    accel_error_t e = { 0 };
    void *work = out->data;
    accel_status_t st;

    if (narrow) {
        ACCEL_CHECK(st, piece_scratch(run, out, (size_t)out->elems * sizeof(float),
                                      &work, err));
        be->widen(be, work, out->data, out->dtype, out->elems);
    }
    /* one rank has no communicator of the device */
    st = run->boot.size == 1 ? ACCEL_OK
                             : comm_all_reduce(out->comm, work, (size_t)out->elems,
                                               ACCEL_F32, op_of_reduction(r), &e);
    if (st == ACCEL_OK && factor != 1)
        be->scale(be, work, out->elems, (float)factor);
    if (st == ACCEL_OK && narrow)
        be->narrow(be, out->data, out->dtype, work, out->elems);
    if (narrow)
        piece_drop(run, out, work);
    return run_report(run, st, &e, err);
}

/* ---- in host memory -------------------------------------------------------------- */

/* Integers as int64, narrow floats as float32. */
static void to_working(void *work, const void *from, accel_dtype_t t, int64_t n)
{
    int64_t *wide = work;

    switch (t) {
    case ACCEL_I32:
        for (int64_t i = 0; i < n; i++)
            wide[i] = ((const int32_t *)from)[i];
        break;
    case ACCEL_U16:
        for (int64_t i = 0; i < n; i++)
            wide[i] = ((const uint16_t *)from)[i];
        break;
    case ACCEL_U8:
        for (int64_t i = 0; i < n; i++)
            wide[i] = ((const uint8_t *)from)[i];
        break;
    case ACCEL_I8:
        for (int64_t i = 0; i < n; i++)
            wide[i] = ((const int8_t *)from)[i];
        break;
    case ACCEL_BF16:
    case ACCEL_F16:
        floats_widen(work, from, t, (size_t)n);
        break;
    default:
        if (n > 0)
            memcpy(work, from, (size_t)n * accel_dtype_bytes(t));
    }
}

/* The largest and smallest value of a narrow integer type. */
static void integer_range(accel_dtype_t t, int64_t *low_out, int64_t *high_out)
{
    *low_out = t == ACCEL_I32 ? INT32_MIN : t == ACCEL_I8 ? INT8_MIN : 0;
    *high_out = t == ACCEL_I32   ? INT32_MAX
                : t == ACCEL_U16 ? UINT16_MAX
                : t == ACCEL_U8  ? UINT8_MAX
                                 : INT8_MAX;
}

/* All ranks have the same sums, so all of them fail or none. */
static accel_status_t narrow_integers(void *to, const int64_t *wide, accel_dtype_t t,
                                      int64_t n, accel_error_t *err)
{
    int64_t low, high;

    integer_range(t, &low, &high);
    for (int64_t i = 0; i < n; i++) {
        if (wide[i] < low || wide[i] > high)
            return accel_fail(err, A0941, "reduce them as int64",
                              "accel_reduce: element %lld is %lld, which %s does not "
                              "hold",
                              (long long)i, (long long)wide[i], accel_dtype_name(t));
    }
    for (int64_t i = 0; i < n; i++) {
        if (t == ACCEL_I32)
            ((int32_t *)to)[i] = (int32_t)wide[i];
        else if (t == ACCEL_U16)
            ((uint16_t *)to)[i] = (uint16_t)wide[i];
        else if (t == ACCEL_U8)
            ((uint8_t *)to)[i] = (uint8_t)wide[i];
        else
            ((int8_t *)to)[i] = (int8_t)wide[i];
    }
    return ACCEL_OK;
}

/* Scales work[n], of its working dtype, and rounds it to values of t. */
static accel_status_t from_working(void *to, void *work, accel_dtype_t t, int64_t n,
                                   double factor, accel_error_t *err)
{
    if (is_narrow_integer(t))
        return narrow_integers(to, work, t, n, err);
    if (t == ACCEL_F64 && factor != 1)
        for (int64_t i = 0; i < n; i++)
            ((double *)work)[i] *= factor;
    if (accel_dtype_is_float(t) && factor != 1)
        for (int64_t i = 0; i < n; i++)
            ((float *)work)[i] *= (float)factor;
    if (accel_dtype_is_float(t))
        floats_narrow(to, t, work, (size_t)n);
    else if (n > 0)
        memcpy(to, work, (size_t)n * accel_dtype_bytes(t));
    return ACCEL_OK;
}

/* values[n] of dtype t, in place; untouched by a failure. */
static accel_status_t reduce_host(accel_t *run, const struct reduction *r, void *values,
                                  accel_dtype_t t, int64_t n, accel_error_t *err)
{
    accel_dtype_t w = working_dtype(t);
    void *work = malloc((size_t)n * accel_dtype_bytes(w) + 1);
    accel_error_t e = { 0 };
    accel_status_t st;

    if (!work)
        return accel_fail_nomem(err, "a reduction", (size_t)n * accel_dtype_bytes(w));
    to_working(work, values, t, n);
    st = comm_all_reduce(run->comm, work, (size_t)n, w, op_of_reduction(r), &e);
    if (st == ACCEL_OK)
        st = from_working(values, work, t, n, factor_of(run, r), err);
    else
        st = run_report(run, st, &e, err);
    free(work);
    return st;
}

/* A tensor of a device, by way of the host. */
static accel_status_t reduce_by_host(accel_t *run, const struct reduction *r,
                                     const struct piece *out, accel_error_t *err)
{
    const struct backend *be = out->be;
    size_t bytes = piece_bytes(out);
    void *host = malloc(bytes + 1);
    accel_status_t st;

    if (!host)
        return accel_fail_nomem(err, "a reduction", bytes);
    be->to_host_bytes(be, host, out->data, bytes);
    st = reduce_host(run, r, host, out->dtype, out->elems, err);
    if (st == ACCEL_OK)
        be->from_host(be, out->data, host, bytes);
    free(host);
    return st;
}

/* ---- calls ----------------------------------------------------------------------- */

/* Both forms: the checks, then the comparison of the ranks. */
static accel_status_t reduce_begin(accel_t *run, const struct piece *p,
                                   const struct reduction *r, accel_status_t st,
                                   accel_error_t *err)
{
    struct ranks_record mine = ranks_record(RANKS_REDUCE, p, NULL);

    mine.option = (int32_t)r->how;
    ACCEL_TRY(st, check_reduction(p, r, err));
    if (ranks_meets(run, piece_on_device(p)))
        return ranks_meet(run, &mine, SAME_SHAPE, st, NULL, err);
    return st;
}

/* A copy of the tensor is reduced: the forward's own may be needed by its backward. */
static accel_status_t reduce_tensor(accel_t *run, const struct piece *p,
                                    const struct reduction *r, struct ranks_result *to,
                                    accel_error_t *err)
{
    struct piece out;
    accel_status_t st = result_make(run, p, to, p->ndim, p->dims, &out, err);

    if (st != ACCEL_OK || out.elems == 0)
        return st;
    piece_copy(p, out.data, p->data, piece_bytes(p));
    return working_dtype(p->dtype) == ACCEL_F32 ? reduce_there(run, r, &out, err)
                                                : reduce_by_host(run, r, &out, err);
}

accel_tensor_t *accel_reduce(accel_t *run, const accel_tensor_t *t,
                             accel_reduction_t how, double scale, accel_error_t *err)
{
    struct reduction r = { how, scale };
    struct ranks_result to = { 0 };
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st = ranks_ready(run, "accel_reduce", err);

    if (st != ACCEL_OK)
        return NULL;
    st = piece_of_tensor(run, "accel_reduce", t, &p, &e);
    st = reduce_begin(run, &p, &r, st, &e);
    ACCEL_TRY(st, reduce_tensor(run, &p, &r, &to, &e));
    return ranks_end(run, st, &e, err) == ACCEL_OK ? to.tensor : NULL;
}

accel_status_t accel_reduce_array(accel_t *run, accel_array_t *values,
                                  accel_reduction_t how, double scale,
                                  accel_error_t *err)
{
    struct reduction r = { how, scale };
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, "accel_reduce_array", err));
    st = piece_of_array(run, values, &p, &e);
    st = reduce_begin(run, &p, &r, st, &e);
    ACCEL_TRY(st, reduce_host(run, &r, p.data, p.dtype, p.elems, &e));
    return ranks_end(run, st, &e, err);
}
