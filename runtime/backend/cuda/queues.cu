/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues of a device and the events that order them. In: a queue's number. Out: order.
 * Nothing here blocks the calling thread, except cuda_finish at the end.
 */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

struct backend_event {
    cudaEvent_t event;
    bool recorded;
    uint64_t part; /* cuda_state.part at its recording */
};

void cuda_use(const struct backend *be, enum backend_queue q)
{
    struct cuda_state *s = cuda_state_of(be);

    s->now = s->stream[q];
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

/* Safe while the event is still in flight. */
void cuda_event_free(const struct backend *be, struct backend_event *e)
{
    (void)be;
    if (!e)
        return;
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

    if (e && CHECK(s, cudaEventRecord(e->event, s->stream[q]))) {
        e->recorded = true;
        e->part = s->part;
    }
}

/* No wait for an event of another part: the queues met in between, and an event from
 * outside a recording must not be waited for within it. */
void cuda_wait(const struct backend *be, enum backend_queue q, struct backend_event *e)
{
    struct cuda_state *s = cuda_state_of(be);

    if (e && e->recorded && e->part == s->part)
        CHECK(s, cudaStreamWaitEvent(s->stream[q], e->event, 0));
}

/* Whoever has the stream can put work on it that a recorded step does not know. */
void *cuda_native(const struct backend *be, enum backend_queue q)
{
    struct cuda_state *s = cuda_state_of(be);

    cuda_graph_never(s);
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
