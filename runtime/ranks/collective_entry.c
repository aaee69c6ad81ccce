/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks before a collective: may the program call it now, and do all ranks make
 * the same call? An error of one rank reaches the others with its text. Moves no
 * values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"

/* Unlike run_ready also between accel_open and accel_prepare. */
accel_status_t ranks_ready(accel_t *run, const char *call, accel_error_t *err)
{
    if (run_outside(run, call, err) != ACCEL_OK)
        return ACCEL_EINVAL;
    return run_failed(run, err);
}

/* Lack of memory ends the run: the others wait in a collective that this rank does not
 * come to. */
accel_status_t ranks_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                         accel_error_t *err)
{
    if (st == ACCEL_ENOMEM)
        return run_report(run, st, e, err);
    if (st != ACCEL_OK && err)
        *err = *e;
    return st;
}

/* The text says whose it is, but for the rank that has it already. */
static void put_rank(accel_error_t *e, int from)
{
    char text[sizeof(e->text)];

    error_end_texts(e);
    /* A text of full length is cut at its end. */
    snprintf(text, sizeof(text), "rank %d: %.700s", from,
             e->text[0] ? e->text : "failed without a message");
    memcpy(e->text, text, sizeof(text));
}

accel_status_t ranks_share(accel_t *run, int from, accel_error_t *err)
{
    accel_error_t told, e = { 0 };
    accel_status_t st;

    /* every byte travels */
    memset(&told, 0, sizeof(told));
    if (run->boot.rank == from)
        told = *err;
    st = comm_broadcast(run->comm, &told, sizeof(told), from, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    if (run->boot.rank != from) {
        put_rank(&told, from);
        *err = told;
    }
    return told.code;
}

/* NCCL finds different calls only at its next barrier, and may wait for ever before;
 * comm/ finds them by itself in host memory. */
bool ranks_meets(const accel_t *run, bool device)
{
    return run->boot.size > 1 && (run->config.debug || device);
}

accel_status_t ranks_meet(accel_t *run, struct ranks_record *mine, enum ranks_same same,
                          accel_status_t st, struct ranks_record **all_out,
                          accel_error_t *err)
{
    int ranks = run->boot.size, failed = 0;
    struct ranks_record *all = calloc((size_t)ranks, sizeof(*all));
    accel_error_t e = { 0 };

    if (!all)
        return accel_fail_nomem(err, "the calls of all ranks", sizeof(*all));
    mine->status = st;
    all[run->boot.rank] = *mine;
    st = comm_all_gather(run->comm, all, sizeof(*all), ACCEL_U8, &e);
    if (st != ACCEL_OK) {
        free(all);
        return run_report(run, st, &e, err);
    }
    while (failed < ranks && !all[failed].status)
        failed++;
    if (failed < ranks)
        st = ranks_share(run, failed, err);
    else
        st = ranks_compare(all, ranks, same, err);
    if (st == ACCEL_OK && all_out)
        *all_out = all;
    else
        free(all);
    return st;
}
