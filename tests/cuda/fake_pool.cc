/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory in the order of a stream, and the pool's numbers. An address is not given out again
 * before the stream has come to its release.
 */
#include "fakecuda.h"

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    CUmemPoolHandle_st *pool = &fake.pool[fake_device];

    if (!error && fake_stream(stream)->into)
        error = cudaErrorNotSupported; /* nodes that allocate */
    if (!error)
        error = fake_allocate(p, bytes);
    if (!error) {
        pool->used += bytes;
        pool->high = pool->used > pool->high ? pool->used : pool->high;
    }
    return fake_end(error);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();
    auto at = fake.blocks.find((uintptr_t)p);

    if (!error && fake_stream(stream)->into)
        error = cudaErrorNotSupported;
    if (!error && p && at == fake.blocks.end())
        error = cudaErrorInvalidValue;
    if (error || !p)
        return fake_end(error);
    fake.counts.frees++;
    fake.pool[at->second.device].used -= at->second.bytes;
    return fake_end(fake_put(fake_stream(stream), cudaGraphNodeTypeEmpty, [p] {
        fake_drop(p);
        return true;
    }));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error && (device < 0 || device >= fake.devices))
        error = cudaErrorInvalidDevice;
    if (!error)
        *pool = &fake.pool[device];
    return fake_end(error);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
                                    void *value)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error && attr == cudaMemPoolAttrReleaseThreshold)
        pool->threshold = *(uint64_t *)value;
    else if (!error && attr >= cudaMemPoolAttrReservedMemCurrent)
        error = cudaErrorInvalidValue; /* to reset high marks is of no use here */
    return fake_end(error);
}

/* Nothing is kept after its release: what is reserved is what is used. */
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
                                    void *value)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (error)
        return fake_end(error);
    switch (attr) {
    case cudaMemPoolAttrReleaseThreshold:
        *(uint64_t *)value = pool->threshold;
        break;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
        *(uint64_t *)value = pool->used;
        break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
        *(uint64_t *)value = pool->high;
        break;
    default:
        *(int *)value = 1;
    }
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes)
{
    fake_lock hold(fake.lock);

    (void)pool;
    (void)keep_bytes;
    return fake_end(fake_begin());
}
