/* SPDX-License-Identifier: Apache-2.0
 *
 * When the backward on tensor cores makes five products: a function of shapes, the
 * workspace and the device, without asking it. In: a call. Out: the parts that it is
 * made in, or seven products.
 *
 * Seven products: scores and their gradients are made once for dq and once for dk and
 * dv. Five: the kernel of dk and dv keeps the gradients of the scores, as it rounds
 * them for its own product, and dq is one product of these. By mma.sync the bits are
 * those of seven. By wgmma they need not be: there dq's kernel has the scores
 * transposed, and nothing says in which order they are summed.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_FIVE_H
#define ACCEL_BACKEND_CUDA_ATTENTION_FIVE_H

#include "backend/cuda/attention/attention_parts.h"
#include "backend/cuda/attention/attention_path.h"

/* The device that is counted on: an H100. Of its 990 TFLOP/s of dense 16-bit products,
 * kernels with wgmma are taken to reach 65 %, those with mma.sync 60 %. Per
 * microsecond: */
#define FIVE_WGMMA_FLOPS 640e6
#define FIVE_FLOPS       594e6
#define FIVE_BYTES       3.35e6
/* Instructions of a lane: 132 multiprocessors, 128 a cycle. Those of a score, as nvcc
 * makes them for dk and dv where a tile hides nothing: its share of the products' and
 * of the loop's, its probability and gradient; and what dropout draws for it. */
#define FIVE_INSTRUCTIONS 30.9e6
#define FIVE_A_SCORE      14
#define FIVE_A_DRAW       28
/* from one kernel's end to the next one's full speed */
#define FIVE_LAUNCH_US 4.0
/* blocks that a multiprocessor holds: registers allow three, or two of wide heads */
#define FIVE_BLOCKS 2
/* gradients of a tile's scores, 16 bits each */
#define FIVE_TILE_BYTES (ATTN_TILE * ATTN_TILE * 2)

static inline int64_t five_tiles(int64_t rows)
{
    return attn_quotient_up(rows, ATTN_TILE);
}

/* Bytes that the gradients of a part's scores take. */
static inline int64_t five_bytes(const struct attention *p, struct attn_split s)
{
    return s.samples * s.kv_heads * (p->heads / p->kv_heads) * five_tiles(p->queries) *
           five_tiles(p->keys) * FIVE_TILE_BYTES;
}

/* Pairs of a query and a key that it sees, without padding and masks. */
static inline double five_pairs(const struct attention *p)
{
    const double heads = (double)(p->batch * p->heads);
    int64_t first = p->offset + 1, last = p->offset + p->queries;

    if (!p->causal)
        return heads * (double)p->queries * (double)p->keys;
    first = first < 0 ? 0 : first < p->keys ? first : p->keys;
    last = last < 0 ? 0 : last < p->keys ? last : p->keys;
    return heads * (double)p->queries * (double)(first + last) / 2;
}

/* What the time depends on beside the call. wgmma: the kernels of dk and dv, and of
 * seven products' dq, have it; their blocks have 128 keys or queries each, and a
 * multiprocessor one of them. */
struct five_device {
    int sms;
    bool wgmma;
};

/* How much longer than on a device without an end a launch of n blocks takes, of
 * which `resident` run at a time. */
static inline double five_rounds(int64_t blocks, int64_t resident)
{
    return (double)(attn_quotient_up(blocks, resident) * resident) / (double)blocks;
}

/* Microseconds of products of `pairs` that move `bytes` per pair meanwhile. One product
 * alone takes scores as they are, more make them. */
static inline double five_work_us(const struct attention *p, double pairs, int products,
                                  double bytes, double flops_per_us)
{
    /* two widths are compiled; narrower heads are padded with zeros */
    const double width = p->head_width <= 64 ? 64 : 128;
    const double flops_us = pairs * 2 * products * width / flops_per_us;
    const double bytes_us = pairs * bytes / FIVE_BYTES;
    const int each = FIVE_A_SCORE + (p->dropout > 0.0f ? FIVE_A_DRAW : 0);
    const double scores_us = products > 1 ? pairs * each / FIVE_INSTRUCTIONS : 0;
    const double most = flops_us > bytes_us ? flops_us : bytes_us;

    return most > scores_us ? most : scores_us;
}

/* A kernel whose blocks have 64 rows each of `heads` heads; by wgmma 128. */
static inline double five_kernel_us(const struct attention *p, double pairs,
                                    int products, double bytes, int64_t heads,
                                    int64_t rows, int sms, bool wgmma)
{
    const int64_t block = wgmma ? 2 * ATTN_TILE : ATTN_TILE;
    const double work =
        five_work_us(p, pairs, products, bytes, wgmma ? FIVE_WGMMA_FLOPS : FIVE_FLOPS);

    return work * five_rounds(heads * attn_quotient_up(rows, block),
                              (int64_t)sms * (wgmma ? 1 : FIVE_BLOCKS)) +
           FIVE_LAUNCH_US;
}

/* Microseconds of the whole call: dq, then dk and dv. */
static inline double five_seven_us(const struct attention *p,
                                   const struct five_device *d)
{
    const double pairs = five_pairs(p);

    return five_kernel_us(p, pairs, 3, 0, p->batch * p->heads, p->queries, d->sms,
                          d->wgmma) +
           five_kernel_us(p, pairs, 4, 0, p->batch * p->kv_heads, p->keys, d->sms,
                          d->wgmma);
}

/* With five products, dk and dv write 2 bytes per pair, which dq reads: by mma.sync, as
 * the bytes take longer than its product. */
static inline double five_us(const struct attention *p, struct attn_split s,
                             const struct five_device *d)
{
    const int64_t parts = attn_parts(p, s), kv_heads = s.samples * s.kv_heads;
    const double pairs = five_pairs(p) / (double)parts;

    return (double)parts *
           (five_kernel_us(p, pairs, 4, 2, kv_heads, p->keys, d->sms, d->wgmma) +
            five_kernel_us(p, pairs, 1, 2, kv_heads * (p->heads / p->kv_heads),
                           p->queries, d->sms, false));
}

/* dq is written last here, so it must not be part of a sum with dk or dv, whose memory
 * the three may share. */
static inline bool five_order_is_free(const struct attention_grads *g)
{
    return g->dq.data && (g->dk.data || g->dv.data) && g->dq.data != g->dk.data &&
           g->dq.data != g->dv.data;
}

/* The parts of a call with five products in a workspace of `most` bytes. False: it
 * cannot be made so. */
static inline bool attn_five_fits(const struct attention *p,
                                  const struct attention_grads *g, int64_t most,
                                  struct attn_split *split_out)
{
    struct attn_split s = attn_unsplit(p);

    if (!five_order_is_free(g) || p->batch < 1 || p->queries < 1 || p->keys < 1)
        return false;
    while (five_bytes(p, s) > most)
        if (!attn_split_further(p, five_bytes(p, s), most, &s))
            return false;
    *split_out = s;
    return true;
}

/* Are five products in these parts less work than seven? */
static inline bool attn_five_pays(const struct attention *p, struct attn_split s,
                                  const struct five_device *d)
{
    return five_us(p, s, d) < five_seven_us(p, d);
}

#endif
