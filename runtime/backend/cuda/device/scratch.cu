/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch of running kernels. On the compute queue it comes from one workspace, used as
 * a stack: a queue runs in order, so what one kernel gives back the next may take. What
 * does not fit, and what other queues need, comes from the stream-ordered pool, or from
 * the recorded step; both are in the books.
 */
#include "backend/cuda/cuda.h"

/* cudaMalloc aligns to as much: a piece is as good as an allocation. */
#define PIECE_ALIGN ((size_t)256)

/* Once only: later calls find the workspace and return. */
accel_status_t cuda_reserve_workspace(const struct backend *be, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    accel_status_t st;
    void *base;

    if (s->workspace.base)
        return ACCEL_OK;
    st = cuda_alloc_plain(be, MEMORY_WORK, s->workspace.bytes, &base, err);
    if (st == ACCEL_OK)
        s->workspace.base = (char *)base;
    return st;
}

/* From the workspace. NULL: it does not fit, or another queue is in use. */
static void *workspace_piece(struct cuda_state *s, size_t bytes)
{
    void *p = s->workspace.base + s->workspace.top;

    bytes = (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    if (!s->workspace.base || s->now != s->stream[QUEUE_COMPUTE] ||
        bytes > s->workspace.bytes - s->workspace.top)
        return NULL;
    /* its end may hold parts of sums, which then end now */
    if (bytes > s->workspace.bytes - s->workspace.top - s->ends.bytes)
        cuda_ends_flush(s);
    s->workspace.top += bytes;
    return p;
}

void *cuda_scratch(struct cuda_state *s, size_t bytes)
{
    cudaError_t code;
    void *p = NULL;

    if (!bytes || s->failed)
        return NULL;
    p = workspace_piece(s, bytes);
    if (p)
        return p;
    /* the pool's allocations would become nodes of the graph */
    if (s->end_recording)
        return cuda_graph_scratch(s, bytes);
    /* without a pool (old devices) cudaMalloc waits for the device, and so does its
     * free */
    code = s->pool ? cudaMallocAsync(&p, bytes, s->now) : cudaMalloc(&p, bytes);
    if (code == cudaErrorMemoryAllocation)
        cuda_lacks(s, MEMORY_WORK, bytes);
    return cuda_ok(s, code, "cudaMallocAsync") ? p : NULL;
}

void cuda_scratch_free(struct cuda_state *s, void *p)
{
    /* unsigned: an address below the workspace gives a huge offset */
    const size_t at = (size_t)((uintptr_t)p - (uintptr_t)s->workspace.base);

    if (!p)
        return;
    if (s->workspace.base && at < s->workspace.bytes) {
        /* a stack: freeing a piece frees all above it, which were freed before */
        s->workspace.top = at;
        return;
    }
    if (cuda_graph_scratch_free(s, p))
        return;
    if (s->pool)
        /* after a failure, too: cuda_recover keeps the same pool */
        cuda_ok(s, cudaFreeAsync(p, s->now), "cudaFreeAsync");
    else if (cuda_await_all(s)) /* as cudaFree would, without the watch */
        CHECK(s, cudaFree(p));
}

/* Lets the pool keep freed scratch: asking the system again would take longer than most
 * kernels. */
bool cuda_memory_open(struct cuda_state *s)
{
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool;

    return !s->pool || (CHECK(s, cudaDeviceGetDefaultMemPool(&pool, s->device)) &&
                        CHECK(s, cudaMemPoolSetAttribute(
                                     pool, cudaMemPoolAttrReleaseThreshold, &keep)));
}

/* What the pool holds of the device now, and at most so far. Zeros where it cannot
 * tell: these are figures for messages. */
void cuda_pool_bytes(struct cuda_state *s, size_t *now, size_t *most)
{
    uint64_t reserved = 0, high = 0;
    cudaMemPool_t pool;

    if (!s->pool || cudaDeviceGetDefaultMemPool(&pool, s->device) != cudaSuccess ||
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) !=
            cudaSuccess ||
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &high) !=
            cudaSuccess) {
        (void)cudaGetLastError();
        reserved = high = 0;
    }
    *now = (size_t)reserved;
    *most = (size_t)high;
}
