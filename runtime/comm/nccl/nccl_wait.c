/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's errors and the clock. In: what NCCL says of a communicator and how far the
 * device has come. Out: nothing, or which call failed and why; the communicator is then
 * aborted, which ends all that waits in it on the device. Never waits past a deadline.
 */
#include <inttypes.h>
#include <sched.h>
#include <time.h>

#include "comm/nccl/nccl.h"

/* A wait yields for this long, then it sleeps for SLEEP_NS at a time. */
#define YIELD_NS 1000000
#define SLEEP_NS 200000
/* The deadline of closing in good order. */
#define LEAVE_NS 5000000000
/* Call numbers that a float32 holds exactly. */
#define NUMBER_MASK 0xffffffu

/* ---- texts ----------------------------------------------------------------------- */

/* The error for result `rc` of a call. A remote error is another rank's end and not a
 * failure of NCCL's: it has its own message. `what`: NCCL's function. */
static accel_status_t failed(struct comm *c, uint64_t seq, enum comm_call call, int rc,
                             const char *what, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    const char *more = n->api.last_error(n->comm);
    bool has_more = more && more[0];

    if (rc == NCCL_REMOTE_ERROR)
        return accel_fail(err, A0502,
                          "see the output of the other ranks for the reason",
                          "%s #%" PRIu64 ": another rank has ended (NCCL: %s)",
                          comm_call_name(call), seq, n->api.error_string(rc));
    return accel_fail(err, A0515, "set NCCL_DEBUG=WARN to see more on standard output",
                      "%s #%" PRIu64 ": %s: %s%s%s", comm_call_name(call), seq, what,
                      n->api.error_string(rc), has_more ? ": " : "",
                      has_more ? more : "");
}

/* The error for a call past its deadline. NCCL does not say which ranks are missing. */
static accel_status_t late(struct comm *c, uint64_t seq, enum comm_call call,
                           const char *where, accel_error_t *err)
{
    return accel_fail(
        err, A0501,
        "check whether the other ranks are still computing, stuck in I/O or in another "
        "branch of the program",
        "%s #%" PRIu64 ": not %s within %g s: some of %d ranks did not arrive",
        comm_call_name(call), seq, where, (double)c->timeout_ns / 1e9, c->size);
}

/* ---- calls ----------------------------------------------------------------------- */

/* Yields or sleeps once in a wait that began at `since`. */
static void give_way(int64_t since)
{
    const struct timespec tick = { 0, SLEEP_NS };

    if (clock_ns() - since < YIELD_NS)
        sched_yield();
    else
        nanosleep(&tick, NULL);
}

/* The state of the communicator: NCCL_IN_PROGRESS until its last call is on the queue,
 * or an error that happened in the background. */
static int state_of(const struct nccl_state *n)
{
    int state = NCCL_SUCCESS, rc = n->api.async_error(n->comm, &state);

    return rc == NCCL_SUCCESS ? state : rc;
}

/* Non-blocking communicators return NCCL_IN_PROGRESS; no other call may be made on them
 * until that is over. */
accel_status_t nccl_settle(struct comm *c, int rc, const char *what, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    int64_t since = rc == NCCL_IN_PROGRESS ? clock_ns() : 0;
    accel_status_t told;

    while (rc == NCCL_IN_PROGRESS) {
        rc = state_of(n);
        if (rc != NCCL_IN_PROGRESS)
            break;
        told = comm_hear(c, ACCEL_OK, err);
        if (told != ACCEL_OK)
            return told;
        if (comm_expired(c))
            return late(c, c->seq, c->args.call, "under way", err);
        give_way(since);
    }
    if (rc == NCCL_SUCCESS)
        return ACCEL_OK;
    return comm_hear(c, failed(c, c->seq, c->args.call, rc, what, err), err);
}

/* ---- progress on the device ------------------------------------------------------ */

/* The device itself writes the call's number, after the call in the same queue:
 * reading a float in host memory tells the progress, without asking the driver or an
 * event per call. */
void nccl_issued(struct comm *c, enum backend_queue queue)
{
    struct nccl_state *n = c->impl;

    n->recent[c->seq % NCCL_RECENT] = (struct nccl_call){ c->seq, c->args.call, queue };
    n->be->fill(n->be, (float *)(uintptr_t)&n->reached[queue], ACCEL_F32, 1,
                (float)(c->seq & NUMBER_MASK));
}

/* The oldest call that its queue has not passed, or NULL. Numbers are compared as
 * distances to the newest call, modulo 2^24. Calls older than NCCL_RECENT are not
 * known any more. */
static const struct nccl_call *oldest_open(const struct comm *c)
{
    const struct nccl_state *n = c->impl;
    uint64_t first = c->seq < NCCL_RECENT ? 1 : c->seq - NCCL_RECENT + 1;

    for (uint64_t seq = first; seq <= c->seq; seq++) {
        const struct nccl_call *k = &n->recent[seq % NCCL_RECENT];
        uint64_t reached, behind;

        if (k->seq != seq) /* a call that queued nothing */
            continue;
        reached = (uint64_t)n->reached[k->queue];
        behind = (c->seq - reached) & NUMBER_MASK;
        if (seq > c->seq - behind)
            return k;
    }
    return NULL;
}

/* Has any queue passed another call since the last question? */
static bool moved(struct nccl_state *n)
{
    bool any = false;

    for (int q = 0; q < QUEUE_COUNT; q++) {
        float at = n->reached[q];

        any = any || at != n->seen[q];
        n->seen[q] = at;
    }
    return any;
}

/* The deadline restarts whenever a queue passes a call. It so bounds the time
 * without progress, not the time of a wait: one wait may cover many calls that
 * each take long. */
accel_status_t nccl_poll(void *user, bool first, accel_error_t *err)
{
    struct comm *c = user;
    struct nccl_state *n = c->impl;
    accel_error_t own = { 0 };
    const struct nccl_call *open;
    accel_status_t st = ACCEL_OK;
    int rc;

    if (c->failed) {
        if (err)
            *err = c->failure;
        return c->failure.code;
    }
    if (!n->comm)
        return ACCEL_OK;
    if (moved(n) || first)
        c->deadline_ns = 0;
    rc = state_of(n);
    open = oldest_open(c);
    if (rc != NCCL_SUCCESS && rc != NCCL_IN_PROGRESS)
        st = failed(c, open ? open->seq : c->seq, open ? open->call : c->args.call, rc,
                    "on the device", &own);
    else if (open && comm_expired(c))
        st = late(c, open->seq, open->call, "done on the device", &own);
    /* which says more than NCCL does */
    st = comm_hear(c, st, &own);
    return comm_end(c, st, &own, err);
}

/* ---- the end --------------------------------------------------------------------- */

void nccl_give_up(struct nccl_state *n)
{
    if (n->comm)
        n->api.abort(n->comm);
    n->comm = NULL;
}

/* ncclCommFinalize is collective and waits for work in flight, hence the deadline. */
void nccl_leave(struct comm *c)
{
    struct nccl_state *n = c->impl;
    accel_error_t ignored;

    if (!n->comm)
        return;
    comm_set_deadline(c, clock_ns() + LEAVE_NS);
    if (c->failed || nccl_settle(c, n->api.finalize(n->comm), "ncclCommFinalize",
                                 &ignored) != ACCEL_OK) {
        nccl_give_up(n);
        return;
    }
    n->api.destroy(n->comm);
    n->comm = NULL;
}
