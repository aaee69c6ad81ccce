/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as 8-bit floats, for products. In: any storage type and a scale. Out: e4m3 or
 * e5m2, and the largest magnitude of the source, found in the same pass or alone; for
 * kernels of other files, while what they have written is in the cache.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "numbers/fp8_blocks.h"

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

        code[i] =
            wide ? f32_to_full_e5m2(x[i] * scale) : f32_to_full_e4m3(x[i] * scale);
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

uint32_t cpu_narrow_piece(const struct narrow_copy *to, const void *y,
                          accel_dtype_t type, int64_t at, int64_t n, uint32_t most)
{
    const void *from = vm_at(y, at, type);
    uint32_t found;

    if (!to)
        return most;
    if (!to->copy)
        found = amax_any(from, type, n);
    else if (to->type == ACCEL_F8E4M3)
        found = quantize_e4m3((f8_t *)to->copy + at, from, type, n, *to->scale);
    else
        found = quantize_e5m2((f8_t *)to->copy + at, from, type, n, *to->scale);
    return found > most ? found : most;
}

/* No product of this backend takes a transposed copy: it is a pass of its own. */
static void turn_copy(const struct narrow_copy *to, const void *y, accel_dtype_t type)
{
    const int64_t ld = narrow_ld(to->rows);

    memset(to->transposed, 0, (size_t)(to->cols * ld));
    for (int64_t r = 0; r < to->rows; r++)
        for (int64_t c = 0; c < to->cols; c++) {
            const int64_t at = r * to->cols + c;
            const void *from = vm_at(y, at, type);
            f8_t *into = (f8_t *)to->transposed + c * ld + r;

            if (type == to->type)
                *into = ((const f8_t *)y)[at];
            else if (to->type == ACCEL_F8E4M3)
                (void)quantize_e4m3(into, from, type, 1, *to->scale);
            else
                (void)quantize_e5m2(into, from, type, 1, *to->scale);
        }
}

void cpu_narrow_end(const struct narrow_copy *to, const void *y, accel_dtype_t type,
                    uint32_t most)
{
    if (to && to->amax && most > minifloat_bits(*to->amax))
        *to->amax = minifloat_float(most);
    if (to && to->transposed)
        turn_copy(to, y, type);
}

static void quantize_all(const struct backend *be, const struct narrow_copy *to,
                         const void *src, accel_dtype_t type)
{
    const int64_t n = to->rows * to->cols;
    uint32_t most = 0;

#pragma omp parallel for num_threads(be->threads)                                      \
    reduction(max                                                                      \
              : most) if (n > CPU_ALONE_ELEMS)
    for (int64_t i = 0; i < n; i += CPU_ELEM_BLOCK) {
        const uint32_t found =
            cpu_narrow_piece(to, src, type, i, cpu_block(n, i), most);

        most = found > most ? found : most;
    }
    cpu_narrow_end(to, src, type, most);
}

void cpu_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                  const void *src, accel_dtype_t type, int64_t n, const float *scale,
                  float *amax)
{
    const struct narrow_copy all = {
        .type = to, .rows = 1, .cols = n, .copy = dst, .scale = scale, .amax = amax
    };

    quantize_all(be, &all, src, type);
}

void cpu_quantize_transposed(const struct backend *be, void *dst, void *transposed,
                             accel_dtype_t to, const void *src, accel_dtype_t type,
                             int64_t rows, int64_t cols, const float *scale,
                             float *amax)
{
    const struct narrow_copy all = { to, rows, cols, dst, transposed, scale, amax };

    if (type == to)
        turn_copy(&all, src, type);
    else
        quantize_all(be, &all, src, type);
}

void cpu_scale_of(const struct backend *be, float *scale, accel_dtype_t to, bool power,
                  const float *amax)
{
    (void)be;
    scale[0] = power ? fp8_block_scale(*amax, to) : fp8_scale_for(*amax, to, 0, 1);
    scale[1] = 1 / scale[0];
}
