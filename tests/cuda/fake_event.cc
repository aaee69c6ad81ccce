/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: the place in a stream where they were last recorded, there or in a graph that is
 * being captured.
 */
#include "fakecuda.h"

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error) {
        *out = new CUevent_st();
        fake.counts.alive++;
        (*out)->timing = !(flags & cudaEventDisableTiming);
    }
    return fake_end(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!event)
        return fake_end(cudaErrorInvalidResourceHandle);
    delete event;
    fake.counts.alive--;
    return fake_end(error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    CUstream_st *s = fake_stream(stream);

    if (!error && !event)
        error = cudaErrorInvalidResourceHandle;
    if (error)
        return fake_end(error);
    event->captured = s->into;
    event->frontier = s->frontier;
    event->recorded = nullptr;
    if (!s->into) {
        error = fake_put(s, cudaGraphNodeTypeEmpty, nullptr);
        event->recorded = fake_last(s);
    }
    return fake_end(error);
}

static cudaError_t begin_with(cudaEvent_t event)
{
    cudaError_t error = fake_begin();

    if (!error && !event)
        error = cudaErrorInvalidResourceHandle;
    if (!error && event->captured)
        error = cudaErrorCapturedEvent;
    return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    fake_lock hold(fake.lock);
    cudaError_t error = begin_with(event);

    if (error)
        return fake_end(error);
    if (event->recorded && !event->recorded->done)
        fake_step(event->recorded);
    error = fake.sticky;
    if (!error && event->recorded && !event->recorded->done)
        error = cudaErrorNotReady;
    return fake_end(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    fake_lock hold(fake.lock);
    cudaError_t error = begin_with(event);

    fake.counts.host_waits++;
    if (!error)
        fake_finish(event->recorded);
    return fake_end(error ? error : fake.sticky);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    fake_lock hold(fake.lock);
    cudaError_t error = begin_with(start);

    if (!error)
        error = begin_with(end);
    if (!error && !(start->timing && end->timing && start->recorded && end->recorded))
        error = cudaErrorInvalidResourceHandle;
    if (!error && !(start->recorded->done && end->recorded->done))
        error = cudaErrorNotReady;
    if (!error)
        *ms = (float)((end->recorded->when - start->recorded->when) * 1e3);
    return fake_end(error);
}
