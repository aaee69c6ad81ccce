/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_broadcast of values; and bytes of any length, gathered on all ranks or
 * broadcast from one.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"

static accel_status_t check_from(const accel_t *run, int from, accel_error_t *err)
{
    if (from >= 0 && from < run->boot.size)
        return ACCEL_OK;
    return accel_fail(err, A0941, "pass a rank of the run",
                      "rank %d is not one of %d ranks", from, run->boot.size);
}

/* ---- values ---------------------------------------------------------------------- */

/* Both forms: the checks, then the comparison of the ranks. */
static accel_status_t broadcast_begin(accel_t *run, const struct piece *p, int from,
                                      accel_status_t st, accel_error_t *err)
{
    struct ranks_record mine = ranks_record(RANKS_BROADCAST, p, NULL);

    mine.option = from;
    ACCEL_TRY(st, check_from(run, from, err));
    if (ranks_meets(run, piece_on_device(p)))
        return ranks_meet(run, &mine, SAME_SHAPE, st, NULL, err);
    return st;
}

/* A failure is the run's: bytes may be under way. */
static accel_status_t broadcast_piece(accel_t *run, const struct piece *p, int from,
                                      accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st = comm_broadcast(p->comm, p->data, piece_bytes(p), from, &e);

    return run_report(run, st, &e, err);
}

accel_tensor_t *accel_broadcast(accel_t *run, const accel_tensor_t *t, int from,
                                accel_error_t *err)
{
    struct ranks_result to = { 0 };
    accel_error_t e = { 0 };
    struct piece p, out;
    accel_status_t st = ranks_ready(run, "accel_broadcast", err);

    if (st != ACCEL_OK)
        return NULL;
    st = piece_of_tensor(run, "accel_broadcast", t, &p, &e);
    st = broadcast_begin(run, &p, from, st, &e);
    ACCEL_TRY(st, result_make(run, &p, &to, p.ndim, p.dims, &out, &e));
    if (st == ACCEL_OK) {
        piece_copy(&p, out.data, p.data, piece_bytes(&p));
        st = broadcast_piece(run, &out, from, &e);
    }
    return ranks_end(run, st, &e, err) == ACCEL_OK ? to.tensor : NULL;
}

accel_status_t accel_broadcast_array(accel_t *run, accel_array_t *values, int from,
                                     accel_error_t *err)
{
    accel_error_t e = { 0 };
    struct piece p;
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, "accel_broadcast_array", err));
    st = piece_of_array(run, values, &p, &e);
    st = broadcast_begin(run, &p, from, st, &e);
    ACCEL_TRY(st, broadcast_piece(run, &p, from, &e));
    return ranks_end(run, st, &e, err);
}

/* ---- bytes ----------------------------------------------------------------------- */

/* Bytes have no shape to compare, but they are a call. */
static accel_status_t bytes_begin(accel_t *run, enum ranks_call call, int from,
                                  accel_status_t st, accel_error_t *err)
{
    struct ranks_record mine = { .call = call, .dtype = ACCEL_U8, .option = from };

    if (ranks_meets(run, false))
        return ranks_meet(run, &mine, SAME_CALL, st, NULL, err);
    return st;
}

/* One gather, which says how long each piece is; then lengths and bytes in one
 * broadcast each. */
static accel_status_t gather_all_bytes(accel_t *run, const void *mine, size_t bytes,
                                       void **all_out, size_t *sizes_out,
                                       accel_error_t *err)
{
    size_t total = 0, ranks = (size_t)run->boot.size;
    accel_error_t e = { 0 };
    void *all = NULL;
    accel_status_t st;

    st = comm_gather(run->comm, mine, bytes, 0, &all, sizes_out, &e);
    ACCEL_TRY(st,
              comm_broadcast(run->comm, sizes_out, ranks * sizeof(*sizes_out), 0, &e));
    for (size_t r = 0; st == ACCEL_OK && r < ranks; r++)
        total += sizes_out[r];
    if (st == ACCEL_OK && run->boot.rank != 0) {
        all = malloc(total + 1);
        if (!all)
            st = accel_fail_nomem(&e, "the bytes of all ranks", total);
    }
    if (st == ACCEL_OK && total > 0)
        st = comm_broadcast(run->comm, all, total, 0, &e);
    if (st != ACCEL_OK) {
        free(all);
        return run_report(run, st, &e, err);
    }
    *all_out = all;
    return ACCEL_OK;
}

accel_status_t accel_gather_bytes(accel_t *run, const void *mine, size_t bytes,
                                  void **all_out, size_t *sizes_out, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, "accel_gather_bytes", err));
    if (!all_out || !sizes_out || (bytes > 0 && !mine))
        st = accel_fail(&e, A0941, "pass bytes, and where the results go",
                        "accel_gather_bytes: %s is NULL",
                        !all_out     ? "all_out"
                        : !sizes_out ? "sizes_out"
                                     : "mine");
    st = bytes_begin(run, RANKS_GATHER_BYTES, 0, st, &e);
    ACCEL_TRY(st, gather_all_bytes(run, mine, bytes, all_out, sizes_out, &e));
    return ranks_end(run, st, &e, err);
}

/* The length first: only the sender knows it. Negative: it has no bytes, which must not
 * leave the others waiting for them. */
static accel_status_t broadcast_all_bytes(accel_t *run, const void *data, int64_t bytes,
                                          int from, void **copy_out, size_t *bytes_out,
                                          accel_error_t *err)
{
    accel_error_t e = { 0 };
    void *copy = NULL;
    accel_status_t st;

    if (run->boot.rank == from && bytes > 0 && !data)
        bytes = -1;
    st = comm_broadcast(run->comm, &bytes, sizeof(bytes), from, &e);
    if (st == ACCEL_OK && bytes < 0)
        return accel_fail(err, A0941, "pass the bytes to send",
                          "accel_broadcast_bytes: data of rank %d is NULL", from);
    if (st == ACCEL_OK) {
        copy = malloc((size_t)bytes + 1);
        if (!copy)
            st = accel_fail_nomem(&e, "the bytes of a rank", (size_t)bytes);
    }
    if (st == ACCEL_OK && run->boot.rank == from && bytes > 0)
        memcpy(copy, data, (size_t)bytes);
    if (st == ACCEL_OK && bytes > 0)
        st = comm_broadcast(run->comm, copy, (size_t)bytes, from, &e);
    if (st != ACCEL_OK) {
        free(copy);
        return run_report(run, st, &e, err);
    }
    *copy_out = copy;
    *bytes_out = (size_t)bytes;
    return ACCEL_OK;
}

accel_status_t accel_broadcast_bytes(accel_t *run, const void *data, size_t bytes,
                                     int from, void **copy_out, size_t *bytes_out,
                                     accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, "accel_broadcast_bytes", err));
    st = check_from(run, from, &e);
    if (st == ACCEL_OK && (!copy_out || !bytes_out))
        st = accel_fail(&e, A0941, "pass where the result goes",
                        "accel_broadcast_bytes: %s is NULL",
                        copy_out ? "bytes_out" : "copy_out");
    st = bytes_begin(run, RANKS_BROADCAST_BYTES, from, st, &e);
    ACCEL_TRY(st, broadcast_all_bytes(run, data, (int64_t)bytes, from, copy_out,
                                      bytes_out, &e));
    return ranks_end(run, st, &e, err);
}
