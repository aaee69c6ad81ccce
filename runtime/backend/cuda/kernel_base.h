/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels share: elements of any storage type, sums over a warp and a block in
 * a fixed order, grid sizes. Mostly device code. A block always has whole warps.
 */
#ifndef ACCEL_BACKEND_CUDA_KERNEL_BASE_H
#define ACCEL_BACKEND_CUDA_KERNEL_BASE_H

#include <cuda_runtime.h>

#include "backend/maths.h"
#include "numbers/bf16.h"
#include "numbers/minifloat.h"

#define WARP      32
#define WARP_MASK 0xffffffffu

/* The dynamic shared memory of the running block, aligned to 16 bytes. `extern` arrays
 * must have one type per file, hence the cast. */
#ifdef __CUDACC__
#define DYNAMIC_SHARED(type, name)                                                     \
    extern __shared__ __align__(16) unsigned char dynamic_shared[];                    \
    type *const name = reinterpret_cast<type *>(dynamic_shared)
#else
#define DYNAMIC_SHARED(type, name)                                                     \
    type *const name = reinterpret_cast<type *>(fakecuda_shared())
#endif

/* ---- grids ----------------------------------------------------------------------- */

/* Grid of a kernel whose threads step over the elements (GRID_STRIDE). Depends on n
 * only, so that sums per block do not depend on the device. 0 for nothing. */
static inline unsigned elements_grid(int64_t n, int per_block)
{
    const int64_t most = 4096, blocks = (n + per_block - 1) / per_block;

    return (unsigned)(blocks < 0 ? 0 : blocks < most ? blocks : most);
}

/* Grid of a kernel whose blocks step over the rows (ROW_STRIDE). */
static inline unsigned rows_grid(int64_t rows)
{
    const int64_t most = 1 << 20;

    return (unsigned)(rows < 0 ? 0 : rows < most ? rows : most);
}

/* Loops over elements by all threads, rows by blocks, and elements by one block's
 * threads. */
#define GRID_STRIDE(i, n)                                                              \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);          \
         i += (int64_t)gridDim.x * blockDim.x)
#define ROW_STRIDE(r, rows) for (int64_t r = blockIdx.x; r < (rows); r += gridDim.x)
#define BLOCK_STRIDE(i, n)  for (int64_t i = threadIdx.x; i < (n); i += blockDim.x)

/* ---- elements -------------------------------------------------------------------- */

/* float16: a struct, since bf16_t is the same integer as f16_t. */
struct half_t {
    f16_t bits;
};

/* Runs the statements with T as the C type of a storage type: float, bf16_t or
 * half_t. */
#define BY_TYPE(type, T, ...)                                                          \
    do {                                                                               \
        if ((type) == ACCEL_BF16) {                                                    \
            using T = bf16_t;                                                          \
            __VA_ARGS__;                                                               \
        } else if ((type) == ACCEL_F16) {                                              \
            using T = half_t;                                                          \
            __VA_ARGS__;                                                               \
        } else {                                                                       \
            using T = float;                                                           \
            __VA_ARGS__;                                                               \
        }                                                                              \
    } while (0)

NUMBERS_INLINE float load_float(const float *p, int64_t i)
{
    return p[i];
}

NUMBERS_INLINE float load_float(const bf16_t *p, int64_t i)
{
    return bf16_to_f32(p[i]);
}

/* The device's own conversions where there is a device: the same bits but for a NaN's,
 * of which it knows one. */
NUMBERS_INLINE float load_float(const half_t *p, int64_t i)
{
#ifdef __CUDA_ARCH__
    float v;

    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(p[i].bits));
    return v;
#else
    return f16_to_f32(p[i].bits);
#endif
}

NUMBERS_INLINE void store_float(float *p, int64_t i, float v)
{
    p[i] = v;
}

NUMBERS_INLINE void store_float(bf16_t *p, int64_t i, float v)
{
    p[i] = f32_to_bf16(v);
}

NUMBERS_INLINE void store_float(half_t *p, int64_t i, float v)
{
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p[i].bits) : "f"(v));
#else
    p[i].bits = f32_to_f16(v);
#endif
}

/* p[i] = v, or p[i] += v; rounded once. */
template <typename T>
NUMBERS_INLINE void store_float(T *p, int64_t i, bool add, float v)
{
    store_float(p, i, add ? load_float(p, i) + v : v);
}

/* ---- sums ------------------------------------------------------------------------ */

/* Adds pairs at distances of 16, 8, 4, 2, 1, so every lane has the same bits. */
template <typename T> static __device__ inline T warp_sum(T v)
{
    for (int apart = WARP / 2; apart; apart /= 2)
        v += __shfl_xor_sync(WARP_MASK, v, apart);
    return v;
}

static __device__ inline float warp_max(float v)
{
    for (int apart = WARP / 2; apart; apart /= 2) {
        float other = __shfl_xor_sync(WARP_MASK, v, apart);

        v = v > other ? v : other;
    }
    return v;
}

/* The sum over the block, returned in all its threads: warps first, then their sums.
 * room[WARP] is shared memory and can be reused at once. All threads must call. */
template <typename T> static __device__ inline T block_sum(T v, T *room)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

    v = warp_sum(v);
    if (lane == 0)
        room[warp] = v;
    __syncthreads();
    v = lane < (int)blockDim.x / WARP ? room[lane] : T(0);
    v = warp_sum(v);
    __syncthreads();
    return v;
}

/* The maximum, in the same way. Unused lanes repeat the first warp's maximum. */
static __device__ inline float block_max(float v, float *room)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

    v = warp_max(v);
    if (lane == 0)
        room[warp] = v;
    __syncthreads();
    v = room[lane < (int)blockDim.x / WARP ? lane : 0];
    v = warp_max(v);
    __syncthreads();
    return v;
}

/* ---- ids out of range ------------------------------------------------------------ */

/* Where an id out of range was met: the op's number (cuda_mark_ids) above the row. The
 * least stays, which is the first op's first row, whatever the timing. */
typedef unsigned long long cuda_bad_t;

#define NO_BAD_ID (~0ull)

static __device__ inline void note_bad_row(cuda_bad_t *bad, int64_t row, uint32_t mark)
{
    const uint32_t low = (uint32_t)(row < INT32_MAX ? row : INT32_MAX);

    atomicMin(bad, (cuda_bad_t)mark << 32 | low);
}

#endif
