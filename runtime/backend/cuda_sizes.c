/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch sizes of the CUDA kernels as a backend of their own: planning needs
 * neither the module nor a device. Shapes in, bytes out. Serves as the `like` of a meta
 * backend; its kernels are NULL and never called.
 */
#include <stdlib.h>

#include "backend/cuda/own.h"
#include "backend/device.h"

/* The rows of sizes.h in terms of cuda_sizes.h and cuda/own.h. */
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

static size_t sizes_gemm_own(const struct backend *be, const struct gemm *p)
{
    (void)be;
    return cuda_gemm_own_bytes(p);
}

static size_t sizes_embed_grad_own(const struct backend *be, int64_t rows)
{
    (void)be;
    return cuda_embed_grad_own_bytes(rows);
}

/* A guess: only cuDNN itself, on the device, knows its workspace. */
static size_t sizes_attention_own(const struct backend *be, const struct attention *p,
                                  const struct attention_grads *grads)
{
    (void)be;
    return cuda_attention_own_guess(p, grads);
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
    be->fixed_bytes = CUDA_GEMM_WORKSPACE;
    be->own_least = CUDA_OWN_LEAST;
    be->close = cuda_sizes_close;
    backend_no_queues(be);
#define SCRATCH(name, ...) be->name = sizes_##name;
#define OWN(name, ...)     be->name = sizes_##name;
#include "backend/sizes.h"
    *backend_out = be;
    return ACCEL_OK;
}
