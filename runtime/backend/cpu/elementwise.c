/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU kernels without structure: fill, add, column sums, and the row loads, stores and
 * epilogues that the other families use.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

VM_INLINE void load_row(float *dst, const void *src, int64_t n, const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = vm_load(src, i, bf);
}

ACCEL_MULTIVERSION
void cpu_load_row(float *dst, const void *src, accel_dtype_t type, int64_t n)
{
    if (type == ACCEL_BF16)
        load_row(dst, src, n, 1);
    else
        memcpy(dst, src, (size_t)n * sizeof(*dst));
}

VM_INLINE void store_row(void *dst, const float *src, int64_t n, const int add,
                         const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, add ? vm_load(dst, i, bf) + src[i] : src[i], bf);
}

/* Four copies of one loop, because `add` and the type must be constants inside. */
ACCEL_MULTIVERSION
void cpu_store_row(void *dst, const float *src, accel_dtype_t type, int64_t n, bool add)
{
    if (type == ACCEL_BF16 && add)
        store_row(dst, src, n, 1, 1);
    else if (type == ACCEL_BF16)
        store_row(dst, src, n, 0, 1);
    else if (add)
        store_row(dst, src, n, 1, 0);
    else
        memcpy(dst, src, (size_t)n * sizeof(*src));
}

/* dst = a + b; dst may be either. */
VM_INLINE void add_block(void *dst, const void *a, const void *b, int64_t n,
                         const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, vm_load(a, i, bf) + vm_load(b, i, bf), bf);
}

ACCEL_MULTIVERSION
static void add_any(void *dst, const void *a, const void *b, int64_t n, bool bf)
{
    if (bf)
        add_block(dst, a, b, n, 1);
    else
        add_block(dst, a, b, n, 0);
}

void cpu_add(const struct backend *be, void *dst, const void *a, const void *b,
             accel_dtype_t type, int64_t n)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ALONE_ELEMS)
    for (int64_t i = 0; i < n; i += CPU_ELEM_BLOCK)
        add_any(vm_to(dst, i, type), vm_at(a, i, type), vm_at(b, i, type),
                cpu_block(n, i), type == ACCEL_BF16);
}

void cpu_fill(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
              float value)
{
    (void)be;
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, value, type == ACCEL_BF16);
}

/* Adds 64 rows at a time and then those sums, which keeps the rounding error of a long
 * batch that of a short one. */
VM_INLINE void column_slab(float *dst, const void *src, int64_t rows, int64_t cols,
                           int64_t first, int64_t n, const int bf)
{
    float sum[CPU_COLUMN_SLAB] = { 0 };

    for (int64_t r0 = 0; r0 < rows; r0 += 64) {
        float part[CPU_COLUMN_SLAB] = { 0 };

        for (int64_t r = r0; r < rows && r < r0 + 64; r++) {
#pragma omp simd
            for (int64_t c = 0; c < n; c++)
                part[c] += vm_load(src, r * cols + first + c, bf);
        }
        for (int64_t c = 0; c < n; c++)
            sum[c] += part[c];
    }
    for (int64_t c = 0; c < n; c++)
        dst[first + c] += sum[c];
}

ACCEL_MULTIVERSION
static void column_any(float *dst, const void *src, int64_t rows, int64_t cols,
                       int64_t first, int64_t n, bool bf)
{
    if (bf)
        column_slab(dst, src, rows, cols, first, n, 1);
    else
        column_slab(dst, src, rows, cols, first, n, 0);
}

/* Threads take slabs of columns and add all rows in order: no partial sums to
 * combine. */
void cpu_column_sum(const struct backend *be, float *dst, const void *src,
                    accel_dtype_t type, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic) if (rows * cols > CPU_ALONE_ELEMS)
    for (int64_t c = 0; c < cols; c += CPU_COLUMN_SLAB)
        column_any(dst, src, rows, cols, c,
                   cols - c < CPU_COLUMN_SLAB ? cols - c : CPU_COLUMN_SLAB,
                   type == ACCEL_BF16);
}

/* v = a + b */
ACCEL_MULTIVERSION
static void add_rows(float *restrict v, const float *a, const float *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        v[i] = a[i] + b[i];
}

/* Without bias and activation this is only a store; a float32 result was computed in
 * place then. */
void cpu_epilogue_row(void *out, void *pre, accel_dtype_t type, const float *c,
                      const float *bias, int64_t n, accel_activation_t act, bool add)
{
    float room[CPU_PIECE];

    if (!bias && act == ACCEL_ACT_NONE) {
        if (add || type == ACCEL_BF16)
            cpu_store_row(out, c, type, n, add);
        return;
    }
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        int64_t len = cpu_piece(n, i);
        float *v = type == ACCEL_F32 ? (float *)out + i : room;

        if (bias)
            add_rows(v, c + i, bias + i, len);
        else if (v != c + i)
            memcpy(v, c + i, (size_t)len * sizeof(*v));
        if (pre)
            cpu_store_row(vm_to(pre, i, type), v, type, len, false);
        cpu_act_piece(v, v, len, act);
        cpu_put(out, i, type, false, v, len);
    }
}
