/* SPDX-License-Identifier: Apache-2.0
 *
 * Long sums on a CUDA device: over the last dimension, and of the losses of pairs; with
 * their gradients. A block sums a part of a row, whose place follows from the shapes
 * alone; one block then adds the parts in one order.
 */
#include "backend/cuda/vector.h"

enum {
    SUM_BLOCK = 256,
    PART = 16384, /* least elements of a part */
    MOST_PARTS = 1024
};

/* ---- rows ------------------------------------------------------------------------ */

/* OP has value<V>(row, at), the sum of V values of the row from `at` on, and
 * finish(row, total), which writes. `room` holds parts [rows][parts], unless each row
 * is one part. G threads per row. */
template <int V, int G, typename OP>
static __global__ void __launch_bounds__(SUM_BLOCK)
    rows_kernel(OP op, int64_t rows, int64_t n, int64_t parts, float *room)
{
    __shared__ float sums[WARP];
    /* thread t of part x starts at pack x G + t and advances by parts G packs, so that
     * neighbours read neighbouring packs */
    const int64_t first = ((int64_t)blockIdx.x * G + threadIdx.x % G) * V;
    const int64_t step = parts * G * V, packed = n / V * V;

    for (int64_t r = (int64_t)blockIdx.y * (SUM_BLOCK / G) + threadIdx.x / G; r < rows;
         r += (int64_t)gridDim.y * (SUM_BLOCK / G)) {
        float sum = 0.0f;

#pragma unroll 4
        for (int64_t at = first; at < packed; at += step)
            sum += op.template value<V>(r, at);
        /* the tail after the last whole pack: one element for each of the first threads
         */
        if (V > 1 && packed + first / V < n)
            sum += op.template value<1>(r, packed + first / V);
        sum = G == WARP ? warp_sum(sum) : block_sum(sum, sums);
        if (threadIdx.x % G == 0 && parts == 1)
            op.finish(r, sum);
        else if (threadIdx.x % G == 0)
            room[r * parts + blockIdx.x] = sum;
    }
}

/* Second stage: room [rows][parts], a block per row. */
template <typename OP>
static __global__ void __launch_bounds__(SUM_BLOCK)
    row_parts_kernel(OP op, int64_t rows, int64_t parts, const float *room)
{
    __shared__ float sums[WARP];

    ROW_STRIDE(r, rows)
    {
        float sum = 0.0f;

        /* thread t adds parts t, t + 256, ...; block_sum then has one order */
        BLOCK_STRIDE(i, parts)
        sum += room[r * parts + i];
        sum = block_sum(sum, sums);
        if (threadIdx.x == 0)
            op.finish(r, sum);
    }
}

/* Sums of rows of n adjacent elements: one stage, or two for few long rows. */
template <int V, typename OP>
static void launch_rows(struct cuda_state *s, int64_t rows, int64_t n, OP op)
{
    const int64_t blocks =
        /* short rows get a warp each, so that a block has eight */
        n <= 1024 ? (rows + SUM_BLOCK / WARP - 1) / (SUM_BLOCK / WARP) : rows;
    const unsigned grid = (unsigned)least(blocks, 65535);
    int64_t parts = rows > 0 ? MOST_PARTS / rows : 0;
    float *room = NULL;

    /* few rows are cut until about 1024 blocks share the work */
    parts = least(parts, n / PART);
    parts = parts > 1 ? parts : 1;
    if (rows <= 0)
        return;
    if (parts > 1)
        room = (float *)cuda_scratch(s, (size_t)(rows * parts) * sizeof(*room));
    if (n <= 1024)
        LAUNCH((rows_kernel<V, WARP, OP>), dim3(1, grid), SUM_BLOCK, 0, s, op, rows, n,
               parts, room);
    else
        LAUNCH((rows_kernel<V, SUM_BLOCK, OP>), dim3((unsigned)parts, grid), SUM_BLOCK,
               0, s, op, rows, n, parts, room);
    if (parts > 1)
        LAUNCH((row_parts_kernel<OP>), rows_grid(rows), SUM_BLOCK, 0, s, op, rows,
               parts, room);
    cuda_scratch_free(s, room);
}

/* Sums with packs of V where addresses (`aligned`) and row length allow it. */
template <int V, typename OP>
static void sum_rows(struct cuda_state *s, bool aligned, int64_t rows, int64_t n, OP op)
{
    /* a single row may have a tail; of several, each must start on a pack */
    if (aligned && (rows == 1 || n % V == 0))
        launch_rows<V>(s, rows, n, op);
    else
        launch_rows<1>(s, rows, n, op);
}

template <typename T, typename Y> struct row_sum_op {
    Y *y;
    const T *x;
    int64_t n;
    float scale;

    template <int V> __device__ float value(int64_t row, int64_t at) const
    {
        float v[V], sum = 0.0f;

        load<V>(v, x + row * n + at);
        for (int i = 0; i < V; i++)
            sum += v[i];
        return sum;
    }
    __device__ void finish(int64_t row, float total) const
    {
        store_float(y, row, total * scale);
    }
};

/* y [a, c] = scale * sum over b of x [a, b, c]. */
void cuda_reduce(const struct backend *be, void *y, accel_dtype_t y_type, const void *x,
                 accel_dtype_t type, const int64_t dim[3], float scale)
{
    /* x [a][b][c]: with c, sums go down columns */
    if (dim[2] != 1) {
        cuda_reduce_columns(be, y, y_type, x, type, dim, scale);
        return;
    }
    BY_TYPE(type, T,
            BY_TYPE(y_type, Y,
                    sum_rows<pack_size<T>>(
                        cuda_state_of(be), on_16(x), dim[0], dim[1],
                        row_sum_op<T, Y>{ (Y *)y, (const T *)x, dim[1], scale })));
}

/* Element [a, b, c] of dx gets dy [a, c]; with cols 1 there is no c. */
template <typename T, typename Y> struct spread_op {
    enum { INPUTS = 1 };
    T *dx;
    bool add;
    const Y *dy;
    int64_t rows, cols;
    float scale;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        int64_t row, col, within;

        /* a pack lies within one row of dx (length % V == 0), so it has one gradient */
        if (cols == 1) {
            v[0][0] = load_float(dy, divide(at, rows, &within));
            for (int i = 1; i < V; i++)
                v[0][i] = v[0][0];
            return;
        }
        /* at = (a rows + b) cols + c, and dy lies at a cols + c */
        row = divide(divide(at, cols, &col), rows, &within);
        ::load<V>(v[0], dy + row * cols + col);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = v[0][i] * scale;
        store<V>(dx + at, add, v[0]);
    }
};

void cuda_reduce_grad(const struct backend *be, void *dx, accel_dtype_t type, bool add,
                      const void *dy, accel_dtype_t dy_type, const int64_t dim[3],
                      float scale)
{
    const int64_t length =
        dim[2] == 1 ? dim[1] : dim[2]; /* a pack must not cross this */

    BY_TYPE(type, T,
            BY_TYPE(dy_type, Y,
                    map<pack_size<T>>(cuda_state_of(be),
                                      on_16(dx, dy) && length % pack_size<T> == 0,
                                      dim[0] * dim[1] * dim[2],
                                      spread_op<T, Y>{ (T *)dx, add, (const Y *)dy,
                                                       dim[1], dim[2], scale })));
}

/* ---- losses of pairs ------------------------------------------------------------- */

enum { PAIR_PACK = 4 };

template <typename X, typename Y> struct pair_op {
    float *mean;
    enum pair_loss loss;
    const X *x;
    const Y *y;
    int64_t n;

    template <int V> __device__ float value(int64_t, int64_t at) const
    {
        float a[V], b[V], sum = 0.0f;

        load<V>(a, x + at);
        load<V>(b, y + at);
        for (int i = 0; i < V; i++)
            sum += maths_pair(a[i], b[i], loss);
        return sum;
    }
    __device__ void finish(int64_t, float total) const
    {
        mean[0] = n ? total / (float)n : 0.0f;
    }
};

void cuda_pair_loss(const struct backend *be, float *mean, enum pair_loss loss,
                    const void *x, accel_dtype_t x_type, const void *y,
                    accel_dtype_t y_type, int64_t n)
{
    BY_TYPE(x_type, X,
            BY_TYPE(y_type, Y,
                    sum_rows<PAIR_PACK>(
                        cuda_state_of(be), on_16(x, y), 1, n,
                        pair_op<X, Y>{ mean, loss, (const X *)x, (const Y *)y, n })));
}

/* T is that of x, or of y where the derivative is by y. */
template <typename T, typename X, typename Y> struct pair_grad_op {
    enum { INPUTS = 2 };
    T *d;
    bool add, by_y;
    enum pair_loss loss;
    const X *x;
    const Y *y;
    const float *dmean;
    int64_t n;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
        ::load<V>(v[1], y + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        /* dmean is on the device: reading it to the host would stop the queue */
        const float scale = dmean[0] / (float)n;

        for (int i = 0; i < V; i++)
            v[0][i] = maths_pair_grad(v[0][i], v[1][i], loss, by_y) * scale;
        store<V>(d + at, add, v[0]);
    }
};

template <typename T, typename X, typename Y>
static void pair_grad(struct cuda_state *s, const struct pair_grad_op<T, X, Y> &op)
{
    map<PAIR_PACK>(s, on_16(op.d, op.x, op.y), op.n, op);
}

void cuda_pair_loss_grad(const struct backend *be, void *d, bool add, bool by_y,
                         enum pair_loss loss, const void *x, accel_dtype_t x_type,
                         const void *y, accel_dtype_t y_type, const float *dmean,
                         int64_t n)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(x_type, X, BY_TYPE(y_type, Y, {
                if (by_y)
                    pair_grad(s, pair_grad_op<Y, X, Y>{ (Y *)d, add, by_y, loss,
                                                        (const X *)x, (const Y *)y,
                                                        dmean, n });
                else
                    pair_grad(s, pair_grad_op<X, X, Y>{ (X *)d, add, by_y, loss,
                                                        (const X *)x, (const Y *)y,
                                                        dmean, n });
            }));
}
