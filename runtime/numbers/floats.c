/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a conversion by type; bf16.c and f16.c convert.
 */
#include "numbers/floats.h"

#include <string.h>

#include "numbers/bf16.h"
#include "numbers/f16.h"

void floats_widen(float *dst, const void *src, accel_dtype_t type, size_t n)
{
    if (type == ACCEL_BF16)
        bf16_widen(dst, src, n);
    else if (type == ACCEL_F16)
        f16_widen(dst, src, n);
    else if (n > 0)
        memcpy(dst, src, n * sizeof(*dst));
}

void floats_narrow(void *dst, accel_dtype_t type, const float *src, size_t n)
{
    if (type == ACCEL_BF16)
        bf16_narrow(dst, src, n);
    else if (type == ACCEL_F16)
        f16_narrow(dst, src, n);
    else if (dst != src && n > 0)
        memcpy(dst, src, n * sizeof(*src));
}
