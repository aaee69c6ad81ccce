/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt diff A B`: which tensors and blobs differ between two checkpoints, bit by
 * bit or by more than a tolerance. Hashes are checked while reading. Exits 0 where
 * nothing differs, 1 where something does, like diff.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"
#include "numbers/floats.h"
#include "numbers/minifloat.h"

/* Both checkpoints, and the table of what differs. */
struct diff {
    accel_ckpt_t *c[2];
    /* memory for a part of each */
    void *part[2];
    /* negative: bit by bit */
    double tol;
    struct cli_table *table;
    size_t rows;
    struct ckpt_progress progress;
};

/* What two tensors of one dtype and shape differ in. */
struct tally {
    int64_t count;
    /* index of the first, and its two values as text */
    int64_t first;
    char a[32], b[32];
    /* largest |a - b| of floats; infinity where one of them is no number */
    double largest;
};

static bool is_float(accel_dtype_t t)
{
    return t == ACCEL_F64 || accel_dtype_is_float(t) || t == ACCEL_F8E4M3 ||
           t == ACCEL_F8E5M2;
}

/* Element i of a part as a number; exact for floats. */
static double float_at(const void *part, accel_dtype_t t, int64_t i)
{
    float value;

    if (t == ACCEL_F64)
        return ((const double *)part)[i];
    if (t == ACCEL_F32)
        return (double)((const float *)part)[i];
    if (t == ACCEL_F8E4M3)
        return (double)e4m3_to_f32(((const f8_t *)part)[i]);
    if (t == ACCEL_F8E5M2)
        return (double)e5m2_to_f32(((const f8_t *)part)[i]);
    floats_widen(&value, (const uint16_t *)part + i, t, 1);
    return (double)value;
}

static int64_t integer_at(const void *part, accel_dtype_t t, int64_t i)
{
    switch (t) {
    case ACCEL_I64:
        return ((const int64_t *)part)[i];
    case ACCEL_I32:
        return ((const int32_t *)part)[i];
    case ACCEL_U16:
        return ((const uint16_t *)part)[i];
    case ACCEL_I8:
        return ((const int8_t *)part)[i];
    default: /* ACCEL_U8: a manifest names no other */
        return ((const uint8_t *)part)[i];
    }
}

static void value_text(const void *part, accel_dtype_t t, int64_t i, char buf[32])
{
    if (is_float(t))
        snprintf(buf, 32, "%.17g", float_at(part, t, i));
    else
        snprintf(buf, 32, "%" PRId64, integer_at(part, t, i));
}

/* Counts elements [0, n) of two parts that differ; `begin` is the index of the first.
 * Integers have no tolerance. */
static void compare_parts(const struct diff *d, accel_dtype_t t, int64_t begin,
                          int64_t n, struct tally *y)
{
    size_t size = accel_dtype_bytes(t);
    const char *a = d->part[0], *b = d->part[1];

    if (memcmp(a, b, (size_t)n * size) == 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        double apart = 0;

        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0)
            continue;
        if (is_float(t)) {
            apart = fabs(float_at(a, t, i) - float_at(b, t, i));
            /* written so that a NaN is beyond every tolerance */
            if (d->tol >= 0 && apart <= d->tol)
                continue;
            if (isnan(apart))
                apart = INFINITY;
        }
        y->largest = apart > y->largest ? apart : y->largest;
        if (y->count++ == 0) {
            y->first = begin + i;
            value_text(a, t, i, y->a);
            value_text(b, t, i, y->b);
        }
    }
}

static void add_row(struct diff *d, const char *name, const char *what,
                    const char *const more[5])
{
    d->rows++;
    cli_table_row(d->table, (const char *[]){ name, what, more[0], more[1], more[2],
                                              more[3], more[4] });
}

/* "12x3": where element `at` is. */
static const char *place(const struct ckpt_view *v, int64_t at, char *buf, size_t len)
{
    int64_t index[ACCEL_CKPT_MAX_DIMS];

    for (int k = v->ndim - 1; k >= 0; k--) {
        index[k] = at % v->shape[k];
        at /= v->shape[k];
    }
    return ckpt_dims(v->ndim, index, buf, len);
}

static void add_tally(struct diff *d, const struct ckpt_view *v, const struct tally *y)
{
    char count[24], first[200], largest[32] = "";

    snprintf(count, sizeof(count), "%" PRId64, y->count);
    if (is_float(v->dtype))
        snprintf(largest, sizeof(largest), "%.3g", y->largest);
    add_row(d, v->name, "values",
            (const char *[]){ count, place(v, y->first, first, sizeof(first)), y->a,
                              y->b, largest });
}

/* Reads a tensor of both, part by part. */
static accel_status_t compare_values(struct diff *d, const struct ckpt_view *a,
                                     const struct ckpt_view *b, accel_error_t *err)
{
    int64_t most = ckpt_part_elems(a->dtype);
    struct tally y = { 0 };
    accel_status_t st = ACCEL_OK;

    for (int64_t at = 0; at < a->elems && !st; at += most) {
        int64_t n = a->elems - at < most ? a->elems - at : most;

        st = ckpt_read_part(d->c[0], a, at, n, d->part[0], err);
        ACCEL_TRY(st, ckpt_read_part(d->c[1], b, at, n, d->part[1], err));
        if (!st)
            compare_parts(d, a->dtype, at, n, &y);
        ckpt_progress_add(&d->progress, n * (int64_t)accel_dtype_bytes(a->dtype));
    }
    if (!st && y.count)
        add_tally(d, a, &y);
    return st;
}

/* Two tensors of one name. */
static accel_status_t compare_pair(struct diff *d, const struct ckpt_view *a,
                                   const struct ckpt_view *b, accel_error_t *err)
{
    char have[200], other[200];

    if (a->ndim != b->ndim ||
        memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape)) != 0) {
        add_row(d, a->name, "shape",
                (const char *[]){
                    NULL, NULL, ckpt_dims(a->ndim, a->shape, have, sizeof(have)),
                    ckpt_dims(b->ndim, b->shape, other, sizeof(other)), NULL });
        return ACCEL_OK;
    }
    if (a->dtype != b->dtype) {
        add_row(d, a->name, "dtype",
                (const char *[]){ NULL, NULL, accel_dtype_name(a->dtype),
                                  accel_dtype_name(b->dtype), NULL });
        return ACCEL_OK;
    }
    return compare_values(d, a, b, err);
}

static void add_missing(struct diff *d, const char *name, bool in_a)
{
    add_row(d, name, "missing",
            (const char *[]){ NULL, NULL, in_a ? "there" : "missing",
                              in_a ? "missing" : "there", NULL });
}

/* Walks both lists of names, which are in the same order. */
static accel_status_t compare_tensors(struct diff *d, accel_error_t *err)
{
    size_t i = 0, k = 0, n = accel_ckpt_tensor_count(d->c[0]),
           m = accel_ckpt_tensor_count(d->c[1]);
    accel_status_t st = ACCEL_OK;

    while (!st && (i < n || k < m)) {
        struct ckpt_view a = { 0 }, b = { 0 };
        int order;

        if (i < n)
            ckpt_view(d->c[0], i, &a);
        if (k < m)
            ckpt_view(d->c[1], k, &b);
        order = i == n ? 1 : k == m ? -1 : strcmp(a.name, b.name);
        if (order)
            add_missing(d, order < 0 ? a.name : b.name, order < 0);
        else
            st = compare_pair(d, &a, &b, err);
        i += order <= 0;
        k += order >= 0;
    }
    return st;
}

static void compare_blobs(struct diff *d)
{
    size_t n = 0, bytes[2] = { 0, 0 };
    const void *data[2] = { NULL, NULL };
    const char *name;

    for (size_t i = 0; (name = ckpt_blob_at(d->c[0], i, &data[0], &bytes[0])); i++) {
        char a[24], b[24];

        data[1] = accel_ckpt_blob(d->c[1], name, &bytes[1]);
        if (!data[1]) {
            add_missing(d, name, true);
        } else if (bytes[0] != bytes[1] || memcmp(data[0], data[1], bytes[0]) != 0) {
            snprintf(a, sizeof(a), "%zu bytes", bytes[0]);
            snprintf(b, sizeof(b), "%zu bytes", bytes[1]);
            add_row(d, name, "blob", (const char *[]){ NULL, NULL, a, b, NULL });
        }
    }
    for (; (name = ckpt_blob_at(d->c[1], n, &data[1], &bytes[1])); n++)
        if (!accel_ckpt_blob(d->c[0], name, &bytes[0]))
            add_missing(d, name, false);
}

/* Everything but opening and printing. */
static accel_status_t compare_all(struct diff *d, accel_error_t *err)
{
    /* as many bytes for every dtype */
    size_t bytes = (size_t)ckpt_part_elems(ACCEL_U8);
    accel_status_t st;

    for (int i = 0; i < 2; i++) {
        d->part[i] = malloc(bytes);
        if (!d->part[i])
            return accel_fail_nomem(err, "parts of tensors", bytes);
    }
    for (size_t i = 0; i < accel_ckpt_tensor_count(d->c[0]); i++) {
        struct ckpt_view v;

        ckpt_view(d->c[0], i, &v);
        d->progress.total += v.elems * (int64_t)accel_dtype_bytes(v.dtype);
    }
    st = compare_tensors(d, err);
    ckpt_progress_end(&d->progress);
    if (!st)
        compare_blobs(d);
    return st;
}

int ckpt_diff(const struct ckpt_args *a)
{
    static const char *const columns[] = { "NAME", "DIFFERS", "#ELEMENTS", "FIRST",
                                           "A",    "B",       "LARGEST",   NULL };
    struct diff d = { .tol = a->tol,
                      .progress = { .what = "compared", .off = a->json } };
    accel_error_t err = { 0 };
    accel_status_t st = ckpt_open_path(&d.c[0], a->path[0], &err);
    int code;

    ACCEL_TRY(st, ckpt_open_path(&d.c[1], a->path[1], &err));
    if (!st) {
        d.table = cli_table_new("differences", columns);
        st = d.table ? compare_all(&d, &err) : accel_fail_nomem(&err, "the table", 0);
    }
    if (st) {
        code = cli_fail(&err);
        if (d.table)
            cli_table_free(d.table);
    } else if (d.rows || a->json) {
        code = cli_table_print(d.table, a->json);
        code = code ? code : d.rows > 0;
    } else {
        cli_table_free(d.table);
        code = 0;
    }
    free(d.part[0]);
    free(d.part[1]);
    accel_ckpt_close(d.c[0]);
    accel_ckpt_close(d.c[1]);
    return code;
}
