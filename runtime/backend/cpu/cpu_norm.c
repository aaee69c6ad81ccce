/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer and RMS normalization on the CPU: forward, input gradient (rows over threads)
 * and parameter gradients (slabs of columns over threads, rows in order).
 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* One row. Mean and variance take two passes: the row is in cache, and the difference
 * of large squares would cancel. rms, with_bias and t are constants. */
VM_INLINE void norm_row(void *y, float *mean_out, float *rstd_out, const void *x,
                        const void *gain, const void *bias, int64_t n, float eps,
                        const int rms, const int with_bias, const accel_dtype_t t)
{
    float mean = 0.0f, var, rstd;

    if (!rms) {
        /* y = (x - mean) rstd gain + bias; rms leaves the mean out */
        VM_SUM(mean, n, vm_load(x, i, t));
        mean = mean / (float)n;
    }
    VM_SUM(var, n, (vm_load(x, i, t) - mean) * (vm_load(x, i, t) - mean));
    rstd = 1.0f / sqrtf(var / (float)n + eps);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = (vm_load(x, i, t) - mean) * rstd * vm_load(gain, i, t);

        /* one rounding, at the end */
        vm_store(y, i, with_bias ? v + vm_load(bias, i, t) : v, t);
    }
    *mean_out = mean;
    *rstd_out = rstd;
}

/* Turns the run-time choice into constants; so do the *_any functions below. */
ACCEL_MULTIVERSION
static void norm_any(void *y, float *mean, float *rstd, const void *x, const void *gain,
                     const void *bias, const struct norm *p)
{
    if (p->rms)
        VM_BY_TYPE(p->type, norm_row, y, mean, rstd, x, gain, NULL, p->cols, p->eps, 1,
                   0);
    else if (bias)
        VM_BY_TYPE(p->type, norm_row, y, mean, rstd, x, gain, bias, p->cols, p->eps, 0,
                   1);
    else
        VM_BY_TYPE(p->type, norm_row, y, mean, rstd, x, gain, NULL, p->cols, p->eps, 0,
                   0);
}

/* x NULL: it is `sum`, made here of a and b, of which a row is normalised while it is
 * in the cache. */
static void norm_rows(const struct backend *be, const struct norm *p, void *y,
                      float *stats, const void *x, void *sum, const void *a,
                      const void *b, const void *gain, const void *bias,
                      const struct narrow_copy *narrow)
{
    uint32_t most = 0;

#pragma omp parallel for num_threads(be->threads) reduction(max                        \
                                                            : most)                    \
    schedule(static, CPU_ROW_BLOCK) if (p->rows * p->cols > CPU_ALONE_ELEMS / 2)
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t at = r * p->cols;

        if (sum)
            cpu_add_block(vm_to(sum, at, p->type), vm_at(a, at, p->type),
                          vm_at(b, at, p->type), p->type, p->cols);
        norm_any(vm_to(y, at, p->type), &stats[r], &stats[p->rows + r],
                 vm_at(sum ? sum : x, at, p->type), gain, bias, p);
        most = cpu_narrow_piece(narrow, y, p->type, at, p->cols, most);
    }
    cpu_narrow_end(narrow, y, p->type, most);
}

void cpu_norm(const struct backend *be, const struct norm *p, void *y, float *stats,
              const void *x, const void *gain, const void *bias,
              const struct narrow_copy *narrow)
{
    norm_rows(be, p, y, stats, x, NULL, NULL, NULL, gain, bias, narrow);
}

void cpu_add_norm(const struct backend *be, const struct norm *p, void *sum, void *y,
                  float *stats, const void *a, const void *b, const void *gain,
                  const void *bias, const struct narrow_copy *narrow)
{
    norm_rows(be, p, y, stats, NULL, sum, a, b, gain, bias, narrow);
}

/* With h = (x - mean) rstd and d = dy gain: dx = (d - mean(d) - h mean(d h)) rstd. The
 * term mean(d) stems from the mean of x, so rms has none. */
VM_INLINE void grad_row(void *dx, const void *dy, const void *x, const void *gain,
                        float mean, float rstd, int64_t n, const int rms, const int add,
                        const accel_dtype_t t)
{
    float sum_d = 0.0f, sum_dh;

    if (!rms)
        VM_SUM(sum_d, n, vm_load(dy, i, t) * vm_load(gain, i, t));
    VM_SUM(sum_dh, n,
           vm_load(dy, i, t) * vm_load(gain, i, t) *
               ((vm_load(x, i, t) - mean) * rstd));
    sum_d = sum_d / (float)n;
    sum_dh = sum_dh / (float)n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float h = (vm_load(x, i, t) - mean) * rstd;
        float d = vm_load(dy, i, t) * vm_load(gain, i, t);
        float v = (d - sum_d - h * sum_dh) * rstd;

        vm_store(dx, i, add ? vm_load(dx, i, t) + v : v, t);
    }
}

VM_INLINE void grad_either(void *dx, const void *dy, const void *x, const void *gain,
                           float mean, float rstd, int64_t n, bool add, const int rms,
                           const accel_dtype_t t)
{
    if (add)
        grad_row(dx, dy, x, gain, mean, rstd, n, rms, 1, t);
    else
        grad_row(dx, dy, x, gain, mean, rstd, n, rms, 0, t);
}

ACCEL_MULTIVERSION
static void grad_any(void *dx, const void *dy, const void *x, const void *gain,
                     float mean, float rstd, bool add, const struct norm *p)
{
    if (p->rms)
        VM_BY_TYPE(p->type, grad_either, dx, dy, x, gain, mean, rstd, p->cols, add, 1);
    else
        VM_BY_TYPE(p->type, grad_either, dx, dy, x, gain, mean, rstd, p->cols, add, 0);
}

/* Columns [first, first + n) over all rows, 64 rows at a time: the rounding error of a
 * long batch stays that of a short one. */
VM_INLINE void param_slab(float *dgain, float *dbias, const void *dy, const void *x,
                          const float *stats, int64_t rows, int64_t cols, int64_t first,
                          int64_t n, const accel_dtype_t t)
{
    float gain[CPU_COLUMN_SLAB] = { 0 }, bias[CPU_COLUMN_SLAB] = { 0 };

    for (int64_t r0 = 0; r0 < rows; r0 += 64) {
        float g[CPU_COLUMN_SLAB] = { 0 }, b[CPU_COLUMN_SLAB] = { 0 };

        for (int64_t r = r0; r < rows && r < r0 + 64; r++) {
            /* dgain[c] = sum of dy h, dbias[c] = sum of dy, h = (x - mean) rstd */
            float mean = stats[r], rstd = stats[rows + r];

#pragma omp simd
            for (int64_t c = 0; c < n; c++) {
                float d = vm_load(dy, r * cols + first + c, t);
                float h = (vm_load(x, r * cols + first + c, t) - mean) * rstd;

                g[c] += d * h;
                b[c] += d;
            }
        }
        for (int64_t c = 0; c < n; c++) {
            gain[c] += g[c];
            bias[c] += b[c];
        }
    }
    for (int64_t c = 0; c < n; c++) {
        if (dgain)
            dgain[first + c] += gain[c];
        if (dbias)
            dbias[first + c] += bias[c];
    }
}

ACCEL_MULTIVERSION
static void param_any(float *dgain, float *dbias, const void *dy, const void *x,
                      const float *stats, int64_t rows, int64_t cols, int64_t first,
                      int64_t n, accel_dtype_t type)
{
    VM_BY_TYPE(type, param_slab, dgain, dbias, dy, x, stats, rows, cols, first, n);
}

/* dx [rows, cols]: rows are independent, so any thread may take any row. dgain, dbias
 * [cols]: a slab of columns per task, all rows in order. */
void cpu_norm_grad(const struct backend *be, const struct norm *p, void *dx, bool add,
                   float *dgain, float *dbias, const void *dy, const void *x,
                   const float *stats, const void *gain)
{
    const int64_t rows = dx ? p->rows : 0, cols = dgain || dbias ? p->cols : 0;

#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * p->cols > CPU_ALONE_ELEMS / 2)
    for (int64_t r = 0; r < rows; r++)
        grad_any(vm_to(dx, r * p->cols, p->type), vm_at(dy, r * p->cols, p->type),
                 vm_at(x, r * p->cols, p->type), gain, stats[r], stats[p->rows + r],
                 add, p);
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic) if (p->rows * cols > CPU_ALONE_ELEMS)
    for (int64_t c = 0; c < cols; c += CPU_COLUMN_SLAB)
        param_any(dgain, dbias, dy, x, stats, p->rows, p->cols, c,
                  cols - c < CPU_COLUMN_SLAB ? cols - c : CPU_COLUMN_SLAB, p->type);
}
