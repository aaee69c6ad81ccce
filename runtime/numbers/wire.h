/* SPDX-License-Identifier: Apache-2.0
 *
 * How an array of gradients is laid out on the wire. float32 and bfloat16: as in
 * memory. float16, e4m3 and e5m2, whose range is too small for gradients: in blocks
 * of WIRE_BLOCK numbers, each preceded by a float32 scale. The scale is a power of
 * two that brings the largest finite number of the block near the largest of the
 * format. A block is padded with zeros to a multiple of 4 bytes. All blocks of an
 * array except the last have the same size, so a piece that starts at a block can be
 * sent and read alone. Infinities and NaN do not affect the scale and are transmitted
 * (in e4m3 both as NaN).
 */
#ifndef ACCEL_NUMBERS_WIRE_H
#define ACCEL_NUMBERS_WIRE_H

#include "common/common.h"
#include "numbers/minifloat.h"

#define WIRE_BLOCK 128           /* numbers that share a scale */
#define WIRE_HEAD  sizeof(float) /* the scale */

/* Is the dtype sent in blocks with a scale? */
static inline bool wire_is_scaled(accel_dtype_t t)
{
    return t == ACCEL_F16 || t == ACCEL_F8E4M3 || t == ACCEL_F8E5M2;
}

/* Bytes of `elems` numbers on the wire. For a multiple of WIRE_BLOCK this is also the
 * offset of the block that starts with number `elems`. */
static inline size_t wire_bytes(size_t elems, accel_dtype_t t)
{
    const size_t size = accel_dtype_bytes(t);
    const size_t rest = elems % WIRE_BLOCK, blocks = elems / WIRE_BLOCK;

    if (!wire_is_scaled(t))
        return elems * size;
    return blocks * (WIRE_HEAD + WIRE_BLOCK * size) +
           (rest ? WIRE_HEAD + (rest * size + 3) / 4 * 4 : 0);
}

/* An array may be cut at multiples of this many numbers. */
static inline size_t wire_step(accel_dtype_t t)
{
    return wire_is_scaled(t) ? WIRE_BLOCK : 1;
}

/* Blocks of an array of `elems` numbers. */
static inline int64_t wire_blocks(int64_t elems)
{
    return (elems + WIRE_BLOCK - 1) / WIRE_BLOCK;
}

/* For arrays of n float32 (n a multiple of 32), stored one after the other and narrowed
 * in place. Blocks are counted through all arrays. When the blocks before number `at`
 * are done, those from `at` up to the result can be done in any order: their results
 * fall on numbers that nobody needs any more. */
static inline int64_t wire_reach(int64_t at, int64_t n, accel_dtype_t t)
{
    const int64_t each = wire_blocks(n), block = (int64_t)wire_bytes(WIRE_BLOCK, t);
    const int64_t array = (int64_t)wire_bytes((size_t)n, t);
    const int64_t done = (at / each * n + at % each * WIRE_BLOCK) * 4;
    const int64_t reach = done / array * each + done % array / block;

    return reach > at ? reach
                      : at + 1; /* a single block is read before it is written */
}

/* |f| as the bits of a float32, which compare like integers; 0 for infinity and NaN, so
 * that they do not affect the scale. */
NUMBERS_INLINE uint32_t wire_magnitude(float f)
{
    const uint32_t u = minifloat_bits(f) & 0x7fffffffu;

    return u < 0x7f800000u ? u : 0;
}

/* The exponent of a block's scale (biased, as in a float32) from the largest
 * magnitude in the block and the largest number of the format. It is at least 2, so
 * that the scale times the least number of any format is still exact; the inverse is
 * a normal number, too. */
NUMBERS_INLINE uint32_t wire_exponent(uint32_t magnitude, float largest)
{
    const uint32_t top = minifloat_bits(largest), part = top & 0x7fffffu;
    const uint32_t exponent = (magnitude + 0x7fffffu - part) >> 23;
    const uint32_t over = (top >> 23) - 127;

    return exponent > over + 2 ? exponent - over : 2;
}

/* The scale that a block carries, and the factor by which its numbers are narrowed. */
NUMBERS_INLINE float wire_scale(uint32_t exponent)
{
    return minifloat_float(exponent << 23);
}

NUMBERS_INLINE float wire_inverse(uint32_t exponent)
{
    return minifloat_float((254 - exponent) << 23);
}

#define WIRE_LARGEST_F16  65504.0f
#define WIRE_LARGEST_E4M3 448.0f
#define WIRE_LARGEST_E5M2 57344.0f

/* n float32 to blocks of the scaled type t, and back. To narrow in place, `blocks` may
 * be the address of src if no block is longer than its numbers were. */
void wire_narrow(void *blocks, const float *src, size_t n, accel_dtype_t t);
void wire_widen(float *dst, const void *blocks, size_t n, accel_dtype_t t);

#endif
