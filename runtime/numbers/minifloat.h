/* SPDX-License-Identifier: Apache-2.0
 *
 * float16 and the two float8 formats of the Open Compute Project <-> float32, one
 * number at a time. Narrowing rounds to nearest even. Values beyond the largest number
 * become infinity; e4m3 has no infinity, so there they become its largest number, and
 * infinity becomes NaN. NaN stays NaN. nvcc builds all of it for host and device.
 */
#ifndef ACCEL_NUMBERS_MINIFLOAT_H
#define ACCEL_NUMBERS_MINIFLOAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Forced inline: the callers' loops are vectorised only if they contain no call. */
#ifdef __CUDACC__
#define NUMBERS_INLINE static __host__ __device__ __forceinline__
#else
#define NUMBERS_INLINE static inline __attribute__((always_inline))
#endif

typedef uint16_t f16_t;
typedef uint8_t f8_t; /* e4m3 or e5m2 */

/* Arguments `size, mantissa, bias, infinite` of the two functions below: bits in all,
 * bits of the mantissa, exponent of 1.0, and whether the format has infinities. */
#define MINIFLOAT_F16  16, 10, 15, true
#define MINIFLOAT_E4M3 8, 3, 7, false
#define MINIFLOAT_E5M2 8, 2, 15, true

NUMBERS_INLINE float minifloat_float(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

NUMBERS_INLINE uint32_t minifloat_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* first ? a : b without a branch. Compilers make a branch of `?:` here, which keeps the
 * loops around these functions from being vectorised. */
NUMBERS_INLINE uint32_t minifloat_pick(bool first, uint32_t a, uint32_t b)
{
    const uint32_t mask = 0u - (uint32_t)first;

    return (a & mask) | (b & ~mask);
}

/* A float32 so large that its last bit is worth one step of the format's subnormal
 * numbers: adding it makes the hardware round to such a step. */
NUMBERS_INLINE uint32_t minifloat_line(int mantissa, int bias)
{
    return (uint32_t)(128 - bias + 23 - mantissa) << 23;
}

/* Normal numbers are rounded as integers, then the exponent's bias is changed.
 * Subnormal ones are rounded by the hardware, in the addition of minifloat_line. Both
 * results are computed; masks select, also for overflow and NaN. */
NUMBERS_INLINE uint32_t minifloat_narrow(float f, int size, int mantissa, int bias,
                                         bool infinite)
{
    const int shift = 23 - mantissa;
    const uint32_t line = minifloat_line(mantissa, bias);
    const uint32_t least = (uint32_t)(128 - bias) << 23; /* least normal one */
    const uint32_t top = (uint32_t)(2 * bias + 1)
                         << mantissa; /* infinity, if it has one */
    const uint32_t last = infinite ? top : top + (1u << mantissa) - 2;
    const uint32_t quiet = 1u << (mantissa - 1), low = (1u << mantissa) - 1;
    uint32_t u = minifloat_bits(f), sign = u >> 31 << (size - 1), nan, small, out;

    u &= 0x7fffffffu;
    small = minifloat_bits(minifloat_float(u) + minifloat_float(line)) - line;
    out = (u + (1u << (shift - 1)) - 1 + (u >> shift & 1)) >> shift;
    out -= (uint32_t)(127 - bias) << mantissa;
    out = minifloat_pick(u < least, small, out);
    out = minifloat_pick(out > last, last, out);
    nan = infinite ? top | quiet | (u >> shift & low) : top | low;
    return sign | minifloat_pick(u > 0x7f800000u - (infinite ? 0 : 1), nan, out);
}

/* Exact. Subnormal numbers are those below 1 << mantissa; subtracting minifloat_line
 * makes the hardware normalise them. */
NUMBERS_INLINE float minifloat_widen(uint32_t h, int size, int mantissa, int bias,
                                     bool infinite)
{
    const int shift = 23 - mantissa;
    const uint32_t line = minifloat_line(mantissa, bias);
    const uint32_t top = (uint32_t)(2 * bias + 1) << mantissa;
    const uint32_t off = (uint32_t)(127 - bias) << 23;
    uint32_t sign = h >> (size - 1) << 31, rest = h & ((1u << (size - 1)) - 1);
    uint32_t small, bits = (rest << shift) + off;

    small = minifloat_bits(minifloat_float(line + rest) - minifloat_float(line));
    if (infinite)
        bits += minifloat_pick(rest >= top, off, 0);
    else
        bits = minifloat_pick(rest == top + (1u << mantissa) - 1, 0x7fc00000u, bits);
    return minifloat_float(sign | minifloat_pick(rest < 1u << mantissa, small, bits));
}

NUMBERS_INLINE f16_t f32_to_f16(float f)
{
    return (f16_t)minifloat_narrow(f, MINIFLOAT_F16);
}

NUMBERS_INLINE float f16_to_f32(f16_t h)
{
    return minifloat_widen(h, MINIFLOAT_F16);
}

NUMBERS_INLINE f8_t f32_to_e4m3(float f)
{
    return (f8_t)minifloat_narrow(f, MINIFLOAT_E4M3);
}

NUMBERS_INLINE float e4m3_to_f32(f8_t h)
{
    return minifloat_widen(h, MINIFLOAT_E4M3);
}

NUMBERS_INLINE f8_t f32_to_e5m2(float f)
{
    return (f8_t)minifloat_narrow(f, MINIFLOAT_E5M2);
}

NUMBERS_INLINE float e5m2_to_f32(f8_t h)
{
    return minifloat_widen(h, MINIFLOAT_E5M2);
}

/* A size above that of `largest`, infinity too, becomes it; NaN stays. Without
 * comparisons of floats, of which compilers make branches. */
NUMBERS_INLINE float minifloat_saturate(float f, float largest)
{
    const uint32_t u = minifloat_bits(f), size = u & 0x7fffffffu;
    const uint32_t most = minifloat_bits(largest);
    const bool above = size - most - 1 < 0x7f800000u - most;

    return minifloat_float((u & 0x80000000u) | minifloat_pick(above, most, size));
}

/* Saturated codes, as tensors of a product are narrowed: what is larger than the
 * format's largest number becomes that. In 32 bits: a loop with numbers of one size
 * only becomes whole vectors. */
NUMBERS_INLINE uint32_t f32_to_full_e4m3(float f)
{
    return minifloat_narrow(minifloat_saturate(f, 448.0f), MINIFLOAT_E4M3);
}

NUMBERS_INLINE uint32_t f32_to_full_e5m2(float f)
{
    return minifloat_narrow(minifloat_saturate(f, 57344.0f), MINIFLOAT_E5M2);
}

#endif
