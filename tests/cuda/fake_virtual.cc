/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions for memory that is mapped into a reserved range, as
 * cudaGetDriverEntryPointByVersion gives them out. A range that nothing is mapped to may not
 * be touched.
 */
#include <string.h>
#include <sys/mman.h>

#include "fakecuda.h"
#include "include/cuda.h"

CUresult fake_tensor_map(CUtensorMap *to, CUtensorMapDataType type, uint32_t rank,
                         void *data, const uint64_t *dim, const uint64_t *stride,
                         const uint32_t *box, const uint32_t *step,
                         CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                         CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill);

static const size_t granularity = 2 << 20;

struct reserved {
    size_t bytes;
};
/* Physical memory: only its size is of interest. */
struct physical {
    size_t bytes;
    int device;
    bool mapped, released;
};

static std::map<CUdeviceptr, reserved> ranges;
static std::map<CUmemGenericAllocationHandle, physical> memories;
static std::map<CUdeviceptr, CUmemGenericAllocationHandle> mappings;

static CUresult begin(void)
{
    return (CUresult)fake_begin();
}

static CUresult get_granularity(size_t *out, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags flags)
{
    fake_lock hold(fake.lock);

    (void)prop;
    (void)flags;
    *out = granularity;
    return begin();
}

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment,
                        CUdeviceptr where, unsigned long long flags)
{
    fake_lock hold(fake.lock);
    CUresult error = begin();
    void *p;

    (void)alignment;
    (void)where;
    if (!error && (bytes == 0 || bytes % granularity || flags))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error)
        return error;
    p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUdeviceptr)(uintptr_t)p;
    ranges[*out] = reserved{ bytes };
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr p, size_t bytes)
{
    fake_lock hold(fake.lock);
    CUresult error = begin();
    auto at = ranges.find(p);
    auto next = mappings.lower_bound(p);

    if (at == ranges.end() || at->second.bytes != bytes ||
        (next != mappings.end() && next->first < p + bytes))
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)p, bytes);
    ranges.erase(at);
    return error;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    static CUmemGenericAllocationHandle names;
    fake_lock hold(fake.lock);
    CUresult error = begin();

    if (!error && (bytes == 0 || bytes % granularity || flags ||
                   prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
                   prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                   prop->location.id < 0 || prop->location.id >= fake.devices))
        error = CUDA_ERROR_INVALID_VALUE;
    if (!error)
        error = (CUresult)fake_account(prop->location.id, bytes);
    if (!error) {
        *out = ++names;
        memories[*out] = physical{ bytes, prop->location.id, false, false };
    }
    return error;
}

/* It is given back when it is neither held nor mapped. */
static void forget(CUmemGenericAllocationHandle name)
{
    const physical &m = memories[name];

    if (m.mapped || !m.released)
        return;
    fake.used[m.device] -= m.bytes;
    memories.erase(name);
}

static CUresult release(CUmemGenericAllocationHandle name)
{
    fake_lock hold(fake.lock);

    if (!memories.count(name) || memories[name].released)
        return CUDA_ERROR_INVALID_VALUE;
    memories[name].released = true;
    forget(name);
    return begin();
}

static CUresult map(CUdeviceptr p, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle name, unsigned long long flags)
{
    fake_lock hold(fake.lock);
    CUresult error = begin();
    auto range = ranges.upper_bound(p);

    if (error)
        return error;
    if (offset || flags || !memories.count(name) || memories[name].bytes != bytes ||
        memories[name].mapped || range == ranges.begin() || mappings.count(p))
        return CUDA_ERROR_INVALID_VALUE;
    --range;
    if (p % granularity || p + bytes > range->first + range->second.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memories[name].mapped = true;
    mappings[p] = name;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
    fake_lock hold(fake.lock);
    CUresult error = begin();

    if (error)
        return error;
    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = p; at < p + bytes; at += memories[mappings[at]].bytes) {
        const physical *m = mappings.count(at) ? &memories[mappings[at]] : NULL;

        if (!m || m->device != access->location.id)
            return CUDA_ERROR_INVALID_VALUE;
        fake.blocks[(uintptr_t)at] = block{ m->bytes, (char *)(uintptr_t)at, m->bytes,
                                            MEMORY_MAPPED, m->device };
    }
    if (mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUdeviceptr at = p; at < p + bytes; at += memories[mappings[at]].bytes)
        fake_watch_protect(&fake.blocks[(uintptr_t)at]);
    return CUDA_SUCCESS;
}

/* Work on it must be over: it is done first, as if somebody had waited. */
static CUresult unmap(CUdeviceptr p, size_t bytes)
{
    fake_lock hold(fake.lock);
    CUresult error = begin();

    if (!error)
        fake_finish_all();
    for (CUdeviceptr at = p; at < p + bytes;) {
        auto m = mappings.find(at);
        CUmemGenericAllocationHandle name;

        if (m == mappings.end())
            return CUDA_ERROR_INVALID_VALUE;
        name = m->second;
        mappings.erase(m);
        fake.blocks.erase((uintptr_t)at);
        at += memories[name].bytes;
        memories[name].mapped = false;
        forget(name);
    }
    /* Fresh pages, not to be touched. */
    mmap((void *)(uintptr_t)p, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return error;
}

void fake_virtual_forget(void)
{
    for (const auto &range : ranges)
        munmap((void *)(uintptr_t)range.first, range.second.bytes);
    for (const auto &mapping : mappings)
        fake.blocks.erase((uintptr_t)mapping.first);
    ranges.clear();
    memories.clear();
    mappings.clear();
}

static CUresult get_error_string(CUresult error, const char **text)
{
    *text = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

static const struct {
    const char *name;
    void *function;
} symbols[] = {
    { "cuMemGetAllocationGranularity", (void *)get_granularity },
    { "cuMemAddressReserve", (void *)reserve },
    { "cuMemAddressFree", (void *)address_free },
    { "cuMemCreate", (void *)create },
    { "cuMemRelease", (void *)release },
    { "cuMemMap", (void *)map },
    { "cuMemSetAccess", (void *)set_access },
    { "cuMemUnmap", (void *)unmap },
    { "cuGetErrorString", (void *)get_error_string },
    { "cuTensorMapEncodeTiled", (void *)fake_tensor_map },
};

cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status)
{
    fake_lock hold(fake.lock);
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;

    (void)flags;
    *function = NULL;
    for (const auto &s : symbols)
        if (strcmp(s.name, symbol) == 0) {
            found = (int)version > fake.driver ? cudaDriverEntryPointVersionNotSufficent
                                               : cudaDriverEntryPointSuccess;
            *function = found == cudaDriverEntryPointSuccess ? s.function : NULL;
        }
    if (status)
        *status = found;
    return fake_end(fake_begin());
}
