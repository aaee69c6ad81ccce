/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. As the toolkit promises and no more: what comes from pageable memory is
 * held before the call returns, what goes there is there when it returns; page-locked memory
 * is read and written when the stream comes to it.
 */
#include <string.h>

#include "fakecuda.h"

struct transfer {
    char *dst;
    const char *src;
    size_t bytes;
};

/* The kind says what the pointers are; they must be that. */
static cudaError_t check(const struct transfer *t, enum cudaMemcpyKind kind)
{
    bool to = fake_on_device(t->dst, t->bytes);
    bool from = fake_on_device(t->src, t->bytes);

    switch (kind) {
    case cudaMemcpyHostToHost:
        return to || from ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyHostToDevice:
        return !to || from ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyDeviceToHost:
        return to || !from ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyDeviceToDevice:
        return !to || !from ? cudaErrorInvalidValue : cudaSuccess;
    case cudaMemcpyDefault:
        return cudaSuccess;
    }
    return cudaErrorInvalidMemcpyDirection;
}

/* From pageable memory: its bytes as they are now. */
static std::function<bool()> hold_source(struct transfer t)
{
    std::shared_ptr<std::vector<char>> held(
        new std::vector<char>(t.src, t.src + t.bytes));

    return [t, held] {
        memcpy(t.dst, held->data(), t.bytes);
        return true;
    };
}

static bool is_pageable(const void *p, size_t bytes)
{
    return !fake_on_device(p, bytes) && !fake_is_pinned(p, bytes);
}

static cudaError_t put_copy(struct transfer t, enum cudaMemcpyKind kind,
                            CUstream_st *stream)
{
    const bool pageable_from = is_pageable(t.src, t.bytes);
    const bool pageable_to = is_pageable(t.dst, t.bytes);
    cudaError_t error = check(&t, kind);

    if (error)
        return error;
    fake.counts.copies++;
    /* In a graph the host's memory is read at each launch. */
    if (pageable_from && !stream->into)
        error = fake_put(stream, cudaGraphNodeTypeMemcpy, hold_source(t));
    else
        error = fake_put(stream, cudaGraphNodeTypeMemcpy, [t] {
            memmove(t.dst, t.src, t.bytes);
            return true;
        });
    if (!error && pageable_to && !stream->into) {
        fake.counts.host_waits++;
        fake_finish(fake_last(stream));
    }
    return error;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error && bytes > 0)
        error = put_copy({ (char *)dst, (const char *)src, bytes }, kind,
                         fake_stream(stream));
    return fake_end(error ? error : fake.sticky);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error && !fake_on_device(dst, bytes) && !fake_is_pinned(dst, bytes))
        error = cudaErrorInvalidValue;
    if (!error && bytes > 0)
        error =
            fake_put(fake_stream(stream), cudaGraphNodeTypeMemset, [dst, value, bytes] {
                memset(dst, value, bytes);
                return true;
            });
    return fake_end(error);
}
