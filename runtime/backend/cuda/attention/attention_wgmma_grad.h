/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gradients by wgmma share (sm_90a): a thread block has 128 rows of one side,
 * whose tiles stay, and goes over tiles of 64 rows of the other side. dk and dv: keys
 * stay and queries pass; dq: queries stay and keys pass.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_H
#define ACCEL_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_H

#include "backend/cuda/attention/attention_kept.h"
#include "backend/cuda/attention/attention_wgmma.h"

#define GRAD_TILES (ATTN_TILE / 8)

/* Keys and values, or queries and dout, of both sides; 129 KiB with WIDTH 128. full:
 * what is copied is there. free: all warps have read it. */
template <typename T, int WIDTH> struct wg_grad_shared {
    T own[2][WG_ROWS * WIDTH], other[2][WG_STAGES][ATTN_TILE * WIDTH];
    uint64_t own_full, full[WG_STAGES], free[WG_STAGES];
};

/* The tensors of a side. */
struct wg_side {
    const struct wg_tensor *map[2];
};

/* Starts to copy the tiles that stay, from row `first` on. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void wg_copy_own(struct wg_grad_shared<T, WIDTH> &sh,
                                                   const struct wg_side &from,
                                                   int64_t first, int64_t head,
                                                   int64_t sample)
{
    ptx_barrier_expect(&sh.own_full, 2 * WG_ROWS * WIDTH * sizeof(T));
#pragma unroll
    for (int i = 0; i < 2; i++)
        wg_copy<WIDTH, WG_ROWS>(sh.own[i], from.map[i], first, head, sample,
                                &sh.own_full);
}

/* Starts to copy tiles that pass, number i of them, when their place is free. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void wg_copy_other(
    struct wg_grad_shared<T, WIDTH> &sh, const struct wg_side &from, int i, int first,
    int head, int sample)
{
    const int at = wg_stage(i);

    /* the phase before the first one is over: a place is free at first */
    ptx_barrier_wait(&sh.free[at], wg_phase(i) ^ 1);
    ptx_barrier_expect(&sh.full[at], 2 * ATTN_TILE * WIDTH * sizeof(T));
#pragma unroll
    for (int k = 0; k < 2; k++)
        wg_copy<WIDTH, ATTN_TILE>(sh.other[k][at], from.map[k], first, head, sample,
                                  &sh.full[at]);
}

/* Begins the scores of 64 rows that stay, from element `own` of their tiles on, and 64
 * that pass, s = own[0] other[0]^T, and their gradients before the softmax's part, ds =
 * own[1] other[1]^T: a group of products each, so that probabilities are made while ds
 * is under way. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void both_scores(struct wg_grad_shared<T, WIDTH> &sh,
                                                   int own, int at,
                                                   float s[GRAD_TILES][4],
                                                   float ds[GRAD_TILES][4])
{
    ptx_hold<GRAD_TILES>(ds);
    ptx_products_begin<GRAD_TILES>(s);
#pragma unroll
    for (int c = 0; c < WIDTH; c += 16)
        ptx_products_64<T>(s, wg_columns<WG_ROWS>(sh.own[0] + own, c),
                           wg_columns<ATTN_TILE>(sh.other[0][at], c), c > 0);
    ptx_products_commit();
#pragma unroll
    for (int c = 0; c < WIDTH; c += 16)
        ptx_products_64<T>(ds, wg_columns<WG_ROWS>(sh.own[1] + own, c),
                           wg_columns<ATTN_TILE>(sh.other[1][at], c), c > 0);
    ptx_products_commit();
}

/* One thread makes the barriers; the copies are to see them, then all threads. fillers:
 * threads and warps that arrive at `full`. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void grad_barriers(
    struct wg_grad_shared<T, WIDTH> &sh, unsigned fillers)
{
    if (threadIdx.x == WG_WARPS * WARP) {
        ptx_barrier_init(&sh.own_full, 1);
        for (int i = 0; i < WG_STAGES; i++) {
            ptx_barrier_init(&sh.full[i], fillers);
            ptx_barrier_init(&sh.free[i], WG_WARPS);
        }
        ptx_fence_async();
    }
    __syncthreads();
}

/* The gradient of the output, as the heads of the call. */
static inline struct heads wg_dout_of(const struct attention *p, const void *dout)
{
    const int64_t cols = p->heads * p->head_width;

    return { dout, p->queries * cols, cols, p->head_width };
}

#endif
