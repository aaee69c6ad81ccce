/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of the types that tensors compute in (float32, bfloat16, float16) to and from
 * float32. One thread, any alignment; narrowing rounds to nearest even.
 */
#ifndef ACCEL_NUMBERS_FLOATS_H
#define ACCEL_NUMBERS_FLOATS_H

#include "common/common.h"

/* dst[n] from src[n] of that type; they must not overlap. */
void floats_widen(float *dst, const void *src, accel_dtype_t type, size_t n);
/* dst[n] of that type from src[n]. dst may start at the same address as src. */
void floats_narrow(void *dst, accel_dtype_t type, const float *src, size_t n);

#endif
