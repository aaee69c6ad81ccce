/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer and RMS normalization on a CUDA device: forward and the gradient of the input,
 * each reading its rows once. The parameters' gradients are column sums: columns.cu.
 */
#include "backend/cuda/rows.h"

/* Mean and 1 / deviation of a row, which is left in row.room for the caller. Two
 * passes, as on the CPU: the squares are of distances from the mean, which does not
 * cancel. The squares summed in the first pass serve rms. */
template <typename T, int V, int G>
static __device__ inline void statistics(const struct norm &p, const kept_row<T> &row,
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
        /* y = (x - mean) rstd gain + bias, rounded once at the store */
        float mean, rstd;

        statistics<T, V, G>(p, row, room, &mean, &rstd);
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

/* With h = (x - mean) rstd and d = dy gain: dx = (d - mean(d) - h mean(d h)) rstd. With
 * rms, mean(d) counts as 0. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_grad_kernel(struct norm p, T *dx, bool add, const T *dy, const T *x,
                     const float *stats, const T *gain, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, p.rows)
    {
        /* two rows per team: x, then dy */
        T *const own = kept + threadIdx.x / G * 2 * keep;
        const kept_row<T> row = { x + r * p.cols, keep ? own : NULL };
        const kept_row<T> drow = { dy + r * p.cols, keep ? own + keep : NULL };
        const float mean = stats[r], rstd = stats[p.rows + r];
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

void cuda_norm_grad(const struct backend *be, const struct norm *p, void *dx, bool add,
                    const void *dy, const void *x, const float *stats, const void *gain)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(p->type, T, {
        const struct row_plan plan =
            plan_rows<T>(p->rows, p->cols, 2, on_16(dx, dy, x, gain));

        LAUNCH_ROWS(plan, T, norm_grad_kernel, s, *p, (T *)dx, add, (const T *)dy,
                    (const T *)x, stats, (const T *)gain, plan.keep);
    });
}
