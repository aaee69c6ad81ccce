/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that need a whole row: a warp or a block per row reads it from memory once
 * and keeps it in shared memory. The order of a sum follows from the length of the
 * row.
 */
#ifndef ACCEL_BACKEND_CUDA_ROWS_H
#define ACCEL_BACKEND_CUDA_ROWS_H

#include "backend/cuda/vector.h"

#define ROW_BLOCK 256
/* bytes: 48 KiB need no permission; the rest holds the sums */
#define ROW_KEEP 48128

/* A row in memory and, unless it is too long, its copy in shared memory. A thread
 * rereads only what it read itself, so no barrier is needed between the two. */
template <typename T> struct kept_row {
    const T *x;
    T *room; /* NULL: too long */

    template <int V> __device__ void first(float *to, int64_t at) const
    {
        const pack<T, V> p = pack_at<V>(x + at);

        if (room)
            *reinterpret_cast<pack<T, V> *>(room + at) = p;
        for (int i = 0; i < V; i++)
            to[i] = load_float(p.v, i);
    }
    template <int V> __device__ void again(float *to, int64_t at) const
    {
        if (room)
            load<V>(to, (const T *)room + at);
        else
            load<V>(to, x + at);
    }
};

/* Sum and maximum over the G threads of a row; `room` as in block_sum. */
template <int G> static __device__ inline float row_sum(float v, float *room)
{
    return G == WARP ? warp_sum(v) : block_sum(v, room);
}

template <int G> static __device__ inline float row_max(float v, float *room)
{
    return G == WARP ? warp_max(v) : block_max(v, room);
}

/* Loops over the rows of a block, G threads each, and over a thread's elements in its
 * row. */
#define TEAM_ROWS(G, r, rows)                                                          \
    for (int64_t r = (int64_t)blockIdx.x * (ROW_BLOCK / (G)) + threadIdx.x / (G);      \
         r < (rows); r += (int64_t)gridDim.x * (ROW_BLOCK / (G)))
#define TEAM_PACKS(G, V, at, cols)                                                     \
    for (int64_t at = (int64_t)(threadIdx.x % (G)) * (V); at < (cols); at += (G) * (V))

/* How the rows of a kernel are cut. */
struct row_plan {
    bool warp;   /* a warp per row */
    bool packed; /* packs of 16 bytes */
    /* elements of shared memory per row; 0: the row is too long to keep */
    int64_t keep;
    size_t shared; /* bytes per block */
    unsigned grid;
};

/* kept: how many input rows each result row keeps in shared memory. */
template <typename T>
static struct row_plan plan_rows(int64_t rows, int64_t cols, int kept, bool aligned)
{
    const int64_t per_pack = pack_size<T>, most = 4096 / (int64_t)sizeof(T);
    struct row_plan plan;
    int64_t teams;

    /* short rows: 8 of them per block, no barrier; long ones: a block each */
    plan.warp = cols <= most / kept;
    plan.packed = aligned && cols % per_pack == 0;
    teams = plan.warp ? ROW_BLOCK / WARP : 1;
    /* rounded up: the next row's copy starts on a pack */
    plan.keep = (cols + per_pack - 1) / per_pack * per_pack;
    plan.shared = (size_t)(teams * kept * plan.keep) * sizeof(T);
    /* then the row is read again, from the cache at best */
    if (plan.shared > ROW_KEEP) {
        plan.keep = 0;
        plan.shared = 0;
    }
    plan.grid = rows_grid((rows + teams - 1) / teams);
    return plan;
}

/* Launches KERNEL<T, V, G> of the plan. */
#define LAUNCH_ROWS(plan, T, KERNEL, s, ...)                                           \
    do {                                                                               \
        if ((plan).warp && (plan).packed)                                              \
            LAUNCH((KERNEL<T, pack_size<T>, WARP>), (plan).grid, ROW_BLOCK,            \
                   (plan).shared, s, __VA_ARGS__);                                     \
        else if ((plan).warp)                                                          \
            LAUNCH((KERNEL<T, 1, WARP>), (plan).grid, ROW_BLOCK, (plan).shared, s,     \
                   __VA_ARGS__);                                                       \
        else if ((plan).packed)                                                        \
            LAUNCH((KERNEL<T, pack_size<T>, ROW_BLOCK>), (plan).grid, ROW_BLOCK,       \
                   (plan).shared, s, __VA_ARGS__);                                     \
        else                                                                           \
            LAUNCH((KERNEL<T, 1, ROW_BLOCK>), (plan).grid, ROW_BLOCK, (plan).shared,   \
                   s, __VA_ARGS__);                                                    \
    } while (0)

#endif
