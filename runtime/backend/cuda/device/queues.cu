/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues of a device and the events that order them. In: a queue's number. Out: order.
 * Nothing here blocks the calling thread, except cuda_finish at the end.
 */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

struct backend_event {
    cudaEvent_t event;
    enum backend_queue queue; /* where it was recorded last */
    bool recorded;
    uint64_t part; /* cuda_state.part at its recording */
    /* Recorded in the recording under way: for the queues outside it is not there yet.
     * Such events are in the list cuda_state.captured. */
    bool captured;
    struct backend_event *next;
};

/* Gathers and reductions are short, and other ranks wait for them: the device takes up
 * their blocks before those of a product that fills it. */
bool cuda_queues_open(struct cuda_state *s)
{
    int least = 0, greatest = 0;

    if (!CHECK(s, cudaDeviceGetStreamPriorityRange(&least, &greatest)))
        return false;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        const bool urgent = q == QUEUE_GATHER || q == QUEUE_REDUCE;

        /* non-blocking: no order with the default stream, which libraries of the
         * program may use */
        if (!CHECK(s, cudaStreamCreateWithPriority(&s->stream[q], cudaStreamNonBlocking,
                                                   urgent ? greatest : least)))
            return false;
    }
    s->now = s->stream[QUEUE_COMPUTE];
    return true;
}

/* What a lent queue gets is not recorded. */
void cuda_use(const struct backend *be, enum backend_queue q)
{
    struct cuda_state *s = cuda_state_of(be);

    if (!cuda_graph_holds(s, q))
        cuda_graph_pause(s);
    s->now = s->stream[q];
    if (cuda_graph_holds(s, q))
        cuda_graph_resume(s);
}

enum backend_queue cuda_queue(const struct backend *be)
{
    const struct cuda_state *s = cuda_state_of(be);
    int q = 0;

    /* the stream is what calls need; the number is asked for seldom */
    while (q < QUEUE_COUNT - 1 && s->stream[q] != s->now)
        q++;
    return (enum backend_queue)q;
}

struct backend_event *cuda_event_new(const struct backend *be)
{
    struct cuda_state *s = cuda_state_of(be);
    struct backend_event *e = (struct backend_event *)calloc(1, sizeof(*e));

    if (!e) {
        cuda_ok(s, cudaErrorMemoryAllocation, "cudaEventCreateWithFlags");
        return NULL;
    }
    /* no timing: such events are cheaper to record and to wait for */
    if (CHECK(s, cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming)))
        return e;
    free(e);
    return NULL;
}

/* Takes the event out of the list of those in the recording under way. */
static void forget_captured(struct cuda_state *s, struct backend_event *e)
{
    struct backend_event **at = &s->captured;

    while (e->captured && *at != e)
        at = &(*at)->next;
    if (e->captured)
        *at = e->next;
    e->captured = false;
}

/* Safe while the event is still in flight. */
void cuda_event_free(const struct backend *be, struct backend_event *e)
{
    if (!e)
        return;
    forget_captured(cuda_state_of(be), e);
    /* the driver frees an event that is still in flight once the device has reached
     * it */
    (void)cudaEventDestroy(e->event);
    free(e);
}

/* Recording again moves the event: waits that were queued before keep the old place. */
void cuda_record(const struct backend *be, struct backend_event *e,
                 enum backend_queue q)
{
    struct cuda_state *s = cuda_state_of(be);

    if (!e)
        return;
    forget_captured(s, e);
    if (!CHECK(s, cudaEventRecord(e->event, s->stream[q])))
        return;
    e->queue = q;
    e->recorded = true;
    e->part = s->part;
    if (s->end_recording && cuda_graph_holds(s, q)) {
        e->captured = true;
        e->next = s->captured;
        s->captured = e;
    }
}

/* The end of the segment is later than where each was recorded, and so implies it. */
void cuda_events_settle(struct cuda_state *s)
{
    while (s->captured) {
        struct backend_event *e = s->captured;

        s->captured = e->next;
        e->captured = false;
        CHECK(s, cudaEventRecord(e->event, s->stream[e->queue]));
    }
}

/* Between queues that are recorded together, an event of another part needs no wait:
 * the queues met in between, and an event from outside a recording must not be waited
 * for within it. A queue outside waits for the end of the segment at most; the compute
 * queue waits for one outside between two segments. */
void cuda_wait(const struct backend *be, enum backend_queue q, struct backend_event *e)
{
    struct cuda_state *s = cuda_state_of(be);

    if (!e || !e->recorded)
        return;
    if (cuda_graph_holds(s, q) && cuda_graph_holds(s, e->queue)) {
        if (e->part == s->part)
            CHECK(s, cudaStreamWaitEvent(s->stream[q], e->event, 0));
        return;
    }
    if (e->captured || cuda_graph_holds(s, q))
        cuda_graph_pause(s);
    CHECK(s, cudaStreamWaitEvent(s->stream[q], e->event, 0));
    if (cuda_graph_holds(s, q))
        cuda_graph_resume(s);
}

/* Whoever keeps the stream can put work on it that a recorded step does not know. */
void *cuda_native(const struct backend *be, enum backend_queue q)
{
    struct cuda_state *s = cuda_state_of(be);

    cuda_graph_never(s);
    return s->stream[q];
}

/* A collective is never recorded. NCCL's calls could be, but each recording makes it
 * set up a plan that is kept as long as the graph. */
void *cuda_lend(const struct backend *be, enum backend_queue q)
{
    struct cuda_state *s = cuda_state_of(be);

    cuda_graph_share(s);
    return s->stream[q];
}

bool cuda_finish(struct cuda_state *s)
{
    if (s->end_recording)
        s->end_recording(s);
    if (!cuda_await_queue(s, s->now))
        return false;
    if (s->now == s->stream[QUEUE_COMPUTE])
        cuda_marks_waited(s);
    return true;
}
