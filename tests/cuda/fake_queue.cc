/* SPDX-License-Identifier: Apache-2.0
 *
 * The queues of streams. Work is put in a queue and done when somebody waits for it: then it,
 * what is before it in its stream, and what those wait for; nothing else, so that who forgot
 * a wait reads what was there before (order lazy). $FAKE_CUDA_ORDER: a number mixes the
 * streams by it; eager does everything at once, as far as it can.
 */
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
    fake_memory_open();
    done = fake.sticky || !w->run || w->run();
    fake_memory_close();
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
    fake_memory_close();
    fake.lock.unlock();
    usleep(50);
    fake.lock.lock();
    fake_memory_open();
}

void fake_finish(const work_ref &until)
{
    fake_memory_open();
    while (until && !until->done) {
        if (fake.order != ORDER_RANDOM && advance(until))
            break;
        if (!do_any())
            pause_a_little();
    }
    fake_check_guards();
    fake_memory_close();
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

void fake_append(CUstream_st *stream, const work_ref &w)
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
    if (kind == cudaGraphNodeTypeMemcpy || kind == cudaGraphNodeTypeMemset)
        fake_count(kind == cudaGraphNodeTypeMemcpy ? "memcpy" : "memset", stream);
    if (stream->into)
        return fake_capture(stream, kind, run);
    fake_append(stream, work_ref(new work{ kind, run, NULL, {}, false, 0 }));
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
