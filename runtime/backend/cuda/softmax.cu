/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax of rows on a CUDA device, cross-entropy with soft targets, and their
 * gradients. A row is read from memory once
 * (rows.h); the exponentials are computed twice, which is cheaper than keeping them.
 */
#include "backend/cuda/rows.h"

/* exp(x) for x <= 0; minus infinity gives 0. */
static __device__ inline float part(float x)
{
    return x < -87.0f ? 0.0f : maths_exp(x);
}

/* y, x [rows, cols]: maximum, sum of exp, division; G threads per row, packs of V. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    softmax_kernel(T *y, const T *x, int64_t rows, int64_t cols, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, rows)
    {
        /* x is read from memory once; the second and third pass read the copy in shared
         * memory */
        const kept_row<T> row = { x + r * cols,
                                  keep ? kept + threadIdx.x / G * keep : NULL };
        float v[V], max = -INFINITY, sum = 0.0f;

        TEAM_PACKS(G, V, at, cols)
        {
            row.template first<V>(v, at);
            for (int i = 0; i < V; i++)
                max = v[i] > max ? v[i] : max;
        }
        /* exp(x - max) <= 1: no overflow, and the largest term is exact */
        max = row_max<G>(max, room);
        TEAM_PACKS(G, V, at, cols)
        {
            row.template again<V>(v, at);
            for (int i = 0; i < V; i++)
                sum += part(v[i] - max);
        }
        sum = row_sum<G>(sum, room);
        TEAM_PACKS(G, V, at, cols)
        {
            row.template again<V>(v, at);
            for (int i = 0; i < V; i++)
                v[i] = part(v[i] - max) / sum;
            store<V>(y + r * cols + at, v);
        }
    }
}

void cuda_softmax(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                  int64_t rows, int64_t cols)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(type, T, {
        const struct row_plan plan = plan_rows<T>(rows, cols, 1, on_16(y, x));

        LAUNCH_ROWS(plan, T, softmax_kernel, s, (T *)y, (const T *)x, rows, cols,
                    plan.keep);
    });
}

/* dx, dy, y [rows, cols]: one sum per row, then one element at a time. */
template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    softmax_grad_kernel(T *dx, bool add, const T *dy, const T *y, int64_t rows,
                        int64_t cols, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, rows)
    {
        /* two rows per team: y, then dy */
        T *const own = kept + threadIdx.x / G * 2 * keep;
        const kept_row<T> row = { y + r * cols, keep ? own : NULL };
        const kept_row<T> drow = { dy + r * cols, keep ? own + keep : NULL };
        float v[V], d[V], sum = 0.0f;

        TEAM_PACKS(G, V, at, cols)
        {
            row.template first<V>(v, at);
            drow.template first<V>(d, at);
            for (int i = 0; i < V; i++)
                sum += d[i] * v[i];
        }
        sum = row_sum<G>(sum, room);
        TEAM_PACKS(G, V, at, cols)
        {
            row.template again<V>(v, at);
            drow.template again<V>(d, at);
            for (int i = 0; i < V; i++)
                /* dx = (dy - sum of dy y) y: y alone is needed, x is not */
                v[i] = (d[i] - sum) * v[i];
            store<V>(dx + r * cols + at, add, v);
        }
    }
}

void cuda_softmax_grad(const struct backend *be, void *dx, bool add, const void *dy,
                       const void *y, accel_dtype_t type, int64_t rows, int64_t cols)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(type, T, {
        const struct row_plan plan = plan_rows<T>(rows, cols, 2, on_16(dx, dy, y));

        LAUNCH_ROWS(plan, T, softmax_grad_kernel, s, (T *)dx, add, (const T *)dy,
                    (const T *)y, rows, cols, plan.keep);
    });
}

/* ---- cross-entropy with soft targets --------------------------------------------- */

template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    soft_kernel(float *lse, float *loss, const T *x, const T *y, int64_t rows,
                int64_t cols, int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, rows)
    {
        const kept_row<T> row = { x + r * cols,
                                  keep ? kept + threadIdx.x / G * keep : NULL };
        float v[V], w[V], max = -INFINITY, sum = 0.0f, all;

        TEAM_PACKS(G, V, at, cols)
        {
            row.template first<V>(v, at);
            for (int i = 0; i < V; i++)
                max = v[i] > max ? v[i] : max;
        }
        max = row_max<G>(max, room);
        TEAM_PACKS(G, V, at, cols)
        {
            row.template again<V>(v, at);
            for (int i = 0; i < V; i++)
                sum += part(v[i] - max);
        }
        all = max + maths_log(row_sum<G>(sum, room));
        sum = 0.0f;
        TEAM_PACKS(G, V, at, cols)
        {
            row.template again<V>(v, at);
            load<V>(w, y + r * cols + at);
            for (int i = 0; i < V; i++)
                sum += w[i] * (all - v[i]);
        }
        sum = row_sum<G>(sum, room);
        if (threadIdx.x % G == 0) {
            lse[r] = all;
            loss[r] = sum;
        }
    }
}

void cuda_soft_xent(const struct backend *be, float *lse, float *loss, const void *x,
                    const void *y, accel_dtype_t type, int64_t rows, int64_t cols)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(type, T, {
        const struct row_plan plan = plan_rows<T>(rows, cols, 1, on_16(x, y));

        LAUNCH_ROWS(plan, T, soft_kernel, s, lse, loss, (const T *)x, (const T *)y,
                    rows, cols, plan.keep);
    });
}

template <typename T, int V, int G>
static __global__ void __launch_bounds__(ROW_BLOCK)
    soft_grad_kernel(T *d, bool add, bool by_y, const T *x, const T *y,
                     const float *lse, const float *dmean, int64_t rows, int64_t cols,
                     int64_t keep)
{
    DYNAMIC_SHARED(T, kept);
    __shared__ float room[WARP];

    TEAM_ROWS(G, r, rows)
    {
        const kept_row<T> row = { y + r * cols,
                                  keep ? kept + threadIdx.x / G * keep : NULL };
        const float scale = dmean[0] / (float)rows;
        float v[V], w[V], mass = 0.0f;

        TEAM_PACKS(G, V, at, cols)
        {
            row.template first<V>(w, at);
            for (int i = 0; i < V; i++)
                mass += w[i];
        }
        mass = row_sum<G>(mass, room);
        TEAM_PACKS(G, V, at, cols)
        {
            row.template again<V>(w, at);
            load<V>(v, x + r * cols + at);
            for (int i = 0; i < V; i++) {
                const float far = v[i] - lse[r];

                v[i] = (by_y ? -far : part(far) * mass - w[i]) * scale;
            }
            store<V>(d + r * cols + at, add, v);
        }
    }
}

void cuda_soft_xent_grad(const struct backend *be, void *d, bool add, bool by_y,
                         const void *x, const void *y, accel_dtype_t type,
                         const float *lse, const float *dmean, int64_t rows,
                         int64_t cols)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(type, T, {
        const struct row_plan plan = plan_rows<T>(rows, cols, 1, on_16(d, x, y));

        LAUNCH_ROWS(plan, T, soft_grad_kernel, s, (T *)d, add, by_y, (const T *)x,
                    (const T *)y, lse, dmean, rows, cols, plan.keep);
    });
}
