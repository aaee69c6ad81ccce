/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of columns on a CUDA device: of gradients over rows, and over a dimension that
 * is not the last. Two stages without atomics: parts of the rows, then the parts in
 * order.
 */
#include "backend/cuda/columns.h"

/* Block (x, y, z): tile x of the columns, part y of the rows, outer z. */
template <int V, typename OP>
static __global__ void __launch_bounds__(COLUMN_BLOCK)
    columns_kernel(OP op, struct columns p)
{
    __shared__ float room[column_room<V, OP::SUMS>::FLOATS];

    for (int64_t outer = blockIdx.z; outer < p.outer; outer += gridDim.z)
        sum_part<V>(op, p, blockIdx.x, blockIdx.y, outer, room);
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

/* Runs the one or two stages. Scratch: the parts' sums. */
template <int V, typename OP>
static void launch_columns(struct cuda_state *s, struct columns p, OP op)
{
    const unsigned outer = (unsigned)limited(p.outer, 0, 65535);
    const dim3 grid((unsigned)p.tiles, (unsigned)p.parts, outer);

    if (p.outer <= 0 || p.cols <= 0)
        return;
    if (p.parts > 1)
        p.part = (float *)cuda_scratch(
            s, (size_t)(p.outer * p.parts * OP::SUMS * p.cols) * sizeof(*p.part));
    LAUNCH((columns_kernel<V, OP>), grid, COLUMN_BLOCK, 0, s, op, p);
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
    /* every row must start at a multiple of the pack */
    if (aligned && cols % V == 0)
        launch_columns<V>(s, cut_columns(outer, rows, cols, V), op);
    else
        launch_columns<1>(s, cut_columns(outer, rows, cols, 1), op);
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

/* The first stage alone: the second is left to sum_ends.cu. */
template <int V, typename T>
static void launch_sum(struct cuda_state *s, struct columns p, float *dst, const T *src,
                       int64_t ld)
{
    if (p.cols <= 0)
        return;
    ends_begin(s, &p, 1);
    LAUNCH((columns_kernel<V, column_sum_op<T>>),
           dim3((unsigned)p.tiles, (unsigned)p.parts), COLUMN_BLOCK, 0, s,
           column_sum_op<T>{ dst, src, ld }, p);
    ends_note(s, &p, 1, &dst);
}

/* dst[cols] += sums of src[rows, cols]: the gradient of a bias */
void cuda_column_sum(const struct backend *be, float *dst, const void *src,
                     accel_dtype_t type, int64_t rows, int64_t cols, int64_t ld)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(type, T, {
        enum { V = pack_size<T> };

        if (on_16(src) && ld % V == 0 && cols % V == 0)
            launch_sum<V>(s, cut_columns(1, rows, cols, V), dst, (const T *)src, ld);
        else
            launch_sum<1>(s, cut_columns(1, rows, cols, 1), dst, (const T *)src, ld);
    });
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
