/* SPDX-License-Identifier: Apache-2.0
 *
 * Master weights in 16 bits, for C and CUDA alike: the draws by which a step rounds
 * them, and one number in bfloat16 or float16. Static inline functions.
 *
 * Rounding up or down with the chance that keeps the mean lets changes far below half a
 * unit in the last place add up, which rounding to the nearest would drop each time.
 */
#ifndef ACCEL_NUMBERS_MASTERS_H
#define ACCEL_NUMBERS_MASTERS_H

#include "numbers/moments.h"

/* What a step draws by for the weights of one parameter: the next block of the Philox
 * counter after that of its moments, so that the two round independently. */
NUMBERS_INLINE struct moment_key master_key_of(uint64_t draws, uint64_t name)
{
    uint32_t word[4];
    struct moment_key key;

    rng_block(draws, name, 1, word);
    key.low = word[0];
    key.high = word[1];
    return key;
}

/* The lower half of the draw is added to the bits that are cut off: between two
 * bfloat16 these bits are linear in x. Infinity and NaN have nothing to round: a carry
 * would make NaN another number. */
NUMBERS_INLINE uint16_t master_of(float x, uint32_t word)
{
    const uint32_t bits = minifloat_bits(x);
    const uint32_t finite = 0u - (uint32_t)((bits & 0x7f800000u) != 0x7f800000u);
    const uint32_t nan = (uint32_t)((bits & 0x7fffffffu) > 0x7f800000u) << 6;

    return (uint16_t)((bits + (word & 0xffffu & finite)) >> 16 | nan);
}

/* The same for float16, x within its range or not finite: 13 bits of the draw are added
 * to those that are cut off. A subnormal one is first brought to an exponent where
 * steps of 2^-24 are the last bit kept. Infinity and NaN stay what they are. */
NUMBERS_INLINE uint16_t master_f16_of(float x, uint32_t word)
{
    const uint32_t bits = minifloat_bits(x), size = bits & 0x7fffffffu;
    const bool small = size < 0x38800000u; /* 2^-14, the least normal one */
    const uint32_t lifted = minifloat_bits(minifloat_float(size) + 0x1p-14f);
    const uint32_t y = minifloat_pick(small, lifted, size);
    const uint32_t zero = minifloat_pick(small, 113u << 10, 112u << 10);
    const uint32_t code = ((y + (word & 0x1fffu)) >> 13) - zero;
    const uint32_t odd = minifloat_pick(size == 0x7f800000u, 0x7c00u, 0x7e00u);

    return (uint16_t)((bits >> 16 & 0x8000u) |
                      minifloat_pick(size < 0x7f800000u, code, odd));
}

#endif
