/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions on the CPU and their gradients: softmax, sums over a dimension, losses of
 * pairs and of rows. Long sums go over fixed blocks, whose sums are added in order.
 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* ---- softmax --------------------------------------------------------------------- */

/* A maximum is the same in any order; lanes only make it fast. */
VM_INLINE float row_max(const void *x, int64_t n, const accel_dtype_t t)
{
    float lane[VM_LANES], max;

    for (int l = 0; l < VM_LANES; l++)
        lane[l] = -INFINITY;
    for (int64_t i = 0; i + VM_LANES <= n; i += VM_LANES) {
#pragma omp simd
        for (int l = 0; l < VM_LANES; l++) {
            float v = vm_load(x, i + l, t);

            lane[l] = v > lane[l] ? v : lane[l];
        }
    }
    for (int64_t i = n / VM_LANES * VM_LANES; i < n; i++) {
        float v = vm_load(x, i, t);

        lane[0] = v > lane[0] ? v : lane[0];
    }
    max = lane[0];
    for (int l = 1; l < VM_LANES; l++)
        max = lane[l] > max ? lane[l] : max;
    return max;
}

/* exp(x) for x <= 0; minus infinity gives 0. */
VM_INLINE float part(float x)
{
    float e = maths_exp(x);

    return x < -87.0f ? 0.0f : e;
}

/* exp is computed twice instead of stored: y may be narrow, and the sum must not see
 * its rounding. */
VM_INLINE void softmax_row(void *y, const void *x, int64_t n, const accel_dtype_t t)
{
    float max = row_max(x, n, t), sum;

    VM_SUM(sum, n, part(vm_load(x, i, t) - max));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(y, i, part(vm_load(x, i, t) - max) / sum, t);
}

ACCEL_MULTIVERSION
static void softmax_any(void *y, const void *x, int64_t n, accel_dtype_t type)
{
    VM_BY_TYPE(type, softmax_row, y, x, n);
}

/* y, x [rows, cols]; a row is one thread's. */
void cpu_softmax(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                 int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * cols > CPU_ALONE_ELEMS / 4)
    for (int64_t r = 0; r < rows; r++)
        softmax_any(vm_to(y, r * cols, type), vm_at(x, r * cols, type), cols, type);
}

/* dx (+)= (dy - sum of dy y) y */
VM_INLINE void softmax_grad_row(void *dx, const void *dy, const void *y, int64_t n,
                                const int add, const accel_dtype_t t)
{
    float sum;

    VM_SUM(sum, n, vm_load(dy, i, t) * vm_load(y, i, t));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = (vm_load(dy, i, t) - sum) * vm_load(y, i, t);

        vm_store(dx, i, add ? vm_load(dx, i, t) + v : v, t);
    }
}

ACCEL_MULTIVERSION
static void softmax_grad_any(void *dx, const void *dy, const void *y, int64_t n,
                             bool add, accel_dtype_t type)
{
    if (add)
        VM_BY_TYPE(type, softmax_grad_row, dx, dy, y, n, 1);
    else
        VM_BY_TYPE(type, softmax_grad_row, dx, dy, y, n, 0);
}

void cpu_softmax_grad(const struct backend *be, void *dx, bool add, const void *dy,
                      const void *y, accel_dtype_t type, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * cols > CPU_ALONE_ELEMS / 4)
    for (int64_t r = 0; r < rows; r++)
        softmax_grad_any(vm_to(dx, r * cols, type), vm_at(dy, r * cols, type),
                         vm_at(y, r * cols, type), cols, add, type);
}

/* ---- sums ------------------------------------------------------------------------ */

VM_INLINE void sum_block(float *sum_out, const void *x, int64_t n,
                         const accel_dtype_t t)
{
    VM_SUM(*sum_out, n, vm_load(x, i, t));
}

/* Sum of x[n] on the calling thread. */
ACCEL_MULTIVERSION
static float sum_any(const void *x, int64_t n, accel_dtype_t type)
{
    float sum;

    VM_BY_TYPE(type, sum_block, &sum, x, n);
    return sum;
}

/* Calls RUN with the loss as a constant, so that its loop vectorizes. */
#define FOR_PAIR(loss, RUN)                                                            \
    do {                                                                               \
        if ((loss) == PAIR_SQUARE)                                                     \
            RUN(PAIR_SQUARE);                                                          \
        else                                                                           \
            RUN(PAIR_LOGIT);                                                           \
    } while (0)

ACCEL_MULTIVERSION
static float pair_sum(const float *x, const float *y, int64_t n, enum pair_loss loss)
{
    float sum = 0.0f;

#define RUN(l) VM_SUM(sum, n, maths_pair(x[i], y[i], l))
    FOR_PAIR(loss, RUN);
#undef RUN
    return sum;
}

/* Sum of the losses of one block; the types may differ. */
static float pair_block(enum pair_loss loss, const void *x, accel_dtype_t x_type,
                        const void *y, accel_dtype_t y_type, int64_t first, int64_t n)
{
    float sum = 0.0f;

    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE];
        int64_t len = cpu_piece(n, i);

        sum += pair_sum(cpu_get(x, first + i, x_type, len, a),
                        cpu_get(y, first + i, y_type, len, b), len, loss);
    }
    return sum;
}

/* blocks summed at a time, each of CPU_ELEM_BLOCK elements */
enum { BLOCKS = 256 };

/* Sum of x[n], or, with y, of the losses of its pairs with y[n]: blocks spread over
 * threads. Block sums are added in order by the caller. */
static float long_sum(const struct backend *be, const void *x, accel_dtype_t type,
                      const void *y, accel_dtype_t y_type, enum pair_loss loss,
                      int64_t n)
{
    /* 256 x 16384 elements per round: a result per block, whichever thread made it */
    float block[BLOCKS], sum = 0.0f;

    for (int64_t at = 0; at < n; at += (int64_t)BLOCKS * CPU_ELEM_BLOCK) {
        int64_t count = (n - at + CPU_ELEM_BLOCK - 1) / CPU_ELEM_BLOCK;

        count = count < BLOCKS ? count : BLOCKS;
#pragma omp parallel for num_threads(be->threads) if (count > 2)
        for (int64_t b = 0; b < count; b++) {
            int64_t first = at + b * CPU_ELEM_BLOCK, len = cpu_block(n, first);

            block[b] = y ? pair_block(loss, x, type, y, y_type, first, len)
                         : sum_any(vm_at(x, first, type), len, type);
        }
        for (int64_t b = 0; b < count; b++)
            sum += block[b];
    }
    return sum;
}

/* Stores v * scale, rounded once. */
static void put_scaled(void *y, int64_t at, accel_dtype_t type, float *v, int64_t n,
                       float scale)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = v[i] * scale;
    cpu_store_row(vm_to(y, at, type), v, type, n, false);
}

/* y [a, c] = scale * sum over b of x [a, b, c], dim = { a, b, c }. */
void cpu_reduce(const struct backend *be, void *y, accel_dtype_t y_type, const void *x,
                accel_dtype_t type, const int64_t dim[3], float scale)
{
    int64_t rows = dim[1], cols = dim[2];
    int64_t slabs = (cols + CPU_COLUMN_SLAB - 1) / CPU_COLUMN_SLAB;

    /* few long rows: threads share a row; otherwise each takes rows of its own */
    if (cols == 1 && rows > CPU_ELEM_BLOCK) {
        for (int64_t o = 0; o < dim[0]; o++) {
            float sum = long_sum(be, vm_at(x, o * rows, type), type, NULL, type,
                                 PAIR_SQUARE, rows);

            put_scaled(y, o, y_type, &sum, 1, scale);
        }
        return;
    }
#pragma omp parallel for num_threads(be->threads) if (dim[0] * rows * cols >           \
                                                      CPU_ALONE_ELEMS)
    for (int64_t t = 0; t < dim[0] * slabs; t++) {
        /* x[o][r][c] at (o rows + r) cols + c; a task is a slab of columns of one o */
        int64_t o = t / slabs, c = t % slabs * CPU_COLUMN_SLAB;
        int64_t n = cols - c < CPU_COLUMN_SLAB ? cols - c : CPU_COLUMN_SLAB;
        const void *from = vm_at(x, o * rows * cols, type);
        float sum[CPU_COLUMN_SLAB] = { 0 };

        if (cols == 1)
            sum[0] = sum_any(from, rows, type);
        else
            cpu_sum_slab(sum, from, rows, cols, c, n, type);
        put_scaled(y, o * cols + c, y_type, sum, n, scale);
    }
}

/* One row of dx, piece by piece: all from one element of dy, or from its row. */
static void spread(void *dx, accel_dtype_t type, bool add, const void *dy,
                   accel_dtype_t dy_type, int64_t n, bool constant, float scale)
{
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float room[CPU_PIECE], v[CPU_PIECE];
        int64_t len = cpu_piece(n, i);
        const float *d =
            /* a row of a single gradient: the same element every time */
            cpu_get(dy, constant ? 0 : i, dy_type, constant ? 1 : len, room);

        for (int64_t k = 0; k < len; k++)
            v[k] = d[constant ? 0 : k] * scale;
        cpu_put(dx, i, type, add, v, len);
    }
}

/* Spreads each gradient over the elements that went into its sum. */
void cpu_reduce_grad(const struct backend *be, void *dx, accel_dtype_t type, bool add,
                     const void *dy, accel_dtype_t dy_type, const int64_t dim[3],
                     float scale)
{
    bool constant = dim[2] == 1;
    /* Either a row of dx has a single gradient, or dim[1] rows of dx share a row of
     * them. */
    int64_t each = constant ? 1 : dim[1], cols = constant ? dim[1] : dim[2];

#pragma omp parallel for num_threads(be->threads) if (dim[0] * each * cols >           \
                                                      CPU_ALONE_ELEMS)
    for (int64_t r = 0; r < dim[0] * each; r++)
        spread(vm_to(dx, r * cols, type), type, add,
               vm_at(dy, r / each * dim[2], dy_type), dy_type, cols, constant, scale);
}

/* ---- losses of pairs ------------------------------------------------------------- */

void cpu_pair_loss(const struct backend *be, float *mean, enum pair_loss loss,
                   const void *x, accel_dtype_t x_type, const void *y,
                   accel_dtype_t y_type, int64_t n)
{
    mean[0] = n ? long_sum(be, x, x_type, y, y_type, loss, n) / (float)n : 0.0f;
}

VM_INLINE void pair_loop(float *v, const float *x, const float *y, int64_t n,
                         enum pair_loss loss, bool by_y, float scale)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        v[i] = maths_pair_grad(x[i], y[i], loss, by_y) * scale;
}

ACCEL_MULTIVERSION
static void pair_piece(float *v, const float *x, const float *y, int64_t n,
                       enum pair_loss loss, bool by_y, float scale)
{
#define RUN(l) pair_loop(v, x, y, n, l, by_y, scale)
    FOR_PAIR(loss, RUN);
#undef RUN
}

void cpu_pair_loss_grad(const struct backend *be, void *d, bool add, bool by_y,
                        enum pair_loss loss, const void *x, accel_dtype_t x_type,
                        const void *y, accel_dtype_t y_type, const float *dmean,
                        int64_t n)
{
    const accel_dtype_t type = by_y ? y_type : x_type;
    float scale = n ? dmean[0] / (float)n : 0.0f;

#pragma omp parallel for num_threads(be->threads) if (n > CPU_ALONE_ELEMS)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], c[CPU_PIECE];
        float *v = cpu_room(d, i, type, add, c);
        int64_t len = cpu_piece(n, i);

        pair_piece(v, cpu_get(x, i, x_type, len, a), cpu_get(y, i, y_type, len, b), len,
                   loss, by_y, scale);
        cpu_put(d, i, type, add, v, len);
    }
}

/* ---- cross-entropy with soft targets --------------------------------------------- */

VM_INLINE void soft_row(float *lse, float *loss, const void *x, const void *y,
                        int64_t n, const accel_dtype_t t)
{
    float max = row_max(x, n, t), sum;

    VM_SUM(sum, n, part(vm_load(x, i, t) - max));
    *lse = max + maths_log(sum);
    VM_SUM(sum, n, vm_load(y, i, t) * (*lse - vm_load(x, i, t)));
    *loss = sum;
}

ACCEL_MULTIVERSION
static void soft_any(float *lse, float *loss, const void *x, const void *y, int64_t n,
                     accel_dtype_t type)
{
    VM_BY_TYPE(type, soft_row, lse, loss, x, y, n);
}

void cpu_soft_xent(const struct backend *be, float *lse, float *loss, const void *x,
                   const void *y, accel_dtype_t type, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * cols > CPU_ALONE_ELEMS / 4)
    for (int64_t r = 0; r < rows; r++)
        soft_any(&lse[r], &loss[r], vm_at(x, r * cols, type), vm_at(y, r * cols, type),
                 cols, type);
}

VM_INLINE void soft_grad_row(void *d, const void *x, const void *y, int64_t n,
                             float lse, float scale, const int by_y, const int add,
                             const accel_dtype_t t)
{
    float mass = 0.0f;

    if (!by_y)
        VM_SUM(mass, n, vm_load(y, i, t));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float far = vm_load(x, i, t) - lse;
        float v = (by_y ? -far : part(far) * mass - vm_load(y, i, t)) * scale;

        vm_store(d, i, add ? vm_load(d, i, t) + v : v, t);
    }
}

ACCEL_MULTIVERSION
static void soft_grad_any(void *d, const void *x, const void *y, int64_t n, float lse,
                          float scale, bool by_y, bool add, accel_dtype_t type)
{
    VM_BY_TYPE(type, soft_grad_row, d, x, y, n, lse, scale, by_y, add);
}

void cpu_soft_xent_grad(const struct backend *be, void *d, bool add, bool by_y,
                        const void *x, const void *y, accel_dtype_t type,
                        const float *lse, const float *dmean, int64_t rows,
                        int64_t cols)
{
    const float scale = rows ? dmean[0] / (float)rows : 0.0f;

#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * cols > CPU_ALONE_ELEMS / 4)
    for (int64_t r = 0; r < rows; r++)
        soft_grad_any(vm_to(d, r * cols, type), vm_at(x, r * cols, type),
                      vm_at(y, r * cols, type), cols, lse[r], scale, by_y, add, type);
}
