/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreements of the ranks without values: that all have arrived, who goes first, a
 * trigger of any rank, an error of any rank. Also what only some ranks do or print.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"

int accel_is_local_main(const accel_t *run)
{
    return accel_local_rank(run) == 0;
}

int accel_is_last(const accel_t *run)
{
    return accel_rank(run) == accel_world_size(run) - 1;
}

/* A logger gets lines. An empty text is an empty line; the newline at the end of a text
 * is none. */
void accel_print(accel_t *run, const char *format, ...)
{
    char *text = NULL, *line;
    va_list ap;
    int length;

    if (!run || !format || run->boot.rank != 0)
        return;
    va_start(ap, format);
    length = vasprintf(&text, format, ap);
    va_end(ap);
    if (length < 0)
        return;
    if (length > 0 && text[length - 1] == '\n')
        text[length - 1] = '\0';
    for (line = text; line;) {
        char *end = strchr(line, '\n');

        if (end)
            *end++ = '\0';
        accel_logf(&run->log, ACCEL_LOG_INFO, "%s", line);
        line = end;
    }
    free(text);
}

/* For calls without values, which have nothing to compare but themselves. */
static accel_status_t meet_call(accel_t *run, enum ranks_call call, accel_error_t *err)
{
    struct ranks_record mine = { .call = call };

    return ranks_meets(run, false)
               ? ranks_meet(run, &mine, SAME_CALL, ACCEL_OK, NULL, err)
               : ACCEL_OK;
}

/* The device's own work first; the ranks then meet in host memory, where a different
 * call of another rank is found. */
accel_status_t accel_barrier(accel_t *run, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, ranks_ready(run, "accel_barrier", err));
    st = meet_call(run, RANKS_BARRIER, &e);
    if (st != ACCEL_OK)
        return ranks_end(run, st, &e, err);
    st = run->backend->sync(run->backend, &e);
    ACCEL_TRY(st, comm_barrier(run->comm, &e));
    return run_report(run, st, &e, err);
}

/* ---- agreement ------------------------------------------------------------------- */

/* One maximum, which is 0 as a rule; only then an error travels. The lowest rank that
 * failed has the largest number. */
static accel_status_t agree(accel_t *run, accel_status_t st, accel_error_t *own)
{
    int64_t size = run->boot.size, worst = st == ACCEL_OK ? 0 : size - run->boot.rank;
    accel_error_t e = { 0 };
    accel_status_t sent =
        comm_all_reduce(run->comm, &worst, 1, ACCEL_I64, COMM_MAX, &e);

    if (sent != ACCEL_OK) {
        run_report(run, sent, &e, NULL);
        /* the own failure is the better text */
        if (st == ACCEL_OK)
            *own = e;
        return st == ACCEL_OK ? sent : st;
    }
    if (worst == 0)
        return ACCEL_OK;
    own->code = st;
    return ranks_share(run, (int)(size - worst), own);
}

/* A run that has failed may still tell the others why.
 *
 * Without `err` the caller's text is lost, but not its status. */
static accel_status_t agree_with(accel_t *run, accel_status_t st, accel_error_t *err)
{
    accel_error_t own = { 0 };

    if (st != ACCEL_OK && err)
        own = *err;
    st = agree(run, st, &own);
    if (st != ACCEL_OK && err)
        *err = own;
    return st;
}

accel_status_t accel_agree(accel_t *run, accel_status_t st, accel_error_t *err)
{
    accel_status_t ready = run_outside(run, "accel_agree", err);

    return ready == ACCEL_OK ? agree_with(run, st, err) : ready;
}

/* Not run_outside: where the program is called back, nothing else can end the call. */
accel_status_t accel_give_up(accel_t *run, accel_status_t st, accel_error_t *err)
{
    accel_error_t own = { 0 };
    accel_status_t given = run_given(run, "accel_give_up", err);

    if (given != ACCEL_OK)
        return given;
    if (st == ACCEL_OK)
        return accel_fail(err, A0901, "pass the status of what failed",
                          "accel_give_up: the status is ACCEL_OK");
    if (err)
        own = *err;
    own.code = st;
    if (!own.text[0])
        snprintf(own.text, sizeof(own.text), "failed without a message");
    return run_report(run, st, &own, err);
}

/* ---- some ranks first ------------------------------------------------------------ */

/* The others wait in the agreement that the first ones make at their end. */
accel_status_t accel_first_begin(accel_t *run, int first, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, run_outside(run, "accel_first_begin", err));
    if (run->ranks.in_first)
        return accel_fail(err, A0901, "call accel_first_end before",
                          "accel_first_begin inside of another one");
    run->ranks.in_first = true;
    run->ranks.goes_first = first != 0;
    /* the failure of a run that goes first is told by its end */
    if (run->status != ACCEL_OK && err)
        *err = run->failure;
    return first ? run->status : agree_with(run, run->status, err);
}

/* After a begin that was refused, that error is the caller's. */
accel_status_t accel_first_end(accel_t *run, accel_status_t st, accel_error_t *err)
{
    accel_status_t ready = st != ACCEL_OK && run && !run->ranks.in_first
                               ? st
                               : run_outside(run, "accel_first_end", err);

    if (ready != ACCEL_OK)
        return ready;
    if (!run->ranks.in_first)
        return accel_fail(err, A0901, "call accel_first_begin before",
                          "accel_first_end without accel_first_begin");
    run->ranks.in_first = false;
    return run->ranks.goes_first ? agree_with(run, st, err) : st;
}

/* ---- signs ----------------------------------------------------------------------- */

void accel_trigger_set(accel_t *run)
{
    if (run)
        run->ranks.trigger = true;
}

/* A sign stays raised on this rank when the check fails. */
accel_status_t accel_trigger_check(accel_t *run, int *set_out, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;
    int64_t any;

    ACCEL_CHECK(st, ranks_ready(run, "accel_trigger_check", err));
    st = meet_call(run, RANKS_TRIGGER, &e);
    if (st != ACCEL_OK)
        return ranks_end(run, st, &e, err);
    any = run->ranks.trigger;
    st = comm_all_reduce(run->comm, &any, 1, ACCEL_I64, COMM_MAX, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    run->ranks.trigger = false;
    if (set_out)
        *set_out = any != 0;
    return ACCEL_OK;
}
