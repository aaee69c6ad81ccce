/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward in plain float32: one thread block per 64 queries of a head goes
 * over the key tiles that they see, with a running maximum and sum. Out: the output and
 * one log-sum-exp per query.
 */
#include "backend/cuda/attention/cuda_attention.h"

/* Maximum and sum over the 16 threads that share rows; all of them get the result. Half
 * a warp: the exchange never crosses to the other half's rows. */
static __device__ __forceinline__ float row_max(float v)
{
    for (int o = ATTN_LANES / 2; o > 0; o /= 2) {
        float other = __shfl_xor_sync(WARP_MASK, v, o);

        v = other > v ? other : v;
    }
    return v;
}

static __device__ __forceinline__ float row_sum(float v)
{
    for (int o = ATTN_LANES / 2; o > 0; o /= 2)
        v += __shfl_xor_sync(WARP_MASK, v, o);
    return v;
}

/* Turns the scores of one row into exp(score - max); returns the factor for earlier
 * results. */
static __device__ __forceinline__ float soften(float s[ATTN_EACH], float &max,
                                               float &sum)
{
    float next = max, base, factor, add = 0.0f;

    for (int j = 0; j < ATTN_EACH; j++)
        next = s[j] > next ? s[j] : next;
    next = row_max(next);
    /* no key seen yet: any finite number will do, and avoids inf - inf */
    base = next == -INFINITY ? 0.0f : next;
    factor = max == -INFINITY ? 0.0f : maths_exp(max - base);
    for (int j = 0; j < ATTN_EACH; j++) {
        s[j] = s[j] == -INFINITY ? 0.0f : maths_exp(s[j] - base);
        add += s[j];
    }
    sum = sum * factor + row_sum(add);
    max = next;
    return factor;
}

/* One block of queries, columns [c0, c0 + 64 CHUNKS) of the output. For wide heads each
 * part computes the scores again: cheaper than passing them through memory. */
template <typename T, int CHUNKS>
static __device__ __forceinline__ void forward_tile(const struct attention &p,
                                                    struct attn_shared &sh,
                                                    struct attn_tile t, int64_t c0,
                                                    T *out, float *lse)
{
    const int x = (int)threadIdx.x % ATTN_LANES, y = (int)threadIdx.x / ATTN_LANES;
    const int64_t d = p.head_width, end = attn_key_end(p, t), cols = p.heads * d;
    struct attn_rows<T> q = attn_rows_of<T>(p.q, t.b, t.h, t.q0, t.queries, p.scale);
    /* out is [batch, queries, heads, width]; lse [batch, heads, queries] */
    struct heads_out to = { out, p.queries * cols, cols, d, false };
    float acc[ATTN_EACH][ATTN_EACH * CHUNKS], s[ATTN_EACH][ATTN_EACH];
    float max[ATTN_EACH], sum[ATTN_EACH], scale = attn_keep_scale(p);

    for (int i = 0; i < ATTN_EACH; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
#pragma unroll
        for (int n = 0; n < ATTN_EACH * CHUNKS; n++)
            acc[i][n] = 0.0f;
    }
    for (int64_t k0 = 0; k0 < end; k0 += ATTN_TILE) {
        struct attn_view view;

        t = attn_tile_at(p, t.b, t.h, t.q0, k0);
        view = attn_view_of(p, t);
        if (scale != 0.0f)
            attn_stage_kept(p, t, sh.kept);
        attn_dot(s, sh, q, attn_rows_of<T>(p.k, t.b, t.kv_head, k0, t.keys, 1.0f), d);
#pragma unroll
        for (int i = 0; i < ATTN_EACH; i++) {
            float factor;

            for (int j = 0; j < ATTN_EACH; j++)
                if (!attn_sees(view, ATTN_EACH * y + i, x + ATTN_LANES * j))
                    s[i][j] = -INFINITY;
            factor = soften(s[i], max[i], sum[i]);
#pragma unroll
            for (int n = 0; n < ATTN_EACH * CHUNKS; n++)
                acc[i][n] *= factor;
            for (int j = 0; j < ATTN_EACH; j++)
                s[i][j] *=
                    attn_keep(sh.kept, scale, ATTN_EACH * y + i, x + ATTN_LANES * j);
        }
        /* attn_gather synchronizes before it reads them */
        attn_share(sh, s);
        attn_gather<T, CHUNKS>(
            acc, sh, attn_rows_of<T>(p.v, t.b, t.kv_head, k0, t.keys, 1.0f), c0, d);
    }
#pragma unroll
    for (int i = 0; i < ATTN_EACH; i++) {
        float inverse = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
        int row = ATTN_EACH * y + i;

#pragma unroll
        for (int n = 0; n < ATTN_EACH * CHUNKS; n++)
            acc[i][n] *= inverse;
        if (c0 == 0 && x == 0 && row < t.queries)
            lse[(t.b * p.heads + t.h) * p.queries + t.q0 + row] =
                sum[i] > 0.0f ? (float)((double)max[i] + log((double)sum[i]))
                              : INFINITY;
    }
    attn_store<T, CHUNKS>(to, t.b, t.h, t.q0, t.queries, acc, 1.0f, c0, d);
}

/* Later blocks of a causal attention have more work, so they start first. */
template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(ATTN_THREADS)
    attention_forward(struct attention p, T *out, float *lse)
{
    __shared__ struct attn_shared sh;
    const int64_t blocks = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t parts =
        (p.head_width + ATTN_TILE * CHUNKS - 1) / (ATTN_TILE * CHUNKS);
    const int64_t heads = p.batch * p.heads, tasks = heads * blocks * parts;

    for (int64_t i = blockIdx.x; i < tasks; i += gridDim.x) {
        int64_t part = i % parts, bh = i / parts % heads;
        int64_t block = blocks - 1 - i / parts / heads;

        forward_tile<T, CHUNKS>(
            p, sh, attn_tile_at(p, bh / p.heads, bh % p.heads, block * ATTN_TILE, 0),
            part * ATTN_TILE * CHUNKS, out, lse);
    }
}

template <typename T>
static void launch_forward(const struct backend *be, const struct attention *p, T *out,
                           float *lse)
{
    int chunks = attn_chunks(p->head_width);
    void (*kernel)(struct attention, T *, float *) =
        chunks == 1   ? attention_forward<T, 1>
        : chunks == 2 ? attention_forward<T, 2>
                      : attention_forward<T, 4>;
    int64_t blocks = (p->queries + ATTN_TILE - 1) / ATTN_TILE;
    int64_t parts = (p->head_width + ATTN_TILE * chunks - 1) / (ATTN_TILE * chunks);
    int64_t tasks = p->batch * p->heads * blocks * parts;
    struct attention a = *p;

    LAUNCH(kernel, rows_grid(tasks), ATTN_THREADS, 0, cuda_state_of(be), a, out, lse);
}

void attn_forward(const struct backend *be, const struct attention *p, void *out,
                  float *lse)
{
    BY_TYPE(p->type, T, launch_forward(be, p, (T *)out, lse));
}
