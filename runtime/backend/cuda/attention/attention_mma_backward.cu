/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on tensor cores: bfloat16 or float16, heads of up to 128 elements.
 * As in the plain backward, a block per 64 queries makes dq and a block per 64 keys dk
 * and dv. A warp has 16 rows and takes 32 of the other side at a time, to fit its
 * registers; the next 32 are copied meanwhile. Where five products pay
 * (attention_five.h), the blocks of keys keep what dq needs, and attention_mma_dq.cu
 * makes it.
 */
#include "backend/cuda/attention/attention_five.h"
#include "backend/cuda/attention/attention_mma.h"

/* 64 x 32 scores of s and of ds are 2 x 16 registers per thread; 64 x 64 would spill */
#define HALF  (ATTN_TILE / 2)
#define TILES (HALF / 8) /* 8-column results in half a row of scores */

/* Two tiles that stay and two that change, and two floats per query. For dq the
 * queries' side stays (q, dout), for dk and dv the keys' side (k, v). One half of the
 * tiles that change is read while the other is copied. */
template <typename T, int WIDTH> struct grad_shared {
    T own[2][ATTN_TILE * (WIDTH + MMA_PAD)], other[2][ATTN_TILE * (WIDTH + MMA_PAD)];
    float lse[ATTN_TILE], delta[ATTN_TILE];
    uint8_t kept[ATTN_TILE * ATTN_QUADS];
};

/* Copies lse, in units of log2, and delta of the tile's queries [first, first + rows)
 * to shared memory. */
static __device__ __forceinline__ void stage_rows(const struct attention &p,
                                                  const struct mma_task &w,
                                                  const struct attn_tile &t, int first,
                                                  int rows, float *lse, float *delta)
{
    const int64_t at = (t.b * p.heads + t.h) * p.queries + t.q0;

    BLOCK_STRIDE(i, rows)
    {
        int64_t q = first + i;

        lse[q] = q < t.queries ? w.lse[at + q] * MMA_LOG2E : 0.0f;
        delta[q] = q < t.queries ? w.delta[at + q] : 0.0f;
    }
}

/* Starts to copy 32 keys and values of the tile from key `half` on. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void stage_half_keys(const struct attention &p,
                                                       struct grad_shared<T, WIDTH> &sh,
                                                       const struct attn_tile &t,
                                                       int half)
{
    const int at = half * (WIDTH + MMA_PAD), keys = t.keys - half;
    const int64_t first = t.k0 + half;

    mma_stage<WIDTH, HALF>(sh.other[0] + at,
                           attn_rows_of<T>(p.k, t.b, t.kv_head, first, keys, 1.0f),
                           p.head_width);
    mma_stage<WIDTH, HALF>(sh.other[1] + at,
                           attn_rows_of<T>(p.v, t.b, t.kv_head, first, keys, 1.0f),
                           p.head_width);
}

/* Starts to copy 32 queries of the tile from query `half` on, their dout, lse and
 * delta. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void stage_half_queries(
    const struct attention &p, const struct mma_task &w,
    struct grad_shared<T, WIDTH> &sh, const struct attn_tile &t, int half)
{
    const int at = half * (WIDTH + MMA_PAD);
    struct attn_rows<T> dout = attn_out_rows<T>(p, w.dout, t);

    dout.at += half * dout.stride;
    dout.count -= half;
    mma_stage<WIDTH, HALF>(
        sh.other[0] + at,
        attn_rows_of<T>(p.q, t.b, t.h, t.q0 + half, t.queries - half, 1.0f),
        p.head_width);
    mma_stage<WIDTH, HALF>(sh.other[1] + at, dout, p.head_width);
    stage_rows(p, w, t, half, HALF, sh.lse, sh.delta);
}

/* Stages which keys dropout keeps in the tile, for both of its halves. */
static __device__ __forceinline__ void stage_kept(const struct attention &p,
                                                  const struct attn_tile &t, int half,
                                                  uint8_t *kept)
{
    if (p.dropout > 0.0f && half == 0) {
        attn_stage_kept(p, t, kept);
        __syncthreads();
    }
}

/* Adds what 32 keys of the tile from key `half` on contribute to dq. Rows are
 * queries. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void add_keys(const struct attention &p,
                                                struct grad_shared<T, WIDTH> &sh,
                                                const struct attn_tile &t, int half,
                                                float dq[WIDTH / 8][4])
{
    /* lane l has rows row and row + 8 of its warp's 16 (ptx.h) */
    const int ld = WIDTH + MMA_PAD, row = mma_first() + mma_row();
    const struct attn_view view = attn_view_of(p, t);
    const float scale = attn_keep_scale(p), by = mma_log2_scale(p);
    float s[TILES][4], ds[TILES][4];

    /* s = q k^T, dp = dout v^T; mma_score_grad turns them into p and ds, mma_gather
     * adds ds k */
    mma_scores<WIDTH, TILES>(s, sh.own[0] + mma_first() * ld, sh.other[0] + half * ld);
    mma_scores<WIDTH, TILES>(ds, sh.own[1] + mma_first() * ld, sh.other[1] + half * ld);
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int q = row + i / 2 * 8, k = half + n * 8 + mma_col() + i % 2;

            s[n][i] = mma_probability(s[n][i], by, sh.lse[q]);
            mma_score_grad(s[n][i], ds[n][i], sh.delta[q],
                           attn_keep(sh.kept, scale, q, k));
        }
    mma_hide_keys<TILES>(view, row, half, 0.0f, ds);
    mma_gather<WIDTH, TILES>(dq, ds, sh.other[0] + half * ld);
}

/* dq of one tile: keys pass by. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void query_tile(const struct attention &p,
                                                  const struct mma_task &w,
                                                  struct grad_shared<T, WIDTH> &sh,
                                                  struct attn_tile t,
                                                  const struct heads_out &dq)
{
    const int64_t d = p.head_width, end = attn_key_end(p, t);
    float acc[WIDTH / 8][4];

    mma_clear<WIDTH>(acc);
    __syncthreads();
    mma_stage<WIDTH, ATTN_TILE>(
        sh.own[0], attn_rows_of<T>(p.q, t.b, t.h, t.q0, t.queries, 1.0f), d);
    mma_stage<WIDTH, ATTN_TILE>(sh.own[1], attn_out_rows<T>(p, w.dout, t), d);
    stage_rows(p, w, t, 0, ATTN_TILE, sh.lse, sh.delta);
    stage_half_keys<T, WIDTH>(p, sh, t, 0);
#pragma unroll 1
    for (int64_t k = 0; k < end; k += HALF) {
        const int half = (int)(k % ATTN_TILE), other = HALF - half;

        t = attn_tile_at(p, t.b, t.h, t.q0, k - half);
        mma_staged();
        if (k + HALF < end)
            stage_half_keys<T, WIDTH>(
                p, sh, attn_tile_at(p, t.b, t.h, t.q0, k + HALF - other), other);
        stage_kept(p, t, half, sh.kept);
        add_keys<T, WIDTH>(p, sh, t, half, acc);
    }
    ptx_copy_wait<0>(); /* where no key is seen, the first ones are still under way */
    /* the scale of the scores is a factor of their derivative, too */
    mma_store<T, WIDTH>(dq, t.b, t.h, t.q0, t.queries, acc,
                        mma_rows_by(p.scale, p.scale), d);
}

/* Adds what 32 queries of the tile from query `half` on contribute to dk and dv. Rows
 * are keys. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void add_queries(const struct attention &p,
                                                   const struct mma_task &w,
                                                   struct grad_shared<T, WIDTH> &sh,
                                                   const struct attn_tile &t, int half,
                                                   float dk[WIDTH / 8][4],
                                                   float dv[WIDTH / 8][4])
{
    const int ld = WIDTH + MMA_PAD, row = mma_first() + mma_row();
    const struct attn_view view = attn_view_of(p, t);
    const float scale = attn_keep_scale(p), by = mma_log2_scale(p);
    float s[TILES][4], ds[TILES][4];

    mma_scores<WIDTH, TILES>(s, sh.own[0] + mma_first() * ld, sh.other[0] + half * ld);
    mma_scores<WIDTH, TILES>(ds, sh.own[1] + mma_first() * ld, sh.other[1] + half * ld);
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int k = row + i / 2 * 8, q = half + n * 8 + mma_col() + i % 2;

            s[n][i] = mma_probability(s[n][i], by, sh.lse[q]);
            mma_score_grad(s[n][i], ds[n][i], sh.delta[q],
                           attn_keep(sh.kept, scale, q, k));
        }
    mma_hide_queries<TILES>(view, row, half, 0.0f, s);
    mma_hide_queries<TILES>(view, row, half, 0.0f, ds);
    if (w.ds) {
        uint32_t packed[TILES / 2][4];

        mma_pack<T, TILES>(packed, ds);
        mma_keep_ds(mma_ds_of<T>(p, w, t), row, half, packed);
    }
    /* dv += p^T dout, dk += ds^T q: rows are keys, so both are plain products */
    mma_gather<WIDTH, TILES>(dv, s, sh.other[1] + half * ld);
    mma_gather<WIDTH, TILES>(dk, ds, sh.other[0] + half * ld);
}

/* The queries that pass by a tile of keys, 32 in a step: those from `first` on of each
 * head of the group. Whole tiles, so that the halves of sh.other take turns. */
struct query_walk {
    int64_t first, per_head, steps;
};

/* The first query that sees the tile's first key begins; earlier tiles see none. */
static __device__ __forceinline__ struct query_walk query_walk_of(
    const struct attention &p, const struct attn_tile &t)
{
    const int64_t seen = p.causal ? attn_clamp(t.k0 - p.offset, 0, p.queries) : 0;
    struct query_walk w;

    w.first = seen / ATTN_TILE * ATTN_TILE;
    w.per_head = (p.queries - w.first + ATTN_TILE - 1) / ATTN_TILE * 2;
    w.steps = t.k0 < t.limit ? p.heads / p.kv_heads * w.per_head : 0;
    return w;
}

/* The tile and, in *half_out, the first query in it of a step. */
static __device__ __forceinline__ struct attn_tile query_step(
    const struct attention &p, const struct query_walk &w, const struct attn_tile &keys,
    int64_t step, int *half_out)
{
    const int64_t q = w.first + step % w.per_head * HALF;
    const int64_t h = keys.kv_head * (p.heads / p.kv_heads) + step / w.per_head;

    *half_out = (int)(q % ATTN_TILE);
    return attn_tile_at(p, keys.b, h, q - *half_out, keys.k0);
}

/* dk and dv may be one tensor: each element belongs to the same thread in both, dk
 * first. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void key_tile(const struct attention &p,
                                                const struct mma_task &w,
                                                struct grad_shared<T, WIDTH> &sh,
                                                const struct attn_tile &keys,
                                                const struct heads_out &to_k,
                                                const struct heads_out &to_v)
{
    const int64_t d = p.head_width, b = keys.b, h = keys.kv_head, k0 = keys.k0;
    const struct query_walk walk = query_walk_of(p, keys);
    float dk[WIDTH / 8][4], dv[WIDTH / 8][4];
    struct attn_tile t, next = keys;
    int half, next_half = 0;

    mma_clear<WIDTH>(dk);
    mma_clear<WIDTH>(dv);
    __syncthreads();
    mma_stage<WIDTH, ATTN_TILE>(sh.own[0],
                                attn_rows_of<T>(p.k, b, h, k0, keys.keys, 1.0f), d);
    mma_stage<WIDTH, ATTN_TILE>(sh.own[1],
                                attn_rows_of<T>(p.v, b, h, k0, keys.keys, 1.0f), d);
    if (walk.steps > 0) {
        next = query_step(p, walk, keys, 0, &next_half);
        stage_half_queries<T, WIDTH>(p, w, sh, next, next_half);
    }
#pragma unroll 1
    for (int64_t step = 0; step < walk.steps; step++) {
        t = next;
        half = next_half;
        mma_staged();
        if (step + 1 < walk.steps) {
            next = query_step(p, walk, keys, step + 1, &next_half);
            stage_half_queries<T, WIDTH>(p, w, sh, next, next_half);
        }
        stage_kept(p, t, half, sh.kept);
        add_queries<T, WIDTH>(p, w, sh, t, half, dk, dv);
    }
    ptx_copy_wait<0>(); /* where no query sees the keys, these are still under way */
    if (to_k.data)
        mma_store<T, WIDTH>(to_k, b, h, k0, keys.keys, dk,
                            mma_rows_by(p.scale, p.scale), d);
    if (to_v.data)
        mma_store<T, WIDTH>(to_v, b, h, k0, keys.keys, dv, mma_rows_by(1.0f, 1.0f), d);
}

/* dq [batch, queries, heads]: a block of 4 warps per 64 queries of a head. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(MMA_THREADS)
    attention_mma_dq(struct attention p, struct mma_task w, struct heads_out dq)
{
    using shared = struct grad_shared<T, WIDTH>;
    DYNAMIC_SHARED(shared, sh);
    const int64_t blocks = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t heads = p.batch * p.heads;

    ROW_STRIDE(i, heads * blocks)
    {
        /* later queries see more keys, so they start first */
        int64_t bh = i % heads, q0 = (blocks - 1 - i / heads) * ATTN_TILE;

        query_tile<T, WIDTH>(p, w, *sh,
                             attn_tile_at(p, bh / p.heads, bh % p.heads, q0, 0), dq);
    }
}

/* dk and dv [samples, keys, kv_heads]: a block per 64 keys of a key head, over the
 * whole group of query heads. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(MMA_THREADS)
    attention_mma_dkv(struct attention p, struct mma_task w, struct heads_out dk,
                      struct heads_out dv)
{
    using shared = struct grad_shared<T, WIDTH>;
    DYNAMIC_SHARED(shared, sh);
    const int64_t blocks = (p.keys + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t heads = w.samples * w.kv_heads;

    /* Earlier keys of a causal attention are seen by more queries, so they start
     * first. */
    ROW_STRIDE(i, heads * blocks)
    {
        int64_t b = w.sample + i % heads / w.kv_heads;
        int64_t h = (w.kv_head + i % w.kv_heads) * (p.heads / p.kv_heads);

        key_tile<T, WIDTH>(p, w, *sh, attn_tile_at(p, b, h, 0, i / heads * ATTN_TILE),
                           dk, dv);
    }
}

/* dq before dk and dv, which may be added to the same memory; from the kept gradients
 * of the scores, after them. Either is left out where nobody wants it. */
template <typename T, int WIDTH>
static void launch_mma_backward(struct cuda_state *s, const struct attention *p,
                                const struct attention_grads *g,
                                const struct mma_task *w)
{
    int64_t q_tasks = p->batch * p->heads * ((p->queries + ATTN_TILE - 1) / ATTN_TILE);
    int64_t k_tasks =
        w->samples * w->kv_heads * ((p->keys + ATTN_TILE - 1) / ATTN_TILE);
    size_t bytes = sizeof(struct grad_shared<T, WIDTH>);
    struct heads_out dq = g->dq, dk = g->dk, dv = g->dv;
    const bool wgmma = attn_has_wgmma(s, p);
    struct attention a = *p;
    struct mma_task task = *w;

    /* 38 KiB with WIDTH 64, 70 KiB with 128: the wide one must ask for it */
    if (bytes > 48 << 10 && (!ALLOW_SHARED((attention_mma_dq<T, WIDTH>), bytes, s) ||
                             !ALLOW_SHARED((attention_mma_dkv<T, WIDTH>), bytes, s)))
        return;
    if (dq.data && !w->ds && wgmma)
        attn_wgmma_dq(s, p, w, &g->dq);
    else if (dq.data && !w->ds)
        LAUNCH((attention_mma_dq<T, WIDTH>), rows_grid(q_tasks), MMA_THREADS, bytes, s,
               a, task, dq);
    if ((dk.data || dv.data) && wgmma)
        attn_wgmma_dkv(s, p, w, g);
    else if (dk.data || dv.data)
        LAUNCH((attention_mma_dkv<T, WIDTH>), rows_grid(k_tasks), MMA_THREADS, bytes, s,
               a, task, dk, dv);
    if (w->ds)
        attn_mma_dq(s, p, w, &g->dq);
}

static void launch_part(struct cuda_state *s, const struct attention *p,
                        const struct attention_grads *g, const struct mma_task *w)
{
    BY_TILE(p, T, WIDTH, (launch_mma_backward<T, WIDTH>(s, p, g, w)));
}

/* Part after part in one place: the queue runs in order. */
static void five_products(struct cuda_state *s, const struct attention *p,
                          const struct attention_grads *g, struct mma_task w,
                          struct attn_split split)
{
    void *ds = cuda_scratch(s, (size_t)five_bytes(p, split));

    w.ds = ds;
    for (w.sample = 0; ds && w.sample < p->batch; w.sample += split.samples) {
        w.samples = least(split.samples, p->batch - w.sample);
        for (w.kv_head = 0; w.kv_head < p->kv_heads; w.kv_head += split.kv_heads) {
            w.kv_heads = least(split.kv_heads, p->kv_heads - w.kv_head);
            launch_part(s, p, g, &w);
        }
    }
    cuda_scratch_free(s, ds);
}

void attn_mma_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, const float *delta)
{
    struct cuda_state *s = cuda_state_of(be);
    struct mma_task w = { g->dout, g->lse, delta, 0, p->batch, 0, p->kv_heads, NULL };
    const struct five_device d = { s->sms, attn_has_wgmma(s, p) };
    struct attn_split split;
    const bool fits = !(s->attention & ATTN_SEVEN) &&
                      attn_five_fits(p, g, (int64_t)s->workspace.bytes, &split);

    if (fits && ((s->attention & ATTN_FIVE) || attn_five_pays(p, split, &d))) {
        attn_tell(s, true,
                  d.wgmma ? "wgmma, 5 products, parts: %lld"
                          : "5 products, parts: %lld",
                  (long long)attn_parts(p, split));
        five_products(s, p, g, w, split);
    } else {
        attn_tell(s, true, d.wgmma ? "wgmma, %lld products" : "%lld products", 7);
        launch_part(s, p, g, &w);
    }
}
