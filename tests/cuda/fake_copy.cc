/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. As the toolkit promises and no more: what comes from pageable memory is
 * held before the call returns, what goes there is there when it returns; page-locked memory
 * is read and written when the stream comes to it.
 */
#include <string.h>

#include "fakecuda.h"

struct rectangle {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, width, height;
};

static size_t span(size_t pitch, size_t width, size_t height)
{
    return height ? (height - 1) * pitch + width : 0;
}

static void copy(const struct rectangle *r)
{
    for (size_t i = 0; i < r->height; i++)
        memmove(r->dst + i * r->dst_pitch, r->src + i * r->src_pitch, r->width);
}

/* The kind says what the pointers are; they must be that. */
static cudaError_t check(const struct rectangle *r, enum cudaMemcpyKind kind)
{
    bool to = fake_on_device(r->dst, span(r->dst_pitch, r->width, r->height));
    bool from = fake_on_device(r->src, span(r->src_pitch, r->width, r->height));

    if (r->width > r->dst_pitch || r->width > r->src_pitch)
        return cudaErrorInvalidValue;
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
static std::function<bool()> hold_source(struct rectangle r)
{
    size_t bytes = span(r.src_pitch, r.width, r.height);
    std::shared_ptr<std::vector<char>> held(
        new std::vector<char>(r.src, r.src + bytes));

    return [r, held] {
        struct rectangle from_held = r;

        from_held.src = held->data();
        copy(&from_held);
        return true;
    };
}

static cudaError_t put_copy(struct rectangle r, enum cudaMemcpyKind kind,
                            CUstream_st *stream)
{
    size_t to = span(r.dst_pitch, r.width, r.height);
    size_t from = span(r.src_pitch, r.width, r.height);
    bool pageable_to = !fake_on_device(r.dst, to) && !fake_is_pinned(r.dst, to);
    bool pageable_from = !fake_on_device(r.src, from) && !fake_is_pinned(r.src, from);
    cudaError_t error = check(&r, kind);

    if (error)
        return error;
    fake.counts.copies++;
    /* In a graph the host's memory is read at each launch. */
    if (pageable_from && !stream->into)
        error = fake_put(stream, cudaGraphNodeTypeMemcpy, hold_source(r));
    else
        error = fake_put(stream, cudaGraphNodeTypeMemcpy, [r] {
            copy(&r);
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
    return cudaMemcpy2DAsync(dst, bytes, src, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                              size_t src_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    struct rectangle r = { (char *)dst, (const char *)src, dst_pitch, src_pitch, width,
                           height };

    if (!error && width > 0 && height > 0)
        error = put_copy(r, kind, fake_stream(stream));
    return fake_end(error ? error : fake.sticky);
}

/* Waits for the default stream, and so for no stream that is non-blocking. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    struct rectangle r = { (char *)dst, (const char *)src, bytes, bytes, bytes, 1 };

    if (!error)
        error = fake_may_block();
    if (!error && bytes > 0)
        error = put_copy(r, kind, fake_stream(NULL));
    fake.counts.host_waits++;
    if (!error)
        fake_finish(fake_last(fake_stream(NULL)));
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

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, NULL);
}
