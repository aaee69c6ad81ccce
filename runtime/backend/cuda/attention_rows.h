/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of scores of the attention's forward on tensor cores: the softmax with a running
 * maximum and sum, and the end of a row. A lane holds parts of two rows, as results of
 * ptx_mma; both kinds of kernels, with mma.sync and with wgmma, have them so.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_ROWS_H
#define ACCEL_BACKEND_CUDA_ATTENTION_ROWS_H

#include "backend/cuda/attention_mma.h"

/* Maximum and sum over the four lanes that share a row. */
static __device__ __forceinline__ float quad_max(float v)
{
    for (int o = 2; o > 0; o /= 2) {
        float other = __shfl_xor_sync(WARP_MASK, v, o);

        v = other > v ? other : v;
    }
    return v;
}

static __device__ __forceinline__ float quad_sum(float v)
{
    for (int o = 2; o > 0; o /= 2)
        v += __shfl_xor_sync(WARP_MASK, v, o);
    return v;
}

/* Row `half` of this lane's two: turns scores of 8 N keys into exp(score - max);
 * returns the factor for earlier results. */
template <int N>
static __device__ __forceinline__ float soften(float s[N][4], int half, float &max,
                                               float &sum)
{
    float next = max, base, factor, add = 0.0f;

#pragma unroll
    for (int n = 0; n < N; n++)
        for (int i = 2 * half; i < 2 * half + 2; i++)
            next = s[n][i] > next ? s[n][i] : next;
    next = quad_max(next);
    /* no key seen yet: any finite number will do, and avoids inf - inf */
    base = next == -INFINITY ? 0.0f : next;
    factor = max == -INFINITY ? 0.0f : maths_exp(max - base);
#pragma unroll
    for (int n = 0; n < N; n++)
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            s[n][i] = s[n][i] == -INFINITY ? 0.0f : maths_exp(s[n][i] - base);
            add += s[n][i];
        }
    sum = sum * factor + quad_sum(add);
    max = next;
    return factor;
}

/* Scales the scores of a tile and hides keys that are not seen; `row`: the upper of
 * this lane's two. Scaling the float32 scores, not the bfloat16 queries, costs no
 * accuracy. */
static __device__ __forceinline__ void hide(const struct attn_view &view, float scale,
                                            int row, float s[ATTN_TILE / 8][4])
{
#pragma unroll
    for (int n = 0; n < ATTN_TILE / 8; n++)
        for (int i = 0; i < 4; i++) {
            int q = row + i / 2 * 8, k = n * 8 + mma_col() + i % 2;

            s[n][i] = attn_sees(view, q, k) ? s[n][i] * scale : -INFINITY;
        }
}

/* Writes lse and the output of this lane's two rows of a tile, of which `row` is the
 * upper. out is [batch, queries, heads, width]. */
template <int WIDTH>
static __device__ __forceinline__ void finish_rows(
    const struct attention &p, const struct attn_tile &t, int row, const float max[2],
    const float sum[2], const float acc[WIDTH / 8][4], void *out, float *lse)
{
    const int64_t d = p.head_width, cols = p.heads * d;
    const struct heads_out to = { out, p.queries * cols, cols, d, false };
    struct mma_rows rows = { row, row + 8, 0.0f, 0.0f };

    for (int half = 0; half < 2; half++) {
        const int at = row + half * 8;
        const float inverse = sum[half] == 0.0f ? 0.0f : 1.0f / sum[half];

        (half ? rows.lower_by : rows.upper_by) = inverse;
        /* four lanes share a row; one writes */
        if (mma_col() == 0 && at < t.queries)
            lse[(t.b * p.heads + t.h) * p.queries + t.q0 + at] =
                sum[half] > 0.0f ? (float)((double)max[half] + log((double)sum[half]))
                                 : INFINITY;
    }
    mma_store<WIDTH>(to, t.b, t.h, t.q0, t.queries, acc, rows, d);
}

#endif
