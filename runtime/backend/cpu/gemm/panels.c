/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands of any dtype become packed slivers and panels. A kernel of vectors widens
 * narrow numbers as it packs them; for others, and where blocks have scales of their
 * own, they are widened piece by piece before, so that a product of theirs costs little
 * more. Which kernel multiplies them is chosen here, too.
 */
#include "backend/cpu/gemm/panels.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels_x86.h"
#include "numbers/minifloat.h"
#include "numbers/fp8_blocks.h"

/* k of a piece that is widened at a time: with all lanes it takes 8 KiB of the
 * first-level cache. */
enum { PIECE = 64 };

/* A loop per type, compiled once per instruction set. */
#define WIDEN(name, type)                                                              \
    ACCEL_MULTIVERSION                                                                 \
    static void widen_##name(float *dst, const type *src, int64_t n)                   \
    {                                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dst[i] =                   \
            name##_to_f32(src[i]);                                                     \
    }
WIDEN(e4m3, f8_t)
WIDEN(e5m2, f8_t)

static void widen_row(float *dst, const void *src, accel_dtype_t type, int64_t n)
{
    if (type == ACCEL_F8E4M3)
        widen_e4m3(dst, src, n);
    else if (type == ACCEL_F8E5M2)
        widen_e5m2(dst, src, n);
    else
        cpu_load_row(dst, src, type, n);
}

static float block_inverse(const struct block_scales *s, int64_t i)
{
    return s->e8m0 ? e8m0_to_f32(((const uint8_t *)s->inverse)[i])
                   : ((const float *)s->inverse)[i];
}

/* n widened numbers of stored row `row`, from column `col` on, times what their blocks
 * have been divided by. */
static void unscale_row(float *x, const struct block_scales *s, int64_t row,
                        int64_t col, int64_t n)
{
    int64_t block = row / s->height * blocks_across(s) + col / s->width;
    int64_t left = s->width - col % s->width;

    for (int64_t i = 0; i < n; block++, left = s->width) {
        const int64_t end = n - i < left ? n : i + left;
        const float by = block_inverse(s, block);

        for (; i < end; i++)
            x[i] *= by;
    }
}

/* Where element (at, k) of op(a), or (k, at) of op(b), is stored. */
static const char *element(const struct panel_operand *from, int64_t at, int64_t k)
{
    int64_t i = from->k_rows ? at * from->ld + k : k * from->ld + at;

    return (const char *)from->data + i * (int64_t)accel_dtype_bytes(from->type);
}

static void pack_stored(const struct panel_kernel *kernel, float *to, bool k_rows,
                        const struct panel_source *from, int64_t n, int64_t k,
                        int64_t width)
{
    if (k_rows)
        kernel->turn(to, from, n, k, width);
    else
        kernel->copy(to, from, n, k, width);
}

void panel_pack(const struct panel_kernel *kernel, float *to,
                const struct panel_operand *from, int64_t at, int64_t n, int64_t k0,
                int64_t k, int64_t width)
{
    float room[PANEL_LANES * PIECE];
    int64_t row_bytes = from->ld * (int64_t)accel_dtype_bytes(from->type);

    if (from->type == ACCEL_F32 || (kernel->direct && !from->blocks.inverse)) {
        struct panel_source stored = { element(from, at, k0), from->type, from->ld };

        pack_stored(kernel, to, from->k_rows, &stored, n, k, width);
        return;
    }
    for (int64_t p = 0; p < k; p += PIECE, to += PIECE * width) {
        int64_t part = k - p < PIECE ? k - p : PIECE;
        /* as stored: rows of k, or of this panel's columns */
        int64_t rows = from->k_rows ? n : part, cols = from->k_rows ? part : n;
        const char *row = element(from, at, k0 + p);
        const struct panel_source wide = { room, ACCEL_F32, cols };

        for (int64_t r = 0; r < rows; r++, row += row_bytes) {
            widen_row(room + r * cols, row, from->type, cols);
            if (from->blocks.inverse)
                unscale_row(room + r * cols, &from->blocks,
                            from->k_rows ? at + r : k0 + p + r,
                            from->k_rows ? k0 + p : at, cols);
        }
        pack_stored(kernel, to, from->k_rows, &wide, n, part, width);
    }
}

void panel_rows(const struct panel_kernel *kernel, float *to,
                const struct panel_operand *from, int64_t at, int64_t n, int64_t k0,
                int64_t k, int64_t width)
{
    if (kernel->pairs) {
        struct panel_source stored = { element(from, at, k0), from->type, from->ld };

        kernel->copy(to, &stored, n, k, width);
        return;
    }
    for (int64_t i = 0; i < k; i++, to += width)
        widen_row(to, element(from, at, k0 + i), from->type, n);
}

struct panel_ahead panel_ahead(const struct panel_operand *from, int64_t at, int64_t n,
                               int64_t k0, int64_t k)
{
    int64_t size = (int64_t)accel_dtype_bytes(from->type);
    struct panel_ahead ahead = { .at = element(from, at, k0),
                                 .run = (from->k_rows ? k : n) * size,
                                 .stride = from->ld * size,
                                 .runs = from->k_rows ? n : k };

    ahead.end = ahead.at + ahead.run;
    return ahead;
}

const struct panel_kernel *panel_kernel_of(enum tile_isa isa)
{
#if PANELS_X86
    if (isa == TILE_AVX512)
        return &panels_avx512;
    if (isa == TILE_AVX2)
        return &panels_avx2;
#endif
    (void)isa;
    return &panels_plain;
}

/* Pairs of bfloat16 where both operands are, and the processor multiplies them. */
const struct panel_kernel *panel_kernel_for(const struct cpu_state *state,
                                            const struct gemm *p)
{
    bool pairs =
        state->bf16_products && p->a_type == ACCEL_BF16 && p->b_type == ACCEL_BF16;

    return pairs ? panel_kernel_of_pairs() : state->kernel;
}
