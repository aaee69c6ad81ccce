/* SPDX-License-Identifier: Apache-2.0
 *
 * dq = ds k on tensor cores, from the gradients of the scores that dk and dv kept: the
 * fifth product (attention_five.h). In: a part's tiles, rounded to the call's type. A
 * block has 64 queries and goes over the keys in the order of the backward that makes
 * the scores again, so the sums have the same bits.
 */
#include "backend/cuda/attention/attention_mma.h"

/* Keys and gradients of scores of two tiles: one is read, the other copied. */
template <typename T, int WIDTH> struct dq_shared {
    T k[2][ATTN_TILE * (WIDTH + MMA_PAD)], ds[2][ATTN_TILE * (ATTN_TILE + MMA_PAD)];
};

template <typename T, int WIDTH>
static __device__ __forceinline__ void stage_ds(const struct attention &p,
                                                const struct mma_task &w,
                                                struct dq_shared<T, WIDTH> &sh,
                                                const struct attn_tile &t)
{
    const int at = (int)(t.k0 / ATTN_TILE % 2);
    const struct attn_rows<T> ds = {
        mma_ds_of<T>(p, w, t), ATTN_TILE, ATTN_TILE, 1.0f
    };

    mma_stage<ATTN_TILE, ATTN_TILE>(sh.ds[at], ds, ATTN_TILE);
    mma_stage<WIDTH, ATTN_TILE>(
        sh.k[at], attn_rows_of<T>(p.k, t.b, t.kv_head, t.k0, t.keys, 1.0f),
        p.head_width);
}

/* dq += ds k for the keys of a tile. ds has a row per key, so it is transposed. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void add_ds(const T *ds, const T *k,
                                              float dq[WIDTH / 8][4])
{
    const int ld = WIDTH + MMA_PAD, ds_ld = ATTN_TILE + MMA_PAD;

#pragma unroll
    for (int key = 0; key < ATTN_TILE; key += 16) {
        uint32_t transposed[4], right[4];

        mma_load_transposed(transposed, ds + key * ds_ld + mma_first(), ds_ld);
        /* its matrices have keys before queries; a has rows before columns */
        const uint32_t left[4] = { transposed[0], transposed[2], transposed[1],
                                   transposed[3] };
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            mma_load_transposed(right, k + key * ld + n * 8, ld);
            ptx_mma<T>(dq[n], left, right[0], right[1]);
            ptx_mma<T>(dq[n + 1], left, right[2], right[3]);
        }
    }
}

template <typename T, int WIDTH>
static __device__ __forceinline__ void dq_tile(const struct attention &p,
                                               const struct mma_task &w,
                                               struct dq_shared<T, WIDTH> &sh,
                                               struct attn_tile t,
                                               const struct heads_out &dq)
{
    const int64_t end = attn_key_end(p, t);
    const int row = mma_first() + mma_row();
    const struct mma_rows rows = { mma_query(row), mma_query(row + 8), p.scale,
                                   p.scale };
    float acc[WIDTH / 8][4];

    mma_clear<WIDTH>(acc);
    __syncthreads();
    if (end > 0)
        stage_ds<T, WIDTH>(p, w, sh, t);
#pragma unroll 1
    for (int64_t k0 = 0; k0 < end; k0 += ATTN_TILE) {
        const int at = (int)(k0 / ATTN_TILE % 2);

        mma_staged();
        if (k0 + ATTN_TILE < end)
            stage_ds<T, WIDTH>(p, w, sh,
                               attn_tile_at(p, t.b, t.h, t.q0, k0 + ATTN_TILE));
        add_ds<T, WIDTH>(sh.ds[at], sh.k[at], acc);
    }
    mma_store<T, WIDTH>(dq, t.b, t.h, t.q0, t.queries, acc, rows, p.head_width);
}

/* A block per 64 queries of a head of the part. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(MMA_THREADS)
    attention_mma_ds_k(struct attention p, struct mma_task w, struct heads_out dq)
{
    using shared = struct dq_shared<T, WIDTH>;
    DYNAMIC_SHARED(shared, sh);
    const int64_t blocks = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t group = p.heads / p.kv_heads, across = w.kv_heads * group;
    const int64_t heads = w.samples * across;

    ROW_STRIDE(i, heads * blocks)
    {
        /* later queries see more keys, so they start first */
        int64_t b = w.sample + i % heads / across;
        int64_t h = w.kv_head * group + i % across;

        dq_tile<T, WIDTH>(
            p, w, *sh, attn_tile_at(p, b, h, (blocks - 1 - i / heads) * ATTN_TILE, 0),
            dq);
    }
}

template <typename T, int WIDTH>
static void launch_dq(struct cuda_state *s, const struct attention *p,
                      const struct mma_task *w, struct heads_out dq)
{
    const int64_t tasks = w->samples * w->kv_heads * (p->heads / p->kv_heads) *
                          ((p->queries + ATTN_TILE - 1) / ATTN_TILE);
    const size_t bytes = sizeof(struct dq_shared<T, WIDTH>);
    struct attention a = *p;
    struct mma_task task = *w;

    if (bytes > 48 << 10 && !ALLOW_SHARED((attention_mma_ds_k<T, WIDTH>), bytes, s))
        return;
    LAUNCH((attention_mma_ds_k<T, WIDTH>), rows_grid(tasks), MMA_THREADS, bytes, s, a,
           task, dq);
}

void attn_mma_dq(struct cuda_state *s, const struct attention *p,
                 const struct mma_task *w, const struct heads_out *dq)
{
    BY_TILE(p, T, WIDTH, (launch_dq<T, WIDTH>(s, p, w, *dq)));
}
