/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU kernels without structure: fill, add and column sums.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* dst = a + b; dst may be either. */
VM_INLINE void add_block(void *dst, const void *a, const void *b, int64_t n,
                         const accel_dtype_t t)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, vm_load(a, i, t) + vm_load(b, i, t), t);
}

ACCEL_MULTIVERSION
void cpu_add_block(void *dst, const void *a, const void *b, accel_dtype_t type,
                   int64_t n)
{
    VM_BY_TYPE(type, add_block, dst, a, b, n);
}

/* dst[n] = a[n] + b[n], added in float32, rounded once. */
void cpu_add(const struct backend *be, void *dst, const void *a, const void *b,
             accel_dtype_t type, int64_t n)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ALONE_ELEMS)
    for (int64_t i = 0; i < n; i += CPU_ELEM_BLOCK)
        cpu_add_block(vm_to(dst, i, type), vm_at(a, i, type), vm_at(b, i, type), type,
                      cpu_block(n, i));
}

void cpu_fill(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
              float value)
{
    (void)be;
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, value, type);
}

VM_INLINE void slab(float *sum, const void *x, int64_t rows, int64_t ld, int64_t first,
                    int64_t n, const accel_dtype_t t)
{
    for (int64_t r0 = 0; r0 < rows; r0 += 64) {
        float part[CPU_COLUMN_SLAB] = { 0 };

        for (int64_t r = r0; r < rows && r < r0 + 64; r++) {
#pragma omp simd
            for (int64_t c = 0; c < n; c++)
                part[c] += vm_load(x, r * ld + first + c, t);
        }
        for (int64_t c = 0; c < n; c++)
            sum[c] += part[c];
    }
}

ACCEL_MULTIVERSION
void cpu_sum_slab(float *sum, const void *x, int64_t rows, int64_t ld, int64_t first,
                  int64_t n, accel_dtype_t type)
{
    VM_BY_TYPE(type, slab, sum, x, rows, ld, first, n);
}

/* Threads take slabs of columns and add all rows in order: no partial sums to
 * combine. */
void cpu_column_sum(const struct backend *be, float *dst, const void *src,
                    accel_dtype_t type, int64_t rows, int64_t cols, int64_t ld)
{
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic) if (rows * cols > CPU_ALONE_ELEMS)
    for (int64_t at = 0; at < cols; at += CPU_COLUMN_SLAB) {
        int64_t n = cols - at < CPU_COLUMN_SLAB ? cols - at : CPU_COLUMN_SLAB;
        float sum[CPU_COLUMN_SLAB] = { 0 };

        cpu_sum_slab(sum, src, rows, ld, at, n, type);
        for (int64_t c = 0; c < n; c++)
            dst[at + c] += sum[c];
    }
}
