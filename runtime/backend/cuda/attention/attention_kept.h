/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys dropout keeps, made by the lanes that hold the scores: no shared memory
 * and no barrier. In: a tile of 64 queries and 64 keys, of which a warp holds 16 rows
 * as results of ptx_mma. Out: 32 bits for this lane's 32 scores; bit 4 n + i is element
 * i of result n. The words are those of attn_stage_kept. A block of four belongs to
 * four keys of a query, so the lanes that share them make a block each and hand over
 * bits: nothing is drawn twice.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_KEPT_H
#define ACCEL_BACKEND_CUDA_ATTENTION_KEPT_H

#include "backend/cuda/attention/attention_mma.h"

#define KEPT_RESULTS (ATTN_TILE / 8)

/* Rows are queries; `row`: the upper of this lane's two. Two lanes side by side share
 * four keys: the even one draws for the upper row, the odd one for the lower. */
static __device__ __forceinline__ uint32_t kept_by_queries(const struct attention &p,
                                                           const struct attn_tile &t,
                                                           int row)
{
    const struct attn_draws d = attn_draws_of(p, t);
    const int odd = (int)threadIdx.x % 2, quad = mma_col() / 4;
    uint32_t own = 0, other, upper, lower;

#pragma unroll 2
    for (int n = 0; n < KEPT_RESULTS; n++)
        own |= attn_kept_quad(p, d, row + odd * 8, n * 2 + quad) << 4 * n;
    other = __shfl_xor_sync(WARP_MASK, own, 1);
    upper = (odd ? other : own) >> 2 * odd;
    lower = (odd ? own : other) >> 2 * odd;
    return (upper & 0x33333333u) | (lower & 0x33333333u) << 2;
}

/* Rows are keys; `row`: the upper of this lane's two. Four lanes, 4 apart, have the
 * four keys: each draws for one of their two queries, and for the upper keys or the
 * lower. */
static __device__ __forceinline__ uint32_t kept_by_keys(const struct attention &p,
                                                        const struct attn_tile &t,
                                                        int row)
{
    const struct attn_draws d = attn_draws_of(p, t);
    const int lane = (int)threadIdx.x % WARP, key = row % 4;
    uint32_t own = 0, kept = 0;

#pragma unroll 1
    for (int n = 0; n < KEPT_RESULTS; n++)
        own |= attn_kept_quad(p, d, n * 8 + mma_col() + key % 2, row / 4 + key / 2 * 2)
               << 4 * n;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t drawn = __shfl_sync(WARP_MASK, own, (lane & ~12) | i << 2);

        kept |= (drawn >> key & 0x11111111u) << i;
    }
    return kept;
}

/* The factor of element i of result n; scale: 1 / (1 - dropout). */
static __device__ __forceinline__ float kept_factor(uint32_t kept, float scale, int n,
                                                    int i)
{
    return kept >> (4 * n + i) & 1 ? scale : 0.0f;
}

#endif
