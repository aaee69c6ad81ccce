/* SPDX-License-Identifier: Apache-2.0
 *
 * The codes of f32_to_full_e4m3 and f32_to_full_e5m2 for loops: 32 bits each, and
 * without comparisons of floats, of which compilers make branches. Such a loop has
 * numbers of one size only and becomes whole vectors.
 */
#ifndef ACCEL_BACKEND_CPU_NARROW_H
#define ACCEL_BACKEND_CPU_NARROW_H

#include "backend/cpu/vmath.h"
#include "common/wire.h"

/* A size above that of `largest`, infinity too, becomes it; NaN stays. */
VM_INLINE float narrow_saturate(float f, float largest)
{
    const uint32_t u = minifloat_bits(f), size = u & 0x7fffffffu;
    const uint32_t most = minifloat_bits(largest);
    const bool above = size - most - 1 < 0x7f800000u - most;

    return minifloat_float((u & 0x80000000u) | minifloat_pick(above, most, size));
}

VM_INLINE uint32_t narrow_code(float f, const bool wide)
{
    return wide
               ? minifloat_narrow(narrow_saturate(f, WIRE_LARGEST_E5M2), MINIFLOAT_E5M2)
               : minifloat_narrow(narrow_saturate(f, WIRE_LARGEST_E4M3),
                                  MINIFLOAT_E4M3);
}

#endif
