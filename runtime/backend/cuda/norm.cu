/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer and RMS normalization on a CUDA device: forward, of an array or of the sum of
 * two, and the gradients of input and parameters, which are sums of columns; each
 * reading its rows once. One launch does both gradients.
 */
#include "backend/cuda/columns.h"
#include "backend/cuda/rows.h"

/* Mean and 1 / deviation of a row, which is left in row.room for the caller. Two
 * passes, as on the CPU: the squares are of distances from the mean, which does not
 * cancel. The squares summed in the first pass serve rms. */
template <int V, int G, typename ROW>
static __device__ inline void statistics(const struct norm &p, const ROW &row,
                                         float *room, float *mean_out, float *rstd_out)
{
    /* the first pass copies the row to shared memory, the second reads it there */
    float sum = 0.0f, squares = 0.0f, mean;

#pragma unroll 4
    TEAM_PACKS(G, V, at, p.cols)
    {
        float x[V];

        row.template first<V>(x, at);
        for (int i = 0; i < V; i++) {
            sum += x[i];
            squares += x[i] * x[i];
        }
    }
    mean = p.rms ? 0.0f : row_sum<G>(sum, room) / (float)p.cols;
    if (!p.rms) {
        squares = 0.0f;
        TEAM_PACKS(G, V, at, p.cols)
        {
            float x[V];

            row.template again<V>(x, at);
            for (int i = 0; i < V; i++)
                squares += (x[i] - mean) * (x[i] - mean);
        }
    }
    *mean_out = mean;
    *rstd_out = 1.0f / sqrtf(row_sum<G>(squares, room) / (float)p.cols + p.eps);
}

/* Row r: y = (x - mean) rstd gain + bias, rounded once at the store. */
template <int V, int G, typename T, typename ROW>
static __device__ inline void norm_row(const struct norm &p, const ROW &row, int64_t r,
                                       T *y, float *stats, const T *gain, const T *bias,
                                       float *room)
{
    float mean, rstd;

    statistics<V, G>(p, row, room, &mean, &rstd);
    TEAM_PACKS(G, V, at, p.cols)
    {
        float v[V], g[V], b[V] = { 0 };

        row.template again<V>(v, at);
        load<V>(g, gain + at);
        if (bias)
            load<V>(b, bias + at);
        for (int i = 0; i < V; i++)
            v[i] = (v[i] - mean) * rstd * g[i] + b[i];
        store<V>(y + r * p.cols + at, v);
    }
    /* kept for the backward: two numbers a row instead of the normalized row */
    if (threadIdx.x % G == 0) {
        stats[r] = mean;
        stats[p.rows + r] = rstd;
    }
}

/* y, x [rows, cols], gain and bias [cols] (bias NULL: none), stats [2, rows]. G threads
 * per row, packs of V; keep: elements of shared memory per row. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_kernel(struct norm p, T *y, float *stats, const T *x, const T *gain,
                const T *bias, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, p.rows)
    {
        const kept_row<T> row = { x + r * p.cols,
                                  keep ? kept + threadIdx.x / G * keep : NULL };

        norm_row<V, G>(p, row, r, y, stats, gain, bias, room);
    }
}

void cuda_norm(const struct backend *be, const struct norm *p, void *y, float *stats,
               const void *x, const void *gain, const void *bias)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(p->type, T, {
        const struct row_plan plan =
            plan_rows<T>(p->rows, p->cols, 1, on_16(y, x, gain, bias));

        LAUNCH_ROWS(plan, T, norm_kernel, s, *p, (T *)y, stats, (const T *)x,
                    (const T *)gain, (const T *)(p->rms ? NULL : bias), plan.keep);
    });
}

/* A row that is the sum of two: the first pass makes it, rounds it as add does, and
 * writes it. The rest is as in kept_row. */
template <typename T> struct summed_row {
    const T *a, *b;
    T *sum;
    T *room; /* NULL: too long */

    template <int V> __device__ void first(float *to, int64_t at) const
    {
        const pack<T, V> x = pack_at<V>(a + at), y = pack_at<V>(b + at);
        pack<T, V> p;

        for (int i = 0; i < V; i++)
            store_float(p.v, i, load_float(x.v, i) + load_float(y.v, i));
        *reinterpret_cast<pack<T, V> *>(sum + at) = p;
        if (room)
            *reinterpret_cast<pack<T, V> *>(room + at) = p;
        for (int i = 0; i < V; i++)
            to[i] = load_float(p.v, i);
    }
    template <int V> __device__ void again(float *to, int64_t at) const
    {
        load<V>(to, (const T *)(room ? room : sum) + at);
    }
};

/* As norm_kernel, with x = sum = a + b. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    add_norm_kernel(struct norm p, T *sum, T *y, float *stats, const T *a, const T *b,
                    const T *gain, const T *bias, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, p.rows)
    {
        const summed_row<T> row = { a + r * p.cols, b + r * p.cols, sum + r * p.cols,
                                    keep ? kept + threadIdx.x / G * keep : NULL };

        norm_row<V, G>(p, row, r, y, stats, gain, bias, room);
    }
}

void cuda_add_norm(const struct backend *be, const struct norm *p, void *sum, void *y,
                   float *stats, const void *a, const void *b, const void *gain,
                   const void *bias)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(p->type, T, {
        const struct row_plan plan =
            plan_rows<T>(p->rows, p->cols, 1, on_16(sum, y, a, b, gain, bias));

        LAUNCH_ROWS(plan, T, add_norm_kernel, s, *p, (T *)sum, (T *)y, stats,
                    (const T *)a, (const T *)b, (const T *)gain,
                    (const T *)(p->rms ? NULL : bias), plan.keep);
    });
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

/* With h = (x - mean) rstd and d = dy gain: dx = (d - mean(d) - h mean(d h)) rstd. With
 * rms, mean(d) counts as 0. The rows of block `block` of `blocks`. */
template <typename T, int V, int G>
static __device__ inline void input_rows(const struct norm &p, T *dx, bool add,
                                         const norm_param_op<T> &op, const T *gain,
                                         int64_t keep, T *kept, int64_t block,
                                         int64_t blocks)
{
    enum { TEAMS = ROW_BLOCK / G };
    __shared__ float room[WARP];

    for (int64_t r = block * TEAMS + threadIdx.x / G; r < p.rows; r += blocks * TEAMS) {
        /* two rows per team: x, then dy */
        T *const own = kept + threadIdx.x / G * 2 * keep;
        const kept_row<T> row = { op.x + r * p.cols, keep ? own : NULL };
        const kept_row<T> drow = { op.dy + r * p.cols, keep ? own + keep : NULL };
        const float mean = op.stats[r], rstd = op.stats[p.rows + r];
        float sum_d = 0.0f, sum_dh = 0.0f;

#pragma unroll 2
        TEAM_PACKS(G, V, at, p.cols)
        {
            float v[V], d[V], g[V];

            row.template first<V>(v, at);
            drow.template first<V>(d, at);
            load<V>(g, gain + at);
            for (int i = 0; i < V; i++) {
                sum_d += d[i] * g[i];
                sum_dh += d[i] * g[i] * ((v[i] - mean) * rstd);
            }
        }
        /* every thread of the row gets both sums */
        sum_d = p.rms ? 0.0f : row_sum<G>(sum_d, room) / (float)p.cols;
        sum_dh = row_sum<G>(sum_dh, room) / (float)p.cols;
        TEAM_PACKS(G, V, at, p.cols)
        {
            float v[V], d[V], g[V];

            row.template again<V>(v, at);
            drow.template again<V>(d, at);
            load<V>(g, gain + at);
            for (int i = 0; i < V; i++)
                v[i] = (d[i] * g[i] - sum_d - (v[i] - mean) * rstd * sum_dh) * rstd;
            store<V>(dx + r * p.cols + at, add, v);
        }
    }
}

/* The first blocks sum columns for the parameters, the others do rows of dx. They share
 * nothing but what they read. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_grad_kernel(struct norm p, T *dx, bool add, norm_param_op<T> op,
                     struct columns sums, const T *gain, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    const int64_t first = sums.tiles * sums.parts;

    if (blockIdx.x < first)
        sum_part<V>(op, sums, blockIdx.x % sums.tiles, blockIdx.x / sums.tiles, 0,
                    reinterpret_cast<float *>(kept));
    else
        input_rows<T, V, G>(p, dx, add, op, gain, keep, kept, blockIdx.x - first,
                            gridDim.x - first);
}

/* Adds the blocks and the shared memory of the columns to a plan of the rows. */
template <typename T>
static struct columns with_columns(struct row_plan *plan, const struct norm *p,
                                   bool wanted)
{
    const int pack = plan->packed ? pack_size<T> : 1;
    const int room =
        plan->packed ? column_room<pack_size<T>, 2>::FLOATS : column_room<1, 2>::FLOATS;
    const size_t shared = (size_t)room * sizeof(float);
    struct columns sums = cut_columns(1, p->rows, p->cols, pack);

    if (!wanted)
        sums.tiles = 0;
    plan->grid += (unsigned)(sums.tiles * sums.parts);
    if (wanted && plan->shared < shared)
        plan->shared = shared;
    return sums;
}

static_assert(COLUMN_BLOCK == ROW_BLOCK, "one launch has blocks of both kinds");

void cuda_norm_grad(const struct backend *be, const struct norm *p, void *dx, bool add,
                    float *dgain, float *dbias, const void *dy, const void *x,
                    const float *stats, const void *gain)
{
    struct cuda_state *s = cuda_state_of(be);
    float *const to[] = { dgain, dbias };
    const bool wanted = dgain || dbias;

    BY_TYPE(p->type, T, {
        const norm_param_op<T> op = { dgain, dbias,   (const T *)dy, (const T *)x,
                                      stats, p->rows, p->cols };
        struct row_plan plan =
            plan_rows<T>(p->rows, p->cols, 2, on_16(dx, dy, x, gain));
        struct columns sums;

        if (!dx)
            plan.grid = 0;
        sums = with_columns<T>(&plan, p, wanted);
        if (wanted)
            ends_begin(s, &sums, 2);
        LAUNCH_ROWS(plan, T, norm_grad_kernel, s, *p, (T *)dx, add, op, sums,
                    (const T *)gain, plan.keep);
        if (wanted)
            ends_note(s, &sums, 2, to);
    });
}
