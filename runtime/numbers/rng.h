/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Random123). (key, stream, index) in, 128
 * random bits out; there is no state, so any rank can compute any draw. Never seeded
 * from time or the system.
 */
#ifndef ACCEL_NUMBERS_RNG_H
#define ACCEL_NUMBERS_RNG_H

#include <stdint.h>

/* Philox needs none of the vector headers, which take longer to read than all else. */
#define R123_USE_SSE 0
#include <Random123/philox.h>

/* nvcc builds it for host and device. */
#ifdef __CUDACC__
#define RNG_INLINE static inline __host__ __device__
#else
#define RNG_INLINE static inline
#endif

/* out[4]: independent draws for every different (key, stream, index). */
RNG_INLINE void rng_block(uint64_t key, uint64_t stream, uint64_t index,
                          uint32_t out[4])
{
    philox4x32_ctr_t c = { { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                             (uint32_t)(stream >> 32) } };
    philox4x32_key_t k = { { (uint32_t)key, (uint32_t)(key >> 32) } };

    c = philox4x32(c, k);
    for (int i = 0; i < 4; i++)
        out[i] = c.v[i];
}

/* Maps 32 random bits into the open interval (0, 1); exact in double. */
static inline double rng_unit(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

#endif
