/* SPDX-License-Identifier: Apache-2.0
 *
 * dk and dv of the attention for sm_90a: bfloat16 or float16, heads of 64 or 128
 * elements. A thread block has 128 keys of a key head, whose tiles stay, and goes over
 * tiles of 64 queries of its group of heads: one thread copies them by tensor maps, a
 * warp their lse and delta, two groups of four warps multiply (wgmma), 64 keys each. Of
 * five products it keeps what dq needs, as attention_mma_backward.cu does.
 */
#include "backend/cuda/attention/attention_wgmma_grad.h"

/* Keys and values stay, queries and dout pass. 130 KiB with WIDTH 128. */
template <typename T, int WIDTH> struct wg_dkv_shared {
    struct wg_grad_shared<T, WIDTH> tiles;
    float lse[WG_STAGES][ATTN_TILE], delta[WG_STAGES][ATTN_TILE];
};

/* The tiles of queries that pass by a block's keys: those from `first` on of each head
 * of the group; in 32 bits, for their registers. */
struct wg_walk {
    int first, end, head, heads;
};

/* The first query that sees the block's first key begins; earlier tiles see none. */
template <int WIDTH>
static __device__ __forceinline__ struct wg_walk wg_walk_of(const struct attention &p,
                                                            const struct attn_tile &t)
{
    const int64_t seen = p.causal ? attn_clamp(t.k0 - p.offset, 0, p.queries) : 0;
    const int group = (int)(p.heads / p.kv_heads);
    const struct wg_walk w = { (int)(seen / ATTN_TILE * ATTN_TILE), (int)p.queries,
                               (int)t.kv_head * group, t.k0 < t.limit ? group : 0 };

    return w;
}

/* One thread: all tiles. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void copy_tiles(struct wg_grad_shared<T, WIDTH> &sh,
                                                  const struct wg_side &keys,
                                                  const struct wg_side &queries,
                                                  const struct wg_walk &walk,
                                                  const struct attn_tile &t)
{
    wg_copy_own<T, WIDTH>(sh, keys, t.k0, t.kv_head, t.b);
#pragma unroll 1
    for (int h = walk.head, i = 0; h < walk.head + walk.heads; h++)
#pragma unroll 1
        for (int q0 = walk.first; q0 < walk.end; q0 += ATTN_TILE, i++)
            wg_copy_other<T, WIDTH>(sh, queries, i, q0, h, (int)t.b);
}

/* One warp: lse, in units of log2, and delta, of which `row` is the first of the
 * sample's. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void copy_floats(const struct mma_task &w,
                                                   struct wg_dkv_shared<T, WIDTH> &sh,
                                                   const struct wg_walk &walk,
                                                   int64_t row)
{
#pragma unroll 1
    for (int h = walk.head, i = 0; h < walk.head + walk.heads; h++)
#pragma unroll 1
        for (int q0 = walk.first; q0 < walk.end; q0 += ATTN_TILE, i++) {
            const int64_t from = row + (int64_t)h * walk.end;
            const int at = wg_stage(i);

            ptx_barrier_wait(&sh.tiles.free[at], wg_phase(i) ^ 1);
            for (int q = (int)threadIdx.x % WARP; q < ATTN_TILE; q += WARP) {
                const bool there = q0 + q < walk.end;

                sh.lse[at][q] = there ? w.lse[from + q0 + q] * MMA_LOG2E : 0.0f;
                sh.delta[at][q] = there ? w.delta[from + q0 + q] : 0.0f;
            }
            wg_release(&sh.tiles.full[at]);
        }
}

/* dv += p^T dout, dk += ds^T q. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void both_sums(
    float dk[WIDTH / 8][4], float dv[WIDTH / 8][4],
    const uint32_t left[GRAD_TILES / 2][4], const uint32_t left_ds[GRAD_TILES / 2][4],
    const T *q, const T *dout)
{
    ptx_hold<WIDTH / 8>(dk);
    ptx_products_begin<WIDTH / 8>(dv);
    wg_add<WIDTH, ATTN_TILE>(dv, left, dout);
    wg_add<WIDTH, ATTN_TILE>(dk, left_ds, q);
    ptx_products_end<WIDTH / 8>(dv);
    ptx_hold<WIDTH / 8>(dk);
}

/* Waits for the scores, and turns them into probabilities and their gradients. Rows
 * are keys. */
template <bool DROPS>
static __device__ __forceinline__ void both_grads(const struct attention &p,
                                                  const struct attn_tile &t, int row,
                                                  uint32_t kept, const float *lse,
                                                  const float *delta,
                                                  float s[GRAD_TILES][4],
                                                  float ds[GRAD_TILES][4])
{
    const float scale = DROPS ? attn_keep_scale(p) : 1.0f, by = mma_log2_scale(p);

    ptx_products_wait<1, GRAD_TILES>(s);
#pragma unroll
    for (int n = 0; n < GRAD_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = mma_probability(s[n][i], by, lse[n * 8 + mma_col() + i % 2]);
    ptx_products_wait<0, GRAD_TILES>(ds);
#pragma unroll
    for (int n = 0; n < GRAD_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            mma_score_grad(s[n][i], ds[n][i], delta[n * 8 + mma_col() + i % 2],
                           DROPS ? kept_factor(kept, scale, n, i) : 1.0f);
    /* worked out here, as registers are few before */
    const struct attn_view view = attn_view_of(p, t);

    mma_hide_queries<GRAD_TILES>(view, row, 0, 0.0f, s);
    mma_hide_queries<GRAD_TILES>(view, row, 0, 0.0f, ds);
}

/* What a tile of queries, number i that passes, adds to dk and dv of 64 keys, which
 * begin at element `own` of the block's tiles. ds: where the gradients of the scores
 * are kept, or NULL. */
template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_add_queries(
    const struct attention &p, struct wg_dkv_shared<T, WIDTH> &sh,
    const struct attn_tile &t, int i, int own, T *ds, float dk[WIDTH / 8][4],
    float dv[WIDTH / 8][4])
{
    struct wg_grad_shared<T, WIDTH> &tiles = sh.tiles;
    const int row = mma_first() % ATTN_TILE + mma_row(), at = wg_stage(i);
    uint32_t kept = 0, left[GRAD_TILES / 2][4], left_ds[GRAD_TILES / 2][4];
    float s[GRAD_TILES][4], dp[GRAD_TILES][4];

    /* while the copy or the other group's products are under way */
    if constexpr (DROPS)
        kept = kept_by_keys(p, t, row);
    mma_clear<ATTN_TILE>(s);
    mma_clear<ATTN_TILE>(dp);
    ptx_barrier_wait(&tiles.full[at], wg_phase(i));
    both_scores<T, WIDTH>(tiles, own, at, s, dp);
    both_grads<DROPS>(p, t, row, kept, sh.lse[at], sh.delta[at], s, dp);
    mma_pack<T, GRAD_TILES>(left, s);
    mma_pack<T, GRAD_TILES>(left_ds, dp);
    if (ds) {
        mma_keep_ds(ds, row, 0, left_ds);
        mma_keep_ds(ds, row, ATTN_TILE / 2, left_ds + GRAD_TILES / 4);
    }
    both_sums<T, WIDTH>(dk, dv, left, left_ds, tiles.other[0][at], tiles.other[1][at]);
    wg_release(&tiles.free[at]);
}

/* Four warps: 64 keys of the block's 128, from keys.k0 on; the walk is the block's. */
template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_key_tile(const struct attention &p,
                                                   const struct mma_task &w,
                                                   struct wg_dkv_shared<T, WIDTH> &sh,
                                                   const struct wg_walk &walk,
                                                   const struct attn_tile &keys,
                                                   const struct heads_out &to_k,
                                                   const struct heads_out &to_v)
{
    const int row = mma_first() % ATTN_TILE + mma_row();
    const int own = mma_first() / ATTN_TILE * ATTN_TILE * WG_PANEL;
    float dk[WIDTH / 8][4], dv[WIDTH / 8][4];

    /* tiles of kept gradients in a row; a block's second half may lie past the last
     * one */
    const int across = (int)((p.keys + ATTN_TILE - 1) / ATTN_TILE);
    const int down = (walk.end + ATTN_TILE - 1) / ATTN_TILE;
    T *const kept = w.ds && keys.keys > 0 ? mma_ds_of<T>(p, w, keys) : NULL;
    struct attn_tile t = keys;

    mma_clear<WIDTH>(dk);
    mma_clear<WIDTH>(dv);
    ptx_barrier_wait(&sh.tiles.own_full, 0);
#pragma unroll 1
    for (int h = 0, i = 0; h < walk.heads; h++)
#pragma unroll 1
        for (int q0 = walk.first; q0 < walk.end; q0 += ATTN_TILE, i++) {
            const int tile = (h * down + q0 / ATTN_TILE) * across;

            t.h = walk.head + h;
            t.q0 = q0;
            t.queries = walk.end - q0 < ATTN_TILE ? walk.end - q0 : ATTN_TILE;
            wg_add_queries<T, WIDTH, DROPS>(
                p, sh, t, i, own,
                kept ? kept + (int64_t)tile * (ATTN_TILE * ATTN_TILE) : NULL, dk, dv);
        }
    if (to_k.data)
        mma_store<T, WIDTH>(to_k, keys.b, keys.kv_head, keys.k0, keys.keys, dk,
                            { row, row + 8, p.scale, p.scale }, p.head_width);
    if (to_v.data)
        mma_store<T, WIDTH>(to_v, keys.b, keys.kv_head, keys.k0, keys.keys, dv,
                            { row, row + 8, 1.0f, 1.0f }, p.head_width);
}

template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_grad_block(const struct attention &p,
                                                     const struct mma_task &w,
                                                     const struct wg_side &of_keys,
                                                     const struct wg_side &of_queries,
                                                     const struct heads_out &dk,
                                                     const struct heads_out &dv)
{
    struct wg_dkv_shared<T, WIDTH> &sh = wg_room<struct wg_dkv_shared<T, WIDTH>>();
    const int64_t heads = w.samples * w.kv_heads, i = blockIdx.x;
    const int64_t b = w.sample + i % heads / w.kv_heads;
    const int64_t h = (w.kv_head + i % w.kv_heads) * (p.heads / p.kv_heads);
    /* earlier keys of a causal attention are seen by more queries, so they start
     * first */
    const struct attn_tile keys = attn_tile_at(p, b, h, 0, i / heads * WG_ROWS);

    const struct wg_walk walk = wg_walk_of<WIDTH>(p, keys);

    grad_barriers<T, WIDTH>(sh.tiles, 2); /* who copies tiles, and who copies floats */
    /* registers: 256 x 232 + 128 x 40, as the loops of those that copy take 30 */
    if (threadIdx.x < WG_WARPS * WARP) {
        const int64_t k0 = keys.k0 + mma_first() / ATTN_TILE * ATTN_TILE;

        ptx_more_registers<232>();
        wg_key_tile<T, WIDTH, DROPS>(p, w, sh, walk, attn_tile_at(p, b, h, 0, k0), dk,
                                     dv);
    } else {
        ptx_fewer_registers<40>();
        if (threadIdx.x == WG_WARPS * WARP)
            copy_tiles<T, WIDTH>(sh.tiles, of_keys, of_queries, walk, keys);
        else if (threadIdx.x / WARP == WG_WARPS + 1)
            copy_floats<T, WIDTH>(w, sh, walk, b * p.heads * p.queries);
    }
}

/* Code for other devices is there only so that the kernel has a name: attn_has_wgmma
 * keeps them from it. */
template <typename T, int WIDTH, bool DROPS>
static __global__ void __launch_bounds__(WG_THREADS, 1)
    attention_wgmma_dkv(struct attention p, struct mma_task w,
                        const __grid_constant__ wg_tensor q,
                        const __grid_constant__ wg_tensor k,
                        const __grid_constant__ wg_tensor v,
                        const __grid_constant__ wg_tensor dout, struct heads_out dk,
                        struct heads_out dv)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    wg_grad_block<T, WIDTH, DROPS>(p, w, { { &k, &v } }, { { &q, &dout } }, dk, dv);
#endif
}

template <typename T, int WIDTH, bool DROPS>
static void launch_wgmma_dkv(struct cuda_state *s, const struct attention *p,
                             const struct mma_task *w, const struct attention_grads *g)
{
    const int64_t tasks =
        w->samples * w->kv_heads * ((p->keys + WG_ROWS - 1) / WG_ROWS);
    const size_t bytes = sizeof(struct wg_dkv_shared<T, WIDTH>) + WG_ALIGN;
    const struct heads to_dout = wg_dout_of(p, g->dout);
    struct heads_out dk = g->dk, dv = g->dv;
    struct attention a = *p;
    struct mma_task task = *w;
    auto wgmma_dkv = attention_wgmma_dkv<T, WIDTH, DROPS>;
    struct wg_tensor q, k, v, dout;

    if (!attn_wgmma_map(s, &q, p, &p->q, p->heads, p->queries, ATTN_TILE) ||
        !attn_wgmma_map(s, &k, p, &p->k, p->kv_heads, p->keys, WG_ROWS) ||
        !attn_wgmma_map(s, &v, p, &p->v, p->kv_heads, p->keys, WG_ROWS) ||
        !attn_wgmma_map(s, &dout, p, &to_dout, p->heads, p->queries, ATTN_TILE) ||
        !ALLOW_SHARED(wgmma_dkv, bytes, s))
        return;
    LAUNCH(wgmma_dkv, (unsigned)tasks, WG_THREADS, bytes, s, a, task, q, k, v, dout, dk,
           dv);
}

void attn_wgmma_dkv(struct cuda_state *s, const struct attention *p,
                    const struct mma_task *w, const struct attention_grads *g)
{
    BY_FORM(p, T, WIDTH, DROPS, (launch_wgmma_dkv<T, WIDTH, DROPS>(s, p, w, g)));
}
