/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on tensor cores: bfloat16, heads of up to 128 elements. As in the
 * plain backward, a block per 64 queries makes dq and a block per 64 keys dk and dv. A
 * warp has 16 rows and takes 32 of the other side at a time, to fit its registers.
 */
#include "backend/cuda/attention_mma.h"

/* 64 x 32 scores of s and of ds are 2 x 16 registers per thread; 64 x 64 would spill */
#define HALF  (ATTN_TILE / 2)
#define TILES (HALF / 8) /* 8-column results in half a row of scores */

struct mma_task {
    const void *dout;
    const float *lse, *delta;
};

/* Two tiles that stay and two that change, and two floats per query. For dq the
 * queries' side stays (q, dout), for dk and dv the keys' side (k, v). */
template <int WIDTH> struct grad_shared {
    bf16_t own[2][ATTN_TILE * (WIDTH + MMA_PAD)],
        other[2][ATTN_TILE * (WIDTH + MMA_PAD)];
    float lse[ATTN_TILE], delta[ATTN_TILE];
    uint8_t kept[ATTN_TILE * ATTN_QUADS];
};

/* Copies lse and delta of the tile's queries to shared memory. */
static __device__ __forceinline__ void stage_rows(const struct attention &p,
                                                  const struct mma_task &w,
                                                  const struct attn_tile &t, float *lse,
                                                  float *delta)
{
    const int64_t at = (t.b * p.heads + t.h) * p.queries + t.q0;

    BLOCK_STRIDE(i, ATTN_TILE)
    {
        lse[i] = i < t.queries ? w.lse[at + i] : 0.0f;
        delta[i] = i < t.queries ? w.delta[at + i] : 0.0f;
    }
}

/* One element: s becomes p * keep, dp becomes ds = p (dp * keep - delta), as in the
 * plain backward. */
static __device__ __forceinline__ void score_grad(float &s, float &dp, bool sees,
                                                  float lse, float delta, float keep)
{
    float e = sees ? maths_exp(s - lse) : 0.0f;

    dp = e == 0.0f ? 0.0f : e * (dp * keep - delta);
    s = e * keep;
}

template <int WIDTH>
static __device__ __forceinline__ void clear(float acc[WIDTH / 8][4])
{
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++)
        for (int i = 0; i < 4; i++)
            acc[n][i] = 0.0f;
}

/* dq of one tile: rows are queries, keys pass by. */
template <int WIDTH>
static __device__ __forceinline__ void query_tile(const struct attention &p,
                                                  const struct mma_task &w,
                                                  struct grad_shared<WIDTH> &sh,
                                                  struct attn_tile t,
                                                  const struct heads_out &dq)
{
    /* lane l has rows row and row + 8 of its warp's 16 (attention_mma.h) */
    const int ld = WIDTH + MMA_PAD, row = mma_first() + mma_row();
    const int64_t d = p.head_width, end = attn_key_end(p, t);
    float acc[WIDTH / 8][4], s[TILES][4], ds[TILES][4];
    const float scale = attn_keep_scale(p);

    clear<WIDTH>(acc);
    __syncthreads();
    mma_stage<WIDTH>(sh.own[0],
                     attn_rows_of<bf16_t>(p.q, t.b, t.h, t.q0, t.queries, 1.0f), d);
    mma_stage<WIDTH>(sh.own[1], attn_out_rows<bf16_t>(p, w.dout, t), d);
    stage_rows(p, w, t, sh.lse, sh.delta);
    for (int64_t k0 = 0; k0 < end; k0 += ATTN_TILE) {
        t = attn_tile_at(p, t.b, t.h, t.q0, k0);
        __syncthreads();
        mma_stage<WIDTH>(sh.other[0],
                         attn_rows_of<bf16_t>(p.k, t.b, t.kv_head, k0, t.keys, 1.0f),
                         d);
        mma_stage<WIDTH>(sh.other[1],
                         attn_rows_of<bf16_t>(p.v, t.b, t.kv_head, k0, t.keys, 1.0f),
                         d);
        if (scale != 0.0f)
            attn_stage_kept(p, t, sh.kept);
        __syncthreads();
#pragma unroll 1
        for (int half = 0; half < ATTN_TILE; half += HALF) {
            const struct attn_view view = attn_view_of(p, t);

            /* s = q k^T, dp = dout v^T; score_grad turns them into p and ds, mma_gather
             * adds ds k */
            mma_scores<WIDTH, TILES>(s, sh.own[0] + mma_first() * ld,
                                     sh.other[0] + half * ld);
            mma_scores<WIDTH, TILES>(ds, sh.own[1] + mma_first() * ld,
                                     sh.other[1] + half * ld);
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int q = row + i / 2 * 8, k = half + n * 8 + mma_col() + i % 2;

                    /* in float32: scaling bfloat16 queries would round them */
                    s[n][i] *= p.scale;
                    score_grad(s[n][i], ds[n][i], attn_sees(view, q, k), sh.lse[q],
                               sh.delta[q], attn_keep(sh.kept, scale, q, k));
                }
            mma_gather<WIDTH, TILES>(acc, ds, sh.other[0] + half * ld);
        }
    }
    /* the scale of the scores is a factor of their derivative, too */
    mma_store<WIDTH>(dq, t.b, t.h, t.q0, t.queries, acc, p.scale, p.scale, d);
}

/* Adds what the queries of one tile contribute to dk and dv of the keys. Rows are
 * keys. */
template <int WIDTH>
static __device__ __forceinline__ void add_queries(
    const struct attention &p, const struct mma_task &w, struct grad_shared<WIDTH> &sh,
    const struct attn_tile &t, float dk[WIDTH / 8][4], float dv[WIDTH / 8][4])
{
    const int ld = WIDTH + MMA_PAD, row = mma_first() + mma_row();
    const struct attn_view view = attn_view_of(p, t);
    const float scale = attn_keep_scale(p);
    float s[TILES][4], ds[TILES][4];

    __syncthreads();
    mma_stage<WIDTH>(sh.other[0],
                     attn_rows_of<bf16_t>(p.q, t.b, t.h, t.q0, t.queries, 1.0f),
                     p.head_width);
    mma_stage<WIDTH>(sh.other[1], attn_out_rows<bf16_t>(p, w.dout, t), p.head_width);
    stage_rows(p, w, t, sh.lse, sh.delta);
    if (scale != 0.0f)
        attn_stage_kept(p, t, sh.kept);
    __syncthreads();
#pragma unroll 1
    for (int half = 0; half < ATTN_TILE; half += HALF) {
        mma_scores<WIDTH, TILES>(s, sh.own[0] + mma_first() * ld,
                                 sh.other[0] + half * ld);
        mma_scores<WIDTH, TILES>(ds, sh.own[1] + mma_first() * ld,
                                 sh.other[1] + half * ld);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int k = row + i / 2 * 8, q = half + n * 8 + mma_col() + i % 2;

                s[n][i] *= p.scale;
                score_grad(s[n][i], ds[n][i], attn_sees(view, q, k), sh.lse[q],
                           sh.delta[q], attn_keep(sh.kept, scale, q, k));
            }
        /* dv += p^T dout, dk += ds^T q: rows are keys, so both are plain products */
        mma_gather<WIDTH, TILES>(dv, s, sh.other[1] + half * ld);
        mma_gather<WIDTH, TILES>(dk, ds, sh.other[0] + half * ld);
    }
}

/* dk and dv may be one tensor: each element belongs to the same thread in both, dk
 * first. */
template <int WIDTH>
static __device__ __forceinline__ void key_tile(const struct attention &p,
                                                const struct mma_task &w,
                                                struct grad_shared<WIDTH> &sh,
                                                int64_t b, int64_t kv_head, int64_t k0,
                                                const struct heads_out &to_k,
                                                const struct heads_out &to_v)
{
    const int64_t group = p.heads / p.kv_heads, d = p.head_width;
    /* the first query that sees the tile's first key; earlier tiles see none */
    const int64_t first = p.causal ? attn_clamp(k0 - p.offset, 0, p.queries) : 0;
    struct attn_tile t = attn_tile_at(p, b, kv_head * group, 0, k0);
    float dk[WIDTH / 8][4], dv[WIDTH / 8][4];

    clear<WIDTH>(dk);
    clear<WIDTH>(dv);
    __syncthreads();
    mma_stage<WIDTH>(sh.own[0], attn_rows_of<bf16_t>(p.k, b, kv_head, k0, t.keys, 1.0f),
                     d);
    mma_stage<WIDTH>(sh.own[1], attn_rows_of<bf16_t>(p.v, b, kv_head, k0, t.keys, 1.0f),
                     d);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group && k0 < t.limit; h++)
        for (int64_t q0 = first / ATTN_TILE * ATTN_TILE; q0 < p.queries;
             q0 += ATTN_TILE)
            add_queries<WIDTH>(p, w, sh, attn_tile_at(p, b, h, q0, k0), dk, dv);
    if (to_k.data)
        mma_store<WIDTH>(to_k, b, kv_head, k0, t.keys, dk, p.scale, p.scale, d);
    if (to_v.data)
        mma_store<WIDTH>(to_v, b, kv_head, k0, t.keys, dv, 1.0f, 1.0f, d);
}

/* dq [batch, queries, heads]: a block of 4 warps per 64 queries of a head. */
template <int WIDTH>
static __global__ void __launch_bounds__(MMA_THREADS)
    attention_mma_dq(struct attention p, struct mma_task w, struct heads_out dq)
{
    DYNAMIC_SHARED(struct grad_shared<WIDTH>, sh);
    const int64_t blocks = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t heads = p.batch * p.heads;

    ROW_STRIDE(i, heads * blocks)
    {
        /* later queries see more keys, so they start first */
        int64_t bh = i % heads, q0 = (blocks - 1 - i / heads) * ATTN_TILE;

        query_tile<WIDTH>(p, w, *sh, attn_tile_at(p, bh / p.heads, bh % p.heads, q0, 0),
                          dq);
    }
}

/* dk and dv [batch, keys, kv_heads]: a block per 64 keys of a key head, over the whole
 * group of query heads. */
template <int WIDTH>
static __global__ void __launch_bounds__(MMA_THREADS)
    attention_mma_dkv(struct attention p, struct mma_task w, struct heads_out dk,
                      struct heads_out dv)
{
    DYNAMIC_SHARED(struct grad_shared<WIDTH>, sh);
    const int64_t blocks = (p.keys + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t heads = p.batch * p.kv_heads;

    /* Earlier keys of a causal attention are seen by more queries, so they start
     * first. */
    ROW_STRIDE(i, heads * blocks)
    {
        int64_t bh = i % heads;

        key_tile<WIDTH>(p, w, *sh, bh / p.kv_heads, bh % p.kv_heads,
                        i / heads * ATTN_TILE, dk, dv);
    }
}

/* Two launches; either is left out where nobody wants its gradients. */
template <int WIDTH>
static void launch_mma_backward(struct cuda_state *s, const struct attention *p,
                                const struct attention_grads *g,
                                const struct mma_task *w)
{
    int64_t q_tasks = p->batch * p->heads * ((p->queries + ATTN_TILE - 1) / ATTN_TILE);
    int64_t k_tasks = p->batch * p->kv_heads * ((p->keys + ATTN_TILE - 1) / ATTN_TILE);
    size_t bytes = sizeof(struct grad_shared<WIDTH>);
    struct heads_out dq = g->dq, dk = g->dk, dv = g->dv;
    struct attention a = *p;
    struct mma_task task = *w;

    /* 38 KiB with WIDTH 64, 70 KiB with 128: the wide one must ask for it */
    if (bytes > 48 << 10 && (!ALLOW_SHARED(attention_mma_dq<WIDTH>, bytes, s) ||
                             !ALLOW_SHARED(attention_mma_dkv<WIDTH>, bytes, s)))
        return;
    if (dq.data)
        LAUNCH(attention_mma_dq<WIDTH>, rows_grid(q_tasks), MMA_THREADS, bytes, s, a,
               task, dq);
    if (dk.data || dv.data)
        LAUNCH(attention_mma_dkv<WIDTH>, rows_grid(k_tasks), MMA_THREADS, bytes, s, a,
               task, dk, dv);
}

void attn_mma_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, const float *delta)
{
    struct mma_task w = { g->dout, g->lse, delta };

    if (p->head_width <= 64)
        launch_mma_backward<64>(cuda_state_of(be), p, g, &w);
    else
        launch_mma_backward<128>(cuda_state_of(be), p, g, &w);
}
