/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the calls of a file of rows on two forked ranks and compares what they give:
 *     ranks_rows FILE
 * "gather DTYPE 0 0 0 | rank 0: SHAPE | VALUES of its tensor | SHAPE | VALUES of the
 * result | rank 1: the same four", also reduce (HOW), broadcast (FROM) and pad (DIM
 * VALUE FRONT); and "split - N WORLD PAD | items of rank 0 | of rank 1 ...". Prints how
 * many rows of each kind were the same; 1: some were not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/ranks_world.h"

enum { MOST = 64 };

struct tensor {
    accel_array_t a;
    double value[MOST];
    char room[MOST * 8];
};

static accel_dtype_t dtype_named(const char *name)
{
    int t = ACCEL_F32;

    while (t <= ACCEL_I64 && strcmp(accel_dtype_name((accel_dtype_t)t), name))
        t++;
    return (accel_dtype_t)t;
}

/* "1,2.5": numbers into out; "-": none. Returns how many. */
static int numbers(char *text, double *out)
{
    int n = 0;

    text += strspn(text, " ");
    if (*text == '-' && (text[1] == '\0' || text[1] == ' '))
        return 0;
    for (char *word; n < MOST && (word = strsep(&text, ","));)
        out[n++] = strtod(word, NULL);
    return n;
}

/* Element i as a number, or the number as element i. */
static double element(struct tensor *t, int i, const double *put)
{
    void *p = t->room + (size_t)i * accel_dtype_bytes(t->a.dtype);
    union {
        uint32_t u;
        float f;
    } wide;

    switch (t->a.dtype) {
    case ACCEL_F64:
        return put ? *(double *)p = *put : *(double *)p;
    case ACCEL_F32:
        return put ? *(float *)p = (float)*put : *(float *)p;
    case ACCEL_BF16:
        wide.f = put ? (float)*put : 0;
        if (put) /* numbers of a row are bfloat16 already */
            *(uint16_t *)p = (uint16_t)(wide.u >> 16);
        wide.u = (uint32_t) * (uint16_t *)p << 16;
        return wide.f;
    case ACCEL_I32:
        return put ? *(int32_t *)p = (int32_t)*put : *(int32_t *)p;
    case ACCEL_I64:
        return put ? (double)(*(int64_t *)p = (int64_t)*put) : (double)*(int64_t *)p;
    default:
        return put ? *(uint8_t *)p = (uint8_t)*put : *(uint8_t *)p;
    }
}

static void read_tensor(struct tensor *t, accel_dtype_t dtype, char *shape,
                        char *values)
{
    double dims[MOST];

    memset(t, 0, sizeof(*t));
    t->a.dtype = dtype;
    t->a.ndim = numbers(shape, dims);
    for (int d = 0; d < t->a.ndim && d < 4; d++)
        t->a.dims[d] = (int64_t)dims[d];
    t->a.elems = numbers(values, t->value);
    t->a.data = t->room;
    for (int i = 0; i < t->a.elems; i++)
        element(t, i, &t->value[i]);
}

/* The call of the row, from `in` to `out`. */
static accel_status_t call_row(accel_t *run, const char *name, const double arg[3],
                               struct tensor *in, struct tensor *out,
                               accel_error_t *err)
{
    *out = *in;
    out->a.data = out->room;
    if (!strcmp(name, "reduce"))
        return accel_reduce_array(run, &out->a, (accel_reduction_t)arg[0], 1, err);
    if (!strcmp(name, "broadcast"))
        return accel_broadcast_array(run, &out->a, (int)arg[0], err);
    out->a = (accel_array_t){ .elems = MOST, .data = out->room };
    if (!strcmp(name, "pad"))
        return accel_pad_across_ranks_array(run, &in->a, (int)arg[0], arg[1],
                                            (int)arg[2], &out->a, err);
    return accel_gather_array(run, &in->a, &out->a, err);
}

static bool same_tensor(struct tensor *got, const struct tensor *want)
{
    bool same = got->a.ndim == want->a.ndim && got->a.elems == want->a.elems &&
                got->a.dtype == want->a.dtype;

    for (int d = 0; same && d < want->a.ndim; d++)
        same = got->a.dims[d] == want->a.dims[d];
    for (int i = 0; same && i < want->a.elems; i++)
        same = element(got, i, NULL) == want->value[i];
    return same;
}

/* field[1 + 4 * rank ...]: what this rank has and what it must get. */
static bool call_same(accel_t *run, const char *name, accel_dtype_t dtype,
                      const double arg[3], char **field)
{
    struct tensor in, got, want;
    accel_error_t err = { 0 };

    field += 1 + 4 * run->boot.rank;
    read_tensor(&in, dtype, field[0], field[1]);
    read_tensor(&want, dtype, field[2], field[3]);
    return !call_row(run, name, arg, &in, &got, &err) && same_tensor(&got, &want);
}

static bool split_same(const double arg[3], char **field, int fields)
{
    for (int r = 0; r + 1 < fields; r++) {
        double want[MOST];
        int n = numbers(field[r + 1], want);
        accel_share_t s;

        if (accel_split((int64_t)arg[0], r, (int)arg[1], (int)arg[2], &s, NULL) ||
            s.count + s.padding != n)
            return false;
        for (int i = 0; i < n; i++)
            if ((i < s.count ? (double)s.first + i : (double)s.last) != want[i])
                return false;
    }
    return fields == 1 + (int)arg[1];
}

static bool row_same(accel_t *run, char *line)
{
    char *field[12] = { 0 }, name[16], dtype[16];
    double arg[3] = { 0 };
    int fields = 0;

    for (char *part; fields < 12 && (part = strsep(&line, "|\n"));)
        if (*part)
            field[fields++] = part;
    if (fields < 2 || sscanf(field[0], "%15s %15s %lf %lf %lf", name, dtype, &arg[0],
                             &arg[1], &arg[2]) != 5)
        return false;
    if (!strcmp(name, "split"))
        return split_same(arg, field, fields);
    return fields == 9 && call_same(run, name, dtype_named(dtype), arg, field);
}

static int rows_of_file(struct boot *b, void *arg)
{
    accel_t *run = ranks_open(b, false);
    FILE *f = fopen(arg, "r");
    int rows = 0, same = 0;
    char line[4096];

    if (!run || !f)
        return 1;
    while (fgets(line, sizeof(line), f)) {
        char copy[4096];

        memcpy(copy, line, sizeof(copy));
        rows++;
        same += ranks_check(run, row_same(run, copy), "%.200s", line);
    }
    fclose(f);
    if (b->rank == 0)
        printf("%d of %d rows are the same\n", same, rows);
    fflush(stdout);
    return ranks_close(run);
}

int main(int argc, char **argv)
{
    return argc == 2 ? fork_world(2, rows_of_file, argv[1], HANG_S) != 0 : 64;
}
