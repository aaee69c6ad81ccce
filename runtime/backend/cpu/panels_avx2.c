/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and multiplying with AVX2 and FMA: 6 x 16 results stay in 12 registers while
 * k runs. In: what panels.h says. Called only where the processor has both.
 */
#include "backend/cpu/panels.h"
#include "backend/cpu/panels_x86.h"
#include "common/bf16.h"

#if PANELS_X86
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#define ROWS  6
#define WIDTH 8

typedef __m256 vector;

INLINE vector load_vector(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE void store_vector(float *p, vector v)
{
    _mm256_storeu_ps(p, v);
}

INLINE vector zero_vector(void)
{
    return _mm256_setzero_ps();
}

INLINE vector add_vectors(vector a, vector b)
{
    return _mm256_add_ps(a, b);
}

INLINE vector all_lanes(const float *p)
{
    return _mm256_broadcast_ss(p);
}

/* Not the intrinsic: compilers let the sum change its register, and run out of them. */
INLINE vector multiply_add(vector sum, vector x, vector y)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
    return sum;
}

/* Vector j of row p of b: as it is, or widened. */
INLINE vector load_row(const struct panel_stream *s, int p, int64_t j,
                       const accel_dtype_t type)
{
    int64_t at = p * s->b_step + j;
    __m128i bits;

    if (type == ACCEL_F32)
        return _mm256_loadu_ps((const float *)s->b + at);
    bits = _mm_loadu_si128((const __m128i *)(const void *)((const bf16_t *)s->b + at));
    if (type == ACCEL_F16)
        return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

#define HAS_F16
#define STORED(k, type) (k)

#include "backend/cpu/panels_block.h"
#include "backend/cpu/panels_stream.h"

/* Transposes 8 x 8 numbers: interleave by 32, by 64, then by 128 bits. */
INLINE void turn_8x8(__m256 r[8])
{
    __m256 t[8];

#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

/* All ones in the first n lanes of 8; n may be negative or larger. */
INLINE __m256i part_of(int64_t n)
{
    int32_t most = n > 8 ? 8 : n < 0 ? 0 : (int32_t)n;

    return _mm256_cmpgt_epi32(_mm256_set1_epi32(most),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* 8 stored rows of 8 numbers at a time. */
TARGET static void turn_avx2(float *to, const void *from, int64_t ld, int64_t n,
                             int64_t k, int64_t width)
{
    for (int64_t p = 0; p < k; p += 8) {
        /* masked loads: numbers behind the row are not touched */
        __m256i part = part_of(k - p);
        int64_t steps = k - p >= 8 ? 8 : k - p;

        for (int64_t c = 0; c < width; c += 8) {
            const float *at = (const float *)from + c * ld + p;
            __m256 r[8];

#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                r[i] = c + i < n ? _mm256_maskload_ps(at + i * ld, part)
                                 : _mm256_setzero_ps();
            turn_8x8(r);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                if (i < steps)
                    _mm256_storeu_ps(to + (p + i) * width + c, r[i]);
        }
    }
}

/* Both vectors of a row at once: it is read in order. */
TARGET static void copy_avx2(float *to, const void *from, int64_t ld, int64_t n,
                             int64_t k, int64_t width)
{
    const float *at = from;
    __m256i left = part_of(n), right = part_of(n - 8);

    for (int64_t p = 0; p < k; p++, at += ld, to += width) {
        _mm256_storeu_ps(to, _mm256_maskload_ps(at, left));
        if (width > 8)
            _mm256_storeu_ps(to + 8, _mm256_maskload_ps(at + 8, right));
    }
}

const struct panel_kernel panels_avx2 = { .rows = ROWS,
                                          .lanes = 2 * WIDTH,
                                          .direct = true,
                                          .turn = turn_avx2,
                                          .copy = copy_avx2,
                                          .multiply = multiply_block,
                                          .stream = stream_block };
#endif
