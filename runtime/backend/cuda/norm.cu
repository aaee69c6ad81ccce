/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer and RMS normalization on a CUDA device: forward, of an array or of the sum of
 * two, with 8-bit copies or without, and the gradients of input and parameters, which
 * are sums of columns; each reading its rows once. One launch does both gradients.
 */
#include "backend/cuda/columns.h"
#include "backend/cuda/narrow.h"
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

/* y of one element, rounded once at the store. */
static __device__ inline float normal(float x, float mean, float rstd, float gain,
                                      float bias)
{
    return (x - mean) * rstd * gain + bias;
}

/* Where y goes: to its place, or there and into an 8-bit copy. */
template <typename T> struct plain_result {
    T *y;

    template <int V> __device__ void put(int64_t at, float *v)
    {
        store<V>(y + at, v);
    }
};

template <typename T> struct narrow_result {
    T *y;
    struct narrowing own;

    template <int V> __device__ void put(int64_t at, float *v)
    {
        store_rounded<V>(y + at, v);
        narrow_pack<V>(own, at, v);
    }
};

/* Row r: statistics, kept in stats, and y. */
template <int V, int G, typename T, typename ROW, typename RESULT>
static __device__ inline void norm_row(const struct norm &p, const ROW &row, int64_t r,
                                       RESULT &y, float *stats, const T *gain,
                                       const T *bias, float *room)
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
            v[i] = normal(v[i], mean, rstd, g[i], b[i]);
        y.template put<V>(r * p.cols + at, v);
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
    plain_result<T> to = { y };

    TEAM_ROWS(G, r, p.rows)
    {
        const kept_row<T> row = { x + r * p.cols,
                                  keep ? kept + threadIdx.x / G * keep : NULL };

        norm_row<V, G>(p, row, r, to, stats, gain, bias, room);
    }
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
    plain_result<T> to = { y };

    TEAM_ROWS(G, r, p.rows)
    {
        const summed_row<T> row = { a + r * p.cols, b + r * p.cols, sum + r * p.cols,
                                    keep ? kept + threadIdx.x / G * keep : NULL };

        norm_row<V, G>(p, row, r, to, stats, gain, bias, room);
    }
}

/* ---- with 8-bit copies ----------------------------------------------------------- */

/* The arrays of one call. b NULL: x is a; else it is sum = a + b. */
template <typename T> struct norm_call {
    T *sum, *y;
    float *stats;
    const T *a, *b, *gain, *bias;
};

template <typename T>
static __device__ inline kept_row<T> whole_row(const norm_call<T> &c, int64_t at,
                                               T *room)
{
    return { c.a + at, room };
}

template <typename T>
static __device__ inline summed_row<T> sum_row(const norm_call<T> &c, int64_t at,
                                               T *room)
{
    return { c.a + at, c.b + at, c.sum + at, room };
}

/* As norm_kernel and add_norm_kernel, with the bits of both. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_narrow_kernel(struct norm p, norm_call<T> c, int64_t keep,
                       struct narrow_copy to)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];
    T *const own = keep ? kept + threadIdx.x / G * keep : NULL;
    narrow_result<T> y = { c.y, narrow_begin(to) };

    TEAM_ROWS(G, r, p.rows)
    {
        if (c.b)
            norm_row<V, G>(p, sum_row(c, r * p.cols, own), r, y, c.stats, c.gain,
                           c.bias, room);
        else
            norm_row<V, G>(p, whole_row(c, r * p.cols, own), r, y, c.stats, c.gain,
                           c.bias, room);
    }
    narrow_end(y.own, to.amax);
}

/* Rows of a block that writes a transposed copy: as many codes of a column as fill a
 * pack. */
enum { TURN_ROWS = 16 };
static_assert(TURN_ROWS == NARROW_MULTIPLE, "no pack goes beyond a transposed row");
typedef pack<uint32_t, TURN_ROWS / 4> transposed_pack;

/* Mean and 1 / deviation of the rows from `first` on, in stats and for the block. */
template <typename T, int V, int G>
static __device__ inline void block_statistics(const struct norm &p,
                                               const norm_call<T> &c, int64_t first,
                                               float *mean, float *rstd, float *room)
{
    for (int k = (int)threadIdx.x / G; k < TURN_ROWS && first + k < p.rows;
         k += ROW_BLOCK / G) {
        const int64_t r = first + k;
        float m, d;

        if (c.b)
            statistics<V, G>(p, sum_row(c, r * p.cols, (T *)NULL), room, &m, &d);
        else
            statistics<V, G>(p, whole_row(c, r * p.cols, (T *)NULL), room, &m, &d);
        if (threadIdx.x % G == 0) {
            c.stats[r] = mean[k] = m;
            c.stats[p.rows + r] = rstd[k] = d;
        }
    }
}

/* Codes of V columns of a block's rows, line[V]: y of rows `first` .. that are there is
 * written, and zeros follow. Two rows are read before one is written, to keep the
 * loads in flight; four would spill. */
template <int V, typename T>
static __device__ inline void transposed_columns(
    const struct norm &p, const norm_call<T> &c, struct narrowing &own, int64_t first,
    int64_t col, const float *mean, const float *rstd, transposed_pack *line)
{
    enum { AHEAD = 2 };
    const T *const x = (c.b ? c.sum : c.a) + first * p.cols + col;
    float gain[V], bias[V] = { 0 };
    uint32_t down[V] = {};

    load<V>(gain, c.gain + col);
    if (c.bias)
        load<V>(bias, c.bias + col);
#pragma unroll
    for (int k = 0; k < TURN_ROWS; k += AHEAD) {
        float v[AHEAD][V];

        for (int i = 0; i < AHEAD; i++)
            if (first + k + i < p.rows)
                load<V>(v[i], x + (k + i) * p.cols);
        for (int i = 0; i < AHEAD; i++) {
            const int64_t at = (first + k + i) * p.cols + col;
            code_pack<V> y = {};

            for (int j = 0; j < V; j++)
                v[i][j] = normal(v[i][j], mean[k + i], rstd[k + i], gain[j], bias[j]);
            if (first + k + i < p.rows) {
                store_rounded<V>(c.y + at, v[i]);
                y = narrow_pack<V>(own, at, v[i]);
            }
            append_row<V>(down, y);
        }
        for (int j = 0; j < V && (k + AHEAD) % 4 == 0; j++)
            line[j].v[k / 4] = down[j];
    }
}

/* The same with a transposed copy. After the statistics a thread has a pack of columns
 * of the block's rows, which it reads again, from the cache at best. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK, 2)
    norm_transposed_kernel(struct norm p, norm_call<T> c, struct narrow_copy to,
                           int64_t ld)
{
    __shared__ float room[WARP], mean[TURN_ROWS], rstd[TURN_ROWS];
    const int64_t first = (int64_t)blockIdx.x * TURN_ROWS;
    struct narrowing own = narrow_begin(to);

    block_statistics<T, V, G>(p, c, first, mean, rstd, room);
    __syncthreads();
    TEAM_PACKS(ROW_BLOCK, V, col, p.cols)
    {
        f8_t *const transposed = (f8_t *)to.transposed + col * ld + first;
        transposed_pack line[V];

        transposed_columns<V>(p, c, own, first, col, mean, rstd, line);
        for (int j = 0; j < V; j++)
            *reinterpret_cast<transposed_pack *>(transposed + j * ld) = line[j];
    }
    narrow_end(own, to.amax);
}

/* Rows are cut as without copies, so that sums have the same bits. */
template <typename T>
static void norm_narrow(struct cuda_state *s, const struct norm &p, norm_call<T> c,
                        const struct narrow_copy *to)
{
    struct row_plan plan =
        plan_rows<T>(p.rows, p.cols, 1, on_16(c.sum, c.y, c.a, c.b, c.gain, c.bias));

    if (!to->transposed) {
        LAUNCH_ROWS(plan, T, norm_narrow_kernel, s, p, c, plan.keep, *to);
        return;
    }
    plan.shared = 0;
    plan.grid = (unsigned)((p.rows + TURN_ROWS - 1) / TURN_ROWS);
    LAUNCH_ROWS(plan, T, norm_transposed_kernel, s, p, c, *to, narrow_ld(p.rows));
}

/* ---- the entries ----------------------------------------------------------------- */

void cuda_norm(const struct backend *be, const struct norm *p, void *y, float *stats,
               const void *x, const void *gain, const void *bias,
               const struct narrow_copy *narrow)
{
    struct cuda_state *s = cuda_state_of(be);

    if (narrow) {
        BY_TYPE(p->type, T,
                norm_narrow(s, *p,
                            norm_call<T>{ NULL, (T *)y, stats, (const T *)x, NULL,
                                          (const T *)gain,
                                          (const T *)(p->rms ? NULL : bias) },
                            narrow));
        return;
    }
    BY_TYPE(p->type, T, {
        const struct row_plan plan =
            plan_rows<T>(p->rows, p->cols, 1, on_16(y, x, gain, bias));

        LAUNCH_ROWS(plan, T, norm_kernel, s, *p, (T *)y, stats, (const T *)x,
                    (const T *)gain, (const T *)(p->rms ? NULL : bias), plan.keep);
    });
}

void cuda_add_norm(const struct backend *be, const struct norm *p, void *sum, void *y,
                   float *stats, const void *a, const void *b, const void *gain,
                   const void *bias, const struct narrow_copy *narrow)
{
    struct cuda_state *s = cuda_state_of(be);

    if (narrow) {
        BY_TYPE(p->type, T,
                norm_narrow(s, *p,
                            norm_call<T>{ (T *)sum, (T *)y, stats, (const T *)a,
                                          (const T *)b, (const T *)gain,
                                          (const T *)(p->rms ? NULL : bias) },
                            narrow));
        return;
    }
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
