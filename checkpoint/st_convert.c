/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored floats to float32 and back: F32, BF16, F16, F64. Widening is exact, narrowing
 * rounds to nearest even and keeps infinities and NaN. Element by element: the same bits
 * on every machine.
 */
#include <string.h>

#include "common/bf16.h"
#include "st_internal.h"

bool st_is_float(const struct st_dtype *d)
{
    return strcmp(d->name, "F32") == 0 || strcmp(d->name, "BF16") == 0 ||
           strcmp(d->name, "F16") == 0 || strcmp(d->name, "F64") == 0;
}

/* Normal numbers: exponent and mantissa moved, the bias is 112 larger. Subnormal ones are
 * multiples of 2^-24. */
ACCEL_MULTIVERSION
static void f16_widen(float *dst, const uint16_t *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        uint32_t h = src[i], sign = (h & 0x8000) << 16, rest = h & 0x7fff, small_bits;
        uint32_t bits = (rest << 13) + (rest >= 0x7c00 ? 0x70000000 : 0x38000000);
        float small = (float)(int32_t)rest * 0x1p-24f;

        memcpy(&small_bits, &small, sizeof(small_bits));
        bits = (rest < 0x400 ? small_bits : bits) | sign;
        memcpy(&dst[i], &bits, sizeof(bits));
    }
}

/* Normal results: rounded as integers, bias subtracted. Subnormal ones (below 2^-14):
 * adding 0.5 lines the mantissa up, and the hardware rounds. */
ACCEL_MULTIVERSION
static void f16_narrow(uint16_t *dst, const float *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        uint32_t bits, sign, small_bits, normal, out;
        float f;

        memcpy(&bits, &src[i], sizeof(bits));
        sign = bits >> 16 & 0x8000;
        bits &= 0x7fffffff;
        memcpy(&f, &bits, sizeof(f));
        f += 0.5f;
        memcpy(&small_bits, &f, sizeof(small_bits));
        normal = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
        out = bits < 0x38800000 ? small_bits - 0x3f000000 : normal;
        out = bits >= 0x47800000 ? 0x7c00 : out; /* beyond the largest: infinity */
        out = bits > 0x7f800000 ? 0x7e00 | (bits >> 13 & 0x3ff) : out;
        dst[i] = (uint16_t)(sign | out);
    }
}

void st_to_f32(float *dst, const void *src, size_t n, const struct st_dtype *d)
{
    const double *wide = src;

    if (strcmp(d->name, "F32") == 0)
        memcpy(dst, src, n * sizeof(float));
    else if (strcmp(d->name, "BF16") == 0)
        bf16_widen(dst, src, n);
    else if (strcmp(d->name, "F16") == 0)
        f16_widen(dst, src, n);
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)wide[i];
}

void st_from_f32(void *dst, const float *src, size_t n, const struct st_dtype *d)
{
    if (strcmp(d->name, "F32") == 0)
        memcpy(dst, src, n * sizeof(float));
    else if (strcmp(d->name, "BF16") == 0)
        bf16_narrow(dst, src, n);
    else
        f16_narrow(dst, src, n);
}
