/* SPDX-License-Identifier: Apache-2.0
 *
 * How an array of gradients lies on the wire. float32 and bfloat16: as in memory. float16,
 * e4m3 and e5m2, whose range gradients do not fit in: in blocks of WIRE_BLOCK numbers, each
 * behind a float32 scale, a power of two, with which the largest finite number of the block is
 * among the largest of the format. A block's numbers are filled up to a multiple of 4 bytes
 * with zeros; all blocks but an array's last have the same size, so a piece that begins with
 * a block can be sent and read alone. Infinities and NaN do not touch the scale and arrive
 * (in e4m3 both as NaN).
 */
#ifndef ACCEL_COMMON_WIRE_H
#define ACCEL_COMMON_WIRE_H

#include "common/common.h"
#include "common/minifloat.h"

#define WIRE_BLOCK 128 /* numbers that share a scale */
#define WIRE_HEAD  sizeof(float)

static inline bool wire_is_scaled(accel_dtype_t t)
{
    return t == ACCEL_F16 || t == ACCEL_F8E4M3 || t == ACCEL_F8E5M2;
}

/* Bytes of `elems` numbers on the wire; of those before a block, where it begins. */
static inline size_t wire_bytes(size_t elems, accel_dtype_t t)
{
    const size_t size = accel_dtype_bytes(t);
    const size_t rest = elems % WIRE_BLOCK, blocks = elems / WIRE_BLOCK;

    if (!wire_is_scaled(t))
        return elems * size;
    return blocks * (WIRE_HEAD + WIRE_BLOCK * size) +
           (rest ? WIRE_HEAD + (rest * size + 3) / 4 * 4 : 0);
}

/* Numbers at which an array may be cut. */
static inline size_t wire_step(accel_dtype_t t)
{
    return wire_is_scaled(t) ? WIRE_BLOCK : 1;
}

static inline int64_t wire_blocks(int64_t elems)
{
    return (elems + WIRE_BLOCK - 1) / WIRE_BLOCK;
}

/* Arrays of n numbers narrowed in place, n a multiple of 32: when all blocks before number
 * `at` are done, those up to here can be done in any order, as their results lie where no
 * number is wanted any more. */
static inline int64_t wire_reach(int64_t at, int64_t n, accel_dtype_t t)
{
    const int64_t each = wire_blocks(n), block = (int64_t)wire_bytes(WIRE_BLOCK, t);
    const int64_t array = (int64_t)wire_bytes((size_t)n, t);
    const int64_t done = (at / each * n + at % each * WIRE_BLOCK) * 4;
    const int64_t reach = done / array * each + done % array / block;

    return reach > at ? reach : at + 1; /* one alone is read before it is written */
}

/* What a number counts when the largest of its block is wanted: all but its sign. Not finite:
 * nothing. */
MINIFLOAT_INLINE uint32_t wire_magnitude(float f)
{
    const uint32_t u = minifloat_bits(f) & 0x7fffffffu;

    return u < 0x7f800000u ? u : 0;
}

/* The exponent of a block's scale, as a float32 has it, from its largest magnitude and the
 * largest number of the format. Its inverse is a normal number too, and the least number of
 * any format times the scale is still exact. */
MINIFLOAT_INLINE uint32_t wire_exponent(uint32_t magnitude, float largest)
{
    const uint32_t top = minifloat_bits(largest), part = top & 0x7fffffu;
    const uint32_t exponent = (magnitude + 0x7fffffu - part) >> 23;
    const uint32_t over = (top >> 23) - 127;

    return exponent > over + 2 ? exponent - over : 2;
}

MINIFLOAT_INLINE float wire_scale(uint32_t exponent)
{
    return minifloat_float(exponent << 23);
}

MINIFLOAT_INLINE float wire_inverse(uint32_t exponent)
{
    return minifloat_float((254 - exponent) << 23);
}

#define WIRE_LARGEST_F16  65504.0f
#define WIRE_LARGEST_E4M3 448.0f
#define WIRE_LARGEST_E5M2 57344.0f

/* n numbers as blocks of a scaled type, and back, times their scales. When narrowed they may
 * begin at the same address, if no block is longer than its numbers were. */
void wire_narrow(void *blocks, const float *src, size_t n, accel_dtype_t t);
void wire_widen(float *dst, const void *blocks, size_t n, accel_dtype_t t);

#endif
