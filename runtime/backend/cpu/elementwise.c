/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU kernels without structure: fill, add, column sums, GELU and its gradient, and the
 * row loads, stores and epilogues the other families use.
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

static int64_t block_length(int64_t n, int64_t start)
{
    return n - start < CPU_ELEM_BLOCK ? n - start : CPU_ELEM_BLOCK;
}

void cpu_add(const struct backend *be, void *dst, const void *a, const void *b,
             accel_dtype_t type, int64_t n)
{
#pragma omp parallel for num_threads(be->threads)
    for (int64_t i = 0; i < n; i += CPU_ELEM_BLOCK)
        add_any(vm_to(dst, i, type), vm_at(a, i, type), vm_at(b, i, type),
                block_length(n, i), type == ACCEL_BF16);
}

void cpu_fill(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
              float value)
{
    (void)be;
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, value, type == ACCEL_BF16);
}

/* Sums 64 rows at a time and then the sums, which keeps the rounding error of a long
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

void cpu_column_sum(const struct backend *be, float *dst, const void *src,
                    accel_dtype_t type, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(be->threads) schedule(dynamic)
    for (int64_t c = 0; c < cols; c += CPU_COLUMN_SLAB)
        column_any(dst, src, rows, cols, c,
                   cols - c < CPU_COLUMN_SLAB ? cols - c : CPU_COLUMN_SLAB,
                   type == ACCEL_BF16);
}

VM_INLINE void gelu_grad_block(void *dst, const void *dy, const void *pre, int64_t n,
                               const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, vm_load(dy, i, bf) * vm_gelu_grad(vm_load(pre, i, bf)), bf);
}

ACCEL_MULTIVERSION
static void gelu_grad_any(void *dst, const void *dy, const void *pre, int64_t n,
                          bool bf)
{
    if (bf)
        gelu_grad_block(dst, dy, pre, n, 1);
    else
        gelu_grad_block(dst, dy, pre, n, 0);
}

void cpu_gelu_grad(const struct backend *be, void *dst, const void *dy, const void *pre,
                   accel_dtype_t type, int64_t n)
{
#pragma omp parallel for num_threads(be->threads)
    for (int64_t i = 0; i < n; i += CPU_ELEM_BLOCK)
        gelu_grad_any(vm_to(dst, i, type), vm_at(dy, i, type), vm_at(pre, i, type),
                      block_length(n, i), type == ACCEL_BF16);
}

VM_INLINE void epilogue(void *out, void *pre, const float *c, const float *bias,
                        int64_t n, const int gelu, const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = c[i] + bias[i];

        if (gelu) {
            vm_store(pre, i, v, bf);
            v = vm_gelu(v);
        }
        vm_store(out, i, v, bf);
    }
}

ACCEL_MULTIVERSION
static void epilogue_any(void *out, void *pre, const float *c, const float *bias,
                         int64_t n, bool gelu, bool bf)
{
    if (gelu && bf)
        epilogue(out, pre, c, bias, n, 1, 1);
    else if (gelu)
        epilogue(out, pre, c, bias, n, 1, 0);
    else if (bf)
        epilogue(out, pre, c, bias, n, 0, 1);
    else
        epilogue(out, pre, c, bias, n, 0, 0);
}

void cpu_epilogue_row(void *out, void *pre, accel_dtype_t type, const float *c,
                      const float *bias, int64_t n, accel_activation_t act, bool add)
{
    static const float zeros[64];
    char unwanted[64 * sizeof(float)];
    int64_t step = bias && (pre || act == ACCEL_ACT_NONE) ? n : 64;

    if (!bias && act == ACCEL_ACT_NONE) {
        if (add || type == ACCEL_BF16)
            cpu_store_row(out, c, type, n, add);
        return;
    }
    for (int64_t i = 0; i < n; i += step)
        epilogue_any(vm_to(out, i, type), pre ? vm_to(pre, i, type) : unwanted, c + i,
                     bias ? bias + i : zeros, n - i < step ? n - i : step,
                     act == ACCEL_ACT_GELU, type == ACCEL_BF16);
}
