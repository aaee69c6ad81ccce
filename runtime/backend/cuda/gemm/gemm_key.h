/* SPDX-License-Identifier: Apache-2.0
 *
 * What selects the algorithm of a product, and which part of it cuBLASLt does:
 * functions of struct gemm alone, for C and C++, without a toolkit.
 */
#ifndef ACCEL_BACKEND_CUDA_GEMM_KEY_H
#define ACCEL_BACKEND_CUDA_GEMM_KEY_H

#include <string.h>

#include "backend/operands.h"

/* What cuBLASLt's epilogue does. Forward: any sum of the first three, GEMM_PRE only
 * with GEMM_GELU. Backward: one of the last two, the product times the slope of GELU,
 * or the row sums of op(a). */
enum {
    GEMM_PLAIN = 0,
    GEMM_BIAS = 1,
    GEMM_GELU = 2,
    GEMM_PRE = 4,
    GEMM_SLOPE = 8,
    GEMM_SUMS = 16
};

/* The scales of an 8-bit operand: one, one for each 128 numbers of a line, one for each
 * 128 x 128, or tiles of bytes. */
enum { GEMM_ONE_SCALE, GEMM_LINES, GEMM_SQUARES, GEMM_TILES };

/* Alignments are compared up to 2^4 = 16 bytes: no algorithm asks for more, so the
 * choice depends on no higher address bit. */
enum { GEMM_ALIGNED = 4 };

/* How a product is made: what is fused into it, and what is left to our own kernels. */
struct gemm_way {
    uint8_t fused; /* GEMM_*: done by the product itself */
    bool after;    /* gemm_finish does the rest */
    /* the product goes to float32 scratch, which gemm_finish rounds */
    bool wide;
};

/* Compared and hashed as bytes, so there must be no padding. Products with equal keys
 * run the same algorithm, and so give the same bits. */
struct gemm_key {
    int64_t m, n, k, lda, ldb, ldc;
    uint8_t trans_a, trans_b, add, fused;
    uint8_t a, b, out; /* accel_dtype_t of the operands and of the result */
    /* Alignment of each address as a power of two, at most GEMM_ALIGNED. */
    uint8_t align_a, align_b, align_c, align_bias, align_pre;
    uint8_t fast;               /* 8-bit operands, and sums of fewer bits */
    uint8_t blocks_a, blocks_b; /* GEMM_* of their scales */
    uint8_t none[1];
};

static inline uint8_t gemm_alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    uint8_t power = 0;

    while (power < GEMM_ALIGNED && !(at >> power & 1))
        power++;
    return power;
}

/* Can the epilogue save or read the value before a GELU? Rows must be whole 16 bytes.
 * Asked even where it is not saved, so that a forward without a tape has the same bits
 * as one with it. */
static inline bool gemm_pre_fits(const struct gemm *p)
{
    return p->ldc % 8 == 0 && (!p->pre || gemm_alignment(p->pre) == GEMM_ALIGNED);
}

static inline bool gemm_is_fp8(accel_dtype_t t)
{
    return t == ACCEL_F8E4M3 || t == ACCEL_F8E5M2;
}

/* Are both operands of one narrow type, or 8-bit? */
static inline bool gemm_narrow_in(const struct gemm *p)
{
    return (p->a_type != ACCEL_F32 && p->a_type == p->b_type) || gemm_is_fp8(p->a_type);
}

/* Rows of the product that cuBLASLt makes: what follows the last one of c stays in
 * scratch. */
static inline int64_t gemm_rows(const struct gemm *p)
{
    return p->a_blocks.padded ? block_lines(p->m) : p->m;
}

/* The backward's way. Row sums come in the type of c; those beside a float32 weight
 * gradient are as exact as our own kernel's. The bias before a GELU could get its
 * gradient along with the slope too, but rounded to the narrow type. */
static inline struct gemm_way gemm_way_back(const struct gemm *p)
{
    bool narrow_in = gemm_narrow_in(p), narrow_out = p->c_type != ACCEL_F32;
    struct gemm_way way = { GEMM_PLAIN, p->act_grad, narrow_out && !narrow_in };

    if (p->act_grad && narrow_in && narrow_out && p->act == ACCEL_ACT_GELU &&
        gemm_pre_fits(p)) {
        way.fused = GEMM_SLOPE;
        way.after = false;
    } else if (p->row_sums && !p->act_grad && !narrow_out) {
        way.fused = GEMM_SUMS;
    }
    return way;
}

static inline bool gemm_is_back(const struct gemm *p)
{
    return p->act_grad || p->row_sums;
}

/* The fallback where an epilogue has no algorithm: the plain product, with everything
 * else in our own kernels. The only way where c has no room for all of its rows. */
static inline struct gemm_way gemm_way_plain(const struct gemm *p)
{
    struct gemm_way way = { GEMM_PLAIN, true, p->c_type != ACCEL_F32 };

    if (gemm_rows(p) != p->m) {
        way.wide = true;
    } else if (gemm_is_back(p)) {
        way = gemm_way_back(p);
        way.fused = GEMM_PLAIN;
        way.after = p->act_grad;
    }
    return way;
}

/* The forward's way. cuBLASLt does GELU for narrow types only, whose rounding hides how
 * it computes tanh. It never does RELU: NaN must stay NaN. Rounding keeps the sign, so
 * RELU may follow it; the other activations may not. Beside 8-bit operands a bias is
 * never float32. */
static inline struct gemm_way gemm_way_of(const struct gemm *p)
{
    bool narrow_in = gemm_narrow_in(p), narrow_out = p->c_type != ACCEL_F32;
    bool bias_fits =
        !p->bias || (narrow_out ? p->bias_type == p->c_type : !gemm_is_fp8(p->a_type));
    bool whole = (narrow_in || !narrow_out) && bias_fits;
    bool gelu = narrow_out && p->act == ACCEL_ACT_GELU;
    struct gemm_way way = { GEMM_PLAIN, false, false };

    if (gemm_rows(p) != p->m)
        return gemm_way_plain(p);
    if (gemm_is_back(p))
        return gemm_way_back(p);
    if (whole && (p->act == ACCEL_ACT_NONE || p->act == ACCEL_ACT_RELU) && !p->pre) {
        way.fused = p->bias ? GEMM_BIAS : GEMM_PLAIN;
        way.after = p->act == ACCEL_ACT_RELU;
    } else if (whole && gelu && gemm_pre_fits(p)) {
        way.fused =
            (uint8_t)(GEMM_GELU | (p->bias ? GEMM_BIAS : 0) | (p->pre ? GEMM_PRE : 0));
    } else {
        way.after = true;
        way.wide = narrow_out;
    }
    return way;
}

static inline uint8_t gemm_blocks(const struct block_scales *s)
{
    return !s->inverse             ? GEMM_ONE_SCALE
           : s->tiles              ? GEMM_TILES
           : s->height == s->width ? GEMM_SQUARES
                                   : GEMM_LINES;
}

/* The key of a product whose operands have been brought to one type, or have 8 bits. */
static inline struct gemm_key gemm_key_of(const struct gemm *p, uint8_t fused)
{
    struct gemm_key key;

    memset(&key, 0, sizeof(key));
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.lda = p->lda;
    key.ldb = p->ldb;
    key.ldc = p->ldc;
    key.trans_a = p->trans_a;
    key.trans_b = p->trans_b;
    key.add = p->add;
    key.fused = fused;
    key.a = (uint8_t)p->a_type;
    key.b = (uint8_t)p->b_type;
    key.blocks_a = gemm_blocks(&p->a_blocks);
    key.blocks_b = gemm_blocks(&p->b_blocks);
    key.fast = p->fast && gemm_is_fp8(p->a_type) && !p->a_blocks.inverse;
    key.out = (uint8_t)p->c_type;
    key.align_a = gemm_alignment(p->a);
    key.align_b = gemm_alignment(p->b);
    key.align_c = gemm_alignment(p->c);
    if (fused & (GEMM_BIAS | GEMM_SUMS))
        key.align_bias = gemm_alignment(p->bias);
    if (fused & (GEMM_PRE | GEMM_SLOPE))
        key.align_pre = gemm_alignment(p->pre);
    return key;
}

static inline bool gemm_key_equal(const struct gemm_key *a, const struct gemm_key *b)
{
    return !memcmp(a, b, sizeof(*a));
}

/* FNV-1a */
static inline uint64_t gemm_key_hash(const struct gemm_key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < sizeof(*key); i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

#endif
