/* SPDX-License-Identifier: Apache-2.0
 *
 * The error texts of collectives: which call, its number, who is to blame.
 * In: the running call of a communicator. Out: an accel_error_t. Never waits.
 */
#include <inttypes.h>
#include <stdio.h>

#include "comm/comm_impl.h"

/* Longer gaps than this between two questions in a wait mean that the process was
 * stopped. Waits ask at least every 50 ms (shm_wait.c). */
#define STOPPED_NS 2000000000

static const char *const call_names[COMM_CALL_COUNT] = {
    [0] = "nothing",
    [COMM_CALL_ALLOC] = "alloc",
    [COMM_CALL_ALL_GATHER] = "all_gather",
    [COMM_CALL_REDUCE_SCATTER] = "reduce_scatter",
    [COMM_CALL_ALL_REDUCE] = "all_reduce",
    [COMM_CALL_BROADCAST] = "broadcast",
    [COMM_CALL_BARRIER] = "barrier",
    [COMM_CALL_GATHER] = "gather",
    [COMM_CALL_OPEN] = "open",
    [COMM_CALL_SPLIT] = "split",
};

const char *comm_call_name(enum comm_call call)
{
    return call_names[call];
}

/* by enum comm_op */
static const char *const op_names[] = { "sum", "max", "min" };

uint32_t comm_args_pack(const struct comm_args *a)
{
    return (uint32_t)a->call | (uint32_t)a->dtype << 8 | (uint32_t)a->op << 12;
}

/* The fields come from a peer that may run anything: readers check their range. */
void comm_args_unpack(struct comm_args *a, uint32_t packed)
{
    a->call = packed & 0xff;
    a->dtype = packed >> 8 & 0xf;
    a->op = packed >> 12 & 0xf;
}

/* One call in words, with only those arguments that the call has. `a` may be a peer's,
 * and then out of range. */
static void comm_describe_call(const struct comm_args *a, char *buf, size_t len)
{
    const char *name =
        a->call < COMM_CALL_COUNT ? call_names[a->call] : "something else";
    const char *dtype = accel_dtype_name(a->dtype);

    switch (a->call) {
    case COMM_CALL_BARRIER:
    case COMM_CALL_GATHER:
        snprintf(buf, len, "%s", name);
        break;
    case COMM_CALL_ALLOC:
        snprintf(buf, len, "%s of %" PRIu64 " bytes", name, a->elems);
        break;
    case COMM_CALL_BROADCAST:
        snprintf(buf, len, "%s of %" PRIu64 " bytes from rank %d", name, a->elems,
                 a->root);
        break;
    case COMM_CALL_ALL_REDUCE:
        snprintf(buf, len, "%s (%s) of %" PRIu64 " %s", name,
                 a->op <= COMM_MIN ? op_names[a->op] : "?", a->elems, dtype);
        break;
    default:
        snprintf(buf, len, "%s of %" PRIu64 " %s", name, a->elems, dtype);
    }
}

bool comm_expired(struct comm *c)
{
    int64_t now = clock_ns(), gap = now - c->asked_ns;

    if (c->deadline_ns == 0)
        c->deadline_ns = now + c->timeout_ns;
    else if (gap > STOPPED_NS)
        /* A waiting rank asks many times a second. After such a gap it was
         * stopped itself (the job was suspended), and so were its peers: the time
         * does not count. */
        c->deadline_ns += gap;
    c->asked_ns = now;
    return now >= c->deadline_ns;
}

void comm_set_deadline(struct comm *c, int64_t deadline_ns)
{
    c->deadline_ns = deadline_ns;
    c->asked_ns = clock_ns();
}

/* Names at most 32 ranks: the text has a fixed size, and more help nobody. */
accel_status_t comm_fail_silent(struct comm *c, const bool *silent, accel_error_t *err)
{
    struct strbuf list = { 0 };
    double seconds = (double)c->timeout_ns / 1e9;
    int count = 0;
    accel_status_t st;

    for (int r = 0; r < c->size; r++) {
        if (!silent[r])
            continue;
        if (count < 32)
            strbuf_printf(&list, "%s%d", count ? ", " : "", r);
        count++;
    }
    if (count > 32)
        strbuf_printf(&list, " and %d more", count - 32);
    st = accel_fail(err, A0501,
                    "check whether these ranks are still computing, stuck in I/O or in "
                    "another branch of the program",
                    "%s #%" PRIu64 ": rank%s %s did not arrive within %g s",
                    call_names[c->args.call], c->seq, count == 1 ? "" : "s",
                    list.s ? list.s : "?", seconds);
    strbuf_free(&list);
    return st;
}

accel_status_t comm_fail_peer(struct comm *c, int peer, const char *what,
                              accel_error_t *err)
{
    return accel_fail(err, A0502, "see the output of that rank for the reason",
                      "%s #%" PRIu64 ": rank %d %s", call_names[c->args.call], c->seq,
                      peer, what);
}

accel_status_t comm_fail_differs(struct comm *c, int peer,
                                 const struct comm_args *theirs, accel_error_t *err)
{
    char own[128], other[128];

    comm_describe_call(&c->args, own, sizeof(own));
    comm_describe_call(theirs, other, sizeof(other));
    return accel_fail(err, A0503,
                      "every rank must make the same calls in the same order",
                      "collective #%" PRIu64 ": rank %d called %s, rank %d %s", c->seq,
                      peer, other, c->rank, own);
}
