/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls between ranks on 1 to 4 forked ranks: each dtype and shape beside values worked
 * out here, and what differs between ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_impl.h"
#include "tests/tap.h"
#include "tests/world/ranks_world.h"

static const accel_dtype_t dtypes[] = { ACCEL_F32, ACCEL_BF16, ACCEL_I32, ACCEL_U16,
                                        ACCEL_U8,  ACCEL_F64,  ACCEL_I64, ACCEL_I8 };

static double value_at(const void *data, accel_dtype_t t, int64_t i)
{
    uint32_t u;
    float f;

    switch (t) {
    case ACCEL_F32:
        return ((const float *)data)[i];
    case ACCEL_BF16:
        u = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&f, &u, sizeof(f));
        return f;
    case ACCEL_I32:
        return ((const int32_t *)data)[i];
    case ACCEL_U16:
        return ((const uint16_t *)data)[i];
    case ACCEL_U8:
        return ((const uint8_t *)data)[i];
    case ACCEL_I8:
        return ((const int8_t *)data)[i];
    case ACCEL_F64:
        return ((const double *)data)[i];
    default:
        return (double)((const int64_t *)data)[i];
    }
}

/* [rows, cols] with element i = 10 * rank + i. */
static accel_tensor_t *counting(accel_t *run, accel_dtype_t t, int64_t rows,
                                int64_t cols)
{
    accel_tensor_t *x = graph_tensor(&run->graph, t, 2, (int64_t[]){ rows, cols });

    for (int64_t i = 0; x && i < x->elems; i++)
        ranks_put(x->data, t, i, 10 * run->boot.rank + (int)i);
    return x;
}

/* ---- values ---------------------------------------------------------------------- */

static void gather_of(accel_t *run, accel_dtype_t t)
{
    int world = run->boot.size;
    accel_error_t err = { 0 };
    accel_tensor_t *x = counting(run, t, 2, 3);
    accel_tensor_t *all = accel_gather(run, x, &err);
    unsigned char room[64 * 8];
    accel_array_t mine = { t, 2, { 2, 3 }, 6, x->data };
    accel_array_t got = { .elems = 6 * world, .data = room };
    int bad = 0;

    if (!ranks_check(run,
                     all && all->ndim == 2 && all->dim[0] == 2 * world &&
                         all->dim[1] == 3 && all->dtype == t && !all->needs_grad,
                     "gather of %s: %s", accel_dtype_name(t), err.text))
        return;
    ranks_check(run, !accel_gather_array(run, &mine, &got, &err), "array: %s",
                err.text);
    ranks_check(run,
                got.dtype == t && got.ndim == 2 && got.dims[0] == 2 * world &&
                    got.dims[1] == 3 && got.elems == 6 * world,
                "its sizes");
    for (int i = 0; i < 6 * world; i++) {
        double want = 10 * (i / 6) + i % 6;

        bad += value_at(all->data, t, i) != want || value_at(room, t, i) != want;
    }
    ranks_check(run, bad == 0, "%d values of %s", bad, accel_dtype_name(t));
    got.elems = 6 * world - 1;
    ranks_check(run,
                accel_gather_array(run, &mine, &got, &err) == ACCEL_EINVAL &&
                    err.message == 941,
                "one element too few: %s", err.text);
}

static void reduce_of(accel_t *run, accel_dtype_t t)
{
    static const double scale[] = { 1, 0.5 };
    bool whole = t != ACCEL_F32 && t != ACCEL_BF16 && t != ACCEL_F64;
    int world = run->boot.size;
    accel_error_t err = { 0 };

    for (int how = ACCEL_REDUCE_SUM; how <= ACCEL_REDUCE_MAX; how++)
        for (int s = 0; s < (whole ? 1 : 2); s++) {
            accel_tensor_t *x = counting(run, t, 1, 5), *y;
            accel_array_t a = { t, 1, { 5 }, 5, x->data };
            int bad = 0;

            y = accel_reduce(run, x, (accel_reduction_t)how, scale[s], &err);
            if (whole && how == ACCEL_REDUCE_MEAN) {
                ranks_check(run, !y && err.message == 941, "no mean of integers");
                continue;
            }
            if (!ranks_check(run, y && y != x && y->dtype == t, "reduce: %s", err.text))
                continue;
            ranks_check(run, value_at(x->data, t, 1) == 10 * run->boot.rank + 1,
                        "the tensor itself stays");
            ranks_check(
                run,
                !accel_reduce_array(run, &a, (accel_reduction_t)how, scale[s], &err),
                "array: %s", err.text);
            for (int i = 0; i < 5; i++) {
                double sum = 10.0 * world * (world - 1) / 2 + i * world;
                double top = 10.0 * (world - 1) + i;
                double want = how == ACCEL_REDUCE_SUM    ? sum
                              : how == ACCEL_REDUCE_MEAN ? sum / world
                                                         : top;
                double near = t == ACCEL_BF16 ? 0.01 * want : 1e-6 * want;
                double got = value_at(y->data, t, i) - want * scale[s];

                bad += !(got <= near && got >= -near) ||
                       value_at(a.data, t, i) != value_at(y->data, t, i);
            }
            ranks_check(run, bad == 0, "reduction %d of %s, scale %g: %d are wrong",
                        how, accel_dtype_name(t), scale[s], bad);
        }
    ranks_check(run, !accel_reduce(run, counting(run, t, 1, 1), 3, 1, &err),
                "there is no fourth reduction");
    if (whole)
        ranks_check(run, !accel_reduce(run, counting(run, t, 1, 1), 0, 0.5, &err),
                    "no scale of integers");
}

static void broadcast_of(accel_t *run, accel_dtype_t t)
{
    accel_error_t err = { 0 };

    for (int from = 0; from < run->boot.size; from++) {
        accel_tensor_t *x = counting(run, t, 2, 2);
        accel_tensor_t *y = accel_broadcast(run, x, from, &err);
        accel_array_t a = { t, 2, { 2, 2 }, 4, x->data };

        if (!ranks_check(run, y && y != x, "broadcast: %s", err.text))
            return;
        ranks_check(run, value_at(x->data, t, 3) == 10 * run->boot.rank + 3,
                    "the tensor itself stays");
        ranks_check(run, !accel_broadcast_array(run, &a, from, &err), "%s", err.text);
        for (int i = 0; i < 4; i++)
            ranks_check(run,
                        value_at(y->data, t, i) == 10 * from + i &&
                            value_at(a.data, t, i) == 10 * from + i,
                        "%s of rank %d", accel_dtype_name(t), from);
    }
    ranks_check(run,
                !accel_broadcast(run, counting(run, t, 1, 1), run->boot.size, &err),
                "no such rank");
}

/* Of every rank as many bytes as one of these rules says; 0 of all is an answer, too. */
static size_t bytes_of(int rule, int rank, int world)
{
    return rule == 0   ? 0
           : rule == 1 ? 1
           : rule == 2 ? (size_t)rank
           : rule == 3 ? rank == world - 1 ? 5 : 0
           : rule == 4 ? rank == 0 ? 24 : 0
                       : (size_t)(4096 + rank);
}

static void gather_bytes_of(accel_t *run, int rule)
{
    const int world = run->boot.size, rank = run->boot.rank;
    const size_t own = bytes_of(rule, rank, world);
    unsigned char mine[4200], *at;
    size_t sizes[16] = { 0 }, wrong = 0;
    accel_error_t err = { 0 };
    void *all = NULL;

    memset(mine, 'a' + rank, sizeof(mine));
    if (!ranks_check(run, !accel_gather_bytes(run, mine, own, &all, sizes, &err),
                     "bytes by rule %d: %s", rule, err.text))
        return;
    at = all;
    for (int r = 0; r < world; r++) {
        wrong += sizes[r] != bytes_of(rule, r, world);
        for (size_t i = 0; i < bytes_of(rule, r, world); i++)
            wrong += *at++ != 'a' + r;
    }
    ranks_check(run, wrong == 0, "bytes by rule %d: %zu are wrong", rule, wrong);
    free(all);
}

/* Rank r has r + 1 rows; each becomes as long as the last rank's. */
static void pad_of(accel_t *run, accel_dtype_t t, int front)
{
    int world = run->boot.size, rank = run->boot.rank, gap = 2 * (world - 1 - rank);
    accel_tensor_t *x = counting(run, t, rank + 1, 2), *y;
    unsigned char room[64 * 8];
    accel_array_t mine = { t, 2, { rank + 1, 2 }, 0, x->data };
    accel_array_t got = { .elems = 64, .data = room };
    accel_error_t err = { 0 };

    y = accel_pad_across_ranks(run, x, 0, 7, front, &err);
    if (!ranks_check(run, y && y->dim[0] == world && y->dim[1] == 2, "pad: %s",
                     err.text))
        return;
    ranks_check(run, (y == x) == (rank + 1 == world), "the longest is itself");
    ranks_check(run, !accel_pad_across_ranks_array(run, &mine, 0, 7, front, &got, &err),
                "%s", err.text);
    ranks_check(run, got.dims[0] == world && got.elems == 2 * world, "its sizes");
    for (int i = 0; i < 2 * world; i++) {
        int own = front ? i - gap : i;
        double want = own < 0 || own >= 2 * (rank + 1) ? 7 : 10 * rank + own;

        ranks_check(run,
                    value_at(y->data, t, i) == want && value_at(room, t, i) == want,
                    "%s: element %d of %d", accel_dtype_name(t), i, 2 * world);
    }
}

/* Other dimensions, other shapes, and values that a dtype does not have. */
static void pad_more(accel_t *run)
{
    int world = run->boot.size, rank = run->boot.rank;
    accel_tensor_t *x = counting(run, ACCEL_I32, 2, rank + 1), *y;
    accel_error_t err = { 0 };

    y = accel_pad_across_ranks(run, x, 1, -1, 0, &err);
    if (ranks_check(run, y && y->dim[0] == 2 && y->dim[1] == world, "%s", err.text))
        for (int i = 0; i < 2 * world; i++) {
            int row = i / world, col = i % world;
            double want = col <= rank ? 10 * rank + row * (rank + 1) + col : -1;

            ranks_check(run, value_at(y->data, ACCEL_I32, i) == want,
                        "dimension 1, element %d", i);
        }
    y = accel_pad_across_ranks(run, x, 2, -1, 0, &err);
    ranks_check(run, y == x, "a dimension that it does not have");
    /* ranks that have it and ranks that have not */
    x = rank % 2 ? ranks_tensor(run, ACCEL_I32, 3, (int[]){ 1, 2, 3 })
                 : counting(run, ACCEL_I32, 3, rank + 1);
    y = accel_pad_across_ranks(run, x, 1, 0, 0, &err);
    ranks_check(run, y && (rank % 2 ? y == x : y->dim[1] == (world - 1) / 2 * 2 + 1),
                "shapes may differ");
    ranks_check(run, !accel_pad_across_ranks(run, x, -1, 0, 0, &err),
                "no dimension -1");
    ranks_check(run, !accel_pad_across_ranks(run, x, 0, 0.5, 0, &err), "no half int32");
    x = counting(run, ACCEL_U8, 1, 1);
    ranks_check(run,
                !accel_pad_across_ranks(run, x, 0, -1, 0, &err) &&
                    !accel_pad_across_ranks(run, x, 0, 256, 0, &err) &&
                    accel_pad_across_ranks(run, x, 0, 255, 0, &err),
                "uint8 is 0 to 255");
    x = counting(run, ACCEL_I8, 1, 1);
    ranks_check(run,
                !accel_pad_across_ranks(run, x, 0, -129, 0, &err) &&
                    !accel_pad_across_ranks(run, x, 0, 128, 0, &err) &&
                    accel_pad_across_ranks(run, x, 0, -128, 0, &err),
                "int8 is -128 to 127");
}

static void values_rank(accel_t *run, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(dtypes); i++) {
        gather_of(run, dtypes[i]);
        reduce_of(run, dtypes[i]);
        broadcast_of(run, dtypes[i]);
        pad_of(run, dtypes[i], 0);
        pad_of(run, dtypes[i], 1);
        graph_reset(&run->graph);
    }
    for (int rule = 0; rule < 6; rule++)
        gather_bytes_of(run, rule);
    pad_more(run);
}

/* ---- scalars, empty ones, overflow, bytes ---------------------------------------- */

static void scalars(accel_t *run)
{
    int world = run->boot.size, rank = run->boot.rank;
    float own = (float)rank + 0.5f, all[8];
    accel_array_t mine = { ACCEL_F32, 0, { 0 }, 1, &own };
    accel_array_t got = { .elems = 8, .data = all };
    accel_tensor_t *x = ranks_tensor(run, ACCEL_F32, 1, &rank);
    accel_error_t err = { 0 };

    ranks_check(run,
                !accel_gather_array(run, &mine, &got, &err) && got.ndim == 1 &&
                    got.dims[0] == world && all[world - 1] == world - 0.5f,
                "a number of each rank: %s", err.text);
    x = accel_gather(run, x, &err);
    ranks_check(run, x && x->ndim == 1 && x->dim[0] == world, "[1] becomes [world]");
    x = counting(run, ACCEL_F32, 0, 3);
    x = accel_gather(run, x, &err);
    ranks_check(run, x && x->dim[0] == 0 && x->dim[1] == 3, "no rows: %s", err.text);
    mine.data = NULL;
    ranks_check(run, accel_gather_array(run, &mine, &got, &err) == ACCEL_EINVAL,
                "no data: %s", err.text);
    mine = (accel_array_t){ ACCEL_F32, 2, { 1, -1 }, 1, &own };
    ranks_check(run, accel_gather_array(run, &mine, &got, &err) == ACCEL_EINVAL,
                "a size below 0: %s", err.text);
    mine = (accel_array_t){ ACCEL_F8E4M3, 1, { 1 }, 1, &own };
    ranks_check(run, accel_reduce_array(run, &mine, 0, 1, &err) == ACCEL_EINVAL,
                "a dtype of the wire: %s", err.text);
    ranks_check(run,
                accel_gather_array(run, NULL, &got, &err) == ACCEL_EINVAL &&
                    accel_broadcast_array(run, NULL, 0, &err) == ACCEL_EINVAL,
                "no array");
}

/* The sums are the same everywhere, and so is the refusal. */
static void overflow(accel_t *run)
{
    int32_t big[2] = { 1, 2000000000 };
    uint8_t byte = 200;
    int8_t small;
    accel_array_t a = { ACCEL_I32, 1, { 2 }, 2, big };
    accel_error_t err = { 0 };
    accel_status_t st = accel_reduce_array(run, &a, ACCEL_REDUCE_SUM, 1, &err);

    if (run->boot.size == 1) {
        ranks_check(run, st == ACCEL_OK, "nothing to add");
        return;
    }
    ranks_check(run,
                st == ACCEL_EINVAL && strstr(err.text, "element 1 is ") &&
                    big[0] == 1 && big[1] == 2000000000,
                "the sum does not fit: %s", err.text);
    a = (accel_array_t){ ACCEL_U8, 1, { 1 }, 1, &byte };
    ranks_check(run, accel_reduce_array(run, &a, 0, 1, &err) == ACCEL_EINVAL,
                "nor into a byte");
    small = (int8_t)(run->boot.rank ? -100 : -90);
    a = (accel_array_t){ ACCEL_I8, 1, { 1 }, 1, &small };
    ranks_check(run, accel_reduce_array(run, &a, 0, 1, &err) == ACCEL_EINVAL,
                "nor into one with a sign");
    ranks_check(run,
                !accel_reduce_array(run, &a, ACCEL_REDUCE_MAX, 1, &err) && small == -90,
                "the largest of negative ones");
    a = (accel_array_t){ ACCEL_U8, 1, { 1 }, 1, &byte };
    ranks_check(run,
                !accel_reduce_array(run, &a, ACCEL_REDUCE_MAX, 1, &err) && byte == 200,
                "and the run goes on: %s", err.text);
}

/* Rank r has r * 1000 bytes of the value r; rank 0 none. */
static void bytes_of_ranks(accel_t *run)
{
    int world = run->boot.size, rank = run->boot.rank;
    size_t sizes[8] = { 0 }, length = 99;
    char *own = malloc(8000), *all = NULL, *copy = NULL;
    accel_error_t err = { 0 };

    memset(own, rank, 8000);
    for (int from = 0; from < world; from++) {
        bool me = from == rank;

        ranks_check(run,
                    !accel_broadcast_bytes(run, me ? own : NULL,
                                           me ? (size_t)rank * 1000 : 5, from,
                                           (void **)&copy, &length, &err),
                    "from %d: %s", from, err.text);
        ranks_check(run,
                    length == (size_t)from * 1000 &&
                        (length == 0 || (copy[0] == from && copy[length - 1] == from)),
                    "its bytes");
        free(copy);
        ranks_check(run,
                    accel_broadcast_bytes(run, NULL, 1, from, (void **)&copy, &length,
                                          &err) == ACCEL_EINVAL &&
                        strstr(err.text, "data of rank"),
                    "no bytes to send: all ranks learn it, %s", err.text);
    }
    ranks_check(
        run,
        accel_gather_bytes(run, own, 1, NULL, sizes, &err) == ACCEL_EINVAL &&
            accel_gather_bytes(run, NULL, 1, (void **)&all, sizes, &err) ==
                ACCEL_EINVAL &&
            accel_broadcast_bytes(run, own, 1, world, (void **)&copy, &length, &err) ==
                ACCEL_EINVAL &&
            accel_broadcast_bytes(run, own, 1, 0, NULL, &length, &err) == ACCEL_EINVAL,
        "nothing given");
    free(own);
}

/* Tensors that cannot be used, and a forward at work. */
static void misuse(accel_t *run)
{
    struct graph other = { 0 };
    accel_error_t err = { 0 };
    accel_tensor_t *x = counting(run, ACCEL_F32, 1, 1), *y;

    ranks_check(run, !accel_gather(run, NULL, &err) && err.message == 611, "NULL");
    x->g = &other;
    ranks_check(run, !accel_gather(run, x, &err) && strstr(err.text, "another run"),
                "%s", err.text);
    x->g = &run->graph;
    x->name = "h.weight";
    ranks_check(run, !accel_reduce(run, x, 0, 1, &err) && strstr(err.text, "h.weight"),
                "%s", err.text);
    x->name = NULL;
    y = counting(run, ACCEL_F32, 1, 1);
    graph_reset(&run->graph);
    ranks_check(run, !accel_broadcast(run, y, 0, &err) && strstr(err.text, "freed"),
                "%s", err.text);
    ranks_check(run,
                !accel_gather(NULL, y, &err) && err.code == ACCEL_EINVAL &&
                    accel_barrier(NULL, &err) == ACCEL_EINVAL &&
                    accel_agree(NULL, ACCEL_OK, &err) == ACCEL_EINVAL,
                "no run");
    run->graph.depth = 1;
    ranks_check(run,
                accel_barrier(run, &err) == ACCEL_EINVAL &&
                    strstr(err.text, "inside the forward") &&
                    accel_agree(run, ACCEL_OK, &err) == ACCEL_EINVAL,
                "in a forward: %s", err.text);
    run->graph.depth = 0;
    accel_fail(&run->graph.error, A0602, NULL, "the forward went wrong");
    ranks_check(run, !accel_gather(run, NULL, &err) && err.message == 602,
                "the error of the forward: %s", err.text);
    graph_reset(&run->graph);
    run->status = ACCEL_EIO;
    accel_fail(&run->failure, A0801, NULL, "the first failure");
    ranks_check(run,
                accel_barrier(run, &err) == ACCEL_EIO &&
                    !strcmp(err.text, "the first failure"),
                "a run that has failed");
    run->status = ACCEL_OK;
}

static void others_rank(accel_t *run, void *arg)
{
    (void)arg;
    scalars(run);
    overflow(run);
    bytes_of_ranks(run);
    misuse(run);
}

/* ---- debug ----------------------------------------------------------------------- */

/* One rank is different; all get one error, and the run goes on. */
static void debug_rank(accel_t *run, void *arg)
{
    int odd = run->boot.rank == 1 ? 1 : 0, set;
    accel_error_t err = { 0 };
    accel_tensor_t *x;

    (void)arg;
    ranks_check(run,
                !accel_gather(run, counting(run, ACCEL_F32, 1 + odd, 5), &err) &&
                    err.code == ACCEL_EMISMATCH &&
                    strstr(err.text, "rank 1 differs: ") &&
                    strstr(err.text, "rank 1: accel_gather of float32 [2, 5]"),
                "shapes: %s", err.text);
    ranks_check(run,
                !accel_reduce(run, counting(run, odd ? ACCEL_F32 : ACCEL_F64, 1, 5), 0,
                              1, &err) &&
                    err.code == ACCEL_EMISMATCH && strstr(err.text, "rank 1: "),
                "dtypes: %s", err.text);
    ranks_check(run,
                !accel_reduce(run, counting(run, ACCEL_F32, 1, 5), odd, 1, &err) &&
                    err.code == ACCEL_EMISMATCH,
                "reductions: %s", err.text);
    x = counting(run, ACCEL_F32, 1, 5);
    ranks_check(run,
                (odd                                 ? accel_barrier(run, &err)
                 : !accel_broadcast(run, x, 0, &err) ? err.code
                                                     : ACCEL_OK) == ACCEL_EMISMATCH &&
                    strstr(err.text, "rank 1: accel_barrier"),
                "calls: %s", err.text);
    ranks_check(run, !accel_broadcast(run, x, odd, &err) && err.code == ACCEL_EMISMATCH,
                "roots: %s", err.text);
    /* A mistake of one rank ends the call on all, with its text. */
    ranks_check(run,
                !accel_gather(run, odd ? NULL : x, &err) && err.message == 611 &&
                    !strcmp(err.text,
                            odd ? "the tensor is NULL" : "rank 1: the tensor is NULL"),
                "a NULL of one rank: %s", err.text);
    x = accel_gather(run, x, &err);
    ranks_check(run, x && x->dim[0] == run->boot.size, "the run goes on: %s", err.text);
    ranks_check(run,
                !accel_trigger_check(run, &set, &err) && !set &&
                    !accel_barrier(run, &err) && run->status == ACCEL_OK,
                "and on: %s", err.text);
}

/* Without it the transport tells them apart, and the run has failed. */
static void plain_rank(accel_t *run, void *arg)
{
    accel_error_t err = { 0 };

    (void)arg;
    ranks_check(run,
                !accel_gather(run,
                              counting(run, ACCEL_F32, 1 + (run->boot.rank == 1), 5),
                              &err) &&
                    (err.code == ACCEL_EMISMATCH || err.code == ACCEL_EPEER) &&
                    strstr(err.text, "rank "),
                "shapes: %s", err.text);
    ranks_check(run, run->status == err.code, "the run has failed");
}

/* ---- signs and order ------------------------------------------------------------- */

static void signs_rank(accel_t *run, void *arg)
{
    accel_error_t err = { 0 };
    int set = 7;

    (void)arg;
    for (int who = 0; who < run->boot.size; who++) {
        ranks_check(run, !accel_trigger_check(run, &set, &err) && set == 0, "none: %s",
                    err.text);
        if (who == run->boot.rank)
            accel_trigger_set(run);
        ranks_check(run, !accel_trigger_check(run, &set, &err) && set == 1,
                    "rank %d: %s", who, err.text);
    }
    accel_trigger_set(run);
    ranks_check(run,
                !accel_trigger_check(run, NULL, &err) &&
                    !accel_trigger_check(run, &set, &err) && set == 0,
                "of all ranks, and taken back");
    ranks_check(run,
                accel_is_last(run) == (run->boot.rank == run->boot.size - 1) &&
                    accel_is_local_main(run) == (run->boot.local_rank == 0),
                "who is who");
}

struct order {
    _Atomic int first_done;
    _Atomic int bad;
};

static void first_rank(accel_t *run, void *arg)
{
    struct order *o = arg;
    accel_error_t err = { 0 };
    accel_status_t st;

    st = accel_first_begin(run, accel_is_last(run), &err);
    ranks_check(run, st == ACCEL_OK, "begin: %s", err.text);
    ranks_check(run, accel_first_begin(run, 1, &err) == ACCEL_EINVAL, "not twice");
    if (accel_is_last(run))
        o->first_done = 1;
    else if (!o->first_done)
        o->bad = 1;
    ranks_check(run, !accel_first_end(run, st, &err), "end: %s", err.text);
    ranks_check(run, accel_first_end(run, ACCEL_OK, &err) == ACCEL_EINVAL,
                "no end without a beginning");
    ranks_check(run, accel_first_end(run, ACCEL_EIO, &err) == ACCEL_EIO,
                "an earlier error stays");
}

/* Two nodes, over the network: the first rank of each goes first, the rest of both
 * waits; one of them fails, and all learn why. */
static int nodes_rank(struct boot *b, void *arg)
{
    struct order *o = arg;
    accel_t *run = ranks_open(b, false);
    bool first = b->local_rank == 0;
    accel_error_t err = { 0 };
    accel_status_t st;

    if (!run)
        return 1;
    ranks_check(run, accel_is_local_main(run) == first, "who is who");
    st = accel_first_begin(run, accel_is_local_main(run), &err);
    if (first)
        o->first_done++;
    else if (o->first_done != 2)
        o->bad = 1;
    ranks_check(run, !accel_first_end(run, st, &err), "both are first: %s", err.text);
    st = accel_first_begin(run, first, &err);
    if (st == ACCEL_OK && b->rank == 2)
        st = accel_error_set(&err, ACCEL_EIO, "no space on node 1", NULL);
    st = accel_first_end(run, st, &err);
    ranks_check(run, st == ACCEL_EIO && strstr(err.text, "no space on node 1"),
                "a node fails: %s", err.text);
    for (int rule = 0; rule < 6; rule++)
        gather_bytes_of(run, rule);
    bytes_of_ranks(run);
    return ranks_close(run);
}

int main(void)
{
    struct order *order = fork_shared(sizeof(*order));

    for (int n = 1; n <= 4; n++)
        for (int d = 0; d < 2; d++) {
            tap_is_int(ranks_world(n, d, values_rank, NULL), 0,
                       "every call and dtype, %d ranks, debug %d", n, d);
            tap_is_int(ranks_world(n, d, others_rank, NULL), 0,
                       "numbers, bytes and misuse, %d ranks, debug %d", n, d);
            tap_is_int(ranks_world(n, d, signs_rank, NULL), 0,
                       "signs, %d ranks, debug %d", n, d);
        }
    for (int n = 2; n <= 4; n++) {
        tap_is_int(ranks_world(n, true, debug_rank, NULL), 0, "debug on %d ranks", n);
        tap_is_int(ranks_world(n, false, plain_rank, NULL), 0, "without, on %d ranks",
                   n);
        order->first_done = 0;
        tap_is_int(ranks_world(n, false, first_rank, order), 0, "the last of %d first",
                   n);
    }
#ifdef HAVE_UCX
    order->first_done = 0;
    tap_is_int(fork_world_nodes(4, 2, nodes_rank, order, HANG_S, NULL), 0,
               "the first ranks of 2 nodes");
#else
    tap_skip(1, "built without UCX");
#endif
    tap_is_int(order->bad, 0, "and the others behind them");
    return tap_done();
}
