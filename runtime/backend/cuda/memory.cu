/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the device that outlives a step, counted by what it is for; page-locked memory of
 * the host; scratch from the stream-ordered pool. In: bytes. Out: memory, or what was asked,
 * what is held by whom, and which option helps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

struct cuda_block {
    struct cuda_block *next;
    void *p;
    size_t bytes;
    enum backend_memory kind;
    bool host; /* page-locked: not in the device's books */
};

static const char *const helps[MEMORY_KINDS] = {
    "shard over all ranks (fsdp_sharding_strategy: FULL_SHARD), use more ranks, or "
    "keep "
    "parameters on the host (fsdp_offload_params: true)",
    "use more ranks with fsdp_sharding_strategy: FULL_SHARD or SHARD_GRAD_OP, or keep "
    "the "
    "optimizer on the host (fsdp_offload_params: true)",
    "use more ranks with fsdp_sharding_strategy: FULL_SHARD or SHARD_GRAD_OP, or keep "
    "the "
    "optimizer on the host (fsdp_offload_params: true)",
    "wrap smaller modules (fsdp_transformer_layer_cls_to_wrap, fsdp_min_num_params), "
    "or "
    "say mixed_precision: bf16",
    "wrap smaller modules (fsdp_transformer_layer_cls_to_wrap, fsdp_min_num_params)",
    "say fsdp_activation_checkpointing: true, use a smaller batch with more gradient "
    "accumulation, or mixed_precision: bf16",
    "use a smaller batch or a smaller cache of keys and values",
    "use a smaller batch with more gradient accumulation, or mixed_precision: bf16",
};

/* "parameters 1.2 GiB, activations 3.0 GiB"; kinds that hold nothing are left out. */
static void list_held(struct cuda_state *s, char *out, size_t len)
{
    char size[32];
    size_t at = 0;

    snprintf(out, len, "nothing");
    for (int k = 0; k < MEMORY_KINDS; k++)
        if (s->held[k] && at < len)
            at +=
                (size_t)snprintf(out + at, len - at, "%s%s %s", at ? ", " : "",
                                 backend_memory_name((enum backend_memory)k),
                                 format_bytes((double)s->held[k], size, sizeof(size)));
}

accel_status_t cuda_no_memory(struct cuda_state *s, enum backend_memory kind,
                              size_t bytes, accel_error_t *err)
{
    char asked[32], spare[32], all[32], held[384];
    size_t left = 0, total = s->be.memory_bytes;

    list_held(s, held, sizeof(held));
    if (cudaMemGetInfo(&left, &total) != cudaSuccess)
        (void)cudaGetLastError();
    format_bytes((double)left, spare, sizeof(spare));
    format_bytes((double)total, all, sizeof(all));
    if (!bytes)
        return accel_fail(
            err, A0447, helps[kind],
            "GPU %d is out of memory (%s); this process holds %s; %s of %s are "
            "free",
            s->device, s->call, held, spare, all);
    return accel_fail(
        err, A0447, helps[kind],
        "GPU %d is out of memory: %s for %s; this process holds %s; %s of %s "
        "are free",
        s->device, format_bytes((double)bytes, asked, sizeof(asked)),
        backend_memory_name(kind), held, spare, all);
}

/* The pool keeps what was freed; a failed allocation gets it once that is given back. */
static cudaError_t device_memory(struct cuda_state *s, void **out, size_t bytes)
{
    cudaError_t code = cudaMalloc(out, bytes);
    cudaMemPool_t pool;

    if (code != cudaErrorMemoryAllocation || !s->pool)
        return code;
    (void)cudaGetLastError();
    if (cudaDeviceSynchronize() == cudaSuccess &&
        cudaDeviceGetDefaultMemPool(&pool, s->device) == cudaSuccess)
        (void)cudaMemPoolTrimTo(pool, 0);
    return cudaMalloc(out, bytes);
}

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

static void keep_block(struct cuda_state *s, struct cuda_block *b)
{
    s->blocks = b;
    if (!b->host)
        s->held[b->kind] += b->bytes;
}

/* Lack of memory ends this call, any other failure the run. */
accel_status_t cuda_alloc(const struct backend *be, enum backend_memory kind,
                          size_t bytes, void **out, accel_error_t *err)
{
    struct cuda_state *s = cuda_state_of(be);
    const size_t whole = bytes ? bytes : 1;
    struct cuda_block *b;
    cudaError_t code;

    if (s->failed)
        return cuda_check(be, err);
    if (s->end_recording)
        s->end_recording(s);
    b = new_block(s, kind, bytes, false);
    if (!b)
        return accel_fail_nomem(err, backend_memory_name(kind), sizeof(*b));
    code = device_memory(s, &b->p, whole);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        free(b);
        return cuda_no_memory(s, kind, bytes, err);
    }
    if (!cuda_ok(s, code, "cudaMalloc")) {
        free(b);
        return cuda_check(be, err);
    }
    keep_block(s, b);
    /* Other queues may use it first: it is zero before the call returns. */
    if (!CHECK(s, cudaMemsetAsync(b->p, 0, whole, s->now)) || !cuda_finish(s)) {
        cuda_free(be, b->p);
        return cuda_check(be, err);
    }
    *out = b->p;
    return ACCEL_OK;
}

static struct cuda_block *take_block(struct cuda_state *s, void *p)
{
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
    /* After a failure these fail as well, and there is nothing left to save. */
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
    struct cuda_block *b = p ? take_block(s, p) : NULL;

    if (!b)
        return;
    if (s->end_recording)
        s->end_recording(s);
    (void)cudaDeviceSynchronize(); /* kernels of any queue may still use it */
    drop_block(s, b);
}

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
        (void)cudaGetLastError(); /* the limit on locked memory: the caller's to tell */
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

void *cuda_scratch(struct cuda_state *s, size_t bytes)
{
    cudaError_t code;
    void *p = NULL;

    if (!bytes || s->failed)
        return NULL;
    if (s->end_recording)
        return cuda_graph_scratch(s, bytes);
    code = s->pool ? cudaMallocAsync(&p, bytes, s->now) : cudaMalloc(&p, bytes);
    if (code == cudaErrorMemoryAllocation)
        cuda_lacks(s, MEMORY_WORK, bytes);
    return cuda_ok(s, code, "cudaMallocAsync") ? p : NULL;
}

void cuda_scratch_free(struct cuda_state *s, void *p)
{
    if (!p || cuda_graph_scratch_free(s, p))
        return;
    if (s->pool)
        CHECK(s, cudaFreeAsync(p, s->now));
    else
        CHECK(s, cudaFree(p)); /* waits for the device */
}

/* Freed scratch stays with the process: asking the system again would take longer than most
 * kernels. */
bool cuda_memory_open(struct cuda_state *s)
{
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool;

    return !s->pool || (CHECK(s, cudaDeviceGetDefaultMemPool(&pool, s->device)) &&
                        CHECK(s, cudaMemPoolSetAttribute(
                                     pool, cudaMemPoolAttrReleaseThreshold, &keep)));
}

void cuda_memory_close(struct cuda_state *s)
{
    while (s->blocks) {
        struct cuda_block *b = s->blocks;

        s->blocks = b->next;
        drop_block(s, b);
    }
}
