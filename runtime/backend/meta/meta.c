/* SPDX-License-Identifier: Apache-2.0
 *
 * The meta backend: kernels that touch nothing. A forward and backward on it with a
 * counting arena makes the same allocations in the same order, and so gives the peak
 * before any memory is spent. Reading a value back gives zeros. It has no memory
 * functions: a rehearsal has no shards.
 *
 * Its empty kernels are made from the rows of kernels.h. Written out here are only the
 * reads by the host.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"

/* Most arguments are unused by design. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static void meta_close(struct backend *be)
{
    free(be);
}

static void meta_copy(const struct backend *be, void *dst, const void *src,
                      size_t bytes)
{
}

/* The host sees defined values, so that code which reads a loss can continue. */
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
 * be no memory at their addresses. */
#define EMPTY_void
#define EMPTY_int64_t return -1

#define KERNEL(type, name, ...)                                                        \
    static type empty_##name(const struct backend *be, __VA_ARGS__)                    \
    {                                                                                  \
        EMPTY_##type;                                                                  \
    }
#include "backend/kernels.h"

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
    be->fp8 = like->fp8;
    be->fp8_blocks = like->fp8_blocks;
    be->int8_operands = like->int8_operands;
#define SCRATCH(name, ...) be->name = like->name;
#include "backend/sizes.h"
}

accel_status_t backend_meta_open(struct backend **backend_out,
                                 const struct backend *like, accel_error_t *err)
{
    struct backend *be = malloc(sizeof(*be));

    if (!be)
        return accel_fail_nomem(err, "the meta backend", sizeof(*be));
    *be = empty;
    backend_no_queues(be);
    share_sizes(be, like);
    *backend_out = be;
    return ACCEL_OK;
}
