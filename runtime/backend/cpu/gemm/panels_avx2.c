/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and multiplying with AVX2 and FMA: 6 x 16 results stay in 12 registers while
 * k runs. In: what panels.h says. Called only where the processor has both.
 */
#include <string.h>

#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/gemm/panels_x86.h"

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

/* The first numbers of 16 or 8 bits. e4m3 is float16 with another bias and its own NaN,
 * e5m2 its upper half. */
INLINE vector widen(__m128i bits, const accel_dtype_t type)
{
    __m128i h, rest, nan;

    if (type == ACCEL_F16)
        return _mm256_cvtph_ps(bits);
    if (type == ACCEL_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    if (type == ACCEL_I8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bits));
    h = _mm_cvtepi8_epi16(bits);
    if (type == ACCEL_F8E5M2)
        return _mm256_cvtph_ps(_mm_slli_epi16(h, 8));
    rest = _mm_and_si128(h, _mm_set1_epi16(E4M3_REST));
    nan = _mm_cmpeq_epi16(rest, _mm_set1_epi16(E4M3_REST));
    h = _mm_or_si128(_mm_and_si128(h, _mm_set1_epi16(F16_SIGN)),
                     _mm_slli_epi16(rest, E4M3_SHIFT));
    h = _mm_blendv_epi8(h, _mm_set1_epi16(F16_NAN), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(E4M3_SCALE));
}

/* Vector j of row p of b: as it is, or widened. */
INLINE vector load_row(const struct panel_stream *s, int p, int64_t j,
                       const accel_dtype_t type)
{
    int64_t at = p * s->b_step + j;

    if (type == ACCEL_F32)
        return _mm256_loadu_ps((const float *)s->b + at);
    return widen(
        _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)s->b + at)),
        type);
}

#define HAS_F16
#define STORED(k, type) (k)

#include "backend/cpu/gemm/panels_block.h"
#include "backend/cpu/gemm/panels_stream.h"

/* Transposes 8 x 8 numbers: interleave by 32, by 64, then by 128 bits. */
INLINE void transpose(vector r[8])
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

/* The first n of 16 bytes; the others become 0. Two loads that overlap, since masks are
 * of 32 bits. */
INLINE __m128i load_bytes(const uint8_t *at, int64_t n)
{
    uint32_t low = 0, high = 0;

    if (n >= 16)
        return _mm_loadu_si128((const __m128i *)(const void *)at);
    if (n >= 8) {
        __m128i left = _mm_loadl_epi64((const __m128i *)(const void *)at);
        __m128i right = _mm_loadl_epi64((const __m128i *)(const void *)(at + n - 8));

        right = _mm_srl_epi64(right, _mm_cvtsi32_si128((int)(16 - n) * 8));
        return _mm_unpacklo_epi64(left, right);
    }
    if (n >= 4) {
        memcpy(&low, at, 4);
        memcpy(&high, at + n - 4, 4);
        return _mm_cvtsi64_si128((int64_t)(low | (uint64_t)high << (n - 4) * 8));
    }
    for (int64_t i = 0; i < n; i++)
        low |= (uint32_t)at[i] << i * 8;
    return _mm_cvtsi32_si128((int)low);
}

/* The first n of 8 numbers that are stored from element i of p on: as they are, or
 * widened. The others become 0; memory behind them is not touched. */
INLINE vector load_some(const void *p, int64_t i, int64_t n, const accel_dtype_t type)
{
    const int64_t some = n < 8 ? n : 8;

    if (type == ACCEL_F32)
        return _mm256_maskload_ps((const float *)p + i, part_of(n));
    if (type == ACCEL_BF16 || type == ACCEL_F16)
        return widen(load_bytes((const uint8_t *)p + 2 * i, 2 * some), type);
    return widen(load_bytes((const uint8_t *)p + i, some), type);
}

#include "backend/cpu/gemm/panels_pack.h"

const struct panel_kernel panels_avx2 = { .rows = ROWS,
                                          .lanes = 2 * WIDTH,
                                          .direct = true,
                                          .turn = turn_stored,
                                          .copy = copy_stored,
                                          .multiply = multiply_block,
                                          .stream = stream_block };
#endif
