/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch of running kernels. On the compute queue it comes from one room, used as a
 * stack: a queue runs in order, so what one kernel gives back the next may take. What
 * does not fit, and what other queues need, comes from the stream-ordered pool, or from
 * the recorded step.
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/own.h"

/* Once only: later calls find the room and return. */
accel_status_t cuda_room(const struct backend *be, size_t bytes, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    accel_status_t st;
    void *room;

    if (s->room.base || !bytes)
        return ACCEL_OK;
    st = cuda_alloc(be, MEMORY_WORK, bytes, &room, err);
    if (st)
        return st;
    s->room.base = (char *)room;
    s->room.bytes = bytes;
    return ACCEL_OK;
}

/* From the room. NULL: it does not fit, or another queue is in use. */
static void *of_room(struct cuda_state *s, size_t bytes)
{
    void *p = s->room.base + s->room.top;

    bytes = cuda_own_round(bytes);
    if (s->now != s->stream[QUEUE_COMPUTE] || bytes > s->room.bytes - s->room.top)
        return NULL;
    s->room.top += bytes;
    return p;
}

void *cuda_scratch(struct cuda_state *s, size_t bytes)
{
    cudaError_t code;
    void *p = NULL;

    if (!bytes || s->failed)
        return NULL;
    p = of_room(s, bytes);
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
    /* unsigned: an address below the room gives a huge offset */
    const size_t at = (size_t)((uintptr_t)p - (uintptr_t)s->room.base);

    if (!p)
        return;
    if (s->room.base && at < s->room.bytes) {
        /* a stack: freeing a piece frees all above it, which were freed before */
        s->room.top = at;
        return;
    }
    if (cuda_graph_scratch_free(s, p))
        return;
    if (s->pool)
        CHECK(s, cudaFreeAsync(p, s->now));
    else
        CHECK(s, cudaFree(p)); /* waits for the device */
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
