/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as 8-bit floats, for products. In: any storage type and a scale. Out: e4m3 or
 * e5m2, and the largest magnitude of the source, found in the same pass or alone.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/narrow.h"
#include "precision/fp8.h"

/* Of a magnitude as the bits of float32: compared as integers, in any order the largest
 * is the same one. NaN counts as 0. */
VM_INLINE uint32_t magnitude(float x)
{
    const uint32_t u = minifloat_bits(x) & 0x7fffffffu;

    return minifloat_pick(u > 0x7f800000u, 0, u);
}

/* Elements that are float32 and then codes of 32 bits: a loop with numbers of one size
 * becomes whole vectors, one that also stores bytes does not. */
enum { GROUP = 64 };

/* Also the largest magnitude. n <= GROUP. */
VM_INLINE uint32_t quantize_group(f8_t *dst, const void *src, int64_t first, int64_t n,
                                  float scale, const bool wide, const accel_dtype_t t)
{
    uint32_t most = 0, code[GROUP];
    float x[GROUP];

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = vm_load(src, first + i, t);
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = magnitude(x[i]);

        code[i] = narrow_code(x[i] * scale, wide);
        most = u > most ? u : most;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[first + i] = (f8_t)code[i];
    return most;
}

VM_INLINE void quantize_block(uint32_t *most_out, f8_t *dst, const void *src, int64_t n,
                              float scale, const bool wide, const accel_dtype_t t)
{
    uint32_t most = 0;
    int64_t i = 0;

    for (; i + GROUP <= n; i += GROUP) {
        const uint32_t u = quantize_group(dst, src, i, GROUP, scale, wide, t);

        most = u > most ? u : most;
    }
    if (i < n) {
        const uint32_t u = quantize_group(dst, src, i, n - i, scale, wide, t);

        most = u > most ? u : most;
    }
    *most_out = most;
}

VM_INLINE void amax_block(uint32_t *most_out, const void *src, int64_t n,
                          const accel_dtype_t t)
{
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = magnitude(vm_load(src, i, t));

        most = u > most ? u : most;
    }
    *most_out = most;
}

ACCEL_MULTIVERSION
static uint32_t amax_any(const void *src, accel_dtype_t type, int64_t n)
{
    uint32_t most;

    VM_BY_TYPE(type, amax_block, &most, src, n);
    return most;
}

/* A loop per format and type, compiled once per instruction set. */
#define QUANTIZE(name, wide)                                                           \
    ACCEL_MULTIVERSION                                                                 \
    static uint32_t name(f8_t *dst, const void *src, accel_dtype_t type, int64_t n,    \
                         float scale)                                                  \
    {                                                                                  \
        uint32_t most;                                                                 \
                                                                                       \
        VM_BY_TYPE(type, quantize_block, &most, dst, src, n, scale, wide);             \
        return most;                                                                   \
    }
QUANTIZE(quantize_e4m3, false)
QUANTIZE(quantize_e5m2, true)

void cpu_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                  const void *src, accel_dtype_t type, int64_t n, const float *scale,
                  float *amax)
{
    uint32_t most = amax ? minifloat_bits(*amax) : 0;

#pragma omp parallel for num_threads(be->threads)                                      \
    reduction(max                                                                      \
              : most) if (n > CPU_ALONE_ELEMS)
    for (int64_t i = 0; i < n; i += CPU_ELEM_BLOCK) {
        const void *from = vm_at(src, i, type);
        f8_t *into = dst ? (f8_t *)dst + i : NULL;
        const int64_t len = cpu_block(n, i);
        const uint32_t found = !into ? amax_any(from, type, len)
                               : to == ACCEL_F8E4M3
                                   ? quantize_e4m3(into, from, type, len, *scale)
                                   : quantize_e5m2(into, from, type, len, *scale);

        most = found > most ? found : most;
    }
    if (amax)
        *amax = minifloat_float(most);
}

void cpu_quantize_turned(const struct backend *be, void *dst, void *turned,
                         accel_dtype_t to, const void *src, accel_dtype_t type,
                         int64_t rows, int64_t cols, const float *scale, float *amax)
{
    const int64_t ld = narrow_ld(rows);

    cpu_quantize(be, dst, to, src, type, rows * cols, scale, amax);
    memset(turned, 0, (size_t)(cols * ld));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const void *from = vm_at(src, r * cols + c, type);
            f8_t *into = (f8_t *)turned + c * ld + r;

            if (to == ACCEL_F8E4M3)
                (void)quantize_e4m3(into, from, type, 1, *scale);
            else
                (void)quantize_e5m2(into, from, type, 1, *scale);
        }
}

void cpu_scale_of(const struct backend *be, float *scale, accel_dtype_t to,
                  const float *amax)
{
    (void)be;
    scale[0] = fp8_scale_for(*amax, to, 0, 1);
    scale[1] = 1 / scale[0];
}
