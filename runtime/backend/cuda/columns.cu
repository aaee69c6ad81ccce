/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of columns on a CUDA device: of gradients over rows, for the parameters of a
 * norm, over a dimension that is not the last. Two stages without atomics: parts of the
 * rows, then the parts in order. The shapes alone decide where parts end.
 */
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
    float *part; /* [outer][parts][SUMS][cols], unless parts is 1 */
};

/* Index in shared memory with a gap after every 32, against bank conflicts. */
static __device__ inline int gapped(int i)
{
    return i + i / WARP;
}

/* OP has SUMS; add<V>(sum, outer, row, col), which adds the values there to
 * sum[SUMS][V]; and finish(which, outer, col, total), which writes. V is the pack of
 * its rows, or 1. Block (x, y, z): columns from 32 V x on, rows of part y, outer z.
 * Warp s takes rows begin + s, begin + s + 8, ...; the 8 sums of a column are then
 * added in the order of the warps. */
template <int V, typename OP>
static __global__ void __launch_bounds__(COLUMN_BLOCK)
    columns_kernel(OP op, struct columns p)
{
    enum { WIDTH = WARP * V };
    __shared__ float room[STRIPS][OP::SUMS]
                         [WIDTH + V]; /* with gaps: no bank conflicts */
    const int lane = (int)threadIdx.x % WARP, strip = (int)threadIdx.x / WARP;
    const int64_t left = (int64_t)blockIdx.x * WIDTH, col = left + lane * V;
    const int64_t begin = (int64_t)blockIdx.y * p.part_rows;
    const int64_t end = least(begin + p.part_rows, p.rows);

    for (int64_t outer = blockIdx.z; outer < p.outer; outer += gridDim.z) {
        float sum[OP::SUMS][V] = {};

        if (col < p.cols) {
#pragma unroll 4
            for (int64_t r = begin + strip; r < end; r += STRIPS)
                op.template add<V>(sum, outer, r, col);
        }
        /* through shared memory: warps hold sums of the same columns */
        for (int k = 0; k < OP::SUMS; k++)
            for (int i = 0; i < V; i++)
                room[strip][k][gapped(lane * V + i)] = sum[k][i];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < OP::SUMS * WIDTH; i += COLUMN_BLOCK) {
            const int k = i / WIDTH, c = i % WIDTH;
            float total = 0.0f;

            /* always in this order, whichever warp was first */
            for (int from = 0; from < STRIPS; from++)
                total += room[from][k][gapped(c)];
            if (left + c < p.cols && p.parts == 1)
                op.finish(k, outer, left + c, total);
            else if (left + c < p.cols)
                p.part[((outer * p.parts + blockIdx.y) * OP::SUMS + k) * p.cols + left +
                       c] = total;
        }
        __syncthreads();
    }
}

/* Second stage: adds the parts of each column; the lanes of a warp take adjacent
 * columns. */
template <typename OP>
static __global__ void __launch_bounds__(COLUMN_BLOCK)
    parts_kernel(OP op, struct columns p)
{
    __shared__ float room[STRIPS][WARP];
    const int lane = (int)threadIdx.x % WARP, strip = (int)threadIdx.x / WARP;
    const int64_t width = OP::SUMS * p.cols, c = (int64_t)blockIdx.x * WARP + lane;

    for (int64_t outer = blockIdx.z; outer < p.outer; outer += gridDim.z) {
        float total = 0.0f;

        if (c < width) {
#pragma unroll 4
            for (int64_t part = strip; part < p.parts; part += STRIPS)
                total += p.part[(outer * p.parts + part) * width + c];
        }
        room[strip][lane] = total;
        __syncthreads();
        if (strip == 0 && c < width) {
            total = 0.0f;
            for (int from = 0; from < STRIPS; from++)
                total += room[from][lane];
            op.finish((int)(c / p.cols), outer, c % p.cols, total);
        }
        __syncthreads();
    }
}

/* n within [low, high]. */
static int64_t limited(int64_t n, int64_t low, int64_t high)
{
    return n < low ? low : least(n, high);
}

/* Cuts rows into parts and runs the one or two stages. Scratch: the parts' sums. */
template <int V, typename OP>
static void launch_columns(struct cuda_state *s, struct columns p, OP op)
{
    const int64_t tiles = (p.cols + WARP * V - 1) / (WARP * V);
    const unsigned outer = (unsigned)limited(p.outer, 0, 65535);
    const int64_t most = limited(p.rows / PART_ROWS, 1, 65535);

    if (p.outer <= 0 || p.cols <= 0)
        return;
    /* tall matrices are cut into parts until the device is full; wide ones have enough
     * blocks as they are */
    p.parts = limited(PART_BLOCKS / (tiles * outer), 1, most);
    p.part_rows = (p.rows + p.parts - 1) / p.parts;
    if (p.parts > 1)
        p.part = (float *)cuda_scratch(
            s, (size_t)(p.outer * p.parts * OP::SUMS * p.cols) * sizeof(*p.part));
    LAUNCH((columns_kernel<V, OP>), dim3((unsigned)tiles, (unsigned)p.parts, outer),
           COLUMN_BLOCK, 0, s, op, p);
    if (p.parts > 1)
        LAUNCH((parts_kernel<OP>),
               dim3((unsigned)((OP::SUMS * p.cols + WARP - 1) / WARP), 1, outer),
               COLUMN_BLOCK, 0, s, op, p);
    cuda_scratch_free(s, p.part);
}

/* Sums with packs of V where addresses (`aligned`) and row length allow it. */
template <int V, typename OP>
static void sum_columns(struct cuda_state *s, bool aligned, int64_t outer, int64_t rows,
                        int64_t cols, OP op)
{
    const struct columns p = { outer, rows, cols, 0, 0, NULL };

    /* every row must start at a multiple of the pack */
    if (aligned && cols % V == 0)
        launch_columns<V>(s, p, op);
    else
        launch_columns<1>(s, p, op);
}

/* ---- gradients: dst[c] += the sum over rows -------------------------------------- */

template <typename T> struct column_sum_op {
    enum { SUMS = 1 };
    float *dst;
    const T *src;
    int64_t ld;

    template <int V>
    __device__ void add(float (*sum)[V], int64_t, int64_t row, int64_t col) const
    {
        float x[V];

        load<V>(x, src + row * ld + col);
        for (int i = 0; i < V; i++)
            sum[0][i] += x[i];
    }
    __device__ void finish(int, int64_t, int64_t col, float total) const
    {
        dst[col] += total;
    }
};

/* dst[cols] += sums of src[rows, cols]: the gradient of a bias */
void cuda_column_sum(const struct backend *be, float *dst, const void *src,
                     accel_dtype_t type, int64_t rows, int64_t cols, int64_t ld)
{
    BY_TYPE(type, T,
            sum_columns<pack_size<T>>(
                cuda_state_of(be), on_16(src) && ld % pack_size<T> == 0, 1, rows, cols,
                column_sum_op<T>{ dst, (const T *)src, ld }));
}

/* Gradients of gain and bias in one pass; either may be NULL. */
template <typename T> struct norm_param_op {
    enum { SUMS = 2 };
    float *dgain, *dbias;
    const T *dy, *x;
    const float *stats;
    int64_t rows, cols;

    template <int V>
    __device__ void add(float (*sum)[V], int64_t, int64_t row, int64_t col) const
    {
        /* gain: dy h with h = (x - mean) rstd; bias: dy */
        const float mean = stats[row], rstd = stats[rows + row];
        float d[V], v[V];

        load<V>(d, dy + row * cols + col);
        load<V>(v, x + row * cols + col);
        for (int i = 0; i < V; i++) {
            sum[0][i] += d[i] * ((v[i] - mean) * rstd);
            sum[1][i] += d[i];
        }
    }
    __device__ void finish(int which, int64_t, int64_t col, float total) const
    {
        float *to = which == 0 ? dgain : dbias;

        if (to)
            to[col] += total;
    }
};

/* dgain, dbias [cols] from dy, x [rows, cols] and stats [2, rows]: the rows are the
 * long sum. */
void cuda_norm_param_grad(const struct backend *be, const struct norm *p, float *dgain,
                          float *dbias, const void *dy, const void *x,
                          const float *stats)
{
    BY_TYPE(p->type, T,
            sum_columns<pack_size<T>>(
                cuda_state_of(be), on_16(dy, x), 1, p->rows, p->cols,
                norm_param_op<T>{ dgain, dbias, (const T *)dy, (const T *)x, stats,
                                  p->rows, p->cols }));
}

/* ---- sums over a dimension: y[outer][c] = scale * the sum ------------------------ */

template <typename T, typename Y> struct reduce_op {
    enum { SUMS = 1 };
    Y *y;
    const T *x;
    int64_t rows, cols;
    float scale;

    template <int V>
    __device__ void add(float (*sum)[V], int64_t outer, int64_t row, int64_t col) const
    {
        float v[V];

        load<V>(v, x + (outer * rows + row) * cols + col);
        for (int i = 0; i < V; i++)
            sum[0][i] += v[i];
    }
    __device__ void finish(int, int64_t outer, int64_t col, float total) const
    {
        store_float(y, outer * cols + col, total * scale);
    }
};

/* y[a, c] = scale * sum over b of x[a, b, c]; cols 1 is cuda_reduce's own case, where a
 * row is adjacent */
void cuda_reduce_columns(const struct backend *be, void *y, accel_dtype_t y_type,
                         const void *x, accel_dtype_t type, const int64_t dim[3],
                         float scale)
{
    BY_TYPE(
        type, T,
        BY_TYPE(y_type, Y,
                sum_columns<pack_size<T>>(
                    cuda_state_of(be), on_16(x), dim[0], dim[1], dim[2],
                    reduce_op<T, Y>{ (Y *)y, (const T *)x, dim[1], dim[2], scale })));
}
