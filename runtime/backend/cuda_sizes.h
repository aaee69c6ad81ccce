/* SPDX-License-Identifier: Apache-2.0
 *
 * Working memory of the CUDA kernels, from shapes alone: planning needs neither the module
 * nor a device. Shapes in, bytes out.
 */
#ifndef ACCEL_BACKEND_CUDA_SIZES_H
#define ACCEL_BACKEND_CUDA_SIZES_H

#include "backend/backend.h"

/* What cuBLASLt may use beside its operands, for each queue that multiplies. */
#define CUDA_GEMM_WORKSPACE ((size_t)32 << 20)
/* Float32 sums of a product that an own kernel rounds: so many rows at a time. */
#define CUDA_GEMM_WIDE ((size_t)64 << 20)
/* Columns, sums and transposed gradients of a convolution, unless one image, or one place
 * of all channels, takes more. */
#define CUDA_CONV_BYTES ((int64_t)64 << 20)

/* Page-locked buffers that copies to and from the host go through, made as they are wanted. */
#define CUDA_STAGING_SLOT  ((size_t)2 << 20)
#define CUDA_STAGING_SLOTS 16
#define CUDA_STAGING_BYTES (CUDA_STAGING_SLOT * CUDA_STAGING_SLOTS)

struct cuda_conv_plan {
    int64_t taps;   /* of one channel: kernel_h * kernel_w */
    int64_t depth;  /* of a product: channels * taps */
    int64_t places; /* of one image: out_h * out_w */
    int64_t all;    /* of all images */
    int64_t chunk;  /* places at a time in y and the gradient of the weights */
    int64_t images; /* at a time in the gradient of x */
    int64_t channels;
};

static inline int64_t cuda_conv_clamp(int64_t v, int64_t high)
{
    v = v > high ? high : v;
    return v < 1 ? 1 : v;
}

/* Between rows of a matrix of n places: rows of bfloat16 begin at 16 bytes. */
static inline int64_t cuda_conv_ld(int64_t n)
{
    return (n + 7) / 8 * 8;
}

static inline struct cuda_conv_plan cuda_conv_plan_of(const struct conv *p)
{
    struct cuda_conv_plan c = { 0, 0, 0, 0, 0, 0, 0 };
    int64_t size = p->type == ACCEL_BF16 ? 2 : 4, image;

    c.taps = p->kernel_h * p->kernel_w;
    c.depth = p->channels * c.taps;
    c.places = p->out_h * p->out_w;
    c.all = p->batch * c.places;
    c.chunk = CUDA_CONV_BYTES / (c.depth * size + p->outputs * 4 + 1);
    c.chunk = cuda_conv_clamp(c.chunk / 8 * 8, c.all);
    image = (c.depth * 4 + p->outputs * size) * c.places + 1;
    c.images = cuda_conv_clamp(CUDA_CONV_BYTES / image, p->batch);
    c.channels =
        cuda_conv_clamp(CUDA_CONV_BYTES / (c.taps * c.places * 4 + 1), p->channels);
    if (image <= CUDA_CONV_BYTES)
        c.channels = p->channels;
    return c;
}

static inline size_t cuda_conv_bytes(const struct conv *p, bool backward)
{
    struct cuda_conv_plan c = cuda_conv_plan_of(p);
    int64_t size = p->type == ACCEL_BF16 ? 2 : 4, chunk = cuda_conv_ld(c.chunk);
    int64_t images = cuda_conv_ld(c.images * c.places);
    int64_t forward = (c.depth * size + p->outputs * 4) * chunk;
    int64_t weights = (c.depth + p->outputs) * size * chunk;
    /* the gradient of y of one image is read where it is */
    int64_t delta = c.images > 1 ? p->outputs * size : 0;
    int64_t input = (c.channels * c.taps * 4 + delta) * images;

    if (!backward)
        return (size_t)forward + 256;
    return (size_t)(weights > input ? weights : input) + 256;
}

/* The gradient of a maximum is gathered; this much is asked for all the same. */
static inline size_t cuda_maxpool_bytes(const struct pool *p)
{
    (void)p;
    return 256;
}

/* ---- attention ----------------------------------------------------------------------- */

#define ATTN_DECODE_WIDEST 1024
#define ATTN_DECODE_BLOCKS 512 /* enough for a device of some 130 multiprocessors */
#define ATTN_DECODE_SPLITS 64

/* Is one query per sample handed to the kernel that splits the keys? */
static inline bool cuda_attention_decodes(const struct attention *p)
{
    return p->queries == 1 && p->dropout == 0.0f && p->head_width <= ATTN_DECODE_WIDEST;
}

/* Parts that the keys are split into: enough blocks for the device, whatever the number of
 * keys, which grows from call to call when there is a cache. */
static inline int64_t cuda_attention_splits(const struct attention *p)
{
    int64_t heads = p->batch * p->kv_heads;
    int64_t splits = heads > 0 ? ATTN_DECODE_BLOCKS / heads : 1;

    return splits < 1 ? 1 : splits > ATTN_DECODE_SPLITS ? ATTN_DECODE_SPLITS : splits;
}

/* Forward: an output, a maximum and a sum per split. Backward: a delta per query. */
static inline size_t cuda_attention_bytes(const struct attention *p, bool backward)
{
    int64_t rows = p->batch * p->heads * p->queries, floats = 1;

    if (backward)
        floats += rows;
    else if (cuda_attention_decodes(p))
        floats += rows * cuda_attention_splits(p) * (p->head_width + 2);
    return (size_t)floats * sizeof(float);
}

#endif
