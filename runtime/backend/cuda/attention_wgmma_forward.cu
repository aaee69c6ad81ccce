/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward for sm_90a: bfloat16, heads of 64 or 128 elements. A thread block
 * has 128 queries: one thread copies tiles of 128 keys and values by tensor maps, two
 * groups of four warps multiply them (wgmma), 64 queries each. A tile is copied while
 * the one before is in use. Out: the output and one log-sum-exp per query.
 */
#include "backend/cuda/attention_kept.h"
#include "backend/cuda/attention_rows.h"
#include "backend/cuda/attention_wgmma.h"

#define WG_KEYS  WG_ROWS
#define WG_TILES (WG_KEYS / 8)

/* [panels][rows][64] each; 160 KiB with WIDTH 128. */
template <int WIDTH> struct wg_shared {
    bf16_t q[WG_ROWS * WIDTH], k[WG_STAGES][WG_KEYS * WIDTH],
        v[WG_STAGES][WG_KEYS * WIDTH];
    /* full: the copies are there. free: all warps have read them. */
    uint64_t q_full, k_full[WG_STAGES], k_free[WG_STAGES], v_full[WG_STAGES],
        v_free[WG_STAGES];
};

/* Starts to copy 128 rows, whose barrier waits for nothing else. */
template <int WIDTH>
static __device__ __forceinline__ void copy_rows(bf16_t *to, const CUtensorMap *map,
                                                 int64_t first, int64_t head,
                                                 int64_t sample, uint64_t *full)
{
    ptx_barrier_expect(full, WG_KEYS * WIDTH * sizeof(bf16_t));
    wg_copy<WIDTH, WG_KEYS>(to, map, first, head, sample, full);
}

/* One thread: all that the block reads. */
template <int WIDTH>
static __device__ __forceinline__ void wg_produce(struct wg_shared<WIDTH> &sh,
                                                  const CUtensorMap *q,
                                                  const CUtensorMap *k,
                                                  const CUtensorMap *v,
                                                  const struct attn_tile &t, int tiles)
{
    copy_rows<WIDTH>(sh.q, q, t.q0, t.h, t.b, &sh.q_full);
    for (int i = 0; i < tiles; i++) {
        const int at = wg_stage(i);

        /* the phase before the first one is over: a place is free at first */
        ptx_barrier_wait(&sh.k_free[at], wg_phase(i) ^ 1);
        copy_rows<WIDTH>(sh.k[at], k, (int64_t)i * WG_KEYS, t.kv_head, t.b,
                         &sh.k_full[at]);
        ptx_barrier_wait(&sh.v_free[at], wg_phase(i) ^ 1);
        copy_rows<WIDTH>(sh.v[at], v, (int64_t)i * WG_KEYS, t.kv_head, t.b,
                         &sh.v_full[at]);
    }
}

/* s = q k^T for the 64 queries of this group and 128 keys. */
template <int WIDTH>
static __device__ __forceinline__ void wg_scores(float s[WG_TILES][4], const bf16_t *q,
                                                 const bf16_t *k)
{
    ptx_products_begin<WG_TILES>(s);
#pragma unroll
    for (int c = 0; c < WIDTH; c += 16)
        ptx_products(s, wg_columns<WG_ROWS>(q, c), wg_columns<WG_KEYS>(k, c), c > 0);
    ptx_products_end<WG_TILES>(s);
}

/* acc += s, rounded to bfloat16, times 128 values. */
template <int WIDTH>
static __device__ __forceinline__ void wg_gather(float acc[WIDTH / 8][4],
                                                 const float s[WG_TILES][4],
                                                 const bf16_t *v)
{
    uint32_t left[WG_TILES / 2][4];

    wg_pack<WG_TILES>(left, s);
    ptx_products_begin<WIDTH / 8>(acc);
    wg_add<WIDTH, WG_KEYS>(acc, left, v);
    ptx_products_end<WIDTH / 8>(acc);
}

/* Draws for the tile of 128 keys from k0 on, while its copy or the other group's
 * products are under way. */
template <bool DROPS>
static __device__ __forceinline__ void wg_draw(const struct attention &p,
                                               const struct attn_tile &t, int64_t k0,
                                               int row, uint32_t kept[2])
{
    for (int half = 0; DROPS && half < 2; half++)
        kept[half] = kept_by_queries(
            p, attn_tile_at(p, t.b, t.h, t.q0, k0 + half * ATTN_TILE), row);
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

/* Four warps: 64 queries of the block's 128. Keys that none of them sees are passed
 * over with the others. */
template <int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_consume(const struct attention &p,
                                                  struct wg_shared<WIDTH> &sh,
                                                  const struct attn_tile &t, int tiles,
                                                  void *out, float *lse)
{
    const int row = mma_first() % ATTN_TILE + mma_row();
    const bf16_t *q = sh.q + mma_first() / ATTN_TILE * ATTN_TILE * WG_PANEL;
    float acc[WIDTH / 8][4], s[WG_TILES][4];
    float max[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    uint32_t kept[2] = { 0, 0 };

    mma_clear<WIDTH>(acc);
    mma_clear<WG_KEYS>(s);
    ptx_barrier_wait(&sh.q_full, 0);
#pragma unroll 1
    for (int i = 0; i < tiles; i++) {
        const int at = wg_stage(i);
        const int64_t k0 = (int64_t)i * WG_KEYS;
        float factor[2];

        wg_draw<DROPS>(p, t, k0, row, kept);
        ptx_barrier_wait(&sh.k_full[at], wg_phase(i));
        wg_scores<WIDTH>(s, q, sh.k[at]);
        wg_release(&sh.k_free[at]);
#pragma unroll
        for (int n = 0; n < WG_TILES; n += ATTN_TILE / 8)
            hide(attn_view_of(p, attn_tile_at(p, t.b, t.h, t.q0, k0 + n * 8)), p.scale,
                 row, s + n);
        /* the two rows of this lane have each a maximum and a sum of their own */
        factor[0] = soften<WG_TILES>(s, 0, max[0], sum[0]);
        factor[1] = soften<WG_TILES>(s, 1, max[1], sum[1]);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            for (int e = 0; e < 4; e++)
                acc[n][e] *= factor[e / 2];
        wg_drop<DROPS>(kept, attn_keep_scale(p), s);
        ptx_barrier_wait(&sh.v_full[at], wg_phase(i));
        wg_gather<WIDTH>(acc, s, sh.v[at]);
        wg_release(&sh.v_free[at]);
    }
    finish_rows<WIDTH>(p, t, row, max, sum, acc, out, lse);
}

/* One thread makes the barriers; the copies are to see them, then all threads. */
template <int WIDTH>
static __device__ __forceinline__ void wg_barriers(struct wg_shared<WIDTH> &sh)
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

template <int WIDTH, bool DROPS>
static __device__ __forceinline__ void wg_block(const struct attention &p,
                                                const CUtensorMap *q,
                                                const CUtensorMap *k,
                                                const CUtensorMap *v, void *out,
                                                float *lse)
{
    struct wg_shared<WIDTH> &sh = wg_room<struct wg_shared<WIDTH>>();
    const int64_t heads = p.batch * p.heads, bh = blockIdx.x % heads;
    /* heads vary fastest, and later queries, which see more keys, start first */
    const int64_t q0 = (int64_t)(gridDim.x / heads - 1 - blockIdx.x / heads) * WG_ROWS;
    struct attn_tile t = attn_tile_at(p, bh / p.heads, bh % p.heads, q0, 0);
    int64_t end = t.limit;
    int tiles;

    if (p.causal)
        end = attn_clamp(p.offset + attn_clamp(q0 + WG_ROWS, 0, p.queries), 0, end);
    tiles = (int)((end + WG_KEYS - 1) / WG_KEYS);
    wg_barriers<WIDTH>(sh);
    /* of the 168 registers that 384 threads have each, those of the four warps go to
     * the others: 256 x 240 + 128 x 24 */
    if (threadIdx.x < WG_WARPS * WARP) {
        ptx_more_registers<240>();
        t = attn_tile_at(p, t.b, t.h, q0 + mma_first() / ATTN_TILE * ATTN_TILE, 0);
        wg_consume<WIDTH, DROPS>(p, sh, t, tiles, out, lse);
    } else {
        ptx_fewer_registers<24>();
        if (threadIdx.x == WG_WARPS * WARP)
            wg_produce<WIDTH>(sh, q, k, v, t, tiles);
    }
}

/* Code for other devices is there only so that the kernel has a name: attn_wgmma_fits
 * keeps them from it. */
template <int WIDTH, bool DROPS>
static __global__ void __launch_bounds__(WG_THREADS, 1)
    attention_wgmma_forward(struct attention p, const __grid_constant__ CUtensorMap q,
                            const __grid_constant__ CUtensorMap k,
                            const __grid_constant__ CUtensorMap v, void *out,
                            float *lse)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    wg_block<WIDTH, DROPS>(p, &q, &k, &v, out, lse);
#endif
}

bool attn_wgmma_map(struct cuda_state *s, CUtensorMap *to, const struct attention *p,
                    const struct heads *from, int64_t heads, int64_t rows, int box_rows)
{
    static CUresult (*encode)(
        CUtensorMap *, CUtensorMapDataType, uint32_t, void *, const uint64_t *,
        const uint64_t *, const uint32_t *, const uint32_t *, CUtensorMapInterleave,
        CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const uint64_t dim[4] = { (uint64_t)p->head_width, (uint64_t)rows, (uint64_t)heads,
                              (uint64_t)p->batch };
    const uint64_t stride[3] = { (uint64_t)from->row * 2, (uint64_t)from->head * 2,
                                 (uint64_t)from->sample * 2 };
    const uint32_t box[4] = { WG_PANEL, (uint32_t)box_rows, 1, 1 },
                   step[4] = { 1, 1, 1, 1 };

    if (!encode && !cuda_driver_function(s, "cuTensorMapEncodeTiled", (void **)&encode))
        return false;
    if (encode(to, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)(uintptr_t)from->data,
               dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
        return true;
    return cuda_fails(s, "cuTensorMapEncodeTiled", "the driver refuses the tensor");
}

template <int WIDTH, bool DROPS>
static void launch_wgmma(struct cuda_state *s, const struct attention *p, void *out,
                         float *lse)
{
    const int64_t tasks = p->batch * p->heads * ((p->queries + WG_ROWS - 1) / WG_ROWS);
    const size_t bytes = sizeof(struct wg_shared<WIDTH>) + WG_ALIGN;
    struct attention a = *p;
    auto wgmma_forward = attention_wgmma_forward<WIDTH, DROPS>;
    CUtensorMap q, k, v;

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
    BY_FORM(p, WIDTH, DROPS, (launch_wgmma<WIDTH, DROPS>(s, p, out, lse)));
}
