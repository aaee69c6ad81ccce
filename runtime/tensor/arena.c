/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena: blocks of one reserved address range, first fit, neighbours merged on
 * free. The bookkeeping (sorted ranges) is outside the range, so that counting mode,
 * which has no memory at all, places blocks in exactly the same way. Memory goes back
 * to the system only by arena_trim and at close.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "tensor/graph.h"

/* Blocks start on a cache line; memory is committed in steps of BACKEND_STEP. Addresses
 * of counting mode begin at FAKE_BASE, so that none of them is NULL. */
#define ARENA_ALIGN 64
#define ARENA_STEP  BACKEND_STEP
#define FAKE_BASE   ((size_t)1 << 32)

struct range {
    size_t offset, bytes;
};

struct ranges { /* sorted by offset */
    struct range *at;
    size_t count, cap;
};

/* Bytes from `base` on: reserved addresses, of which `committed` have memory. */
struct arena {
    /* whose memory it is; NULL: only counting */
    const struct backend *be;
    char *base;
    size_t reserved, committed;
    /* gaps: free ranges below `top` */
    struct ranges used, gaps;
    /* end of the last used block */
    size_t top;
    /* largest `top` so far: what was ever touched */
    size_t peak;
};

/* False: out of memory. */
static bool ranges_insert(struct ranges *r, size_t index, struct range v)
{
    if (r->count == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 256;
        struct range *at = reallocarray(r->at, cap, sizeof(*at));

        if (!at)
            return false;
        r->at = at;
        r->cap = cap;
    }
    memmove(r->at + index + 1, r->at + index, (r->count - index) * sizeof(*r->at));
    r->at[index] = v;
    r->count++;
    return true;
}

static void ranges_remove(struct ranges *r, size_t index)
{
    r->count--;
    memmove(r->at + index, r->at + index + 1, (r->count - index) * sizeof(*r->at));
}

/* Index of the first range at or after `offset`. */
static size_t ranges_find(const struct ranges *r, size_t offset)
{
    size_t lo = 0, hi = r->count;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (r->at[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Reserves addresses for all memory of the backend, or half of that, and so on: an
 * address space can be limited (ulimit -v). Reserving costs no memory. */
static accel_status_t reserve(struct arena *a, accel_error_t *err)
{
    size_t want = a->be->memory_bytes ? a->be->memory_bytes : ARENA_STEP;

    want = (want + ARENA_STEP - 1) / ARENA_STEP * ARENA_STEP;
    for (; want >= ARENA_STEP; want = want / 2 / ARENA_STEP * ARENA_STEP) {
        a->base = a->be->reserve(a->be, want);
        if (a->base) {
            a->reserved = want;
            return ACCEL_OK;
        }
    }
    return accel_fail_nomem(err, "the address range of the activations", ARENA_STEP);
}

accel_status_t arena_open(struct arena **arena_out, const struct backend *be,
                          accel_error_t *err)
{
    struct arena *a = calloc(1, sizeof(*a));
    accel_status_t st = ACCEL_OK;

    if (!a)
        return accel_fail_nomem(err, "an arena", sizeof(*a));
    a->be = be;
    if (be) {
        st = reserve(a, err);
    } else {
        a->base = (char *)(uintptr_t)FAKE_BASE;
        a->reserved = SIZE_MAX / 4;
    }
    if (st) {
        free(a);
        return st;
    }
    *arena_out = a;
    return ACCEL_OK;
}

/* Backs [0, end) with memory, in large steps that are kept until close. */
static bool commit(struct arena *a, size_t end)
{
    size_t upto;

    if (end > a->reserved)
        return false;
    if (!a->be || end <= a->committed)
        return true;
    upto = (end + ARENA_STEP - 1) / ARENA_STEP * ARENA_STEP;
    if (!a->be->commit(a->be, a->base, a->committed, upto))
        return false;
    a->committed = upto;
    return true;
}

/* First fit, then the end. False: no memory. */
static bool arena_place(struct arena *a, size_t bytes, size_t *offset_out)
{
    for (size_t i = 0; i < a->gaps.count; i++) {
        struct range *gap = &a->gaps.at[i];

        if (gap->bytes < bytes)
            continue;
        *offset_out = gap->offset;
        gap->offset += bytes;
        gap->bytes -= bytes;
        if (!gap->bytes)
            ranges_remove(&a->gaps, i);
        return true;
    }
    if (bytes > a->reserved - a->top || !commit(a, a->top + bytes))
        return false;
    *offset_out = a->top;
    a->top += bytes;
    if (a->top > a->peak)
        a->peak = a->top;
    return true;
}

/* Gives a range back: to `top`, to a neighbour, or as a gap of its own. */
static void release(struct arena *a, struct range r)
{
    size_t i = ranges_find(&a->gaps, r.offset);
    struct range *before = i > 0 ? &a->gaps.at[i - 1] : NULL;

    if (before && before->offset + before->bytes == r.offset) {
        r.offset = before->offset;
        r.bytes += before->bytes;
        ranges_remove(&a->gaps, --i);
    }
    if (i < a->gaps.count && r.offset + r.bytes == a->gaps.at[i].offset) {
        r.bytes += a->gaps.at[i].bytes;
        ranges_remove(&a->gaps, i);
    }
    if (r.offset + r.bytes == a->top)
        a->top = r.offset;
    else
        ranges_insert(&a->gaps, i, r); /* room was made by arena_alloc */
}

/* A block of 0 bytes takes ARENA_ALIGN, so that its address is its own. */
void *arena_alloc(struct arena *a, size_t bytes)
{
    struct range r;
    struct ranges *gaps = &a->gaps;

    if (bytes > SIZE_MAX / 4)
        return NULL;
    r.bytes =
        bytes ? (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : ARENA_ALIGN;
    /* A free can make one gap more than there are used blocks: have the room now, so
     * that freeing never fails. */
    if (gaps->cap < a->used.count + 2) {
        size_t cap = 2 * (a->used.count + 128);
        struct range *at = reallocarray(gaps->at, cap, sizeof(*at));

        if (!at)
            return NULL;
        gaps->at = at;
        gaps->cap = cap;
    }
    if (!arena_place(a, r.bytes, &r.offset))
        return NULL;
    if (!ranges_insert(&a->used, ranges_find(&a->used, r.offset), r)) {
        release(a, r);
        return NULL;
    }
    return (char *)((uintptr_t)a->base + r.offset);
}

/* An address that is not the start of a block is ignored. */
void arena_free(struct arena *a, void *p)
{
    size_t offset, i;
    struct range r;

    if (!p)
        return;
    offset = (uintptr_t)p - (uintptr_t)a->base;
    i = ranges_find(&a->used, offset);
    if (i == a->used.count || a->used.at[i].offset != offset)
        return;
    r = a->used.at[i];
    ranges_remove(&a->used, i);
    release(a, r);
}

void arena_reset(struct arena *a)
{
    a->used.count = 0;
    a->gaps.count = 0;
    a->top = 0;
}

size_t arena_trim(struct arena *a)
{
    size_t bytes = a->committed;

    if (!a->be || a->used.count > 0 || bytes == 0 ||
        !a->be->uncommit(a->be, a->base, bytes))
        return 0;
    a->committed = 0;
    return bytes;
}

size_t arena_peak_bytes(const struct arena *a)
{
    return a->peak;
}

void arena_close(struct arena *a)
{
    if (!a)
        return;
    if (a->be)
        a->be->release(a->be, a->base, a->reserved, a->committed);
    free(a->used.at);
    free(a->gaps.at);
    free(a);
}
