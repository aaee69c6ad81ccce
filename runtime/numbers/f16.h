/* SPDX-License-Identifier: Apache-2.0
 *
 * float16 <-> float32, whole arrays; minifloat.h has the rule for one number, and the
 * results here are the same bits, except that hardware makes a signalling NaN quiet
 * when it widens one (narrowing makes none). Uses the processor's conversions (F16C)
 * where it has them.
 */
#ifndef ACCEL_NUMBERS_F16_H
#define ACCEL_NUMBERS_F16_H

#include <stddef.h>

#include "numbers/minifloat.h"

#ifdef __cplusplus
extern "C" {
#endif
/* The processor has F16C, and AVX with it. */
bool f16_has_instruction(void);
/* dst[n] from src[n]; they must not overlap. */
void f16_widen(float *dst, const f16_t *src, size_t n);
/* dst[n] from src[n]. dst may start at the same address as src: element i is read
 * before it is overwritten. */
void f16_narrow(f16_t *dst, const float *src, size_t n);
#ifdef __cplusplus
}
#endif

#endif
