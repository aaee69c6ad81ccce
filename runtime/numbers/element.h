/* SPDX-License-Identifier: Apache-2.0
 *
 * One number as an element of an array of any dtype, and arrays filled with it.
 */
#ifndef ACCEL_NUMBERS_ELEMENT_H
#define ACCEL_NUMBERS_ELEMENT_H

#include "common/common.h"

/* The bytes of an element, accel_dtype_bytes(dtype) of them, aligned for any dtype. */
struct element {
    _Alignas(8) unsigned char bytes[8];
};

/* Floats round to nearest even. False: the dtype has no such value. Integers have whole
 * numbers of their range, int64 up to 2^53: from there on a double skips numbers. */
bool element_of(struct element *out, accel_dtype_t dtype, double value);
/* n elements from `to` on, any alignment. */
void element_fill(void *to, accel_dtype_t dtype, const struct element *e, size_t n);

#endif
