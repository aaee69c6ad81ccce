/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the CPU backend: the host's. In: bytes. Out: zeroed memory. It keeps no
 * books of what it gave.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"

/* Requests of at least HUGE_FROM bytes get a mapping of their own on huge pages. */
#define PAGE      4096
#define HUGE      ((size_t)2 << 20)
#define HUGE_FROM ((size_t)4 << 20)

/* Stored just before the memory that cpu_alloc returns, so that cpu_free knows its
 * source: a mapping of its own, or malloc's memory. */
struct origin {
    void *base;
    size_t mapped; /* 0: malloc */
};

/* A fresh mapping is zero, and gets its pages at first use: from the threads that
 * read the weights into it, or from those that update it and find the page in their
 * cache. */
static char *map_huge(size_t whole, struct origin *o)
{
    char *p;

    o->mapped = whole + HUGE + PAGE;
    o->base = mmap(NULL, o->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (o->base == MAP_FAILED)
        return NULL;
    p = (char *)o->base + PAGE;
    /* a page before it for `struct origin`, then up to the next huge page */
    p += (HUGE - (uintptr_t)p % HUGE) % HUGE;
    madvise(p, whole, MADV_HUGEPAGE); /* a hint: refusal only costs speed */
    return p;
}

static accel_status_t cpu_alloc(const struct backend *be, enum backend_memory kind,
                                size_t bytes, void **memory_out, accel_error_t *err)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    struct origin o = { 0 };
    char *p = NULL;

    (void)be;
    /* whole < bytes means that rounding up overflowed: refused below */
    if (whole >= bytes && whole >= HUGE_FROM && whole < SIZE_MAX / 2) {
        p = map_huge(whole, &o);
    } else if (whole >= bytes && whole < HUGE_FROM) {
        o.base = aligned_alloc(PAGE, PAGE + whole);
        p = o.base ? (char *)o.base + PAGE : NULL;
        if (p)
            memset(p, 0, whole);
    }
    if (!p)
        return accel_fail_nomem(err, backend_memory_name(kind), bytes);
    memcpy(p - sizeof(o), &o, sizeof(o));
    *memory_out = p;
    return ACCEL_OK;
}

static void cpu_free(const struct backend *be, void *p)
{
    struct origin o;

    (void)be;
    if (!p)
        return;
    memcpy(&o, (char *)p - sizeof(o), sizeof(o));
    if (o.mapped)
        munmap(o.base, o.mapped);
    else
        free(o.base);
}

/* Address space costs nothing, but a limit on it (ulimit -v) may still refuse. */
static void *cpu_reserve(const struct backend *be, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    (void)be;
    return p == MAP_FAILED ? NULL : p;
}

static bool cpu_commit(const struct backend *be, void *base, size_t from, size_t to)
{
    char *p = (char *)base + from;

    (void)be;
    if (mprotect(p, to - from, PROT_READ | PROT_WRITE))
        return false;
    /* Only a hint: without huge pages the arena works too, with more TLB misses. */
    madvise(p, to - from, MADV_HUGEPAGE);
    return true;
}

/* New pages are zero and come at first use. */
static bool cpu_uncommit(const struct backend *be, void *base, size_t committed)
{
    (void)be;
    return madvise(base, committed, MADV_DONTNEED) == 0 &&
           mprotect(base, committed, PROT_NONE) == 0;
}

static void cpu_release(const struct backend *be, void *base, size_t reserved,
                        size_t committed)
{
    (void)be;
    (void)committed;
    munmap(base, reserved);
}

static void *cpu_host_alloc(const struct backend *be, size_t bytes)
{
    (void)be;
    return calloc(1, bytes ? bytes : 1);
}

static void cpu_host_free(const struct backend *be, void *p, size_t bytes)
{
    (void)be;
    (void)bytes;
    free(p);
}

static void cpu_copy(const struct backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    if (bytes > 0) /* empty arrays may have no address */
        memcpy(dst, src, bytes);
}

void cpu_memory_functions(struct backend *be)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    be->memory_bytes = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
    be->alloc = cpu_alloc;
    be->free = cpu_free;
    be->reserve = cpu_reserve;
    be->commit = cpu_commit;
    be->uncommit = cpu_uncommit;
    be->release = cpu_release;
    be->host_alloc = cpu_host_alloc;
    be->host_free = cpu_host_free;
    be->copy = be->from_host = be->to_host_bytes = cpu_copy;
    backend_no_queues(be);
}
