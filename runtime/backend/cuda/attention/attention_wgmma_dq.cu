/* SPDX-License-Identifier: Apache-2.0
 *
 * dq of the attention for sm_90a where seven products are made (attention_five.h):
 * bfloat16 or float16, heads of 64 or 128 elements. A thread block has 128 queries of a
 * head, whose tiles stay, and goes over the tiles of 64 keys that they see: one thread
 * copies them by tensor maps, two groups of four warps multiply (wgmma), 64 queries
 * each.
 */
#include "backend/cuda/attention/attention_wgmma_grad.h"

/* Of this lane's two queries; lse in units of log2. */
struct wg_query_floats {
    float lse[2], delta[2];
};

template <int WIDTH>
static __device__ __forceinline__ struct wg_query_floats wg_floats_of(
    const struct attention &p, const struct mma_task &w, const struct attn_tile &t,
    int row)
{
    const int64_t at = (t.b * p.heads + t.h) * p.queries + t.q0 + row;
    struct wg_query_floats f;

    for (int half = 0; half < 2; half++) {
        const bool there = row + half * 8 < t.queries;

        f.lse[half] = there ? w.lse[at + half * 8] * MMA_LOG2E : 0.0f;
        f.delta[half] = there ? w.delta[at + half * 8] : 0.0f;
    }
    return f;
}

/* Waits for the scores, and turns them into their gradients, in ds. Rows are
 * queries. */
template <bool DROPS>
static __device__ __forceinline__ void query_grads(
    const struct attention &p, const struct attn_tile &t, int row, uint32_t kept,
    const struct wg_query_floats &f, float s[GRAD_TILES][4], float ds[GRAD_TILES][4])
{
    const struct attn_view view = attn_view_of(p, t);
    const float scale = DROPS ? attn_keep_scale(p) : 1.0f, by = mma_log2_scale(p);

    ptx_products_wait<1, GRAD_TILES>(s);
#pragma unroll
    for (int n = 0; n < GRAD_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = mma_probability(s[n][i], by, f.lse[i / 2]);
    ptx_products_wait<0, GRAD_TILES>(ds);
#pragma unroll
    for (int n = 0; n < GRAD_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            mma_score_grad(s[n][i], ds[n][i], f.delta[i / 2],
                           DROPS ? kept_factor(kept, scale, n, i) : 1.0f);
    mma_hide_keys<GRAD_TILES>(view, row, 0, 0.0f, ds);
}

/* dq += ds k, ds rounded to T. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void query_sums(float dq[WIDTH / 8][4],
                                                  const float ds[GRAD_TILES][4],
                                                  const T *k)
{
    uint32_t left[GRAD_TILES / 2][4];

    mma_pack<T, GRAD_TILES>(left, ds);
    ptx_products_begin<WIDTH / 8>(dq);
    wg_add<WIDTH, ATTN_TILE>(dq, left, k);
    ptx_products_end<WIDTH / 8>(dq);
}

/* What the tile of keys t, number i that passes, adds to dq of 64 queries, which begin
 * at element `own` of the block's tiles. */
template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_add_keys(const struct attention &p,
                                                   struct wg_grad_shared<T, WIDTH> &sh,
                                                   const struct attn_tile &t, int i,
                                                   int own, int row,
                                                   const struct wg_query_floats &f,
                                                   float dq[WIDTH / 8][4])
{
    const int at = wg_stage(i);
    uint32_t kept = 0;
    float s[GRAD_TILES][4], ds[GRAD_TILES][4];

    /* while the copy or the other group's products are under way */
    if constexpr (DROPS)
        kept = kept_by_queries(p, t, row);
    mma_clear<ATTN_TILE>(s);
    mma_clear<ATTN_TILE>(ds);
    ptx_barrier_wait(&sh.full[at], wg_phase(i));
    both_scores<T, WIDTH>(sh, own, at, s, ds);
    query_grads<DROPS>(p, t, row, kept, f, s, ds);
    query_sums<T, WIDTH>(dq, ds, sh.other[0][at]);
    wg_release(&sh.free[at]);
}

/* Four warps: 64 queries of the block's 128, from t.q0 on. Keys that none of them sees
 * are passed over with the others. */
template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_query_tile(
    const struct attention &p, const struct mma_task &w,
    struct wg_grad_shared<T, WIDTH> &sh, const struct attn_tile &t, int tiles,
    const struct heads_out &to)
{
    const int row = mma_first() % ATTN_TILE + mma_row();
    const int own = mma_first() / ATTN_TILE * ATTN_TILE * WG_PANEL;
    const struct wg_query_floats f = wg_floats_of<WIDTH>(p, w, t, row);
    float dq[WIDTH / 8][4];

    mma_clear<WIDTH>(dq);
    ptx_barrier_wait(&sh.own_full, 0);
#pragma unroll 1
    for (int i = 0; i < tiles; i++)
        wg_add_keys<T, WIDTH, DROPS>(
            p, sh, attn_tile_at(p, t.b, t.h, t.q0, (int64_t)i * ATTN_TILE), i, own, row,
            f, dq);
    mma_store<T, WIDTH>(to, t.b, t.h, t.q0, t.queries, dq,
                        { row, row + 8, p.scale, p.scale }, p.head_width);
}

template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_dq_block(const struct attention &p,
                                                   const struct mma_task &w,
                                                   const struct wg_side &queries,
                                                   const struct wg_side &keys,
                                                   const struct heads_out &dq)
{
    struct wg_grad_shared<T, WIDTH> &sh = wg_room<struct wg_grad_shared<T, WIDTH>>();
    const int64_t heads = p.batch * p.heads, bh = blockIdx.x % heads;
    /* heads vary fastest, and later queries, which see more keys, start first */
    const int64_t q0 = (int64_t)(gridDim.x / heads - 1 - blockIdx.x / heads) * WG_ROWS;
    struct attn_tile t = attn_tile_at(p, bh / p.heads, bh % p.heads, q0, 0);
    int64_t end = t.limit;
    int tiles;

    if (p.causal)
        end = attn_clamp(p.offset + attn_clamp(q0 + WG_ROWS, 0, p.queries), 0, end);
    tiles = (int)((end + ATTN_TILE - 1) / ATTN_TILE);
    grad_barriers<T, WIDTH>(sh, 1);
    /* registers: 256 x 240 + 128 x 24 */
    if (threadIdx.x < WG_WARPS * WARP) {
        ptx_more_registers<240>();
        t = attn_tile_at(p, t.b, t.h, q0 + mma_first() / ATTN_TILE * ATTN_TILE, 0);
        wg_query_tile<T, WIDTH, DROPS>(p, w, sh, t, tiles, dq);
    } else {
        ptx_fewer_registers<24>();
        if (threadIdx.x == WG_WARPS * WARP) {
            wg_copy_own<T, WIDTH>(sh, queries, q0, t.h, t.b);
#pragma unroll 1
            for (int i = 0; i < tiles; i++)
                wg_copy_other<T, WIDTH>(sh, keys, i, i * ATTN_TILE, (int)t.kv_head,
                                        (int)t.b);
        }
    }
}

/* Code for other devices is there only so that the kernel has a name: attn_has_wgmma
 * keeps them from it. */
template <typename T, int WIDTH, bool DROPS>
static __global__ void __launch_bounds__(WG_THREADS, 1)
    attention_wgmma_dq(struct attention p, struct mma_task w,
                       const __grid_constant__ wg_tensor q,
                       const __grid_constant__ wg_tensor k,
                       const __grid_constant__ wg_tensor v,
                       const __grid_constant__ wg_tensor dout, struct heads_out dq)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    wg_dq_block<T, WIDTH, DROPS>(p, w, { { &q, &dout } }, { { &k, &v } }, dq);
#endif
}

template <typename T, int WIDTH, bool DROPS>
static void launch_wgmma_dq(struct cuda_state *s, const struct attention *p,
                            const struct mma_task *w, struct heads_out dq)
{
    const int64_t tasks = p->batch * p->heads * ((p->queries + WG_ROWS - 1) / WG_ROWS);
    const size_t bytes = sizeof(struct wg_grad_shared<T, WIDTH>) + WG_ALIGN;
    const struct heads to_dout = wg_dout_of(p, w->dout);
    struct attention a = *p;
    struct mma_task task = *w;
    auto wgmma_dq = attention_wgmma_dq<T, WIDTH, DROPS>;
    struct wg_tensor q, k, v, dout;

    if (!attn_wgmma_map(s, &q, p, &p->q, p->heads, p->queries, WG_ROWS) ||
        !attn_wgmma_map(s, &k, p, &p->k, p->kv_heads, p->keys, ATTN_TILE) ||
        !attn_wgmma_map(s, &v, p, &p->v, p->kv_heads, p->keys, ATTN_TILE) ||
        !attn_wgmma_map(s, &dout, p, &to_dout, p->heads, p->queries, WG_ROWS) ||
        !ALLOW_SHARED(wgmma_dq, bytes, s))
        return;
    LAUNCH(wgmma_dq, (unsigned)tasks, WG_THREADS, bytes, s, a, task, q, k, v, dout, dq);
}

void attn_wgmma_dq(struct cuda_state *s, const struct attention *p,
                   const struct mma_task *w, const struct heads_out *dq)
{
    BY_FORM(p, T, WIDTH, DROPS, (launch_wgmma_dq<T, WIDTH, DROPS>(s, p, w, *dq)));
}
