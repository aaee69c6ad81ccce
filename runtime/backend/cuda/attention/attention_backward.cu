/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward in plain float32: probabilities are recomputed, tile by tile, from
 * the log-sum-exp of the forward. A block per 64 queries makes dq; a block per 64 keys
 * makes dk and dv and goes over heads and query tiles in order. No sum is shared
 * between blocks, so none needs atomics. The price is that scores are computed twice,
 * once for dq and once for dk and dv (Dao 2023, FlashAttention-2, does both in one pass
 * with atomics).
 */
#include "backend/cuda/attention/cuda_attention.h"

/* delta[b,h,t] = sum of dout * out, one warp per row. The gradient of a softmax needs
 * it for every key, so it is made once. */
template <typename T>
static __global__ void __launch_bounds__(ATTN_THREADS)
    attention_delta(struct attention p, const T *out, const T *dout, float *delta)
{
    const int64_t rows = p.batch * p.heads * p.queries, warps = ATTN_THREADS / WARP;
    const int lane = (int)threadIdx.x % WARP;

    for (int64_t r = blockIdx.x * warps + threadIdx.x / WARP; r < rows;
         r += gridDim.x * warps) {
        /* r = (b heads + h) queries + t; out and dout are [batch, queries, heads,
         * width] */
        int64_t t = r % p.queries, h = r / p.queries % p.heads,
                b = r / p.queries / p.heads;
        int64_t at = ((b * p.queries + t) * p.heads + h) * p.head_width;
        float sum = 0.0f;

        for (int64_t c = lane; c < p.head_width; c += WARP)
            sum = fmaf(load_float(dout, at + c), load_float(out, at + c), sum);
        sum = warp_sum(sum);
        if (lane == 0)
            delta[r] = sum;
    }
}

/* One element: s becomes p * keep with p = exp(s - lse), dp becomes ds = p (dp * keep -
 * delta). Where p is 0, lse may be infinite, so ds is set, not multiplied. delta is the
 * sum over all keys of p dp, which the softmax subtracts. */
static __device__ __forceinline__ void score_grad(float &s, float &dp, bool sees,
                                                  float lse, float delta, float keep)
{
    float e = sees ? maths_exp(s - lse) : 0.0f;

    dp = e == 0.0f ? 0.0f : e * (dp * keep - delta);
    s = e * keep;
}

template <int N> static __device__ __forceinline__ void clear(float acc[ATTN_EACH][N])
{
#pragma unroll
    for (int i = 0; i < ATTN_EACH; i++)
#pragma unroll
        for (int n = 0; n < N; n++)
            acc[i][n] = 0.0f;
}

/* What the kernels need beside the attention and the destinations. */
struct grad_task {
    const void *dout;
    const float *lse, *delta;
};

template <typename T, int CHUNKS>
static __device__ __forceinline__ void query_tile(const struct attention &p,
                                                  const struct grad_task &w,
                                                  struct attn_shared &sh,
                                                  struct attn_tile t, int64_t c0,
                                                  const struct heads_out &dq)
{
    const int x = (int)threadIdx.x % ATTN_LANES, y = (int)threadIdx.x / ATTN_LANES;
    const int64_t d = p.head_width, end = attn_key_end(p, t);
    /* of lse and delta */
    const int64_t at = (t.b * p.heads + t.h) * p.queries + t.q0;
    struct attn_rows<T> q = attn_rows_of<T>(p.q, t.b, t.h, t.q0, t.queries, p.scale);
    struct attn_rows<T> dout = attn_out_rows<T>(p, w.dout, t);
    float acc[ATTN_EACH][ATTN_EACH * CHUNKS], s[ATTN_EACH][ATTN_EACH];
    float ds[ATTN_EACH][ATTN_EACH], scale = attn_keep_scale(p);

    clear(acc);
    for (int64_t k0 = 0; k0 < end; k0 += ATTN_TILE) {
        struct attn_view view;

        t = attn_tile_at(p, t.b, t.h, t.q0, k0);
        view = attn_view_of(p, t);
        if (scale != 0.0f)
            attn_stage_kept(p, t, sh.kept);
        attn_dot(s, sh, q, attn_rows_of<T>(p.k, t.b, t.kv_head, k0, t.keys, 1.0f), d);
        /* s = q k^T, dp = dout v^T; then dq += ds k */
        attn_dot(ds, sh, dout, attn_rows_of<T>(p.v, t.b, t.kv_head, k0, t.keys, 1.0f),
                 d);
        for (int i = 0; i < ATTN_EACH; i++) {
            int row = ATTN_EACH * y + i;
            float lse = row < t.queries ? w.lse[at + row] : 0.0f;
            float delta = row < t.queries ? w.delta[at + row] : 0.0f;

            for (int j = 0; j < ATTN_EACH; j++) {
                int col = x + ATTN_LANES * j;

                score_grad(s[i][j], ds[i][j], attn_sees(view, row, col), lse, delta,
                           attn_keep(sh.kept, scale, row, col));
            }
        }
        attn_share(sh, ds);
        attn_gather<T, CHUNKS>(
            acc, sh, attn_rows_of<T>(p.k, t.b, t.kv_head, k0, t.keys, 1.0f), c0, d);
    }
    /* q was scaled when it was loaded, so s needs no scale; dq does */
    attn_store<T, CHUNKS>(dq, t.b, t.h, t.q0, t.queries, acc, p.scale, c0, d);
}

/* Adds what the queries of one tile contribute to dk and dv of the keys. Rows are keys
 * here, so scores come out transposed. */
template <typename T, int CHUNKS>
static __device__ __forceinline__ void add_queries(
    const struct attention &p, const struct grad_task &w, struct attn_shared &sh,
    const struct attn_tile &t, int64_t c0, float dk[ATTN_EACH][ATTN_EACH * CHUNKS],
    float dv[ATTN_EACH][ATTN_EACH * CHUNKS])
{
    const int x = (int)threadIdx.x % ATTN_LANES, y = (int)threadIdx.x / ATTN_LANES;
    const int64_t d = p.head_width, at = (t.b * p.heads + t.h) * p.queries + t.q0;
    struct attn_rows<T> q = attn_rows_of<T>(p.q, t.b, t.h, t.q0, t.queries, p.scale);
    struct attn_rows<T> dout = attn_out_rows<T>(p, w.dout, t);
    float s[ATTN_EACH][ATTN_EACH], ds[ATTN_EACH][ATTN_EACH];
    const struct attn_view view = attn_view_of(p, t);
    const float scale = attn_keep_scale(p);

    if (scale != 0.0f)
        attn_stage_kept(p, t, sh.kept);
    attn_dot(s, sh, attn_rows_of<T>(p.k, t.b, t.kv_head, t.k0, t.keys, 1.0f), q, d);
    attn_dot(ds, sh, attn_rows_of<T>(p.v, t.b, t.kv_head, t.k0, t.keys, 1.0f), dout, d);
    for (int j = 0; j < ATTN_EACH; j++) {
        int col = x + ATTN_LANES * j;
        float lse = col < t.queries ? w.lse[at + col] : 0.0f;
        float delta = col < t.queries ? w.delta[at + col] : 0.0f;

        for (int i = 0; i < ATTN_EACH; i++) {
            int row = ATTN_EACH * y + i;

            score_grad(s[i][j], ds[i][j], attn_sees(view, col, row), lse, delta,
                       attn_keep(sh.kept, scale, col, row));
        }
    }
    /* dv += p^T dout, dk += ds^T q; rows of sh.s are keys, so nothing is transposed */
    attn_share(sh, s);
    attn_gather<T, CHUNKS>(dv, sh, dout, c0, d);
    attn_share(sh, ds);
    attn_gather<T, CHUNKS>(dk, sh, q, c0, d);
}

/* dk and dv may be one tensor: each element belongs to the same thread in both, dk
 * first. */
template <typename T, int CHUNKS>
static __device__ __forceinline__ void key_tile(const struct attention &p,
                                                const struct grad_task &w,
                                                struct attn_shared &sh, int64_t b,
                                                int64_t kv_head, int64_t k0, int64_t c0,
                                                const struct heads_out &to_k,
                                                const struct heads_out &to_v)
{
    const int64_t group = p.heads / p.kv_heads, d = p.head_width;
    /* the first query that sees the tile's first key; earlier tiles see none */
    const int64_t first = p.causal ? attn_clamp(k0 - p.offset, 0, p.queries) : 0;
    float dk[ATTN_EACH][ATTN_EACH * CHUNKS], dv[ATTN_EACH][ATTN_EACH * CHUNKS];
    struct attn_tile t = attn_tile_at(p, b, kv_head * group, 0, k0);

    clear(dk);
    clear(dv);
    /* all query heads of the group add to the same keys, in order */
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group && k0 < t.limit; h++)
        for (int64_t q0 = first / ATTN_TILE * ATTN_TILE; q0 < p.queries;
             q0 += ATTN_TILE)
            add_queries<T, CHUNKS>(p, w, sh, attn_tile_at(p, b, h, q0, k0), c0, dk, dv);
    if (to_k.data)
        attn_store<T, CHUNKS>(to_k, b, kv_head, k0, t.keys, dk, 1.0f, c0, d);
    if (to_v.data)
        attn_store<T, CHUNKS>(to_v, b, kv_head, k0, t.keys, dv, 1.0f, c0, d);
}

/* dq [batch, queries, heads]: a block per 64 queries of a head and 64 CHUNKS columns.
 */
template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(ATTN_THREADS)
    attention_dq(struct attention p, struct grad_task w, struct heads_out dq)
{
    __shared__ struct attn_shared sh;
    const int64_t blocks = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t parts =
        (p.head_width + ATTN_TILE * CHUNKS - 1) / (ATTN_TILE * CHUNKS);
    const int64_t heads = p.batch * p.heads, tasks = heads * blocks * parts;

    for (int64_t i = blockIdx.x; i < tasks; i += gridDim.x) {
        int64_t part = i % parts, bh = i / parts % heads;
        /* later queries of a causal attention see more keys, so they start first */
        int64_t block = blocks - 1 - i / parts / heads;

        query_tile<T, CHUNKS>(
            p, w, sh, attn_tile_at(p, bh / p.heads, bh % p.heads, block * ATTN_TILE, 0),
            part * ATTN_TILE * CHUNKS, dq);
    }
}

/* dk and dv [batch, keys, kv_heads]: a block per 64 keys of a key head and 64 CHUNKS
 * columns. */
template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(ATTN_THREADS)
    attention_dkv(struct attention p, struct grad_task w, struct heads_out dk,
                  struct heads_out dv)
{
    __shared__ struct attn_shared sh;
    const int64_t blocks = (p.keys + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t parts =
        (p.head_width + ATTN_TILE * CHUNKS - 1) / (ATTN_TILE * CHUNKS);
    const int64_t heads = p.batch * p.kv_heads, tasks = heads * blocks * parts;

    /* Earlier keys of a causal attention are seen by more queries, so they start
     * first. */
    for (int64_t i = blockIdx.x; i < tasks; i += gridDim.x) {
        int64_t part = i % parts, bh = i / parts % heads;

        key_tile<T, CHUNKS>(p, w, sh, bh / p.kv_heads, bh % p.kv_heads,
                            i / parts / heads * ATTN_TILE, part * ATTN_TILE * CHUNKS,
                            dk, dv);
    }
}

/* Two launches; either is left out where nobody wants its gradients. */
template <typename T, int CHUNKS>
static void launch_backward(const struct backend *be, const struct attention *p,
                            const struct attention_grads *g, const struct grad_task *w)
{
    int64_t parts = (p->head_width + ATTN_TILE * CHUNKS - 1) / (ATTN_TILE * CHUNKS);
    int64_t q_tasks =
        p->batch * p->heads * ((p->queries + ATTN_TILE - 1) / ATTN_TILE) * parts;
    int64_t k_tasks =
        p->batch * p->kv_heads * ((p->keys + ATTN_TILE - 1) / ATTN_TILE) * parts;
    void (*dq)(struct attention, struct grad_task, struct heads_out) =
        attention_dq<T, CHUNKS>;
    void (*dkv)(struct attention, struct grad_task, struct heads_out,
                struct heads_out) = attention_dkv<T, CHUNKS>;

    struct cuda_state *s = cuda_state_of(be);
    struct attention_grads to = *g;
    struct attention a = *p;
    struct grad_task task = *w;

    if (to.dq.data)
        LAUNCH(dq, rows_grid(q_tasks), ATTN_THREADS, 0, s, a, task, to.dq);
    if (to.dk.data || to.dv.data)
        LAUNCH(dkv, rows_grid(k_tasks), ATTN_THREADS, 0, s, a, task, to.dk, to.dv);
}

template <typename T>
static void launch_delta(const struct backend *be, const struct attention *p,
                         const struct attention_grads *g, float *delta)
{
    int64_t rows = p->batch * p->heads * p->queries;
    const T *out = (const T *)g->out, *dout = (const T *)g->dout;
    struct attention a = *p;

    /* 8 warps per block, a row each */
    LAUNCH(attention_delta<T>, rows_grid((rows + 7) / 8), ATTN_THREADS, 0,
           cuda_state_of(be), a, out, dout, delta);
}

void attn_delta(const struct backend *be, const struct attention *p,
                const struct attention_grads *g, float *delta)
{
    BY_TYPE(p->type, T, launch_delta<T>(be, p, g, delta));
}

/* Column blocks of 64 are a template parameter, because the sums live in registers. */
template <typename T>
static void backward(const struct backend *be, const struct attention *p,
                     const struct attention_grads *g, const float *delta)
{
    struct grad_task w = { g->dout, g->lse, delta };
    int chunks = attn_chunks(p->head_width);

    /* the width decides the registers per thread: 16, 32 or 64 sums */
    if (chunks == 1)
        launch_backward<T, 1>(be, p, g, &w);
    else if (chunks == 2)
        launch_backward<T, 2>(be, p, g, &w);
    else
        launch_backward<T, 4>(be, p, g, &w);
}

void attn_backward(const struct backend *be, const struct attention *p,
                   const struct attention_grads *g, const float *delta)
{
    BY_TYPE(p->type, T, backward<T>(be, p, g, delta));
}
