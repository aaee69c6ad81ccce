/* SPDX-License-Identifier: Apache-2.0
 *
 * The meta backend: kernels that touch nothing. A forward and backward on it with a
 * counting arena makes the same allocations in the same order, and so gives the peak
 * before any memory is spent. Reading a value back gives zeros. It has no memory
 * functions: a rehearsal has no shards.
 *
 * Its empty kernels are made from the rows of kernels.h. Written out here is only what
 * leaves a trace: reads by the host, and internal workspace.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"

/* Most arguments are unused by design. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct meta {
    struct backend be; /* its state points back here */
    const struct backend *like;
    /* largest internal workspace of one kernel so far, in bytes */
    size_t own;
};

static const struct backend *like_of(const struct backend *be)
{
    return ((const struct meta *)be->state)->like;
}

/* Kernels of the compute queue run one after the other, so the maximum is enough. */
static void note_own(const struct backend *be, size_t bytes)
{
    struct meta *m = be->state;

    m->own = bytes > m->own ? bytes : m->own;
}

static void meta_close(struct backend *be)
{
    free(be->state);
}

static void meta_copy(const struct backend *be, void *dst, const void *src,
                      size_t bytes)
{
}

/* The host sees defined values, so that code which reads a loss goes on. */
static void meta_to_host(const struct backend *be, float *host, const void *src,
                         accel_dtype_t type, int64_t n)
{
    memset(host, 0, (size_t)n * sizeof(*host));
}

/* Zeros, for the same reason. */
static void meta_to_host_bytes(const struct backend *be, void *host, const void *src,
                               size_t bytes)
{
    memset(host, 0, bytes);
}

static void meta_from_host(const struct backend *be, void *dst, const void *host,
                           size_t bytes)
{
}

/* What an empty kernel returns. -1: no id is out of range. Ids are not read; there may
 * be no memory behind them. */
#define EMPTY_void
#define EMPTY_int64_t return -1
#define EMPTY_double  return 0

#define KERNEL(type, name, ...)                                                        \
    static type empty_##name(const struct backend *be, __VA_ARGS__)                    \
    {                                                                                  \
        EMPTY_##type;                                                                  \
    }
#include "backend/kernels.h"

/* The products, the embedding's gradient and the attention use internal workspace; a
 * rehearsal of the step finds the largest. */
static void meta_gemm(const struct backend *be, const struct gemm *p)
{
    const struct backend *like = like_of(be);

    if (like->gemm_own)
        note_own(be, like->gemm_own(like, p));
}

/* Only the table's gradient sorts ids; positions need nothing. */
static void meta_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                            const int32_t *ids, const void *dy, accel_dtype_t type,
                            int64_t rows, int64_t time, int64_t cols)
{
    const struct backend *like = like_of(be);

    if (dtable && like->embed_grad_own)
        note_own(be, like->embed_grad_own(like, rows));
}

/* NULL asks for the forward's workspace. */
static void meta_attention(const struct backend *be, const struct attention *p,
                           void *out, float *lse, void *scratch)
{
    const struct backend *like = like_of(be);

    if (like->attention_own)
        note_own(be, like->attention_own(like, p, NULL));
}

static void meta_attention_grad(const struct backend *be, const struct attention *p,
                                const struct attention_grads *grads, void *scratch)
{
    const struct backend *like = like_of(be);

    if (like->attention_own)
        note_own(be, like->attention_own(like, p, grads));
}

/* A template: backend_meta_open copies it and adds what depends on `like`. */
static const struct backend empty = {
    .name = "meta",
    .shapes_only = true,
    .isa = "none",
    .close = meta_close,
    .copy = meta_copy,
    .to_host = meta_to_host,
    .to_host_bytes = meta_to_host_bytes,
    .from_host = meta_from_host,
#define KERNEL(type, name, ...) .name = empty_##name,
#include "backend/kernels.h"
};

/* Scratch comes out of the arena, so the sizes must be those of the real device. */
static void share_sizes(struct backend *be, const struct backend *like)
{
    be->threads = like->threads;
    be->fixed_bytes = like->fixed_bytes;
#define SCRATCH(name, ...) be->name = like->name;
#define OWN(name, ...)
#include "backend/sizes.h"
}

/* own starts at what every kernel of `like` may use in any case. */
accel_status_t backend_meta_open(struct backend **backend_out,
                                 const struct backend *like, accel_error_t *err)
{
    struct meta *m = malloc(sizeof(*m));

    if (!m)
        return accel_fail_nomem(err, "the meta backend", sizeof(*m));
    *m = (struct meta){ .be = empty, .like = like, .own = like->own_least };
    backend_no_queues(&m->be);
    share_sizes(&m->be, like);
    m->be.gemm = meta_gemm;
    m->be.embed_grad = meta_embed_grad;
    m->be.attention = meta_attention;
    m->be.attention_grad = meta_attention_grad;
    m->be.state = m;
    *backend_out = &m->be;
    return ACCEL_OK;
}

size_t backend_meta_own_bytes(const struct backend *meta)
{
    return ((const struct meta *)meta->state)->own;
}
