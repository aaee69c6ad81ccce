/* SPDX-License-Identifier: Apache-2.0
 *
 * Address ranges backed by memory from their start on, as the arena needs it. Uses the
 * driver's own functions, which the runtime looks up, so that nothing links to
 * libcuda.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "backend/cuda/cuda.h"

/* A reserved range; [base, base + backed) has memory. */
struct cuda_range {
    struct cuda_range *next;
    void *base;
    size_t reserved, backed;
};

/* one table for the process: all devices have one driver */
static struct {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t,
                       const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                    unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} vm;

/* Looks up a function of the driver. The way to ask changed with CUDA 12 and 12.5. */
bool cuda_driver_function(struct cuda_state *s, const char *name, void **function_out)
{
    /* success also where the runtime is too old to tell */
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;

#if CUDART_VERSION >= 12050
    if (!CHECK(s, cudaGetDriverEntryPointByVersion(name, function_out, 12000,
                                                   cudaEnableDefault, &found)))
        return false;
#elif CUDART_VERSION >= 12000
    if (!CHECK(s,
               cudaGetDriverEntryPoint(name, function_out, cudaEnableDefault, &found)))
        return false;
#else
    if (!CHECK(s, cudaGetDriverEntryPoint(name, function_out, cudaEnableDefault)))
        return false;
#endif
    if (found == cudaDriverEntryPointSuccess && *function_out)
        return true;
    return cuda_fails(s, name, "the driver is too old and lacks this function");
}

/* All or none: `allow`, the last, is set only if the others are. */
static bool find_all(struct cuda_state *s)
{
    return vm.allow ||
           (cuda_driver_function(s, "cuMemGetAllocationGranularity",
                                 (void **)&vm.granularity) &&
            cuda_driver_function(s, "cuMemAddressReserve", (void **)&vm.reserve) &&
            cuda_driver_function(s, "cuMemAddressFree", (void **)&vm.unreserve) &&
            cuda_driver_function(s, "cuMemCreate", (void **)&vm.create) &&
            cuda_driver_function(s, "cuMemRelease", (void **)&vm.release) &&
            cuda_driver_function(s, "cuMemMap", (void **)&vm.map) &&
            cuda_driver_function(s, "cuMemUnmap", (void **)&vm.unmap) &&
            cuda_driver_function(s, "cuMemSetAccess", (void **)&vm.allow));
}

static CUmemAllocationProp memory_of(const struct cuda_state *s)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof(prop));
    /* pinned to this device: never paged out */
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = s->device;
    return prop;
}

static CUdeviceptr address(const void *base, size_t offset)
{
    return (CUdeviceptr)(uintptr_t)base + offset;
}

/* Without libcuda the driver's codes have no text, but those that a user meets have the
 * same numbers as the runtime's. */
static bool driver_ok(struct cuda_state *s, CUresult code, const char *call)
{
    return cuda_ok(s, (cudaError_t)code, call);
}

void *cuda_reserve(const struct backend *be, size_t bytes)
{
    struct cuda_state *s = cuda_state_of(be);
    CUmemAllocationProp prop = memory_of(s);
    struct cuda_range *r;
    CUdeviceptr base = 0;
    size_t unit = 1;

    if (s->failed || !find_all(s) ||
        !driver_ok(s, vm.granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                   "cuMemGetAllocationGranularity"))
        return NULL;
    /* the driver maps whole units only (2 MiB on today's GPUs) */
    bytes = (bytes + unit - 1) / unit * unit;
    /* an address range costs no memory, only entries of the page table */
    r = (struct cuda_range *)calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    /* addresses may run out: the caller then asks for less */
    if (vm.reserve(&base, bytes, 0, 0, 0) != CUDA_SUCCESS) {
        free(r);
        return NULL;
    }
    r->base = (void *)(uintptr_t)base;
    r->reserved = bytes;
    r->next = s->ranges;
    s->ranges = r;
    return r->base;
}

/* The link that points to the range of `base`; to NULL if there is none. */
static struct cuda_range **find_range(struct cuda_state *s, const void *base)
{
    struct cuda_range **at = &s->ranges;

    while (*at && (*at)->base != base)
        at = &(*at)->next;
    return at;
}

/* Backs [backed, backed + bytes) with memory, which stays until it is unmapped. */
static bool back(struct cuda_state *s, struct cuda_range *r, size_t bytes)
{
    CUmemAllocationProp prop = memory_of(s);
    CUmemGenericAllocationHandle memory;
    CUmemAccessDesc access;
    CUdeviceptr at = address(r->base, r->backed);
    CUresult code;

    memset(&access, 0, sizeof(access));
    access.location = prop.location;
    /* mapped memory has no access until it is allowed */
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    code = vm.create(&memory, bytes, &prop, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return cuda_lacks(s, MEMORY_ACTIVATIONS, bytes);
    if (!driver_ok(s, code, "cuMemCreate"))
        return false;
    code = vm.map(at, bytes, 0, memory, 0);
    (void)vm.release(memory); /* the mapping keeps it alive */
    if (!driver_ok(s, code, "cuMemMap"))
        return false;
    r->backed += bytes;
    s->held[MEMORY_ACTIVATIONS] += bytes;
    /* counted before: drop_range unmaps it whether or not access was allowed */
    return driver_ok(s, vm.allow(at, bytes, &access, 1), "cuMemSetAccess");
}

bool cuda_commit(const struct backend *be, void *base, size_t from, size_t to)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_range *r = *find_range(s, base);
    CUmemAllocationProp prop = memory_of(s);
    size_t unit = 1;

    (void)from; /* `backed` is known here */
    if (s->failed || !r || to > r->reserved)
        return false;
    /* the arena asks by BACKEND_STEP, the last mapping may have reached further */
    if (to <= r->backed)
        return true;
    if (s->end_recording)
        s->end_recording(s);
    if (!driver_ok(s, vm.granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                   "cuMemGetAllocationGranularity"))
        return false;
    to = (to + unit - 1) / unit * unit;
    return back(s, r, to - r->backed);
}

/* A mapping can only be taken back as a whole, and so is all that is mapped. Also what
 * the pool of kernels keeps. */
bool cuda_uncommit(const struct backend *be, void *base, size_t committed)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_range *r = *find_range(s, base);
    cudaMemPool_t pool;

    (void)committed;
    if (s->failed || !r)
        return false;
    if (s->end_recording)
        s->end_recording(s);
    if (!cuda_await_all(s))
        return false;
    if (r->backed &&
        !driver_ok(s, vm.unmap(address(r->base, 0), r->backed), "cuMemUnmap"))
        return false;
    s->held[MEMORY_ACTIVATIONS] -= r->backed;
    r->backed = 0;
    if (s->pool && cudaDeviceGetDefaultMemPool(&pool, s->device) == cudaSuccess)
        (void)cudaMemPoolTrimTo(pool, 0);
    (void)cudaGetLastError();
    return true;
}

/* Unmaps what was mapped; the memory itself is freed with its last mapping. */
static void drop_range(struct cuda_state *s, struct cuda_range *r)
{
    if (r->backed)
        (void)vm.unmap(address(r->base, 0), r->backed);
    (void)vm.unreserve(address(r->base, 0), r->reserved);
    s->held[MEMORY_ACTIVATIONS] -= r->backed;
    free(r);
}

/* The range knows its own sizes. */
void cuda_release(const struct backend *be, void *base, size_t reserved,
                  size_t committed)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_range **at = find_range(s, base), *r = *at;

    (void)reserved;
    (void)committed;
    if (!r)
        return;
    if (s->end_recording)
        s->end_recording(s);
    /* kernels may still use it; if they never end, it stays in the list */
    if (!cuda_settled(s))
        return;
    *at = r->next;
    drop_range(s, r);
}

void cuda_ranges_close(struct cuda_state *s)
{
    while (s->ranges) {
        struct cuda_range *r = s->ranges;

        s->ranges = r->next;
        drop_range(s, r);
    }
}
