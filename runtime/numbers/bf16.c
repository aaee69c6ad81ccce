/* SPDX-License-Identifier: Apache-2.0
 *
 * The array forms of the bfloat16 conversions; one thread, any alignment.
 * `omp simd`, because -O2 alone does not vectorise loops with an unknown trip count.
 */
#include "numbers/bf16.h"

ACCEL_MULTIVERSION
void bf16_widen(float *dst, const bf16_t *src, size_t n)
{
    uint32_t *out = (uint32_t *)(void *)dst;

#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = (uint32_t)src[i] << 16;
}

ACCEL_MULTIVERSION
void bf16_narrow(bf16_t *dst, const float *src, size_t n)
{
    /* Safe in place: results are half as long, so a store never reaches numbers that
     * are still to be loaded. */
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_to_bf16(src[i]);
}
