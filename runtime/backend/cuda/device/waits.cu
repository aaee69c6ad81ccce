/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits of the calling thread for the device. In: a queue or an event. Out: it has
 * passed, or the first failure. A collective whose peer is gone never ends: where the
 * backend has watches, a wait polls them and does not block.
 */
#include <sched.h>
#include <time.h>

#include "backend/cuda/cuda.h"

#define YIELD_NS 50000000 /* yield this long, about a step; then sleep */
#define SLEEP_NS 100000   /* one sleep */
/* how long a device that has failed may take to finish */
#define FAREWELL_NS INT64_C(2000000000)

/* Yields at first, for low latency; then sleeps, to leave the core to others. */
static void give_way(int64_t since)
{
    const struct timespec tick = { 0, SLEEP_NS };

    if (clock_ns() - since < YIELD_NS)
        sched_yield();
    else
        nanosleep(&tick, NULL);
}

/* Asks the watches. False: a peer is gone, so the collective on the device will never
 * end, and neither would a blocking wait. */
static bool watches_agree(struct cuda_state *s, bool first)
{
    for (const struct backend_watch *w = s->be.watch; w; w = w->next) {
        accel_error_t err;

        if (w->poll(w->user, first, &err) == ACCEL_OK)
            continue;
        if (!s->failed) {
            s->failed = s->peer_gone = true;
            s->peer = err;
        }
        return false;
    }
    return true;
}

/* One look at the device and, if it is not done, one at the watches. True: wait on. */
static bool goes_on(struct cuda_state *s, cudaError_t code, const char *call,
                    bool first)
{
    /* done, or failed */
    if (code != cudaErrorNotReady) {
        cuda_ok(s, code, call);
        return false;
    }
    /* "not ready" is an answer; it must not be blamed on the next launch */
    (void)cudaGetLastError();
    return watches_agree(s, first);
}

bool cuda_await_queue(struct cuda_state *s, cudaStream_t queue)
{
    const int64_t since = s->be.watch ? clock_ns() : 0;
    bool first = true;

    while (s->be.watch && !s->failed &&
           goes_on(s, cudaStreamQuery(queue), "cudaStreamQuery", first)) {
        first = false;
        give_way(since);
    }
    /* done already where watched; without a watch this is the wait */
    return CHECK(s, cudaStreamSynchronize(queue));
}

bool cuda_await_event(struct cuda_state *s, cudaEvent_t event)
{
    const int64_t since = s->be.watch ? clock_ns() : 0;
    bool first = true;

    while (s->be.watch && !s->failed &&
           goes_on(s, cudaEventQuery(event), "cudaEventQuery", first)) {
        first = false;
        give_way(since);
    }
    return CHECK(s, cudaEventSynchronize(event));
}

/* Queue by queue, so that the watches are polled; then the device, for its failures. */
bool cuda_await_all(struct cuda_state *s)
{
    for (int q = 0; s->be.watch && q < QUEUE_COUNT; q++)
        if (!cuda_await_queue(s, s->stream[q]))
            return false;
    return CHECK(s, cudaDeviceSynchronize());
}

/* A device that is lost runs nothing. */
static bool all_idle(struct cuda_state *s)
{
    bool idle = true;

    for (int q = 0; idle && q < QUEUE_COUNT; q++)
        idle = !s->stream[q] || cudaStreamQuery(s->stream[q]) != cudaErrorNotReady;
    (void)cudaGetLastError(); /* an answer, not a failure */
    return idle;
}

/* The watches are asked after a failure, too: they abort collectives whose peers are
 * gone. */
bool cuda_settled(struct cuda_state *s)
{
    const int64_t since = clock_ns();
    bool first = true;

    while (!all_idle(s)) {
        if (!watches_agree(s, first) || s->failed) {
            if (!s->failed_ns)
                s->failed_ns = clock_ns();
            if (clock_ns() - s->failed_ns > FAREWELL_NS)
                return false;
        }
        first = false;
        give_way(since);
    }
    return true;
}
