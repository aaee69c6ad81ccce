/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward for sm_90a: bfloat16 or float16, heads of 64 or 128 elements. A
 * thread block has 128 queries: one thread copies tiles of 128 keys and values by
 * tensor maps, two groups of four warps multiply them (wgmma), 64 queries each. A tile
 * is copied while the one before is in use. Out: the output and one log-sum-exp per
 * query.
 */
#include "backend/cuda/attention/attention_kept.h"
#include "backend/cuda/attention/attention_rows.h"
#include "backend/cuda/attention/attention_wgmma.h"

#define WG_KEYS  WG_ROWS
#define WG_TILES (WG_KEYS / 8)

/* [panels][rows][64] each; 160 KiB with WIDTH 128. */
template <typename T, int WIDTH> struct wg_shared {
    T q[WG_ROWS * WIDTH], k[WG_STAGES][WG_KEYS * WIDTH], v[WG_STAGES][WG_KEYS * WIDTH];
    /* full: the copies are there. free: all warps have read them. */
    uint64_t q_full, k_full[WG_STAGES], k_free[WG_STAGES], v_full[WG_STAGES],
        v_free[WG_STAGES];
};

/* Starts to copy 128 rows, whose barrier waits for nothing else. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void copy_rows(T *to, const struct wg_tensor *map,
                                                 int64_t first, int64_t head,
                                                 int64_t sample, uint64_t *full)
{
    ptx_barrier_expect(full, WG_KEYS * WIDTH * sizeof(T));
    wg_copy<WIDTH, WG_KEYS>(to, map, first, head, sample, full);
}

/* One thread: all that the block reads. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void wg_produce(struct wg_shared<T, WIDTH> &sh,
                                                  const struct wg_tensor *q,
                                                  const struct wg_tensor *k,
                                                  const struct wg_tensor *v,
                                                  const struct attn_tile &t, int tiles)
{
    copy_rows<T, WIDTH>(sh.q, q, t.q0, t.h, t.b, &sh.q_full);
    for (int i = 0; i < tiles; i++) {
        const int at = wg_stage(i);

        /* the phase before the first one is over: a place is free at first */
        ptx_barrier_wait(&sh.k_free[at], wg_phase(i) ^ 1);
        copy_rows<T, WIDTH>(sh.k[at], k, (int64_t)i * WG_KEYS, t.kv_head, t.b,
                            &sh.k_full[at]);
        ptx_barrier_wait(&sh.v_free[at], wg_phase(i) ^ 1);
        copy_rows<T, WIDTH>(sh.v[at], v, (int64_t)i * WG_KEYS, t.kv_head, t.b,
                            &sh.v_full[at]);
    }
}

/* Begins s = q k^T for the 64 queries of this group and 128 keys. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void wg_scores(float s[WG_TILES][4], const T *q,
                                                 const T *k)
{
    ptx_products_begin<WG_TILES>(s);
#pragma unroll
    for (int c = 0; c < WIDTH; c += 16)
        ptx_products<T>(s, wg_columns<WG_ROWS>(q, c), wg_columns<WG_KEYS>(k, c), c > 0);
    ptx_products_commit();
}

/* Begins acc += the probabilities in `left` times 128 values. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void wg_gather(float acc[WIDTH / 8][4],
                                                 const uint32_t left[WG_TILES / 2][4],
                                                 const T *v)
{
    ptx_products_begin<WIDTH / 8>(acc);
    wg_add<WIDTH, WG_KEYS>(acc, left, v);
    ptx_products_commit();
}

/* Draws for the tile of 128 keys from t.k0 on, while its copy or products are under
 * way. */
template <bool DROPS>
static __device__ __forceinline__ void wg_draw(const struct attention &p,
                                               struct attn_tile t, int row,
                                               uint32_t kept[2])
{
    for (int half = 0; DROPS && half < 2; half++) {
        kept[half] = kept_by_queries(p, t, row);
        t.k0 += ATTN_TILE;
    }
}

/* Applies dropout, after the sums: dropped keys still count in the softmax. */
template <bool DROPS>
static __device__ __forceinline__ void wg_drop(const uint32_t kept[2], float scale,
                                               float s[WG_TILES][4])
{
#pragma unroll
    for (int n = 0; DROPS && n < WG_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= kept_factor(kept[n / KEPT_RESULTS], scale, n % KEPT_RESULTS, i);
}

/* A lane's two rows: the maximum of their scores and the sum of what soften makes of
 * them. */
struct wg_rows {
    float max[2], sum[2];
};

/* Turns scores of the 8 N keys from t.k0 on into probabilities, up to the sum. factor:
 * for what was added before. */
template <int N>
static __device__ __forceinline__ void wg_soften(const struct attention &p,
                                                 const struct attn_tile &t, int row,
                                                 float s[N][4], struct wg_rows &rows,
                                                 float factor[2])
{
    const float by = mma_log2_scale(p);

    mma_hide_keys<N>(attn_view_of<8 * N>(p, t), row, 0, -INFINITY, s);
    for (int half = 0; half < 2; half++)
        factor[half] = soften<N>(s, half, by, rows.max[half], rows.sum[half]);
}

/* Four warps: 64 queries of the block's 128. Keys that none of them sees are passed
 * over with the others. The products with a tile's values and the scores of the next
 * tile are under way while the softmax of that one is made. */
template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_consume(const struct attention &p,
                                                  struct wg_shared<T, WIDTH> &sh,
                                                  struct attn_tile t, int tiles,
                                                  void *out, float *lse)
{
    const int row = mma_first() % ATTN_TILE + mma_row();
    const T *q = sh.q + mma_first() / ATTN_TILE * ATTN_TILE * WG_PANEL;
    float acc[WIDTH / 8][4], s[WG_TILES][4], factor[2];
    struct wg_rows rows = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f } };
    uint32_t left[WG_TILES / 2][4], kept[2] = { 0, 0 };

    mma_clear<WIDTH>(acc);
    mma_clear<WG_KEYS>(s);
    ptx_barrier_wait(&sh.q_full, 0);
    if (tiles > 0) {
        ptx_barrier_wait(&sh.k_full[0], 0);
        wg_scores<T, WIDTH>(s, q, sh.k[0]);
        wg_draw<DROPS>(p, t, row, kept);
        ptx_products_wait<0, WG_TILES>(s);
        wg_release(&sh.k_free[0]);
        wg_soften<WG_TILES>(p, t, row, s, rows, factor);
        wg_drop<DROPS>(kept, attn_keep_scale(p), s);
        mma_pack<T, WG_TILES>(left, s);
    }
#pragma unroll 1
    for (int i = 1; i < tiles; i++) {
        const int at = wg_stage(i), before = wg_stage(i - 1);

        t.k0 = (int64_t)i * WG_KEYS;
        ptx_barrier_wait(&sh.k_full[at], wg_phase(i));
        wg_scores<T, WIDTH>(s, q, sh.k[at]);
        ptx_barrier_wait(&sh.v_full[before], wg_phase(i - 1));
        wg_gather<T, WIDTH>(acc, left, sh.v[before]);
        wg_draw<DROPS>(p, t, row, kept);
        ptx_products_wait<1, WG_TILES>(s);
        wg_release(&sh.k_free[at]);
        wg_soften<WG_TILES>(p, t, row, s, rows, factor);
        ptx_products_wait<0, WIDTH / 8>(acc);
        wg_release(&sh.v_free[before]);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[n][e] *= factor[e / 2];
        wg_drop<DROPS>(kept, attn_keep_scale(p), s);
        mma_pack<T, WG_TILES>(left, s);
    }
    if (tiles > 0) {
        const int last = wg_stage(tiles - 1);

        ptx_barrier_wait(&sh.v_full[last], wg_phase(tiles - 1));
        wg_gather<T, WIDTH>(acc, left, sh.v[last]);
        ptx_products_wait<0, WIDTH / 8>(acc);
        wg_release(&sh.v_free[last]);
    }
    finish_rows<T, WIDTH>(p, t, row, rows.max, rows.sum, acc, out, lse);
}

/* One thread makes the barriers; the copies are to see them, then all threads. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void wg_barriers(struct wg_shared<T, WIDTH> &sh)
{
    if (threadIdx.x == WG_WARPS * WARP) {
        ptx_barrier_init(&sh.q_full, 1);
        for (int i = 0; i < WG_STAGES; i++) {
            ptx_barrier_init(&sh.k_full[i], 1);
            ptx_barrier_init(&sh.v_full[i], 1);
            ptx_barrier_init(&sh.k_free[i], WG_WARPS);
            ptx_barrier_init(&sh.v_free[i], WG_WARPS);
        }
        ptx_fence_async();
    }
    __syncthreads();
}

template <typename T, int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_block(const struct attention &p,
                                                const struct wg_tensor *q,
                                                const struct wg_tensor *k,
                                                const struct wg_tensor *v, void *out,
                                                float *lse)
{
    struct wg_shared<T, WIDTH> &sh = wg_room<struct wg_shared<T, WIDTH>>();
    const int64_t heads = p.batch * p.heads, bh = blockIdx.x % heads;
    /* heads vary fastest, and later queries, which see more keys, start first */
    const int64_t q0 = (int64_t)(gridDim.x / heads - 1 - blockIdx.x / heads) * WG_ROWS;
    struct attn_tile t = attn_tile_at(p, bh / p.heads, bh % p.heads, q0, 0);
    int64_t end = t.limit;
    int tiles;

    if (p.causal)
        end = attn_clamp(p.offset + attn_clamp(q0 + WG_ROWS, 0, p.queries), 0, end);
    tiles = (int)((end + WG_KEYS - 1) / WG_KEYS);
    wg_barriers<T, WIDTH>(sh);
    /* of the 168 registers that 384 threads have each, those of the four warps go to
     * the others: 256 x 240 + 128 x 24 */
    if (threadIdx.x < WG_WARPS * WARP) {
        ptx_more_registers<240>();
        t = attn_tile_at(p, t.b, t.h, q0 + mma_first() / ATTN_TILE * ATTN_TILE, 0);
        wg_consume<T, WIDTH, DROPS>(p, sh, t, tiles, out, lse);
    } else {
        ptx_fewer_registers<24>();
        if (threadIdx.x == WG_WARPS * WARP)
            wg_produce<T, WIDTH>(sh, q, k, v, t, tiles);
    }
}

/* Code for other devices is there only so that the kernel has a name: attn_wgmma_fits
 * keeps them from it. */
template <typename T, int WIDTH, bool DROPS>
static __global__ void __launch_bounds__(WG_THREADS, 1)
    attention_wgmma_forward(struct attention p, const __grid_constant__ wg_tensor q,
                            const __grid_constant__ wg_tensor k,
                            const __grid_constant__ wg_tensor v, void *out, float *lse)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    wg_block<T, WIDTH, DROPS>(p, &q, &k, &v, out, lse);
#endif
}

template <typename T, int WIDTH, bool DROPS>
static void launch_wgmma(struct cuda_state *s, const struct attention *p, void *out,
                         float *lse)
{
    const int64_t tasks = p->batch * p->heads * ((p->queries + WG_ROWS - 1) / WG_ROWS);
    const size_t bytes = sizeof(struct wg_shared<T, WIDTH>) + WG_ALIGN;
    struct attention a = *p;
    auto wgmma_forward = attention_wgmma_forward<T, WIDTH, DROPS>;
    struct wg_tensor q, k, v;

    if (!attn_wgmma_map(s, &q, p, &p->q, p->heads, p->queries, WG_ROWS) ||
        !attn_wgmma_map(s, &k, p, &p->k, p->kv_heads, p->keys, WG_KEYS) ||
        !attn_wgmma_map(s, &v, p, &p->v, p->kv_heads, p->keys, WG_KEYS) ||
        !ALLOW_SHARED(wgmma_forward, bytes, s))
        return;
    LAUNCH(wgmma_forward, (unsigned)tasks, WG_THREADS, bytes, s, a, q, k, v, out, lse);
}

void attn_wgmma_forward(const struct backend *be, const struct attention *p, void *out,
                        float *lse)
{
    struct cuda_state *s = cuda_state_of(be);

    attn_tell(s, false, "wgmma, %lld queries a block", WG_ROWS);
    BY_FORM(p, T, WIDTH, DROPS, (launch_wgmma<T, WIDTH, DROPS>(s, p, out, lse)));
}
