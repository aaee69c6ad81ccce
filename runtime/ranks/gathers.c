/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_gather and accel_gather_for_metrics. In: this rank's rows. Out: the rows of all
 * ranks, in rank order; for metrics only the rows of real samples, each once.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"

/* What both calls are given, in one place. */
struct gather {
    enum ranks_call call;
    struct piece mine;
    /* NULL: all rows count */
    const accel_batch_end_t *end;
    struct ranks_result to;
};

/* One row: everything behind the first dimension. */
static int64_t row_elems(const struct piece *p)
{
    int64_t n = 1;

    for (int d = 1; d < p->ndim; d++)
        n *= p->dims[d];
    return n;
}

/* What is wrong with the caller's buffer or the count, on this rank alone. */
static accel_status_t check_own(const accel_t *run, const struct gather *g,
                                accel_error_t *err)
{
    const struct piece *p = &g->mine;
    int64_t all;

    if (g->end && p->ndim == 0)
        return accel_fail_at(err, A0942, ranks_call_name(g->call),
                             "gather numbers of a rank with accel_gather_array",
                             "a single number is not one value per sample");
    if (g->end && g->end->counted) {
        if (g->end->count >= 0 && g->end->count <= p->dims[0])
            return ACCEL_OK;
        return accel_fail_at(err, A0942, ranks_call_name(g->call),
                             "gather one row per sample",
                             "%lld samples of the batch count, but it has %lld rows",
                             (long long)g->end->count, (long long)p->dims[0]);
    }
    if (__builtin_mul_overflow(p->elems, run->boot.size, &all) ||
        (g->to.array && all > g->to.array->elems))
        return accel_fail(err, A0941, "pass room for the values of all ranks",
                          "%d ranks have %lld elements each, but the array has room "
                          "for %lld",
                          run->boot.size, (long long)p->elems,
                          g->to.array ? (long long)g->to.array->elems : 0);
    return ACCEL_OK;
}

/* Every rank's piece is equally long: one collective, in place in the result. */
static accel_status_t gather_even(accel_t *run, struct gather *g, accel_error_t *err)
{
    const struct piece *p = &g->mine;
    int ndim = p->ndim ? p->ndim : 1;
    int64_t dims[TENSOR_MAX_DIMS] = { 1 }, rows;
    size_t bytes = piece_bytes(p);
    accel_error_t e = { 0 };
    struct piece all;
    accel_status_t st;

    memcpy(dims, p->dims, (size_t)p->ndim * sizeof(*dims));
    dims[0] *= run->boot.size;
    st = metrics_rows(g->end, dims[0], &rows, err);
    ACCEL_TRY(st, result_make(run, p, &g->to, ndim, dims, &all, err));
    if (st != ACCEL_OK)
        return st;
    piece_copy(p, (char *)all.data + bytes * (size_t)run->boot.rank, p->data, bytes);
    st = comm_all_gather(p->comm, all.data, (size_t)p->elems, p->dtype, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    /* Samples that only fill up the batch stand at the end. */
    if (rows < dims[0]) {
        all.dims[0] = rows;
        all.elems = rows * row_elems(p);
        if (g->to.tensor)
            g->to.tensor = graph_view(&run->graph, g->to.tensor, all.ndim, all.dims);
    }
    result_done(&g->to, &all);
    return ACCEL_OK;
}

/* The ranks' buffers are compared where all know the size of the result: one that is
 * too small must not leave the others waiting. */
static accel_status_t check_rooms(const struct ranks_record *all, int ranks,
                                  int64_t elems, accel_error_t *err)
{
    for (int r = 0; r < ranks; r++)
        if (all[r].room >= 0 && all[r].room < elems)
            return accel_fail(err, A0941, "pass room for the values of all ranks",
                              "the result has %lld elements, but the array of rank %d "
                              "has room for %lld",
                              (long long)elems, r, (long long)all[r].room);
    return ACCEL_OK;
}

/* Sends the rows that count as slots of `most` rows and closes the gaps. */
static accel_status_t gather_slots(accel_t *run, const struct gather *g,
                                   const struct ranks_record *all, int64_t most,
                                   const struct piece *out, accel_error_t *err)
{
    const struct piece *p = &g->mine;
    size_t row = (size_t)row_elems(p) * accel_dtype_bytes(p->dtype);
    size_t slot = (size_t)most * row;
    int rank = run->boot.rank, ranks = run->boot.size;
    accel_error_t e = { 0 };
    char *slots, *to = out->data;
    void *memory;
    accel_status_t st;

    ACCEL_CHECK(st, piece_scratch(run, p, slot * (size_t)ranks, &memory, err));
    slots = memory;
    piece_copy(p, slots + slot * (size_t)rank, p->data, row * (size_t)all[rank].count);
    st = comm_all_gather(p->comm, slots, (size_t)(most * row_elems(p)), p->dtype, &e);
    for (int r = 0; st == ACCEL_OK && r < ranks; r++) {
        size_t bytes = row * (size_t)all[r].count;

        piece_copy(p, to, slots + slot * (size_t)r, bytes);
        to += bytes;
    }
    piece_drop(run, p, memory);
    return run_report(run, st, &e, err);
}

/* Every rank says how many rows count, whatever kind of loader it has. */
static accel_status_t gather_counted(accel_t *run, struct gather *g, accel_status_t st,
                                     accel_error_t *err)
{
    struct ranks_record mine = ranks_record(g->call, &g->mine, g->to.array);
    struct ranks_record *all = NULL;
    int64_t total = 0, most = 0, dims[TENSOR_MAX_DIMS];
    struct piece out;

    mine.count = g->end->count;
    ACCEL_CHECK(st, ranks_meet(run, &mine, SAME_BUT_ROWS, st, &all, err));
    for (int r = 0; r < run->boot.size; r++) {
        total += all[r].count;
        most = all[r].count > most ? all[r].count : most;
    }
    memcpy(dims, g->mine.dims, sizeof(dims));
    dims[0] = total;
    st = check_rooms(all, run->boot.size, total * row_elems(&g->mine), err);
    ACCEL_TRY(st, result_make(run, &g->mine, &g->to, g->mine.ndim, dims, &out, err));
    if (st == ACCEL_OK && most > 0)
        st = gather_slots(run, g, all, most, &out, err);
    if (st == ACCEL_OK)
        result_done(&g->to, &out);
    free(all);
    return st;
}

/* `st` and *err: what the checks of the arguments gave. */
static accel_status_t gather_rows(accel_t *run, struct gather *g, accel_status_t st,
                                  accel_error_t *err)
{
    struct ranks_record mine;

    ACCEL_TRY(st, check_own(run, g, err));
    if (g->end && g->end->counted)
        return gather_counted(run, g, st, err);
    mine = ranks_record(g->call, &g->mine, g->to.array);
    if (ranks_meets(run, piece_on_device(&g->mine)))
        st = ranks_meet(run, &mine, SAME_SHAPE, st, NULL, err);
    return st == ACCEL_OK ? gather_even(run, g, err) : st;
}

/* Both forms for tensors. */
static accel_tensor_t *gather_tensor(accel_t *run, enum ranks_call call,
                                     const accel_tensor_t *t,
                                     const accel_batch_end_t *end, accel_error_t *err)
{
    struct gather g = { .call = call, .end = end };
    accel_error_t e = { 0 };
    accel_status_t st = ranks_ready(run, ranks_call_name(call), err);

    if (st != ACCEL_OK)
        return NULL;
    st = piece_of_tensor(run, ranks_call_name(call), t, &g.mine, &e);
    st = gather_rows(run, &g, st, &e);
    return ranks_end(run, st, &e, err) == ACCEL_OK ? g.to.tensor : NULL;
}

/* Both forms for arrays. */
static accel_status_t gather_array(accel_t *run, enum ranks_call call,
                                   const accel_array_t *mine,
                                   const accel_batch_end_t *end, accel_array_t *all,
                                   accel_error_t *err)
{
    struct gather g = { .call = call, .end = end, .to.array = all };
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, ranks_call_name(call), err));
    st = piece_of_array(run, mine, &g.mine, &e);
    ACCEL_TRY(st, ranks_room(all, &e));
    st = gather_rows(run, &g, st, &e);
    return ranks_end(run, st, &e, err);
}

accel_tensor_t *accel_gather(accel_t *run, const accel_tensor_t *t, accel_error_t *err)
{
    return gather_tensor(run, RANKS_GATHER, t, NULL, err);
}

accel_status_t accel_gather_array(accel_t *run, const accel_array_t *mine,
                                  accel_array_t *all, accel_error_t *err)
{
    return gather_array(run, RANKS_GATHER, mine, NULL, all, err);
}

accel_tensor_t *accel_gather_for_metrics(accel_t *run, const accel_tensor_t *t,
                                         const accel_batch_end_t *end,
                                         accel_error_t *err)
{
    static const accel_batch_end_t every = { 0 };

    return gather_tensor(run, RANKS_METRICS, t, end ? end : &every, err);
}

accel_status_t accel_gather_for_metrics_array(accel_t *run, const accel_array_t *mine,
                                              const accel_batch_end_t *end,
                                              accel_array_t *all, accel_error_t *err)
{
    static const accel_batch_end_t every = { 0 };

    return gather_array(run, RANKS_METRICS, mine, end ? end : &every, all, err);
}
