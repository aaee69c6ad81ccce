/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and multiplying with AVX-512: 14 x 32 results stay in 28 registers while k
 * runs. In: what panels.h says. Called only where tile_isa() is TILE_AVX512.
 */
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/gemm/panels_x86.h"

#if PANELS_X86
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,prfchw")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#include "backend/cpu/gemm/panels_512.h"

/* Not the intrinsic: compilers let the sum change its register, and run out of them. */
INLINE vector multiply_add(vector sum, vector x, vector y)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

/* Numbers of 16 bits. */
INLINE vector widen_halves(__m256i bits, const accel_dtype_t type)
{
    if (type == ACCEL_F16)
        return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* e4m3 is float16 with another bias and its own NaN, e5m2 its upper half. */
INLINE vector widen_bytes(__m128i bits, const accel_dtype_t type)
{
    __m256i h = _mm256_cvtepi8_epi16(bits), rest;
    __mmask16 nan;

    if (type == ACCEL_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bits));
    if (type == ACCEL_F8E5M2)
        return _mm512_cvtph_ps(_mm256_slli_epi16(h, 8));
    rest = _mm256_and_si256(h, _mm256_set1_epi16(E4M3_REST));
    nan = _mm256_cmpeq_epi16_mask(rest, _mm256_set1_epi16(E4M3_REST));
    h = _mm256_or_si256(_mm256_and_si256(h, _mm256_set1_epi16(F16_SIGN)),
                        _mm256_slli_epi16(rest, E4M3_SHIFT));
    h = _mm256_mask_mov_epi16(h, nan, _mm256_set1_epi16(F16_NAN));
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(E4M3_SCALE));
}

/* The numbers of `lanes` that are stored from element i of p on: as they are, or
 * widened. The others become 0; memory behind them is not touched. */
INLINE vector load_lanes(const void *p, int64_t i, __mmask16 lanes,
                         const accel_dtype_t type)
{
    if (type == ACCEL_F32)
        return _mm512_maskz_loadu_ps(lanes, (const float *)p + i);
    if (type == ACCEL_BF16 || type == ACCEL_F16)
        return widen_halves(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)p + i),
                            type);
    return widen_bytes(_mm_maskz_loadu_epi8(lanes, (const uint8_t *)p + i), type);
}

/* Vector j of row p of b. */
INLINE vector load_row(const struct panel_stream *s, int p, int64_t j,
                       const accel_dtype_t type)
{
    return load_lanes(s->b, p * s->b_step + j, 0xffff, type);
}

#define HAS_F16
#define STORED(k, type) (k)

#include "backend/cpu/gemm/panels_block.h"
#include "backend/cpu/gemm/panels_stream.h"

INLINE vector load_some(const void *p, int64_t i, int64_t n, const accel_dtype_t type)
{
    return load_lanes(p, i, lanes_below(n), type);
}

INLINE void transpose(vector r[16])
{
    __m512i bits[16];

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        bits[i] = _mm512_castps_si512(r[i]);
    turn_16x16(bits);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_castsi512_ps(bits[i]);
}

#include "backend/cpu/gemm/panels_pack.h"

const struct panel_kernel panels_avx512 = { .rows = ROWS,
                                            .lanes = 2 * WIDTH,
                                            .strided = true,
                                            .direct = true,
                                            .turn = turn_stored,
                                            .copy = copy_stored,
                                            .multiply = multiply_block,
                                            .stream = stream_block };
#endif
