/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events. Work is put in a queue and done when somebody waits for it: then it,
 * what is before it in its stream, and what those wait for; nothing else, so that who forgot
 * a wait reads what was there before (order lazy). $FAKE_CUDA_ORDER: a number mixes the
 * streams by it; eager does everything at once, as far as it can.
 */
#include <algorithm>
#include <time.h>
#include <unistd.h>

#include "fakecuda.h"

enum { QUEUED_MOST = 1 << 16 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

CUstream_st *fake_stream(cudaStream_t stream)
{
    if (fake.streams.empty()) {
        fake.streams.push_back(new CUstream_st());
        fake.streams[0]->blocking = true;
    }
    return stream ? stream : fake.streams[0];
}

work_ref fake_last(CUstream_st *stream)
{
    return stream->last;
}

/* ---- doing ------------------------------------------------------------------------------ */

static bool may_begin(const work_ref &w)
{
    for (const work_ref &dep : w->after)
        if (!dep->done)
            return false;
    return true;
}

/* Does the first of the stream, which may begin. After an error nothing is done any more, but
 * all of it ends. */
static bool do_first(CUstream_st *stream)
{
    work_ref w = stream->queue.front();
    bool done;

    fake.running = true;
    done = fake.sticky || !w->run || w->run();
    fake.running = false;
    if (!done)
        return false;
    w->done = true;
    w->when = now();
    w->run = nullptr;
    w->after.clear();
    stream->queue.pop_front();
    return true;
}

/* Only what `until` needs; false: something in it is not ready. */
static bool advance(const work_ref &until)
{
    while (!until->done) {
        work_ref first = until->stream->queue.front();

        for (const work_ref &dep : std::vector<work_ref>(first->after))
            if (!dep->done && !advance(dep))
                return false;
        if (!do_first(first->stream))
            return false;
    }
    return true;
}

/* One piece of work of any stream that may begin; false: none is ready. */
static bool do_any(void)
{
    size_t streams = fake.streams.size(), first = fake_random() % streams;

    for (size_t i = 0; i < streams; i++) {
        CUstream_st *s = fake.streams[(first + i) % streams];

        if (!s->queue.empty() && may_begin(s->queue.front()) && do_first(s))
            return true;
    }
    return false;
}

/* Where work of this process waits for another one, the lock is given away for a moment. */
static void pause_a_little(void)
{
    fake.lock.unlock();
    usleep(50);
    fake.lock.lock();
}

void fake_finish(const work_ref &until)
{
    while (until && !until->done) {
        if (fake.order != ORDER_RANDOM && advance(until))
            break;
        if (!do_any())
            pause_a_little();
    }
    fake_check_guards();
}

void fake_finish_all(void)
{
    for (size_t i = 0; i < fake.streams.size(); i++)
        fake_finish(fake.streams[i]->last);
}

void fake_step(const work_ref &until)
{
    work_ref first = until;

    while (!first->done) {
        work_ref head = first->stream->queue.front(), blocked;

        for (const work_ref &dep : head->after)
            if (!dep->done)
                blocked = dep;
        if (!blocked) {
            do_first(head->stream);
            return;
        }
        first = blocked;
    }
}

/* ---- putting ---------------------------------------------------------------------------- */

/* The default stream waits for the streams that are not non-blocking, and they for it. */
static void order_by_default(CUstream_st *stream, const work_ref &w)
{
    CUstream_st *zero = fake_stream(NULL);

    if (stream == zero) {
        for (CUstream_st *s : fake.streams)
            if (s != zero && s->blocking && s->last && !s->last->done)
                w->after.push_back(s->last);
    } else if (stream->blocking && zero->last && !zero->last->done) {
        w->after.push_back(zero->last);
    }
}

static void append(CUstream_st *stream, const work_ref &w)
{
    w->stream = stream;
    order_by_default(stream, w);
    stream->queue.push_back(w);
    stream->last = w;
    if (stream->queue.size() > QUEUED_MOST)
        fake_step(stream->last);
    if (fake.order == ORDER_EAGER)
        advance(w);
}

cudaError_t fake_put(CUstream_st *stream, enum cudaGraphNodeType kind,
                     std::function<bool()> run)
{
    if (stream->into)
        return fake_capture(stream, kind, run);
    append(stream, work_ref(new work{ kind, run, NULL, {}, false, 0 }));
    return cudaSuccess;
}

cudaError_t fake_may_block(void)
{
    for (capture *c : fake.captures)
        if (c->mode != cudaStreamCaptureModeRelaxed) {
            c->invalid = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    return cudaSuccess;
}

cudaError_t fakecuda_enqueue(cudaStream_t stream, int (*poll)(void *data), void *data)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error)
        error = fake_put(fake_stream(stream), cudaGraphNodeTypeHost,
                         [poll, data] { return poll(data) != 0; });
    return fake_end(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error)
        error = fake_put(fake_stream(stream), cudaGraphNodeTypeHost, [function, data] {
            function(data);
            return true;
        });
    return fake_end(error);
}

/* ---- streams ---------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags,
                                         int priority)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    (void)priority;
    if (!error) {
        fake_stream(NULL);
        *out = new CUstream_st();
        (*out)->device = fake_device;
        (*out)->blocking = !(flags & cudaStreamNonBlocking);
        fake.streams.push_back(*out);
    }
    return fake_end(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
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

/* ---- waits between streams -------------------------------------------------------------- */

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
        append(s, work_ref(new work{ cudaGraphNodeTypeEmpty,
                                     nullptr,
                                     NULL,
                                     { event->recorded },
                                     false,
                                     0 }));
    return fake_end(error);
}
