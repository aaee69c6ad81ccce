/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices as 8-bit floats with a scale per block. In: any storage type and the shape
 * of the blocks. Out: e4m3 or e5m2, and the inverse scales. A band of rows that share
 * scales is read in chunks of columns: once for the largest magnitude of each column,
 * of which blocks of any width are made, and once for the codes.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "numbers/fp8_blocks.h"

/* Columns of a chunk: a multiple of every width. */
enum { CHUNK = 256 };

/* A chunk of a band: `rows` rows of n numbers, `ld` apart. */
struct chunk {
    const void *src;
    f8_t *dst;
    int64_t rows, n, ld;
};

/* The bits of the largest magnitude of each column; NaN counts as 0. */
VM_INLINE void chunk_amax(uint32_t most[CHUNK], const struct chunk *c,
                          const accel_dtype_t t)
{
    memset(most, 0, CHUNK * sizeof(*most));
    for (int64_t r = 0; r < c->rows; r++) {
#pragma omp simd
        for (int64_t i = 0; i < c->n; i++) {
            const uint32_t bits = minifloat_bits(vm_load(c->src, r * c->ld + i, t));
            const uint32_t size = bits & 0x7fffffffu;
            const uint32_t u = minifloat_pick(size > 0x7f800000u, 0, size);

            most[i] = u > most[i] ? u : most[i];
        }
    }
}

VM_INLINE void chunk_codes(const struct chunk *c, const float scale[CHUNK],
                           const bool wide, const accel_dtype_t t)
{
    uint32_t code[CHUNK];
    float x[CHUNK];

    for (int64_t r = 0; r < c->rows; r++) {
        f8_t *dst = c->dst + r * c->ld;

        /* numbers of one size in a loop, as in quantize.c */
#pragma omp simd
        for (int64_t i = 0; i < c->n; i++)
            x[i] = vm_load(c->src, r * c->ld + i, t);
#pragma omp simd
        for (int64_t i = 0; i < c->n; i++)
            code[i] = wide ? f32_to_full_e5m2(x[i] * scale[i])
                           : f32_to_full_e4m3(x[i] * scale[i]);
#pragma omp simd
        for (int64_t i = 0; i < c->n; i++)
            dst[i] = (f8_t)code[i];
    }
}

/* A loop per type, compiled once per instruction set. */
ACCEL_MULTIVERSION
static void amax_of(uint32_t most[CHUNK], const struct chunk *c, accel_dtype_t type)
{
    VM_BY_TYPE(type, chunk_amax, most, c);
}

ACCEL_MULTIVERSION
static void codes_e4m3(const struct chunk *c, const float scale[CHUNK],
                       accel_dtype_t type)
{
    VM_BY_TYPE(type, chunk_codes, c, scale, false);
}

ACCEL_MULTIVERSION
static void codes_e5m2(const struct chunk *c, const float scale[CHUNK],
                       accel_dtype_t type)
{
    VM_BY_TYPE(type, chunk_codes, c, scale, true);
}

/* The scale of block `i`, whose inverse is stored. */
static float make_scale(const struct block_scales *s, int64_t i, float amax,
                        accel_dtype_t to)
{
    float scale;

    if (s->e8m0) {
        const uint8_t e = e8m0_of(amax, to);

        ((uint8_t *)s->inverse)[i] = e;
        return e8m0_to_f32((uint8_t)(254 - e));
    }
    scale = fp8_block_scale(amax, to);
    ((float *)s->inverse)[i] = 1 / scale;
    return scale;
}

/* Scales of n columns, from their largest magnitudes: blocks `first` and on. */
static void make_scales(float scale[CHUNK], const uint32_t most[CHUNK], int64_t n,
                        const struct block_scales *s, int64_t first, accel_dtype_t to)
{
    for (int64_t i = 0; i < n; first++) {
        const int64_t end = n - i < s->width ? n : i + s->width;
        uint32_t amax = 0;
        float by;

        for (int64_t c = i; c < end; c++)
            amax = most[c] > amax ? most[c] : amax;
        by = make_scale(s, first, minifloat_float(amax), to);
        for (; i < end; i++)
            scale[i] = by;
    }
}

static void quantize_copy(const struct backend *be, void *dst, accel_dtype_t to,
                          const void *src, accel_dtype_t type, int64_t rows,
                          const struct block_scales *s)
{
    const int64_t cols = s->cols, across = blocks_across(s);

#pragma omp parallel for collapse(2)                                                   \
    num_threads(be->threads) if (rows * cols > CPU_ALONE_ELEMS)
    for (int64_t row = 0; row < rows; row += s->height)
        for (int64_t col = 0; col < cols; col += CHUNK) {
            const int64_t at = row * cols + col;
            const struct chunk c = {
                .src = vm_at(src, at, type),
                .dst = (f8_t *)dst + at,
                .rows = rows - row < s->height ? rows - row : s->height,
                .n = cols - col < CHUNK ? cols - col : CHUNK,
                .ld = cols,
            };
            uint32_t most[CHUNK];
            float scale[CHUNK];

            amax_of(most, &c, type);
            make_scales(scale, most, c.n, s, row / s->height * across + col / s->width,
                        to);
            if (to == ACCEL_F8E4M3)
                codes_e4m3(&c, scale, type);
            else
                codes_e5m2(&c, scale, type);
        }
}

void cpu_quantize_blocks(const struct backend *be, void *const dst[2], accel_dtype_t to,
                         const void *src, accel_dtype_t type, int64_t rows,
                         const struct block_scales s[2])
{
    for (int i = 0; i < 2; i++)
        if (dst[i])
            quantize_copy(be, dst[i], to, src, type, rows, &s[i]);
}
