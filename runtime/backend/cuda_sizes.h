/* SPDX-License-Identifier: Apache-2.0
 *
 * Workspace of the CUDA kernels, from shapes alone, so that planning needs neither the
 * module nor a device. Shapes in, bytes out. The kernels ask the same functions, so
 * plan and run cannot disagree.
 */
#ifndef ACCEL_BACKEND_CUDA_SIZES_H
#define ACCEL_BACKEND_CUDA_SIZES_H

#include "backend/operands.h"

/* cuBLASLt's workspace, one for each queue that multiplies. */
#define CUDA_GEMM_WORKSPACE ((size_t)32 << 20)
/* Internal workspace of all other kernels of the compute queue, reserved once: one part
 * in CUDA_WORKSPACE_PARTS of the device, so that at most 1.6 % of it may lie idle. The
 * most that any of them asks for are the scores of cuDNN's deterministic backward,
 * which is called in parts that fit; two key heads of 8192 tokens in 1107 MB, of a
 * device of 80 GB, still fill its multiprocessors. Partial sums always fit into the
 * least. */
#define CUDA_WORKSPACE_MOST  ((size_t)1280 << 20)
#define CUDA_WORKSPACE_LEAST ((size_t)4 << 20)
#define CUDA_WORKSPACE_PARTS 64
/* Float32 sums of a product that one of our kernels rounds afterwards. Larger products
 * are made in groups of rows that fit. */
#define CUDA_GEMM_WIDE ((size_t)64 << 20)
/* Scratch of a convolution: columns, sums and transposed gradients. Exceeded only if
 * one image, or one place of all channels, needs more. */
#define CUDA_CONV_BYTES ((int64_t)64 << 20)

/* Page-locked staging buffers for copies to and from the host, allocated on demand. */
#define CUDA_STAGING_SLOT  ((size_t)2 << 20)
#define CUDA_STAGING_SLOTS 16
#define CUDA_STAGING_BYTES (CUDA_STAGING_SLOT * CUDA_STAGING_SLOTS)

/* Bytes of workspace on a device with `memory` bytes (0: not known), in pages of 2 MiB.
 * A function of the device alone: what else is in its memory must not change which path
 * a kernel takes, and so the bits of a resumed run. */
static inline size_t cuda_workspace_bytes(size_t memory)
{
    const size_t page = (size_t)2 << 20;
    size_t bytes = memory / CUDA_WORKSPACE_PARTS / page * page;

    if (!memory || bytes > CUDA_WORKSPACE_MOST)
        return CUDA_WORKSPACE_MOST;
    return bytes < CUDA_WORKSPACE_LEAST ? CUDA_WORKSPACE_LEAST : bytes;
}

/* All that the kernels hold outside the arena. */
static inline size_t cuda_fixed_bytes(size_t memory)
{
    return CUDA_GEMM_WORKSPACE + cuda_workspace_bytes(memory);
}

/* How a convolution is cut into products that fit CUDA_CONV_BYTES. A place is a
 * position of y. */
struct cuda_conv_plan {
    /* per channel: kernel_h * kernel_w */
    int64_t taps;
    /* inner length of the product: channels * taps */
    int64_t depth;
    /* places of one image: out_h * out_w */
    int64_t places;
    /* places of all images */
    int64_t all;
    /* places per pass, for y and for the gradient of the weights */
    int64_t chunk;
    /* images per pass, for the gradient of x */
    int64_t images;
    /* channels per pass, for the gradient of x */
    int64_t channels;
};

/* v, but at least 1 and otherwise at most `high`. */
static inline int64_t cuda_conv_clamp(int64_t v, int64_t high)
{
    v = v > high ? high : v;
    return v < 1 ? 1 : v;
}

/* Leading dimension of a matrix with n places per row: rows of bfloat16 start at 16
 * bytes. */
static inline int64_t cuda_conv_ld(int64_t n)
{
    return (n + 7) / 8 * 8;
}

/* Depends on the shape alone, so the order of sums, and with it every bit, is the same
 * on every device. */
static inline struct cuda_conv_plan cuda_conv_plan_of(const struct conv *p)
{
    struct cuda_conv_plan c = { 0, 0, 0, 0, 0, 0, 0 };
    int64_t size = p->type == ACCEL_BF16 ? 2 : 4, image;

    c.taps = p->kernel_h * p->kernel_w;
    c.depth = p->channels * c.taps;
    c.places = p->out_h * p->out_w;
    c.all = p->batch * c.places;
    /* one place takes a column of x and a float32 sum per output; + 1 avoids a division
     * by 0 */
    c.chunk = CUDA_CONV_BYTES / (c.depth * size + p->outputs * 4 + 1);
    c.chunk = cuda_conv_clamp(c.chunk / 8 * 8, c.all);
    /* for the gradient of x: float32 columns, and dy in its own type */
    image = (c.depth * 4 + p->outputs * size) * c.places + 1;
    c.images = cuda_conv_clamp(CUDA_CONV_BYTES / image, p->batch);
    c.channels =
        cuda_conv_clamp(CUDA_CONV_BYTES / (c.taps * c.places * 4 + 1), p->channels);
    if (image <= CUDA_CONV_BYTES)
        c.channels = p->channels;
    return c;
}

/* Scratch of one call in bytes. Backward needs the weights' and x's part one after the
 * other, so the larger one; 256 covers the alignment of the parts. */
static inline size_t cuda_conv_bytes(const struct conv *p, bool backward)
{
    struct cuda_conv_plan c = cuda_conv_plan_of(p);
    int64_t size = p->type == ACCEL_BF16 ? 2 : 4, chunk = cuda_conv_ld(c.chunk);
    int64_t images = cuda_conv_ld(c.images * c.places);
    int64_t forward = (c.depth * size + p->outputs * 4) * chunk;
    int64_t weights = (c.depth + p->outputs) * size * chunk;
    /* a single image's gradient of y is read in place */
    int64_t delta = c.images > 1 ? p->outputs * size : 0;
    int64_t input = (c.channels * c.taps * 4 + delta) * images;

    if (!backward)
        return (size_t)forward + 256;
    return (size_t)(weights > input ? weights : input) + 256;
}

/* The gradient of a maximum is gathered from y, without scratch. Nonzero all the same:
 * callers ask for one block in any case. */
static inline size_t cuda_maxpool_bytes(const struct pool *p)
{
    (void)p;
    return 256;
}

/* ---- attention ------------------------------------------------------------------- */

/* Widest head of the decode kernel. */
#define ATTN_DECODE_WIDEST 1024
/* enough blocks for some 130 multiprocessors */
#define ATTN_DECODE_BLOCKS 512
#define ATTN_DECODE_SPLITS 64

/* Does this call (one query per sample) go to the kernel that splits the keys? */
static inline bool cuda_attention_decodes(const struct attention *p)
{
    return p->queries == 1 && p->dropout == 0.0f && p->head_width <= ATTN_DECODE_WIDEST;
}

/* Number of parts that the keys are split into: enough blocks to fill the device,
 * independent of the number of keys, which grows from call to call with a cache. */
static inline int64_t cuda_attention_splits(const struct attention *p)
{
    int64_t heads = p->batch * p->kv_heads;
    int64_t splits = heads > 0 ? ATTN_DECODE_BLOCKS / heads : 1;

    return splits < 1 ? 1 : splits > ATTN_DECODE_SPLITS ? ATTN_DECODE_SPLITS : splits;
}

/* Scratch in bytes. Forward: an output, a maximum and a sum per split. Backward: one
 * delta per query. */
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
