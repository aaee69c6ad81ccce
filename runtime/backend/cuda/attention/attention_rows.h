/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of scores of the attention's forward on tensor cores: the softmax with a running
 * maximum and sum, and the end of a row. A lane holds parts of two rows, as results of
 * ptx_mma; both kinds of kernels, with mma.sync and with wgmma, have them so.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_ROWS_H
#define ACCEL_BACKEND_CUDA_ATTENTION_ROWS_H

#include "backend/cuda/attention/attention_mma.h"

/* Maximum and sum over the four lanes that share a row. */
static __device__ __forceinline__ float quad_max(float v)
{
    for (int o = 2; o > 0; o /= 2)
        v = fmaxf(v, __shfl_xor_sync(WARP_MASK, v, o));
    return v;
}

static __device__ __forceinline__ float quad_sum(float v)
{
    for (int o = 2; o > 0; o /= 2)
        v += __shfl_xor_sync(WARP_MASK, v, o);
    return v;
}

/* Row `half` of this lane's two: turns scores of 8 N keys, not scaled, into exp(scale
 * (score - max)); returns the factor for earlier results. by: scale log2(e), above 0.
 * NaN stays NaN. */
template <int N>
static __device__ __forceinline__ float soften(float s[N][4], int half, float by,
                                               float &max, float &sum)
{
    /* four maxima and sums, each a chain of its own */
    float most[4] = { max, max, max, max }, add[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    float next, base, factor;

#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            most[n % 2 * 2 + i] = fmaxf(most[n % 2 * 2 + i], s[n][2 * half + i]);
    next = quad_max(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])));
    /* no key seen yet: any finite number will do, and avoids inf - inf */
    base = next == -INFINITY ? 0.0f : next * by;
    factor = ptx_exp2(fmaf(max, by, -base));
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float &x = s[n][2 * half + i];

            x = ptx_exp2(fmaf(x, by, -base));
            add[n % 2 * 2 + i] += x;
        }
    sum = sum * factor + quad_sum((add[0] + add[1]) + (add[2] + add[3]));
    max = next;
    return factor;
}

/* Writes lse and the output of this lane's two rows of a tile, of which `row` is the
 * upper; max and sum as soften leaves them. out is [batch, queries, heads, width]. */
template <typename T, int WIDTH>
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
                sum[half] > 0.0f ? (float)((double)(max[half] * mma_log2_scale(p)) *
                                               0.69314718055994531 +
                                           log((double)sum[half]))
                                 : INFINITY;
    }
    mma_store<T, WIDTH>(to, t.b, t.h, t.q0, t.queries, acc, rows, d);
}

#endif
