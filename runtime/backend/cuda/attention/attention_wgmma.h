/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention's kernels for sm_90a share: a block of twelve warps, of which
 * eight multiply and the others copy, tiles in shared memory with their barriers, and
 * the tensor maps that they are copied by.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_WGMMA_H
#define ACCEL_BACKEND_CUDA_ATTENTION_WGMMA_H

#include "backend/cuda/attention/attention_mma.h"
#include "backend/cuda/ptx_sm90.h"

#define WG_ROWS    128 /* of a block's own tiles, 64 for each group of four warps */
#define WG_WARPS   8   /* that multiply; four more copy */
#define WG_THREADS ((WG_WARPS + 4) * WARP)
#define WG_STAGES  2  /* places of each tile that changes */
#define WG_PANEL   64 /* columns side by side in shared memory: 128 bytes */
/* tiles begin at multiples of it, so that their swizzle does */
#define WG_ALIGN 1024

/* The number of a tile says where it lies and in which phase of its barriers. */
static __device__ __forceinline__ int wg_stage(int64_t i)
{
    return (int)(i % WG_STAGES);
}

static __device__ __forceinline__ unsigned wg_phase(int64_t i)
{
    return (unsigned)(i / WG_STAGES % 2);
}

/* A tensor [sample][head][row][column] as copies read it. The driver documents
 * dimensions whose strides grow, so rows, heads and samples follow the columns in the
 * order of their strides: at[i] is 0, 1 or 2, the place of these three. */
struct wg_tensor {
    CUtensorMap map;
    int at[3];
};

/* Starts to copy a tile [panels][ROWS][64] of a head from row `first` on. The barrier
 * expects its bytes. */
template <int WIDTH, int ROWS, typename T>
static __device__ __forceinline__ void wg_copy(T *to, const struct wg_tensor *from,
                                               int64_t first, int64_t head,
                                               int64_t sample, uint64_t *full)
{
    int place[3];

#pragma unroll
    for (int i = 0; i < 3; i++)
        place[i] = (int)(from->at[0] == i ? first : from->at[1] == i ? head : sample);
#pragma unroll
    for (int c = 0; c < WIDTH; c += WG_PANEL)
        ptx_copy_box(to + c * ROWS, &from->map, c, place[0], place[1], place[2], full);
}

/* Where 16 columns from column c on begin in a tile of ROWS rows. */
template <int ROWS, typename T>
static __device__ __forceinline__ uint64_t wg_columns(const T *tile, int c)
{
    return ptx_tile(tile + c / WG_PANEL * WG_PANEL * ROWS + c % WG_PANEL, 0);
}

/* acc += a, rounded to T, times ROWS rows of a tile. The layout of a result is
 * that of an operand a. Between ptx_products_begin and ptx_products_end. */
template <int WIDTH, int ROWS, typename T>
static __device__ __forceinline__ void wg_add(float acc[WIDTH / 8][4],
                                              const uint32_t a[ROWS / 16][4],
                                              const T *tile)
{
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
        const T *rows = tile + k * 16 * WG_PANEL;

        if constexpr (WIDTH == WG_PANEL)
            ptx_products_add_64<T>(acc, a[k], ptx_tile(rows, 0));
        else
            ptx_products_add<T>(acc, a[k], ptx_tile(rows, ROWS * WG_PANEL * sizeof(T)));
    }
}

/* This warp has read the tile. */
static __device__ __forceinline__ void wg_release(uint64_t *free)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ptx_barrier_arrive(free);
}

/* The shared memory from the next multiple of WG_ALIGN on. */
template <typename SHARED> static __device__ __forceinline__ SHARED &wg_room(void)
{
    DYNAMIC_SHARED(char, all);

    return *reinterpret_cast<SHARED *>(all + (WG_ALIGN - ptx_shared(all) % WG_ALIGN) %
                                                 WG_ALIGN);
}

/* Runs the statements with T, WIDTH and DROPS as the call has them: a kernel without
 * dropout is not to pay for the bits of one with. */
#define BY_FORM(p, T, WIDTH, DROPS, ...)                                               \
    do {                                                                               \
        if ((p)->dropout > 0.0f) {                                                     \
            constexpr bool DROPS = true;                                               \
            BY_TILE(p, T, WIDTH, __VA_ARGS__);                                         \
        } else {                                                                       \
            constexpr bool DROPS = false;                                              \
            BY_TILE(p, T, WIDTH, __VA_ARGS__);                                         \
        }                                                                              \
    } while (0)

/* The tensor [sample][head][row][column] that `from` points into, in boxes of box_rows
 * rows and 64 columns. False after a failure. */
bool attn_wgmma_map(struct cuda_state *s, struct wg_tensor *to,
                    const struct attention *p, const struct heads *from, int64_t heads,
                    int64_t rows, int box_rows);

#endif
