/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel is told beside its arrays: the shapes, strides and constants of one
 * call, a struct each. Plain data: nothing here calls a kernel or owns memory.
 * kernels.h says what each kernel makes of it.
 *
 * Sizes and strides are in elements, matrices are row-major, and the caller owns
 * every pointer.
 */
#ifndef ACCEL_BACKEND_OPERANDS_H
#define ACCEL_BACKEND_OPERANDS_H

#include "common/common.h"
#include "numbers/scaled.h"

/* The losses whose mean over pairs of numbers is taken; formulas in maths.h. */
enum pair_loss { PAIR_SQUARE, PAIR_LOGIT };

/* Inverse scales of a matrix of 8-bit floats [rows, cols]: one for each block of height
 * x width. A code means itself times its block's. */
struct block_scales {
    void *inverse; /* NULL: there are none */
    /* made by the rule of MX, and bytes (numbers/fp8_blocks.h); else float32 */
    bool e8m0;
    int64_t height, width, cols;
    /* the codes are [cols, narrow_ld(rows)], with zeros after the last row: on devices
     * only */
    bool transposed;
    /* Codes and scales have block_lines(rows) rows: a library takes no other number of
     * lines. Those after the last row are zeros, with scales of 1. On devices only. */
    bool padded;
    /* The scale of row r and column c of blocks is number r * row_step + c * col_step.
     * On CPUs rows lie one after the other; a device's library wants them in its own
     * way. */
    int64_t row_step, col_step;
    /* Or in tiles, as tensor cores read them: bytes, of blocks of any size one for each
     * SCALE_TILE_K numbers of a line, which is what a product sums over. The scales of
     * SCALE_TILE_LINES lines and 4 * SCALE_TILE_K numbers lie together, that of line l
     * and the k-th of the four at l % 32 * 16 + l / 32 * 4 + k; this many tiles follow
     * each other for the same lines. 0: not so. */
    int64_t tiles;
    bool down; /* lines are columns */
};

enum { SCALE_TILE_K = 32, SCALE_TILE_LINES = 128, SCALE_TILE_BYTES = 512 };

/* The lines of a matrix that is `padded`. */
static inline int64_t block_lines(int64_t rows)
{
    return (rows + 7) / 8 * 8;
}

/* Blocks in a row. */
static inline int64_t blocks_across(const struct block_scales *s)
{
    return (s->cols + s->width - 1) / s->width;
}

/* c[m,n] = act(op(a) op(b) + bias), row-major; op(a) is [m,k], op(b) is [k,n]. m, n
 * and, with add, k may be 0. The backward uses two more forms: c = op(a) op(b) *
 * act'(pre), and row_sums, the sums of op(a) over k. Where a^T b is the gradient of a
 * weight, these sums are the gradient of its bias. */
struct gemm {
    /* a is stored as [k,m], b as [n,k] */
    bool trans_a, trans_b;
    int64_t m, n, k;
    const void *a, *b;
    /* floats of any type; int8 where the backend has int8_operands */
    accel_dtype_t a_type, b_type;
    /* a and b are e4m3 or e5m2, and stand for a * a_inverse[0] and b * b_inverse[0]:
     * the product is multiplied by both before all else. NULL: there are no scales. */
    const float *a_inverse, *b_inverse;
    /* in their place, scales of blocks */
    struct block_scales a_blocks, b_blocks;
    /* 8-bit operands: a device may keep sums in fewer bits than float32's. For
     * forwards. */
    bool fast;
    /* elements between the starts of stored rows */
    int64_t lda, ldb;
    void *c;
    accel_dtype_t c_type;
    int64_t ldc;
    /* c += instead of c =; not together with bias or act */
    bool add;
    const void *bias; /* [n] or NULL */
    accel_dtype_t bias_type;
    accel_activation_t act;
    /* out: the value before the activation, of c's type and stride; NULL: not wanted */
    void *pre;
    /* c = op(a) op(b) * act'(pre), where pre is an input (for RELU it may be the
     * activation's result); not together with add or bias. The product is rounded
     * first, as it would be for act_grad; a device may skip that rounding. */
    bool act_grad;
    /* [m] += sums of op(a) over k, see settle; only with trans_a and lda = m. NULL: not
     * wanted */
    float *row_sums;
};

/* Tensor cores take 8-bit floats in multiples of this many. */
#define NARROW_MULTIPLE 16

/* Elements between the rows of a transposed 8-bit copy of a matrix with `rows` rows. */
static inline int64_t narrow_ld(int64_t rows)
{
    return (rows + NARROW_MULTIPLE - 1) / NARROW_MULTIPLE * NARROW_MULTIPLE;
}

/* The 8-bit copies that a kernel makes of its result y [rows, cols] while it writes
 * that, with the bits of quantize on y as it is stored; all NULL: only the magnitude is
 * found. Copies begin at multiples of 16 bytes. */
struct narrow_copy {
    accel_dtype_t type; /* e4m3 or e5m2 */
    int64_t rows, cols;
    void *copy;         /* [rows, cols] or NULL */
    void *transposed;   /* [cols, narrow_ld(rows)], zeros after the last row, or NULL */
    const float *scale; /* NULL: there are no copies */
    float *amax;        /* as in quantize; NULL: not wanted */
};

/* Addresses the values of one position and head: head_width adjacent elements at data +
 * sample * b + row * t + head * h elements. */
struct heads {
    const void *data;
    int64_t sample, row, head;
};

/* y = (x - mean) / sqrt(var + eps) * gain + bias, or with rms x / sqrt(mean of x^2 +
 * eps) * gain; row by row, x and y [rows, cols]. */
struct norm {
    accel_dtype_t type;
    int64_t rows, cols;
    float eps;
    bool rms;
};

/* x [batch, channels, height, width] and weight [outputs, channels, kernel_h, kernel_w]
 * to y [batch, outputs, out_h, out_w]: y(r, c) = sum of weight(u, v) x(r * stride - pad
 * + u, c * stride - pad + v), zeros around x. */
struct conv {
    accel_dtype_t type;
    int64_t batch, channels, height, width;
    int64_t outputs, kernel_h, kernel_w, out_h, out_w;
    int64_t stride, pad;
};

/* The arrays of one conv: all in the type of struct conv. */
struct conv_forward {
    /* y = act(pre), pre = product + bias; pre NULL: not wanted */
    void *y, *pre;
    /* bias [outputs] or NULL */
    const void *x, *weight, *bias;
    accel_activation_t act;
};

/* The arrays of one conv_grad: dy as y, dx as x. */
struct conv_backward {
    const void *dy, *x, *weight;
    /* written or, with add, added to; NULL: not wanted */
    void *dx;
    bool add;
    /* always added to; NULL: not wanted */
    float *dweight, *dbias;
};

/* Max pooling from planes of [height, width] to planes of [out_h, out_w]. Windows are
 * size x size and lie wholly inside: there is no padding. */
struct pool {
    accel_dtype_t type;
    int64_t planes, height, width, out_h, out_w, size, stride;
};

/* Shapes, operands and rules of one attention call. Query head h reads key head h /
 * (heads / kv_heads). */
struct attention {
    /* of every tensor but lse, which is float32 */
    accel_dtype_t type;
    int64_t batch, queries, keys, heads, kv_heads, head_width;
    /* q [batch, queries, heads], k and v [batch, keys, kv_heads] */
    struct heads q, k, v;
    /* query t sees keys 0 .. offset + t */
    bool causal;
    int64_t offset;
    /* [batch]: keys from lengths[b] on are padding; NULL: none */
    const int32_t *lengths;
    const int32_t *mask; /* [batch, keys]: 0 is padding; NULL: none */
    float scale;
    /* Share of the probabilities that is dropped; the rest is scaled up. Key j of a
     * query is dropped when word j % 4 of rng_block(seed, stream, row * ceil(keys / 4)
     * + j / 4) is below dropout * 2^32; row = ((first_sample + b) * heads + h) *
     * queries + t. Counting samples over the whole run makes the mask independent of
     * rank and kernel. */
    float dropout;
    uint64_t seed, stream;
    int64_t first_sample;
};

#define ROPE_MAX_PAIRS 256

/* The angle of pair i at position t is (first + t) * frequency[i], in radians. */
struct rope {
    accel_dtype_t type;
    int64_t batch, time, heads, head_width; /* [batch, time, heads * head_width] */
    int64_t first;
    float frequency[ROPE_MAX_PAIRS];
};

/* A gradient that is written or, with add, added to; data NULL: not wanted. */
struct heads_out {
    void *data;
    int64_t sample, row, head;
    bool add;
};

/* Inputs and results of the attention's backward, beside those of struct attention. */
struct attention_grads {
    const void *out, *dout; /* [batch, queries, heads * head_width] */
    const float *lse;
    struct heads_out dq, dk, dv;
};

/* Constants of one optimizer step. optim/ computes them once, in double precision. */
struct adamw_step {
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float rate;       /* lr / (1 - beta1^t) */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float decay;      /* 1 - lr * weight_decay */
    float grad_scale; /* applied to every gradient first (clipping) */
};

/* As struct adamw_step, for SGD and for Lion. */
struct sgd_step {
    float lr, momentum;
    /* weights of the gradient and of the momentum: 0 and 1; Nesterov: 1 and momentum */
    float own, mixed;
    /* weight_decay: this times p is added to the gradient */
    float decay;
    float grad_scale;
};

struct lion_step {
    float lr, beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float decay; /* 1 - lr * weight_decay */
    float grad_scale;
};

/* The constants of an optimizer's step for one parameter group. Only the member of
 * `kind` is set. */
struct optim_step {
    accel_optimizer_kind_t kind;
    /* key of the draws by which this step rounds 8-bit moments and narrow masters */
    uint64_t draws;
    /* narrow masters are rounded to the nearest, not by draws */
    bool nearest;
    struct adamw_step adamw;
    struct sgd_step sgd;
    struct lion_step lion;
};

/* 8-bit numbers that share a scale. A block is counted from the start of its
 * parameter, and no rank's part cuts one: parts begin and end at multiples of 32. */
#define MOMENT_BLOCK 16

/* An array of optimizer state: float32, or with `scale` 8-bit codes and a bfloat16
 * for each MOMENT_BLOCK of them (numbers/moments.h). data NULL: there is none. */
struct moments {
    void *data;
    uint16_t *scale;
};

/* Scales of n codes. */
static inline size_t moment_scales(int64_t n)
{
    return (size_t)((n + MOMENT_BLOCK - 1) / MOMENT_BLOCK);
}

/* Arrays of a range that rest with scales, on CPUs: parameters in float16, gradients in
 * e4m3, state m in e4m3 and v in float16; those without data rest as the range says. A
 * step leaves gradients as they were. */
struct scaled_arrays {
    struct scaled master, gradient, m, v;
};

/* n elements of the shards that share the constants of optim_step[step]; -1: they are
 * not trained, their gradients g are zeroed and nothing else is touched. Parameters: p,
 * or in bfloat16 `narrow`; gradients: g; state: m and v, of one type. What is `scaled`
 * has no place here. What a step rounds by draws: all elements are of one parameter,
 * `name` is the hash of its name, `first` the number of the first of them, a multiple
 * of MOMENT_BLOCK, and of SCALED_BLOCK where there are scales. */
struct update_span {
    float *p;
    uint16_t *narrow;
    const struct scaled_arrays *scaled;
    struct moments m, v;
    float *g;
    int64_t n;
    int step;
    uint64_t name;
    int64_t first;
};

/* Cross-entropy: which targets count, and how much of one target is spread over all
 * classes (label smoothing). The loss of a row is lse - (1 - s) x[target] - s mean(x).
 */
struct xent {
    /* this target does not count, nor does any negative one */
    int32_t ignore;
    float smoothing;
    /* For messages: the number of row 0 in its batch, and the rows of a sequence; 0:
     * there are no sequences. */
    int64_t first, time;
};

/* n float32 elements at x. */
struct span {
    const float *x;
    int64_t n;
};

#endif
