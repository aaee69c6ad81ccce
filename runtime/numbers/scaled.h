/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that rest in float16 or e4m3 with a scale for each 32 numbers: a power of two,
 * as one byte, that brings the largest finite number of the block near the format's
 * largest. In float16 what is within 2^-29 of that keeps all 11 bits. Infinity and NaN
 * do not affect the scale; float16 keeps them, in e4m3 both are NaN. Widening is exact.
 *
 * The rule of the scale is that of numbers/wire.h.
 */
#ifndef ACCEL_NUMBERS_SCALED_H
#define ACCEL_NUMBERS_SCALED_H

#include "numbers/wire.h"

/* Numbers that share a scale, counted from the start of the array. */
#define SCALED_BLOCK 32

/* A number is data[i] * 2^(exponent[i / 32] - 127), or 0 where the exponent is 0: so
 * zeroed memory holds zeros. */
struct scaled {
    void *data; /* NULL: there is none */
    uint8_t *exponent;
    accel_dtype_t type; /* ACCEL_F16 or ACCEL_F8E4M3 */
};

/* Scales of n numbers. */
static inline size_t scaled_blocks(int64_t n)
{
    return (size_t)((n + SCALED_BLOCK - 1) / SCALED_BLOCK);
}

/* Bytes of n numbers with their scales. */
static inline size_t scaled_bytes(int64_t n, accel_dtype_t type)
{
    return (size_t)n * accel_dtype_bytes(type) + scaled_blocks(n);
}

/* n numbers in scaled_bytes of memory: their scales follow them. */
static inline struct scaled scaled_in(void *memory, int64_t n, accel_dtype_t type)
{
    struct scaled x = { memory, (uint8_t *)memory + (size_t)n * accel_dtype_bytes(type),
                        type };

    return x;
}

/* The array from element `at` on, a multiple of 32. */
static inline struct scaled scaled_from(struct scaled x, int64_t at)
{
    x.data = (char *)x.data + at * (int64_t)accel_dtype_bytes(x.type);
    x.exponent += at / SCALED_BLOCK;
    return x;
}

/* Does narrowing ever write this exponent? The largest is that of the largest
 * float32. */
static inline bool scaled_is_exponent(uint8_t exponent, accel_dtype_t type)
{
    return exponent != 1 && exponent <= (type == ACCEL_F16 ? 240 : 247);
}

/* Elements [at, at + n), `at` of any value; one thread, no overlap. */
void scaled_widen(float *dst, struct scaled src, int64_t at, int64_t n);
/* n numbers from the start of a block, to the nearest; one thread, no overlap. */
void scaled_narrow(struct scaled dst, const float *src, int64_t n);

#endif
