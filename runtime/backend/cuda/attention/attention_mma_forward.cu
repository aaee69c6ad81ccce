/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward on tensor cores: bfloat16 or float16, heads of up to 128 elements.
 * A thread block has 64 queries, each warp 16 of them, and goes over the key tiles that
 * they see with a running maximum and sum. Out: the output and one log-sum-exp per
 * query.
 */
#include "backend/cuda/attention/attention_rows.h"

#define TILES (ATTN_TILE / 8) /* 8-column results in a row of scores */

/* Applies dropout, after the sums: dropped keys still count in the softmax. */
static __device__ __forceinline__ void drop(const uint8_t *kept, float scale,
                                            float s[TILES][4])
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
        for (int i = 0; i < 4; i++)
            s[n][i] *= attn_keep(kept, scale, mma_first() + mma_row() + i / 2 * 8,
                                 n * 8 + mma_col() + i % 2);
}

/* More than 48 KiB with WIDTH 128, hence dynamic shared memory. */
template <typename T, int WIDTH> struct forward_shared {
    T q[ATTN_TILE * (WIDTH + MMA_PAD)], k[ATTN_TILE * (WIDTH + MMA_PAD)],
        v[ATTN_TILE * (WIDTH + MMA_PAD)];
    uint8_t kept[ATTN_TILE * ATTN_QUADS];
};

/* The tile of keys from k0 on, of the same head. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void stage_keys(const struct attention &p,
                                                  struct forward_shared<T, WIDTH> &sh,
                                                  const struct attn_tile &t, int64_t k0)
{
    const struct attn_tile at = attn_tile_at(p, t.b, t.h, t.q0, k0);

    mma_stage<WIDTH, ATTN_TILE>(
        sh.k, attn_rows_of<T>(p.k, at.b, at.kv_head, k0, at.keys, 1.0f), p.head_width);
}

template <typename T, int WIDTH>
static __device__ __forceinline__ void forward_tile(const struct attention &p,
                                                    struct forward_shared<T, WIDTH> &sh,
                                                    struct attn_tile t, void *out,
                                                    float *lse)
{
    const int64_t d = p.head_width, end = attn_key_end(p, t);
    float acc[WIDTH / 8][4], s[TILES][4];
    float max[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    const float scale = attn_keep_scale(p), by = mma_log2_scale(p);

    mma_clear<WIDTH>(acc);
    /* Keys are copied while the tile before is added up, values while scores are made.
     * No other thread may still read what the block's last tile left there. */
    __syncthreads();
    mma_stage<WIDTH, ATTN_TILE>(
        sh.q, attn_rows_of<T>(p.q, t.b, t.h, t.q0, t.queries, 1.0f), d);
    stage_keys<T, WIDTH>(p, sh, t, 0);
    for (int64_t k0 = 0; k0 < end; k0 += ATTN_TILE) {
        float factor[2];

        t = attn_tile_at(p, t.b, t.h, t.q0, k0);
        mma_staged();
        mma_stage<WIDTH, ATTN_TILE>(
            sh.v, attn_rows_of<T>(p.v, t.b, t.kv_head, k0, t.keys, 1.0f), d);
        if (scale != 0.0f)
            attn_stage_kept(p, t, sh.kept);
        mma_scores<WIDTH, TILES>(s, sh.q + mma_first() * (WIDTH + MMA_PAD), sh.k);
        mma_hide_keys<TILES>(attn_view_of(p, t), mma_first() + mma_row(), 0, -INFINITY,
                             s);
        mma_staged();
        if (k0 + ATTN_TILE < end)
            stage_keys<T, WIDTH>(p, sh, t, k0 + ATTN_TILE);
        /* the two rows of this lane have each a maximum and a sum of their own */
        factor[0] = soften<TILES>(s, 0, by, max[0], sum[0]);
        factor[1] = soften<TILES>(s, 1, by, max[1], sum[1]);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            for (int i = 0; i < 4; i++)
                acc[n][i] *= factor[i / 2];
        if (scale != 0.0f)
            drop(sh.kept, scale, s);
        /* acc += p v, p rounded to T: as the stored probabilities of a plain
         * attention would be */
        mma_gather<WIDTH, TILES>(acc, s, sh.v);
    }
    ptx_copy_wait<0>(); /* where no key is seen, the first tile is still under way */
    finish_rows<T, WIDTH>(p, t, mma_first() + mma_row(), max, sum, acc, out, lse);
}

/* Later blocks of a causal attention have more work, so they start first. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(MMA_THREADS)
    attention_mma_forward(struct attention p, void *out, float *lse)
{
    using shared = struct forward_shared<T, WIDTH>;
    DYNAMIC_SHARED(shared, sh);
    const int64_t blocks = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t heads = p.batch * p.heads;

    ROW_STRIDE(i, heads * blocks)
    {
        /* heads vary fastest: blocks side by side do the same amount of work */
        int64_t bh = i % heads, q0 = (blocks - 1 - i / heads) * ATTN_TILE;

        forward_tile<T, WIDTH>(
            p, *sh, attn_tile_at(p, bh / p.heads, bh % p.heads, q0, 0), out, lse);
    }
}

template <typename T, int WIDTH>
static void launch_mma_forward(struct cuda_state *s, const struct attention *p,
                               void *out, float *lse)
{
    int64_t tasks = p->batch * p->heads * ((p->queries + ATTN_TILE - 1) / ATTN_TILE);
    size_t bytes = sizeof(struct forward_shared<T, WIDTH>);
    struct attention a = *p;

    if (bytes > 48 << 10 && !ALLOW_SHARED((attention_mma_forward<T, WIDTH>), bytes, s))
        return;
    LAUNCH((attention_mma_forward<T, WIDTH>), rows_grid(tasks), MMA_THREADS, bytes, s,
           a, out, lse);
}

void attn_mma_forward(const struct backend *be, const struct attention *p, void *out,
                      float *lse)
{
    attn_tell(cuda_state_of(be), false, "mma.sync, %lld queries a block", ATTN_TILE);
    BY_TILE(p, T, WIDTH,
            (launch_mma_forward<T, WIDTH>(cuda_state_of(be), p, out, lse)));
}
