/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank-order reduction kernels, blocked so that the accumulator stays in the first cache.
 * In: one pointer per rank. Out: the reduced array. Element-wise only: no kernel here adds
 * two elements of one array, so vector width and blocking change no bit.
 */
#include <string.h>

#include "comm/reduce.h"
#include "common/bf16.h"

#define BLOCK 2048 /* elements; 8 KiB of float32 */

ACCEL_MULTIVERSION
static void add2_f32(float *restrict acc, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = a[i] + b[i];
}

ACCEL_MULTIVERSION
static void add_f32(float *restrict acc, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] += b[i];
}

ACCEL_MULTIVERSION
static void add_bf16(float *restrict acc, const bf16_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] += bf16_to_f32(b[i]);
}

ACCEL_MULTIVERSION
static void store_scaled(float *restrict out, const float *restrict acc, size_t n,
                         float scale)
{
    for (size_t i = 0; i < n; i++)
        out[i] = scale * acc[i];
}

ACCEL_MULTIVERSION
static void add_scaled(float *restrict out, const float *restrict acc, size_t n,
                       float scale)
{
    for (size_t i = 0; i < n; i++)
        out[i] = out[i] + scale * acc[i];
}

/* acc[n] = sum over the ranks of elements [at, at + n). */
static void sum_block(float *acc, const void *const *src, int ranks, size_t at,
                      size_t n, accel_dtype_t t)
{
    if (t == ACCEL_BF16) {
        bf16_widen(acc, (const bf16_t *)src[0] + at, n);
        for (int r = 1; r < ranks; r++)
            add_bf16(acc, (const bf16_t *)src[r] + at, n);
        return;
    }
    if (ranks == 1) {
        memcpy(acc, (const float *)src[0] + at, n * sizeof(float));
        return;
    }
    add2_f32(acc, (const float *)src[0] + at, (const float *)src[1] + at, n);
    for (int r = 2; r < ranks; r++)
        add_f32(acc, (const float *)src[r] + at, n);
}

void reduce_scaled_sum(float *out, const void *const *src, int n, size_t elems,
                       accel_dtype_t t, float scale, bool accumulate)
{
    float acc[BLOCK];

    for (size_t at = 0; at < elems; at += BLOCK) {
        size_t m = elems - at < BLOCK ? elems - at : BLOCK;

        sum_block(acc, src, n, at, m, t);
        if (accumulate)
            add_scaled(out + at, acc, m, scale);
        else
            store_scaled(out + at, acc, m, scale);
    }
}

/* Comparisons are written so that a NaN on either side is kept. */
#define MAX_OF(a, b) ((a) != (a) ? (a) : (b) <= (a) ? (a) : (b))
#define MIN_OF(a, b) ((a) != (a) ? (a) : (b) >= (a) ? (a) : (b))

#define FOLD(name, type, expr)                                                         \
    ACCEL_MULTIVERSION                                                                 \
    static void name(type *restrict acc, const type *restrict in, size_t n)            \
    {                                                                                  \
        for (size_t i = 0; i < n; i++) {                                               \
            type a = acc[i], b = in[i];                                                \
                                                                                       \
            acc[i] = (expr);                                                           \
        }                                                                              \
    }

FOLD(max_f32, float, MAX_OF(a, b))
FOLD(min_f32, float, MIN_OF(a, b))
FOLD(sum_f64, double, a + b)
FOLD(max_f64, double, MAX_OF(a, b))
FOLD(min_f64, double, MIN_OF(a, b))
FOLD(sum_i64, int64_t, (int64_t)((uint64_t)a + (uint64_t)b))
FOLD(max_i64, int64_t, b > a ? b : a)
FOLD(min_i64, int64_t, b < a ? b : a)

static void fold_f64(double *acc, const double *in, size_t n, enum comm_op op)
{
    if (op == COMM_SUM)
        sum_f64(acc, in, n);
    else if (op == COMM_MAX)
        max_f64(acc, in, n);
    else
        min_f64(acc, in, n);
}

static void fold_i64(int64_t *acc, const int64_t *in, size_t n, enum comm_op op)
{
    if (op == COMM_SUM)
        sum_i64(acc, in, n);
    else if (op == COMM_MAX)
        max_i64(acc, in, n);
    else
        min_i64(acc, in, n);
}

static void fold_f32(float *acc, const float *in, size_t n, enum comm_op op)
{
    if (op == COMM_MAX)
        max_f32(acc, in, n);
    else
        min_f32(acc, in, n);
}

/* One block of MAX or MIN over float32 or bfloat16 sources. */
static void extreme_block(float *acc, const void *const *src, int ranks, size_t at,
                          size_t n, accel_dtype_t t, enum comm_op op)
{
    float wide[BLOCK];

    if (t == ACCEL_F32) {
        memcpy(acc, (const float *)src[0] + at, n * sizeof(float));
        for (int r = 1; r < ranks; r++)
            fold_f32(acc, (const float *)src[r] + at, n, op);
        return;
    }
    bf16_widen(acc, (const bf16_t *)src[0] + at, n);
    for (int r = 1; r < ranks; r++) {
        bf16_widen(wide, (const bf16_t *)src[r] + at, n);
        fold_f32(acc, wide, n, op);
    }
}

/* float32 and bfloat16: through a float32 block, because out may be a source. */
static void reduce_float(void *out, const void *const *src, int ranks, size_t elems,
                         accel_dtype_t t, enum comm_op op)
{
    float acc[BLOCK];

    for (size_t at = 0; at < elems; at += BLOCK) {
        size_t n = elems - at < BLOCK ? elems - at : BLOCK;

        if (op == COMM_SUM)
            sum_block(acc, src, ranks, at, n, t);
        else
            extreme_block(acc, src, ranks, at, n, t, op);
        if (t == ACCEL_BF16)
            bf16_narrow((bf16_t *)out + at, acc, n);
        else
            memcpy((float *)out + at, acc, n * sizeof(float));
    }
}

void reduce_op(void *out, const void *const *src, int n, size_t elems, accel_dtype_t t,
               enum comm_op op)
{
    union {
        double f64[BLOCK / 2];
        int64_t i64[BLOCK / 2];
    } acc;

    if (t == ACCEL_F32 || t == ACCEL_BF16) {
        reduce_float(out, src, n, elems, t, op);
        return;
    }
    for (size_t at = 0; at < elems; at += BLOCK / 2) {
        size_t m = elems - at < BLOCK / 2 ? elems - at : BLOCK / 2;

        memcpy(&acc, (const char *)src[0] + at * 8, m * 8);
        for (int r = 1; r < n; r++) {
            if (t == ACCEL_F64)
                fold_f64(acc.f64, (const double *)src[r] + at, m, op);
            else
                fold_i64(acc.i64, (const int64_t *)src[r] + at, m, op);
        }
        memcpy((char *)out + at * 8, &acc, m * 8);
    }
}

size_t reduce_slice_begin(size_t elems, int n, int r)
{
    size_t lines = (elems + 63) / 64;
    size_t at =
        (lines / (size_t)n * (size_t)r + lines % (size_t)n * (size_t)r / (size_t)n);

    at *= 64;
    return r == n || at > elems ? elems : at;
}
