/* SPDX-License-Identifier: Apache-2.0
 *
 * See element.h.
 */
#include "numbers/element.h"

#include <string.h>

#include "numbers/floats.h"

/* A whole number within [low, high]. The machine is little-endian: the first bytes are
 * those of a narrower integer. NaN is within nothing. */
static bool integer_of(struct element *out, double v, double low, double high)
{
    int64_t whole = v >= low && v <= high ? (int64_t)v : INT64_MIN;

    memcpy(out->bytes, &whole, sizeof(whole));
    return (double)whole == v && whole != INT64_MIN;
}

bool element_of(struct element *out, accel_dtype_t dtype, double value)
{
    float narrow;

    switch (dtype) {
    case ACCEL_F64:
        memcpy(out->bytes, &value, sizeof(value));
        return true;
    case ACCEL_F32:
    case ACCEL_BF16:
    case ACCEL_F16:
        narrow = (float)value;
        floats_narrow(out->bytes, dtype, &narrow, 1);
        return true;
    case ACCEL_I64:
        return integer_of(out, value, -0x1p53, 0x1p53);
    case ACCEL_I32:
        return integer_of(out, value, INT32_MIN, INT32_MAX);
    case ACCEL_U16:
        return integer_of(out, value, 0, UINT16_MAX);
    case ACCEL_U8:
        return integer_of(out, value, 0, UINT8_MAX);
    case ACCEL_I8:
        return integer_of(out, value, INT8_MIN, INT8_MAX);
    default:
        return false;
    }
}

void element_fill(void *to, accel_dtype_t dtype, const struct element *e, size_t n)
{
    const size_t size = accel_dtype_bytes(dtype);

    for (size_t i = 0; i < n; i++)
        memcpy((char *)to + i * size, e->bytes, size);
}
