/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that outlives a step, counted by use, and page-locked host memory. In:
 * bytes. Out: memory, or the error of cuda_no_memory.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

/* One allocation. The list of them serves frees by address and the lookup of
 * page-locked memory. */
struct cuda_block {
    struct cuda_block *next;
    void *p;
    size_t bytes;
    enum backend_memory kind;
    bool host; /* page-locked host memory: not in the device's books */
};

/* cudaMalloc, with a second try: the pool keeps freed memory, and once it has given
 * that back the allocation may succeed. Out of memory, too, if the wait for it failed,
 * which is then kept as the failure. */
static cudaError_t device_memory(struct cuda_state *s, void **out, size_t bytes)
{
    cudaError_t code = cudaMalloc(out, bytes);
    cudaMemPool_t pool;

    if (code != cudaErrorMemoryAllocation || !s->pool)
        return code;
    (void)cudaGetLastError();
    if (!cuda_await_all(s))
        return code;
    if (cudaDeviceGetDefaultMemPool(&pool, s->device) == cudaSuccess)
        /* after the wait nothing of the pool is in use */
        (void)cudaMemPoolTrimTo(pool, 0);
    return cudaMalloc(out, bytes);
}

/* The entry for an allocation; keep_block puts it into the list once that has
 * succeeded. */
static struct cuda_block *new_block(struct cuda_state *s, enum backend_memory kind,
                                    size_t bytes, bool host)
{
    struct cuda_block *b = (struct cuda_block *)calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->bytes = bytes;
    b->kind = kind;
    b->host = host;
    b->next = s->blocks;
    return b;
}

/* Page-locked memory is the host's: it is in the list, but not in the books. */
static void keep_block(struct cuda_state *s, struct cuda_block *b)
{
    s->blocks = b;
    if (!b->host)
        s->held[b->kind] += b->bytes;
}

/* Out of memory fails this call only; any other failure is kept and ends the run. */
accel_status_t cuda_alloc_plain(const struct backend *be, enum backend_memory kind,
                                size_t bytes, void **memory_out, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_block *b;
    cudaError_t code;

    if (s->failed)
        return cuda_check(be, err);
    if (s->end_recording)
        /* cudaMalloc and the memset must run now and not with the graph */
        s->end_recording(s);
    b = new_block(s, kind, bytes, false);
    if (!b)
        return accel_fail_nomem(err, backend_memory_name(kind), sizeof(*b));
    /* an empty array gets an address of its own, so that free finds it */
    code = device_memory(s, &b->p, bytes ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        free(b);
        return s->failed ? cuda_check(be, err) : cuda_no_memory(s, kind, bytes, err);
    }
    if (!cuda_ok(s, code, "cudaMalloc")) {
        free(b);
        return cuda_check(be, err);
    }
    keep_block(s, b);
    *memory_out = b->p;
    return ACCEL_OK;
}

accel_status_t cuda_alloc(const struct backend *be, enum backend_memory kind,
                          size_t bytes, void **memory_out, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    void *p;
    accel_status_t st = cuda_alloc_plain(be, kind, bytes, &p, err);

    if (st)
        return st;
    /* another queue may use it first, so it is zeroed before the call returns */
    if (!CHECK(s, cudaMemsetAsync(p, 0, bytes ? bytes : 1, s->now)) ||
        !cuda_finish(s)) {
        cuda_free(be, p);
        return cuda_check(be, err);
    }
    *memory_out = p;
    return ACCEL_OK;
}

/* Takes the entry of p out of the list; NULL: not ours. */
static struct cuda_block *take_block(struct cuda_state *s, void *p)
{
    /* some tens of allocations per process: a list will do */
    for (struct cuda_block **at = &s->blocks; *at; at = &(*at)->next)
        if ((*at)->p == p) {
            struct cuda_block *b = *at;

            *at = b->next;
            return b;
        }
    return NULL;
}

static void drop_block(struct cuda_state *s, struct cuda_block *b)
{
    /* after a failure these fail too, but there is nothing left to save */
    if (b->host)
        (void)cudaFreeHost(b->p);
    else
        (void)cudaFree(b->p);
    if (!b->host)
        s->held[b->kind] -= b->bytes;
    free(b);
}

void cuda_free(const struct backend *be, void *p)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_block *b;

    if (!p)
        return;
    if (s->end_recording)
        s->end_recording(s);
    /* kernels of any queue may still use it; if they never end, it stays in the list */
    if (!cuda_settled(s))
        return;
    b = take_block(s, p);
    if (b)
        drop_block(s, b);
}

void cuda_count(const struct backend *be, enum backend_memory kind, int64_t bytes)
{
    cuda_state_of(be)->held[kind] += (size_t)bytes;
}

/* Memory that the pool has freed still belongs to the process, so the pool counts with
 * what it reserves, and its peak is added to the rest. */
void cuda_usage(const struct backend *be, struct backend_usage *out)
{
    struct cuda_state *s = cuda_state_of(be);
    size_t left = 0, now = 0, most = 0;

    memset(out, 0, sizeof(*out));
    /* figures are wanted for messages, too: no failure of their own */
    if (cudaMemGetInfo(&left, &out->total) != cudaSuccess) {
        (void)cudaGetLastError();
        out->total = 0;
        return;
    }
    cuda_pool_bytes(s, &now, &most);
    memcpy(out->held, s->held, sizeof(out->held));
    out->held[MEMORY_WORK] += now;
    out->used = out->total - left;
    /* the pool is the only part that shrinks within a step */
    out->peak = out->used - now + most;
}

/* NULL is no failure of the device: the caller can do without. */
void *cuda_host_alloc(const struct backend *be, size_t bytes)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_block *b;

    if (s->failed)
        return NULL;
    b = new_block(s, MEMORY_KINDS, bytes, true);
    if (!b)
        return NULL;
    if (cudaHostAlloc(&b->p, bytes ? bytes : 1, cudaHostAllocPortable) != cudaSuccess) {
        /* usually the limit on locked memory; the caller reports it */
        (void)cudaGetLastError();
        free(b);
        return NULL;
    }
    memset(b->p, 0, bytes);
    keep_block(s, b);
    return b->p;
}

void cuda_host_free(const struct backend *be, void *p, size_t bytes)
{
    (void)bytes;
    cuda_free(be, p);
}

bool cuda_is_locked(struct cuda_state *s, const void *p, size_t bytes)
{
    for (const struct cuda_block *b = s->blocks; b; b = b->next)
        if (b->host && (const char *)p >= (char *)b->p &&
            (const char *)p + bytes <= (char *)b->p + b->bytes)
            return true;
    return false;
}

void cuda_memory_close(struct cuda_state *s)
{
    while (s->blocks) {
        struct cuda_block *b = s->blocks;

        s->blocks = b->next;
        drop_block(s, b);
    }
}
