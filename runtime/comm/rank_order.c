/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions in rank order, in blocks so that the accumulator stays in the first cache.
 * In: one pointer per rank. Out: the reduced array. Element-wise only: no kernel here
 * adds two elements of one array, so vector width and blocking do not change any bit.
 */
#include <string.h>

#include "comm/reduce.h"
#include "numbers/bf16.h"
#include "numbers/wire.h"

#define BLOCK 2048 /* elements; 8 KiB of float32 */

/* Kernels: dst[i] = a[i] op b[i]. dst may be a or b: element i is read before it
 * is written. `omp simd`, because -O2 alone does not vectorise loops with an
 * unknown trip count. */
#define KERNEL(name, type, expr)                                                       \
    ACCEL_MULTIVERSION                                                                 \
    static void name(void *dst, const void *va, const void *vb, size_t n)              \
    {                                                                                  \
        type *out = dst;                                                               \
        const type *pa = va, *pb = vb;                                                 \
                                                                                       \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                             \
        {                                                                              \
            type a = pa[i], b = pb[i];                                                 \
                                                                                       \
            out[i] = (expr);                                                           \
        }                                                                              \
    }

/* The comparisons keep a NaN on either side: a != a keeps that of a, and if b is one
 * the comparison is false, so b is taken. `|` instead of `||`: no branch. int64 is
 * added unsigned, because signed overflow is undefined. */
KERNEL(sum_f32, float, a + b)
KERNEL(max_f32, float, ((a != a) | (b <= a)) ? a : b)
KERNEL(min_f32, float, ((a != a) | (b >= a)) ? a : b)
KERNEL(sum_f64, double, a + b)
KERNEL(max_f64, double, ((a != a) | (b <= a)) ? a : b)
KERNEL(min_f64, double, ((a != a) | (b >= a)) ? a : b)
KERNEL(sum_i64, int64_t, (int64_t)((uint64_t)a + (uint64_t)b))
KERNEL(max_i64, int64_t, b > a ? b : a)
KERNEL(min_i64, int64_t, b < a ? b : a)

typedef void (*kernel_t)(void *dst, const void *a, const void *b, size_t n);

/* The tables are indexed by enum comm_op. bfloat16 uses the float32 kernels. */
static kernel_t choose_kernel(accel_dtype_t t, enum comm_op op)
{
    static const kernel_t f32[] = { sum_f32, max_f32, min_f32 };
    static const kernel_t f64[] = { sum_f64, max_f64, min_f64 };
    static const kernel_t i64[] = { sum_i64, max_i64, min_i64 };

    return t == ACCEL_F64 ? f64[op] : t == ACCEL_I64 ? i64[op] : f32[op];
}

ACCEL_MULTIVERSION
/* acc += b, widened on the fly: the usual case, so it gets a kernel without
 * a wide copy */
static void add_bf16(float *restrict acc, const bf16_t *restrict b, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        acc[i] += bf16_to_f32(b[i]);
}

ACCEL_MULTIVERSION
/* The end of a block: out = scale * acc, or added to out. Two kernels, so that the
 * loops need no test. Each product is rounded before the addition: -ffp-contract=off
 * keeps FMA out. */
static void store_scaled(float *restrict out, const float *restrict acc, size_t n,
                         float scale)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = scale * acc[i];
}

ACCEL_MULTIVERSION
static void add_scaled(float *restrict out, const float *restrict acc, size_t n,
                       float scale)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = out[i] + scale * acc[i];
}

/* Folds elements [at, at + n) of all sources (`es` bytes each) into dst with k. dst may
 * be a source only if there are at most two: with more, it is written before the third
 * one is read. */
static void fold_block(void *dst, const void *const *src, int ranks, size_t at,
                       size_t n, size_t es, kernel_t k)
{
    const char *first = (const char *)src[0] + at * es;

    if (ranks == 1) {
        if (dst != first)
            memcpy(dst, first, n * es);
        return;
    }
    k(dst, first, (const char *)src[1] + at * es, n);
    for (int r = 2; r < ranks; r++)
        k(dst, dst, (const char *)src[r] + at * es, n);
}

/* The same for bfloat16 sources, in float32. */
static void fold_bf16(float *acc, const void *const *src, int ranks, size_t at,
                      size_t n, enum comm_op op)
{
    kernel_t k = choose_kernel(ACCEL_F32, op);
    float wide[BLOCK];

    bf16_widen(acc, (const bf16_t *)src[0] + at, n);
    for (int r = 1; r < ranks; r++) {
        if (op == COMM_SUM) {
            add_bf16(acc, (const bf16_t *)src[r] + at, n);
            continue;
        }
        bf16_widen(wide, (const bf16_t *)src[r] + at, n);
        k(acc, acc, wide, n);
    }
}

/* acc += elements [at, at + n) of src, as on the wire. Where they have a scale per
 * block, `at` is at the start of one. */
static void add_source(float *acc, const void *src, size_t at, size_t n,
                       accel_dtype_t t)
{
    const char *from = (const char *)src + wire_bytes(at, t);
    float wide[BLOCK];

    if (t == ACCEL_BF16) {
        add_bf16(acc, (const bf16_t *)(const void *)from, n);
        return;
    }
    if (wire_is_scaled(t))
        wire_widen(wide, from, n, t);
    sum_f32(acc, acc, wire_is_scaled(t) ? (const void *)wide : from, n);
}

/* The sum of sources of any type that travels. */
static void fold_sum(float *acc, const void *const *src, int ranks, size_t at, size_t n,
                     accel_dtype_t t)
{
    if (wire_is_scaled(t)) {
        wire_widen(acc, (const char *)src[0] + wire_bytes(at, t), n, t);
        for (int r = 1; r < ranks; r++)
            add_source(acc, src[r], at, n, t);
    } else if (t == ACCEL_BF16) {
        fold_bf16(acc, src, ranks, at, n, COMM_SUM);
    } else {
        fold_block(acc, src, ranks, at, n, sizeof(float), sum_f32);
    }
}

_Static_assert(BLOCK % WIRE_BLOCK == 0, "blocks here are whole ones of the wire");

void reduce_scaled_sum(float *out, const void *const *src, int n, size_t elems,
                       accel_dtype_t t, float scale, bool accumulate)
{
    float acc[BLOCK];

    for (size_t at = 0; at < elems; at += BLOCK) {
        size_t m = elems - at < BLOCK ? elems - at : BLOCK;

        fold_sum(acc, src, n, at, m, t);
        if (accumulate)
            add_scaled(out + at, acc, m, scale);
        else
            store_scaled(out + at, acc, m, scale);
    }
}

void reduce_go_on(float *out, const float *first, const void *const *src, int n,
                  size_t elems, accel_dtype_t t)
{
    for (size_t at = 0; at < elems; at += BLOCK) {
        size_t m = elems - at < BLOCK ? elems - at : BLOCK;

        if (!first) {
            fold_sum(out + at, src, n, at, m, t);
            continue;
        }
        if (out != first)
            memcpy(out + at, first + at, m * sizeof(*out));
        for (int r = 0; r < n; r++)
            add_source(out + at, src[r], at, m, t);
    }
}

void reduce_op(void *out, const void *const *src, int n, size_t elems, accel_dtype_t t,
               enum comm_op op)
{
    size_t es = accel_dtype_bytes(t);
    kernel_t k = choose_kernel(t, op);
    double acc[BLOCK]; /* holds elements of any type, aligned */

    for (size_t at = 0; at < elems; at += BLOCK) {
        size_t m = elems - at < BLOCK ? elems - at : BLOCK;
        char *dst = (char *)out + at * es;

        if (t == ACCEL_BF16) {
            fold_bf16((float *)(void *)acc, src, n, at, m, op);
            bf16_narrow((bf16_t *)(void *)dst, (const float *)(const void *)acc, m);
        } else if (n <= 2) {
            fold_block(dst, src, n, at, m, es, k);
        } else {
            fold_block(acc, src, n, at, m, es, k);
            memcpy(dst, acc, m * es);
        }
    }
}

/* The lines of 64 elements are divided first by quotient and then by remainder, so that
 * lines * r cannot overflow. */
size_t reduce_slice_begin(size_t elems, int n, int r)
{
    size_t lines = (elems + 63) / 64;
    size_t at =
        (lines / (size_t)n * (size_t)r + lines % (size_t)n * (size_t)r / (size_t)n);

    at *= 64;
    return r == n || at > elems ? elems : at;
}
