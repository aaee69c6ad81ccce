/* SPDX-License-Identifier: Apache-2.0
 *
 * Array forms of the bfloat16 conversions; one thread, any alignment.
 * `omp simd`: -O2 alone vectorises no loop whose trip count is unknown.
 */
#include "common/bf16.h"

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
    /* In place a vector's stores end before the next vector's loads begin. */
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_to_bf16(src[i]);
}
