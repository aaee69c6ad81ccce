/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the stand-in toolkit: the host's, filled with rubbish when it is given out, with
 * bytes around it that are looked at whenever somebody waits. With the address sanitizer they
 * are the sanitizer's.
 */
#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

#ifdef __SANITIZE_ADDRESS__
enum { GUARD = 0 };
#else
enum { GUARD = 256 };
#endif
enum { RUBBISH = 0xff, GUARD_BYTE = 0xa5, RUBBISH_MOST = 64 << 20, ALIGNMENT = 256 };

/* ---- what belongs to whom --------------------------------------------------------------- */

static const struct block *find(const void *p, size_t bytes, uintptr_t *start)
{
    uintptr_t at = (uintptr_t)p;
    auto next = fake.blocks.upper_bound(at);

    if (next == fake.blocks.begin())
        return NULL;
    --next;
    if (at - next->first > next->second.bytes ||
        bytes > next->second.bytes - (at - next->first))
        return NULL;
    *start = next->first;
    return &next->second;
}

/* Neighbours that are mapped one by one are one range. */
bool fake_on_device(const void *p, size_t bytes)
{
    const char *at = (const char *)p;

    while (bytes > 0) {
        uintptr_t start;
        const struct block *b = find(at, 1, &start);
        size_t here;

        if (!b || b->kind == MEMORY_PINNED)
            return false;
        here = start + b->bytes - (uintptr_t)at;
        if (here < bytes && b->kind != MEMORY_MAPPED)
            return false;
        here = here < bytes ? here : bytes;
        at += here;
        bytes -= here;
    }
    return true;
}

bool fake_is_pinned(const void *p, size_t bytes)
{
    uintptr_t start;
    const struct block *b = find(p, bytes, &start);

    return b && b->kind == MEMORY_PINNED;
}

void fake_check_guards(void)
{
    for (const auto &entry : fake.blocks) {
        const struct block &b = entry.second;
        const unsigned char *p = (const unsigned char *)entry.first;

        if (b.kind != MEMORY_DEVICE)
            continue;
        for (size_t i = 0; i < GUARD; i++)
            if (p[-1 - (ptrdiff_t)i] != GUARD_BYTE || p[b.bytes + i] != GUARD_BYTE) {
                fake_report("somebody wrote around the %zu bytes at %p", b.bytes,
                            (const void *)p);
                fake_stick(cudaErrorIllegalAddress);
                return;
            }
    }
}

/* ---- giving out and taking back --------------------------------------------------------- */

/* Another process takes its part of every device. */
static void others_take(void)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        fake.used[i] += fake.taken < fake.memory - fake.used[i]
                            ? fake.taken
                            : fake.memory - fake.used[i];
}

cudaError_t fake_account(int device, size_t bytes)
{
    if (fake.taken && fake.taken_after-- == 0)
        others_take();
    if (bytes > fake.memory - fake.used[device])
        return cudaErrorMemoryAllocation;
    fake.used[device] += bytes;
    return cudaSuccess;
}

/* A multiple of the alignment, with room for the bytes around. */
static size_t padded(size_t bytes)
{
    return (bytes + 2 * GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Of the host's heap; the sanitizer puts its own bytes around. */
static char *take_plain(size_t bytes)
{
    void *p;

    return posix_memalign(&p, ALIGNMENT, GUARD > 0 ? padded(bytes) : bytes) == 0
               ? (char *)p
               : NULL;
}

static void *take(size_t bytes, enum memory_kind kind)
{
    struct block b = { bytes, NULL, 0, kind, fake_device };
    bool watch = fake.watch && kind == MEMORY_DEVICE;
    char *p = watch ? fake_watch_take(padded(bytes), &b) : take_plain(bytes);

    if (!p)
        return NULL;
    memset(p, GUARD_BYTE, GUARD);
    memset(p + GUARD + bytes, GUARD_BYTE, GUARD);
    if (bytes <= RUBBISH_MOST)
        memset(p + GUARD, RUBBISH, bytes);
    fake.blocks[(uintptr_t)p + GUARD] = b;
    fake_watch_protect(&b);
    return p + GUARD;
}

void fake_drop(void *p)
{
    auto at = fake.blocks.find((uintptr_t)p);

    if (at == fake.blocks.end())
        return;
    if (at->second.kind == MEMORY_DEVICE)
        fake.used[at->second.device] -= at->second.bytes;
    if (at->second.map)
        fake_watch_drop(&at->second);
    else if (at->second.kind == MEMORY_DEVICE || at->second.kind == MEMORY_PINNED)
        free((char *)p - GUARD);
    fake.blocks.erase(at);
}

void fake_free_all(void)
{
    for (auto at = fake.blocks.begin(); at != fake.blocks.end();) {
        void *p = (void *)(at++)->first;

        if (fake.blocks[(uintptr_t)p].kind != MEMORY_MAPPED)
            fake_drop(p);
    }
}

cudaError_t fake_allocate(void **out, size_t bytes)
{
    cudaError_t error = bytes ? fake_account(fake_device, bytes) : cudaSuccess;

    *out = NULL;
    fake.counts.mallocs++;
    if (error || !bytes)
        return error;
    *out = take(bytes, MEMORY_DEVICE);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!error)
        error = fake_may_block();
    if (!error)
        error = fake_allocate(p, bytes);
    return fake_end(error);
}

/* It waits for the device, as the toolkit's does. */
cudaError_t cudaFree(void *p)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    if (!p)
        return fake_end(error);
    if (!error)
        error = fake_may_block();
    if (error == cudaErrorStreamCaptureUnsupported)
        return fake_end(error);
    if (!fake.blocks.count((uintptr_t)p))
        return fake_end(error ? error : cudaErrorInvalidValue);
    fake.counts.host_waits++;
    fake.counts.frees++;
    if (!error)
        fake_finish_all();
    fake_drop(p);
    return fake_end(error);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    (void)flags;
    *p = NULL;
    if (!error && bytes && !(*p = take(bytes, MEMORY_PINNED)))
        error = cudaErrorMemoryAllocation;
    return fake_end(error);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    fake_lock hold(fake.lock);
    cudaError_t error = fake_begin();

    *total_bytes = fake.memory;
    *free_bytes = fake.memory - fake.used[fake_device];
    return fake_end(error);
}
