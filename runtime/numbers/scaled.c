/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays to and from blocks of float16 or e4m3 with a scale; one thread. Every number
 * is computed alone, except for the largest one of its block.
 */
#include "numbers/scaled.h"

#include "numbers/bf16.h"

ACCEL_MULTIVERSION
static uint32_t largest_of(const float *restrict x, int64_t n)
{
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = wire_magnitude(x[i]);

        most = u > most ? u : most;
    }
    return most;
}

/* name##_out narrows numbers of one block times `by`, name##_in widens them. */
#define FORMAT(name, type, narrow, widen)                                              \
    ACCEL_MULTIVERSION                                                                 \
    static void name##_out(void *to, const float *restrict x, int64_t n, float by)     \
    {                                                                                  \
        type *restrict out = to;                                                       \
                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] =                   \
            narrow(x[i] * by);                                                         \
    }                                                                                  \
    ACCEL_MULTIVERSION                                                                 \
    static void name##_in(float *restrict dst, const void *from, int64_t n, float by)  \
    {                                                                                  \
        const type *restrict in = from;                                                \
                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dst[i] =                   \
            widen(in[i]) * by;                                                         \
    }

FORMAT(f16, f16_t, f32_to_f16, f16_to_f32)
FORMAT(e4m3, f8_t, f32_to_e4m3, e4m3_to_f32)

uint8_t scaled_exponent(const float *x, int64_t n, accel_dtype_t type)
{
    const float top = type == ACCEL_F16 ? WIRE_LARGEST_F16 : WIRE_LARGEST_E4M3;

    return (uint8_t)wire_exponent(largest_of(x, n), top);
}

void scaled_widen(float *dst, struct scaled src, int64_t at, int64_t n)
{
    const char *data = src.data;
    const int64_t size = (int64_t)accel_dtype_bytes(src.type);

    for (int64_t i = at, length; i < at + n; i += length, dst += length) {
        const int64_t rest = SCALED_BLOCK - i % SCALED_BLOCK;
        const float by = wire_scale(src.exponent[i / SCALED_BLOCK]);

        length = at + n - i < rest ? at + n - i : rest;
        (src.type == ACCEL_F16 ? f16_in : e4m3_in)(dst, data + i * size, length, by);
    }
}

void scaled_narrow(struct scaled dst, const float *src, int64_t n)
{
    char *data = dst.data;
    const int64_t size = (int64_t)accel_dtype_bytes(dst.type);

    for (int64_t i = 0; i < n; i += SCALED_BLOCK) {
        const int64_t length = n - i < SCALED_BLOCK ? n - i : SCALED_BLOCK;
        const uint8_t exponent = scaled_exponent(src + i, length, dst.type);

        dst.exponent[i / SCALED_BLOCK] = exponent;
        (dst.type == ACCEL_F16 ? f16_out : e4m3_out)(data + i * size, src + i, length,
                                                     wire_inverse(exponent));
    }
}
