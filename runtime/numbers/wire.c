/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays to and from blocks of the wire; one thread. Every number is computed alone,
 * except for the largest one of its block, so neither threads nor the vector width
 * can change a bit. `omp simd`, because -O2 alone does not vectorise loops with an
 * unknown trip count.
 */
#include "numbers/wire.h"

#include "numbers/bf16.h"

ACCEL_MULTIVERSION
static uint32_t largest_of(const float *restrict src, size_t n)
{
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        uint32_t u = wire_magnitude(src[i]);

        most = u > most ? u : most;
    }
    return most;
}

/* Functions for one format: name##_out narrows a block's numbers times `by`, name##_in
 * widens them; the scale before them is not their business. */
#define FORMAT(name, type, narrow, widen)                                              \
    ACCEL_MULTIVERSION                                                                 \
    static void name##_out(void *to, const float *restrict src, size_t n, float by)    \
    {                                                                                  \
        type *restrict out = to;                                                       \
                                                                                       \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) out[i] =                    \
            narrow(src[i] * by);                                                       \
    }                                                                                  \
    ACCEL_MULTIVERSION                                                                 \
    static void name##_in(float *restrict dst, const void *from, size_t n, float by)   \
    {                                                                                  \
        const type *restrict in = from;                                                \
                                                                                       \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) dst[i] = widen(in[i]) * by; \
    }

FORMAT(f16, f16_t, f32_to_f16, f16_to_f32)
FORMAT(e4m3, f8_t, f32_to_e4m3, e4m3_to_f32)
FORMAT(e5m2, f8_t, f32_to_e5m2, e5m2_to_f32)

/* A format's largest number and its two functions. */
struct format {
    float largest;

    void (*out)(void *to, const float *src, size_t n, float by);
    void (*in)(float *dst, const void *from, size_t n, float by);
};

static const struct format *format_of(accel_dtype_t t)
{
    static const struct format f16 = { WIRE_LARGEST_F16, f16_out, f16_in };
    static const struct format e4m3 = { WIRE_LARGEST_E4M3, e4m3_out, e4m3_in };
    static const struct format e5m2 = { WIRE_LARGEST_E5M2, e5m2_out, e5m2_in };

    return t == ACCEL_F16 ? &f16 : t == ACCEL_F8E4M3 ? &e4m3 : &e5m2;
}

/* Numbers in the block that begins at `at`: the last one may be shorter. */
static size_t block_length(size_t n, size_t at)
{
    return n - at < WIRE_BLOCK ? n - at : WIRE_BLOCK;
}

/* Builds each block in a local array and copies it, because in place its first bytes
 * lie on numbers that are still to be read. */
void wire_narrow(void *blocks, const float *src, size_t n, accel_dtype_t t)
{
    const struct format *f = format_of(t);
    char *to = blocks;

    for (size_t at = 0; at < n; at += WIRE_BLOCK) {
        const size_t length = block_length(n, at), bytes = wire_bytes(length, t);
        uint32_t exponent = wire_exponent(largest_of(src + at, length), f->largest);
        uint32_t block[1 + WIRE_BLOCK * sizeof(f16_t) / 4];
        const float scale = wire_scale(exponent);

        block[bytes / 4 - 1] = 0; /* the padding */
        memcpy(block, &scale, sizeof(scale));
        f->out(block + 1, src + at, length, wire_inverse(exponent));
        memcpy(to, block, bytes);
        to += bytes;
    }
}

void wire_widen(float *dst, const void *blocks, size_t n, accel_dtype_t t)
{
    const struct format *f = format_of(t);
    const char *from = blocks;

    for (size_t at = 0; at < n; at += WIRE_BLOCK) {
        const size_t length = block_length(n, at);
        float scale;

        memcpy(&scale, from, sizeof(scale));
        f->in(dst + at, from + WIRE_HEAD, length, scale);
        from += wire_bytes(length, t);
    }
}
