/* SPDX-License-Identifier: Apache-2.0
 *
 * What the packing routines of x86 share: prefetching in step with the sums, masks and
 * the 16 x 16 transpose of AVX-512.
 */
#ifndef ACCEL_BACKEND_CPU_PANELS_X86_H
#define ACCEL_BACKEND_CPU_PANELS_X86_H

#include "backend/cpu/gemm/panels.h"

/* A build without clones has only the plain code. */
#if defined(__x86_64__) && !defined(ACCEL_NO_MULTIVERSION)
#define PANELS_X86 1
#include <immintrin.h>

extern const struct panel_kernel panels_avx512, panels_avx2;

#define PANELS_INLINE static inline __attribute__((always_inline))
#define PANELS_512    PANELS_INLINE __attribute__((target("avx512f")))

/* An e4m3 without its sign, shifted, is a float16 of 1 / 256 of its value; all ones are
 * NaN. Widened as a signed byte, it has its sign in the place of float16's. */
#define E4M3_REST  0x7f
#define E4M3_SHIFT 7
#define E4M3_SCALE 256.0f
#define F16_SIGN   ((short)0x8000)
#define F16_NAN    0x7e00

/* The next cache line of what lies ahead, into the second-level cache. */
PANELS_INLINE void panel_prefetch(struct panel_ahead *ahead)
{
    if (ahead->runs == 0)
        return;
    __builtin_prefetch(ahead->at, 0, 2);
    ahead->at += 64;
    if (ahead->at >= ahead->end) {
        ahead->runs--;
        ahead->at = ahead->end + ahead->stride - ahead->run;
        ahead->end += ahead->stride;
    }
}

/* Mask of the first n lanes of 16; n may be negative or larger. */
PANELS_512 __mmask16 lanes_below(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

/* Transposes 16 x 16 numbers of 32 bits: interleave by 32, by 64, then by 128 bits. */
PANELS_512 void turn_16x16(__m512i r[16])
{
    __m512i t[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        int at = i / 4 * 8 + i % 4;

        t[at] = _mm512_shuffle_i32x4(r[at], r[at + 4], 0x88);
        t[at + 4] = _mm512_shuffle_i32x4(r[at], r[at + 4], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    }
}
#else
#define PANELS_X86 0
#endif

#endif
