/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of columns on a CUDA device, for kernels that make them: a block sums some
 * columns over a part of the rows. The shapes alone decide where parts end.
 */
#ifndef ACCEL_BACKEND_CUDA_COLUMNS_H
#define ACCEL_BACKEND_CUDA_COLUMNS_H

#include "backend/cuda/vector.h"

enum {
    COLUMN_BLOCK = 256,
    STRIPS = COLUMN_BLOCK / WARP, /* rows that a block reads at a time */
    PART_ROWS = 4 * STRIPS,       /* least rows of a part */
    PART_BLOCKS = 512             /* about as many blocks fill a device */
};

/* From [outer][rows][cols] to [outer][cols], the rows cut into `parts` parts. Element
 * (o, r, c) lies at (o rows + r) cols + c. */
struct columns {
    int64_t outer, rows, cols;
    int64_t parts, part_rows;
    int64_t tiles; /* blocks side by side */
    float *part;   /* [outer][parts][SUMS][cols], unless parts is 1 */
};

/* n within [low, high]. */
static inline int64_t limited(int64_t n, int64_t low, int64_t high)
{
    return n < low ? low : least(n, high);
}

/* With packs of `pack`. Tall matrices are cut into parts until the device is full; wide
 * ones have enough blocks as they are. */
static inline struct columns cut_columns(int64_t outer, int64_t rows, int64_t cols,
                                         int pack)
{
    const int64_t most = limited(rows / PART_ROWS, 1, 65535);
    struct columns p = { outer, rows, cols, 1, rows, 0, NULL };

    p.tiles = (cols + WARP * pack - 1) / (WARP * pack);
    if (outer > 0 && cols > 0)
        p.parts = limited(PART_BLOCKS / (p.tiles * limited(outer, 0, 65535)), 1, most);
    p.part_rows = (rows + p.parts - 1) / p.parts;
    return p;
}

/* Index in shared memory with a gap after every 32, against bank conflicts. */
static __device__ inline int gapped(int i)
{
    return i + i / WARP;
}

/* Floats of shared memory per block, with the gaps. */
template <int V, int SUMS> struct column_room {
    static constexpr int FLOATS = STRIPS * SUMS * (WARP + 1) * V;
};

/* OP has SUMS; add<V>(sum, outer, row, col), which adds the values there to
 * sum[SUMS][V]; and finish(which, outer, col, total), which writes. V is the pack of
 * its rows, or 1. One block: columns from 32 V tile on, rows of part `part`. Warp s
 * takes rows begin + s, begin + s + 8, ...; the 8 sums of a column are then added in
 * the order of the warps. */
template <int V, typename OP>
static __device__ inline void sum_part(const OP &op, const struct columns &p,
                                       int64_t tile, int64_t part, int64_t outer,
                                       float *room)
{
    enum { WIDTH = WARP * V, STRIP = OP::SUMS * (WIDTH + V) };
    const int lane = (int)threadIdx.x % WARP, strip = (int)threadIdx.x / WARP;
    const int64_t left = tile * WIDTH, col = left + lane * V;
    const int64_t begin = part * p.part_rows, end = least(begin + p.part_rows, p.rows);
    float sum[OP::SUMS][V] = {};

    if (col < p.cols) {
#pragma unroll 4
        for (int64_t r = begin + strip; r < end; r += STRIPS)
            op.template add<V>(sum, outer, r, col);
    }
    /* through shared memory: warps hold sums of the same columns */
    for (int k = 0; k < OP::SUMS; k++)
        for (int i = 0; i < V; i++)
            room[strip * STRIP + k * (WIDTH + V) + gapped(lane * V + i)] = sum[k][i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < OP::SUMS * WIDTH; i += COLUMN_BLOCK) {
        const int k = i / WIDTH, c = i % WIDTH;
        float total = 0.0f;

        /* always in this order, whichever warp was first */
        for (int from = 0; from < STRIPS; from++)
            total += room[from * STRIP + k * (WIDTH + V) + gapped(c)];
        if (left + c < p.cols && p.parts == 1)
            op.finish(k, outer, left + c, total);
        else if (left + c < p.cols)
            p.part[((outer * p.parts + part) * OP::SUMS + k) * p.cols + left + c] =
                total;
    }
    __syncthreads();
}

/* Takes memory for the parts of sums that are added to gradients, and after the launch
 * that makes them notes where their ends go, to[sums], NULL: nowhere. Nothing to do
 * where a column is one part. outer is 1. */
static inline void ends_begin(struct cuda_state *s, struct columns *p, int sums)
{
    if (p->parts > 1)
        p->part = cuda_ends_room(s, p->parts * sums * p->cols);
}

static inline void ends_note(struct cuda_state *s, const struct columns *p, int sums,
                             float *const *to)
{
    for (int k = 0; k < sums && p->parts > 1; k++) {
        const struct cuda_end e = { to[k], p->part + k * p->cols, p->parts,
                                    sums * p->cols, p->cols };

        if (to[k])
            cuda_ends_add(s, &e);
    }
    if (p->parts > 1)
        cuda_ends_done(s, p->part);
}

#endif
