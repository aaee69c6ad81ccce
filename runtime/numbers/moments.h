/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit optimizer state, for C and CUDA alike: the code of one number, the scale of
 * a block, and the draws that decide how a step rounds. Static inline functions.
 *
 * A number is code units of its block's scale. The codes of averages of squares, which
 * are positive, have 8 bits and those of other averages a sign and 7; both are the bits
 * of the float32 1 + x from its exponent on down to the fourth bit of its fraction, so
 * they are even steps near 0 and of 3 to 6 % above, over a range of 10^6 and 4000. The
 * scale is the least that has a code for the block's largest number. A square above 0
 * keeps a code above 0, because the optimizer divides by it.
 */
#ifndef ACCEL_NUMBERS_MOMENTS_H
#define ACCEL_NUMBERS_MOMENTS_H

#include "numbers/bf16.h"
#include "numbers/minifloat.h"
#include "numbers/rng.h"

/* The value of the largest code: of 15 binades and of 7, each with 16 steps. */
#define MOMENT_SQUARE_TOP 63487.0f /* 0x1.fp15 - 1 */
#define MOMENT_SIGNED_TOP 247.0f   /* 0x1.fp7 - 1 */
/* Bits of the float32 that a code leaves out. */
#define MOMENT_SHIFT 19
#define MOMENT_ONE   0x3f800000u
#define MOMENT_SIGN  0x80u

/* ---- one number, in units -------------------------------------------------------- */

/* Minimum and maximum without a branch, which vectors have. */
NUMBERS_INLINE uint32_t moment_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

NUMBERS_INLINE uint32_t moment_max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Adding `dither` of [0, 2^19) to the bits that are cut off rounds up with the right
 * chance: between two codes the bits are linear in x. x >= 0; what is not a number has
 * the largest code. Bits of such numbers are in their order. */
NUMBERS_INLINE uint32_t moment_code(float x, float top, uint32_t dither)
{
    const float w =
        1.0f + minifloat_float(moment_min(minifloat_bits(x), minifloat_bits(top)));

    return (minifloat_bits(w) - MOMENT_ONE + dither) >> MOMENT_SHIFT;
}

NUMBERS_INLINE float moment_units(uint32_t code)
{
    return minifloat_float(MOMENT_ONE + (code << MOMENT_SHIFT)) - 1.0f;
}

/* A square above 0 has a code above 0. */
NUMBERS_INLINE uint32_t moment_of_square(float v, float per_unit, uint32_t dither)
{
    const uint32_t least = moment_min(minifloat_bits(v), 1);

    return moment_max(moment_code(v * per_unit, MOMENT_SQUARE_TOP, dither), least);
}

NUMBERS_INLINE float moment_square(uint32_t code, float unit)
{
    return moment_units(code) * unit;
}

NUMBERS_INLINE uint32_t moment_of_signed(float m, float per_unit, uint32_t dither)
{
    const uint32_t bits = minifloat_bits(m);
    const float x = minifloat_float(bits & 0x7fffffffu) * per_unit;

    return moment_code(x, MOMENT_SIGNED_TOP, dither) | (bits >> 24 & MOMENT_SIGN);
}

NUMBERS_INLINE float moment_signed(uint32_t code, float unit)
{
    const float x = moment_units(code & (MOMENT_SIGN - 1)) * unit;

    return minifloat_float(minifloat_bits(x) | (code & MOMENT_SIGN) << 24);
}

/* ---- with a power of two for each 32 (numbers/scaled.h) -------------------------- */

/* x, times the block's factor, as e4m3: a dither of 20 bits is added to those that are
 * cut off. A subnormal one is first brought to an exponent where steps of 2^-9 are the
 * last bit kept. What is not finite becomes NaN. */
NUMBERS_INLINE uint32_t moment_e4m3_of(float x, uint32_t dither)
{
    const uint32_t bits = minifloat_bits(x), size = bits & 0x7fffffffu;
    const bool small = size < 0x3c800000u; /* 2^-6, the least normal one */
    const uint32_t lifted = minifloat_bits(minifloat_float(size) + 0x1p-6f);
    const uint32_t y = minifloat_pick(small, lifted, size);
    const uint32_t zero = minifloat_pick(small, 121u << 3, 120u << 3);
    const uint32_t code = ((y + dither) >> 20) - zero;

    return (bits >> 24 & 0x80u) | minifloat_pick(size < 0x7f800000u, code, 0x7fu);
}

/* ---- the scale of a block -------------------------------------------------------- */

/* The unit where the largest number has the bits `most` without its sign, as the bits
 * of a bfloat16 widened to float32: rounded up, so that this number does not leave the
 * codes. Between limits whose unit and its inverse are normal numbers; the lower one is
 * far below what eps hides. */
NUMBERS_INLINE uint32_t moment_unit_bits(uint32_t most, float top)
{
    const uint32_t low = 0x0da24260u;  /* 1e-30 */
    const uint32_t high = 0x7f7fffffu; /* largest number: also of infinity and NaN */
    const float x = minifloat_float(moment_min(moment_max(most, low), high));

    return (minifloat_bits(x * (1.0f / top)) + 0xffffu) & 0xffff0000u;
}

/* ---- draws ----------------------------------------------------------------------- */

/* What a step draws by for one parameter, from Philox: struct optim_step has `draws`,
 * and struct update_span `name`. */
struct moment_key {
    uint32_t low, high;
};

NUMBERS_INLINE struct moment_key moment_key_of(uint64_t draws, uint64_t name)
{
    uint32_t word[4];
    struct moment_key key;

    rng_block(draws, name, 0, word);
    key.low = word[0];
    key.high = word[1];
    return key;
}

/* The draw for element e of the parameter: a hash of 32 bits (lowbias32 by C.
 * Wellons), since Philox for each element would take longer than the step. The lower
 * half rounds m, the upper one v. */
NUMBERS_INLINE uint32_t moment_word(struct moment_key key, uint32_t e, uint32_t e_high)
{
    uint32_t x = e ^ key.low;

    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) + (key.high ^ e_high);
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Half a word in place of a draw: it rounds to the nearest, a tie upwards. */
#define MOMENT_HALF_WORD 0x8000u

NUMBERS_INLINE uint32_t moment_dither(uint32_t half)
{
    return (half & 0xffffu) << (MOMENT_SHIFT - 16);
}

/* A gradient times `by`, its block's factor, as e4m3 by stochastic rounding. Draws are
 * hashes of the number itself, its place in the unit and how many micro-batches it is
 * the sum of: the same on any number of ranks and after a resume, with no state.
 * Without the last a number that is rounded down would come again with the next equal
 * gradient, and be rounded down again. */
NUMBERS_INLINE uint32_t gradient_code(float x, float by, uint32_t e, uint32_t salt)
{
    struct moment_key key;

    key.low = minifloat_bits(x);
    key.high = salt;
    return moment_e4m3_of(x * by, moment_word(key, e, 0) & 0xfffffu);
}

/* For the block with element e of a unit: its upper half, and the sums. */
NUMBERS_INLINE uint32_t gradient_salt(int64_t e, uint32_t sums)
{
    return (uint32_t)(e >> 32) + sums * 0x9e3779b9u;
}

#endif
