/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored floats to float32 and back: F32, BF16, F16, F64. Widening is exact, narrowing
 * rounds to nearest even and keeps infinities and NaN. Element by element, hence the
 * same bits on every machine.
 */
#include <string.h>

#include "numbers/bf16.h"
#include "numbers/minifloat.h"
#include "st_internal.h"

bool st_is_float(const struct st_dtype *d)
{
    return strcmp(d->name, "F32") == 0 || strcmp(d->name, "BF16") == 0 ||
           strcmp(d->name, "F16") == 0 || strcmp(d->name, "F64") == 0;
}

/* A loop of its own, so that it is compiled for each instruction set. */
ACCEL_MULTIVERSION
static void f16_widen(float *dst, const f16_t *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(src[i]);
}

ACCEL_MULTIVERSION
static void f16_narrow(f16_t *dst, const float *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_to_f16(src[i]);
}

/* The last case is F64, the one that rounds. */
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

/* F64 does not occur: accel_safetensors_create refuses it. */
void st_from_f32(void *dst, const float *src, size_t n, const struct st_dtype *d)
{
    if (strcmp(d->name, "F32") == 0)
        memcpy(dst, src, n * sizeof(float));
    else if (strcmp(d->name, "BF16") == 0)
        bf16_narrow(dst, src, n);
    else
        f16_narrow(dst, src, n);
}
