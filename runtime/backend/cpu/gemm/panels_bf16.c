/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and multiplying bfloat16 with the instruction that multiplies pairs and adds
 * in float32 (AVX512_BF16): 14 x 32 results stay in registers. In: what panels.h says.
 * Called only where the processor has the instruction. Its sums have bits of their own,
 * because a chain takes pairs of k; they do not depend on the cut either.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/gemm/panels_x86.h"
#include "numbers/bf16.h"

#ifdef CPU_BF16_PRODUCTS
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,prfchw")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#include "backend/cpu/gemm/panels_512.h"

bool cpu_has_bf16_products(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

/* 16 stored rows of 32 numbers, which are 16 pairs, at a time. An odd k is padded with
 * 0. */
TARGET static void turn_pairs(float *to, const struct panel_source *from, int64_t n,
                              int64_t k, int64_t width)
{
    for (int64_t p = 0; p < k; p += 32) {
        /* masked loads: numbers behind the row are not touched, and count as 0 */
        __mmask32 part = k - p >= 32 ? ~0u : (1u << (k - p)) - 1;
        int64_t pairs = k - p >= 32 ? 16 : (k - p + 1) / 2;

        for (int64_t c = 0; c < width; c += 16) {
            const bf16_t *at = (const bf16_t *)from->at + c * from->ld + p;
            __m512i r[16];

#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                r[i] = c + i < n ? _mm512_maskz_loadu_epi16(part, at + i * from->ld)
                                 : _mm512_setzero_si512();
            turn_16x16(r);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (i < pairs)
                    _mm512_storeu_si512(to + (p / 2 + i) * width + c, r[i]);
        }
    }
}

/* A pair is two stored rows of one column. */
TARGET static void copy_pairs(float *to, const struct panel_source *from, int64_t n,
                              int64_t k, int64_t width)
{
    for (int64_t p = 0; p < k; p += 2, to += width)
        for (int64_t c = 0; c < width; c += 16) {
            const bf16_t *at = (const bf16_t *)from->at + p * from->ld + c;
            __mmask16 part = lanes_below(n - c);
            __m256i low = _mm256_maskz_loadu_epi16(part, at), high;

            high = p + 1 < k ? _mm256_maskz_loadu_epi16(part, at + from->ld)
                             : _mm256_setzero_si256();
            _mm512_storeu_si512(
                to + c,
                _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
        }
}

/* Not the intrinsic: compilers let the sum change its register, and run out of them. */
INLINE vector multiply_add(vector sum, vector x, vector y)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

/* Vector j of row p of pairs: packed, or from the two rows of b that make it. */
INLINE vector load_row(const struct panel_stream *s, int p, int64_t j,
                       const accel_dtype_t type)
{
    const bf16_t *at = (const bf16_t *)s->b + 2 * p * s->b_step + j;
    __m512i low, high;

    if (type == ACCEL_F32)
        return _mm512_loadu_ps((const float *)s->b + p * s->b_step + j);
    low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
    at += s->b_step;
    high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

#define STORED(k, type) ((type) == ACCEL_F32 ? (k) : 2 * (k))

#include "backend/cpu/gemm/panels_block.h"
#include "backend/cpu/gemm/panels_stream.h"

static const struct panel_kernel pairs_kernel = { .rows = ROWS,
                                                  .lanes = 2 * WIDTH,
                                                  .pairs = true,
                                                  .direct = true,
                                                  .turn = turn_pairs,
                                                  .copy = copy_pairs,
                                                  .multiply = multiply_block,
                                                  .stream = stream_block };

const struct panel_kernel *panel_kernel_of_pairs(void)
{
    return &pairs_kernel;
}

#else

bool cpu_has_bf16_products(void)
{
    return false;
}

const struct panel_kernel *panel_kernel_of_pairs(void)
{
    return &panels_plain; /* not called */
}

#endif
