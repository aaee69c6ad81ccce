/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and multiplying with AVX-512: 14 x 32 results stay in 28 registers while k
 * runs. In: what panels.h says. Called only where the processor has AVX-512F.
 */
#include "backend/cpu/panels.h"
#include "backend/cpu/panels_x86.h"
#include "common/bf16.h"

#if PANELS_X86
#define TARGET __attribute__((target("avx512f,prfchw")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#define ROWS  14
#define WIDTH 16

typedef __m512 vector;

INLINE vector load_vector(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE void store_vector(float *p, vector v)
{
    _mm512_storeu_ps(p, v);
}

INLINE vector zero_vector(void)
{
    return _mm512_setzero_ps();
}

INLINE vector add_vectors(vector a, vector b)
{
    return _mm512_add_ps(a, b);
}

INLINE vector all_lanes(const float *p)
{
    return _mm512_set1_ps(*p);
}

/* Not the intrinsic: compilers let the sum change its register, and run out of them. */
INLINE vector multiply_add(vector sum, vector x, vector y)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

/* Vector j of row p of b: as it is, or widened. */
INLINE vector load_row(const struct panel_stream *s, int p, int64_t j,
                       const accel_dtype_t type)
{
    int64_t at = p * s->b_step + j;
    __m256i bits;

    if (type == ACCEL_F32)
        return _mm512_loadu_ps((const float *)s->b + at);
    bits =
        _mm256_loadu_si256((const __m256i *)(const void *)((const bf16_t *)s->b + at));
    if (type == ACCEL_F16)
        return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

#define HAS_F16
#define STORED(k, type) (k)

#include "backend/cpu/panels_block.h"
#include "backend/cpu/panels_stream.h"

/* 16 stored rows of 16 numbers at a time. */
TARGET static void turn_avx512(float *to, const void *from, int64_t ld, int64_t n,
                               int64_t k, int64_t width)
{
    for (int64_t p = 0; p < k; p += 16) {
        /* masked loads: numbers behind the row are not touched */
        __mmask16 part = lanes_below(k - p);
        int64_t steps = k - p >= 16 ? 16 : k - p;

        for (int64_t c = 0; c < width; c += 16) {
            const float *at = (const float *)from + c * ld + p;
            __m512i r[16];

#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                r[i] = c + i < n ? _mm512_maskz_loadu_epi32(part, at + i * ld)
                                 : _mm512_setzero_si512();
            turn_16x16(r);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (i < steps)
                    _mm512_storeu_si512(to + (p + i) * width + c, r[i]);
        }
    }
}

/* Both vectors of a row at once: it is read in order. */
TARGET static void copy_avx512(float *to, const void *from, int64_t ld, int64_t n,
                               int64_t k, int64_t width)
{
    const float *at = from;
    __mmask16 left = lanes_below(n), right = lanes_below(n - 16);

    for (int64_t p = 0; p < k; p++, at += ld, to += width) {
        _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(left, at));
        if (width > 16)
            _mm512_storeu_ps(to + 16, _mm512_maskz_loadu_ps(right, at + 16));
    }
}

const struct panel_kernel panels_avx512 = { .rows = ROWS,
                                            .lanes = 2 * WIDTH,
                                            .strided = true,
                                            .direct = true,
                                            .turn = turn_avx512,
                                            .copy = copy_avx512,
                                            .multiply = multiply_block,
                                            .stream = stream_block };
#endif
