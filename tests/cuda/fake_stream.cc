/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams as their callers see them: made, waited for, asked, ordered by events.
 */
#include <algorithm>

#include "fakecuda.h"

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags,
                                         int priority)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error) {
        fake_stream(NULL);
        *out = new CUstream_st();
        (*out)->device = fake_device;
        (*out)->priority = priority;
        (*out)->blocking = !(flags & cudaStreamNonBlocking);
        fake.streams.push_back(*out);
    }
    return fake_end(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error)
        *priority = fake_stream(stream)->priority;
    return fake_end(error);
}

/* What it holds is still done, as the toolkit promises. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    auto at = std::find(fake.streams.begin(), fake.streams.end(), stream);

    if (!stream || at == fake.streams.end())
        return fake_end(cudaErrorInvalidResourceHandle);
    fake_finish(stream->last);
    /* Others may have run, and the list have grown, while it was waited for. */
    at = std::find(fake.streams.begin(), fake.streams.end(), stream);
    fake.streams.erase(at);
    delete stream;
    return fake_end(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    fake.counts.host_waits++;
    if (!error && fake_stream(stream)->into) {
        fake_stream(stream)->into->invalid = true;
        error = cudaErrorStreamCaptureUnsupported;
    }
    if (!error)
        error = fake_may_block();
    if (!error)
        fake_finish(fake_stream(stream)->last);
    return fake_end(error ? error : fake.sticky);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    work_ref last;

    if (!error)
        last = fake_last(fake_stream(stream));
    if (last && !last->done)
        fake_step(last);
    if (!error)
        error = fake.sticky;
    return fake_end(error || !last || last->done ? error : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    fake.counts.host_waits++;
    if (!error)
        error = fake_may_block();
    if (!error)
        fake_finish_all();
    return fake_end(error ? error : fake.sticky);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    CUstream_st *s = fake_stream(stream);

    (void)flags;
    if (!error && !event)
        error = cudaErrorInvalidResourceHandle;
    if (!error && (s->into || event->captured))
        error = fake_capture_wait(s, event);
    else if (!error && event->recorded && !event->recorded->done)
        fake_append(s, work_ref(new work{ cudaGraphNodeTypeEmpty,
                                          nullptr,
                                          NULL,
                                          { event->recorded },
                                          false,
                                          0 }));
    return fake_end(error);
}
