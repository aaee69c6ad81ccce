/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers that share a scale, one to a lane: 8-bit moments, of which 16 lanes have
 * a block (numbers/moments.h), and arrays with a power of two for each 32, of which a
 * warp has one (numbers/scaled.h). All lanes of a warp call what finds a scale; those
 * past the range have no number, and count as 0.
 */
#ifndef ACCEL_BACKEND_CUDA_LANES_H
#define ACCEL_BACKEND_CUDA_LANES_H

#include "backend/cuda/cuda.h"
#include "numbers/masters.h"

/* Threads of a block: whole warps, each with whole blocks of numbers. */
enum { LANES_BLOCK = 256 };

static_assert(MOMENT_BLOCK == 16 && SCALED_BLOCK == WARP, "a lane has a number");

/* The largest of the `apart` * 2 lanes around, in all of them. */
static __device__ inline uint32_t lanes_max(uint32_t v, int apart)
{
    for (; apart; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(WARP_MASK, v, apart);

        v = v > other ? v : other;
    }
    return v;
}

/* ---- 8-bit moments ----------------------------------------------------------- */

template <bool POSITIVE>
static __device__ inline float widen_moment(const struct moments &x, int64_t i)
{
    const uint32_t code = ((const uint8_t *)x.data)[i];
    const float unit = bf16_to_f32(x.scale[i / MOMENT_BLOCK]);

    return POSITIVE ? moment_square(code, unit) : moment_signed(code, unit);
}

/* v becomes number i of x where the range has it. The lanes of a warp have read the
 * scale before one writes it. */
template <bool POSITIVE>
static __device__ inline void narrow_moment(const struct moments &x, int64_t i,
                                            bool inside, float v, uint32_t dither)
{
    const uint32_t most = lanes_max(minifloat_bits(v) & 0x7fffffffu, MOMENT_BLOCK / 2);
    const uint32_t unit =
        moment_unit_bits(most, POSITIVE ? MOMENT_SQUARE_TOP : MOMENT_SIGNED_TOP);
    const float per_unit = 1.0f / minifloat_float(unit);

    if (inside)
        ((uint8_t *)x.data)[i] =
            (uint8_t)(POSITIVE ? moment_of_square(v, per_unit, dither)
                               : moment_of_signed(v, per_unit, dither));
    if (inside && i % MOMENT_BLOCK == 0)
        x.scale[i / MOMENT_BLOCK] = (uint16_t)(unit >> 16);
}

/* ---- a power of two for each 32 -------------------------------------------------- */

static __device__ inline float widen_scaled(const struct scaled &x, int64_t i)
{
    const float by = wire_scale(x.exponent[i / SCALED_BLOCK]);

    return (x.type == ACCEL_F16 ? f16_to_f32(((const f16_t *)x.data)[i])
                                : e4m3_to_f32(((const f8_t *)x.data)[i])) *
           by;
}

/* Writes the scale of this warp's block, where v are the numbers, and returns the
 * factor that they are narrowed by. */
static __device__ inline float scale_lanes(const struct scaled &x, int64_t i,
                                           bool inside, float v)
{
    const uint32_t most = lanes_max(inside ? wire_magnitude(v) : 0, WARP / 2);
    const uint32_t exponent =
        wire_exponent(most, x.type == ACCEL_F16 ? WIRE_LARGEST_F16 : WIRE_LARGEST_E4M3);

    if (inside && i % SCALED_BLOCK == 0)
        x.exponent[i / SCALED_BLOCK] = (uint8_t)exponent;
    return wire_inverse(exponent);
}

/* `code` becomes number i of x where the range has it. */
static __device__ inline void put_code(const struct scaled &x, int64_t i, bool inside,
                                       uint32_t code)
{
    if (inside && x.type == ACCEL_F16)
        ((f16_t *)x.data)[i] = (f16_t)code;
    else if (inside)
        ((f8_t *)x.data)[i] = (f8_t)code;
}

#endif
