/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales of blocks, as Transformer Engine makes them: which numbers of a linear's
 * matrices share a scale, and what it is. In: largest magnitudes. Out: powers of two,
 * so that scaling and its undoing are exact. Numbers only.
 */
#ifndef ACCEL_PRECISION_FP8_BLOCKS_H
#define ACCEL_PRECISION_FP8_BLOCKS_H

#include "precision/fp8.h"

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
MINIFLOAT_INLINE float fp8_block_scale(float amax, accel_dtype_t type)
{
    const uint32_t bits = minifloat_bits(fp8_scale_for(amax, type, 0, 1));

    return minifloat_float(bits & 0xff800000u);
}

/* FP8_BLOCKS_32: the code e, which stands for 2^(e - 127), of the inverse scale: the
 * smallest one from amax / largest number. Infinity has the largest code, 254. */
MINIFLOAT_INLINE uint8_t e8m0_of(float amax, accel_dtype_t type)
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
MINIFLOAT_INLINE uint8_t e8m0_of_power(float power)
{
    return (uint8_t)(minifloat_bits(power) >> 23);
}

/* 2^(e - 127), for e up to 254. */
MINIFLOAT_INLINE float e8m0_to_f32(uint8_t e)
{
    return minifloat_float(e ? (uint32_t)e << 23 : 0x400000u);
}

#endif
