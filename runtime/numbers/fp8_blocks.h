/* SPDX-License-Identifier: Apache-2.0
 *
 * The scales of fp8 tensors, whole or in blocks, as Transformer Engine makes them:
 * which numbers of a linear's matrices share a scale, and what it is. In: largest
 * magnitudes. Out: scales; those of blocks are powers of two, so that scaling and its
 * undoing are exact. Numbers only.
 */
#ifndef ACCEL_NUMBERS_FP8_BLOCKS_H
#define ACCEL_NUMBERS_FP8_BLOCKS_H

#include <float.h>
#include <math.h>

#include "common/common.h"
#include "numbers/wire.h"

/* The tensors of a linear that are narrowed, each with a scale of its own. */
enum fp8_tensor { FP8_INPUT, FP8_WEIGHT, FP8_GRADIENT, FP8_TENSORS };
/* Its products, in the order of fp8_override_linear_precision. */
enum fp8_product { FP8_FORWARD, FP8_INPUT_GRADIENT, FP8_WEIGHT_GRADIENT, FP8_PRODUCTS };

/* Does the product sum over the rows of tensor t, as it is stored? Input and gradient
 * are [rows, features], the weight is [out, in]. */
static inline bool fp8_sums_rows(enum fp8_tensor t, enum fp8_product product)
{
    return product == (t == FP8_WEIGHT ? FP8_INPUT_GRADIENT : FP8_WEIGHT_GRADIENT);
}

/* Numbers that share a scale: all of a tensor, 128 or 128 x 128 of them with float32
 * scales, or 32 with 8-bit scales (MXFP8). */
enum fp8_blocks { FP8_NO_BLOCKS, FP8_BLOCKS_128, FP8_BLOCKS_32 };

/* The largest number of an 8-bit type. */
NUMBERS_INLINE float fp8_largest(accel_dtype_t type)
{
    return type == ACCEL_F8E4M3 ? WIRE_LARGEST_E4M3 : WIRE_LARGEST_E5M2;
}

/* The smallest scale: its inverse is finite. */
#define FP8_LEAST_SCALE 0x1p-127f

/* The scale for tensors whose largest magnitude is `amax`; `before` where that is 0 or
 * not finite. A large margin makes no scale whose inverse is infinite. */
NUMBERS_INLINE float fp8_scale_for(float amax, accel_dtype_t type, int margin,
                                   float before)
{
    const float scale = ldexpf(fp8_largest(type) / amax, -margin);

    /* also for NaN */
    if (!(amax > 0) || isinf(amax))
        return before;
    return isinf(scale) ? FLT_MAX : scale < FP8_LEAST_SCALE ? FP8_LEAST_SCALE : scale;
}

/* Sizes of a block, in elements of the matrix as it is stored. */
struct block_shape {
    int64_t height, width;
};

/* The blocks in which `product` takes tensor t, one of its two operands. They lie along
 * the dimension that the product sums over; those of weights in FP8_BLOCKS_128 are
 * square. */
static inline struct block_shape fp8_block_shape(enum fp8_blocks blocks,
                                                 enum fp8_tensor t,
                                                 enum fp8_product product)
{
    const int64_t size = blocks == FP8_BLOCKS_128 ? 128 : 32;
    const bool down = fp8_sums_rows(t, product);

    if (t == FP8_WEIGHT && blocks == FP8_BLOCKS_128)
        return (struct block_shape){ size, size };
    return down ? (struct block_shape){ size, 1 } : (struct block_shape){ 1, size };
}

/* FP8_BLOCKS_128, and whole tensors of recipes with `powers`: the largest power of two
 * up to largest number / amax; 1 where amax is 0 or infinite. Its inverse is exact. */
NUMBERS_INLINE float fp8_block_scale(float amax, accel_dtype_t type)
{
    const uint32_t bits = minifloat_bits(fp8_scale_for(amax, type, 0, 1));

    return minifloat_float(bits & 0xff800000u);
}

/* FP8_BLOCKS_32: the code e, which stands for 2^(e - 127), of the inverse scale: the
 * smallest one from amax / largest number. Infinity has the largest code, 254. */
NUMBERS_INLINE uint8_t e8m0_of(float amax, accel_dtype_t type)
{
    /* multiplied, not divided: the last bit decides at powers of two */
    const float by = (float)(1.0 / (double)fp8_largest(type));
    const uint32_t bits = minifloat_bits(amax * by);
    const uint32_t exponent = bits >> 23, rest = bits & 0x7fffffu;
    /* 2^-127 and 2^-126 are the codes 0 and 1 */
    const bool up = exponent ? rest > 0 : rest > 0x400000u;

    return (uint8_t)(exponent == 255 ? 254 : exponent + up);
}

/* The code of a power of two from 2^-127 on. */
NUMBERS_INLINE uint8_t e8m0_of_power(float power)
{
    return (uint8_t)(minifloat_bits(power) >> 23);
}

/* 2^(e - 127), for e up to 254. */
NUMBERS_INLINE float e8m0_to_f32(uint8_t e)
{
    return minifloat_float(e ? (uint32_t)e << 23 : 0x400000u);
}

#endif
