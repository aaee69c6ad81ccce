/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch sizes of the CUDA kernels as a backend of their own: planning needs
 * neither the module nor a device. Shapes in, bytes out. Serves as the `like` of a meta
 * backend; its kernels are NULL and never called.
 */
#include <stdlib.h>

#include "backend/cuda_sizes.h"
#include "backend/device.h"

/* The rows of sizes.h in terms of cuda_sizes.h. */
static size_t sizes_attention_scratch(const struct backend *be,
                                      const struct attention *p, bool backward)
{
    (void)be;
    return cuda_attention_bytes(p, backward);
}

static size_t sizes_conv_scratch(const struct backend *be, const struct conv *p,
                                 bool backward)
{
    (void)be;
    return cuda_conv_bytes(p, backward);
}

static size_t sizes_maxpool_scratch(const struct backend *be, const struct pool *p)
{
    (void)be;
    return cuda_maxpool_bytes(p);
}

static void cuda_sizes_close(struct backend *be)
{
    free(be);
}

accel_status_t backend_cuda_sizes_open(struct backend **backend_out, accel_error_t *err)
{
    struct backend *be = calloc(1, sizeof(*be));

    if (!be)
        return accel_fail_nomem(err, "the cuda backend's sizes", sizeof(*be));
    be->name = "cuda";
    be->isa = "none";
    be->threads = 1;
    be->device = true;
    /* what takes most memory */
    be->fp8 = BACKEND_FP8_TURNED;
    be->fp8_blocks = BACKEND_BLOCKS_32 | BACKEND_BLOCKS_128;
    be->close = cuda_sizes_close;
    backend_no_queues(be);
#define SCRATCH(name, ...) be->name = sizes_##name;
#include "backend/sizes.h"
    *backend_out = be;
    return ACCEL_OK;
}
