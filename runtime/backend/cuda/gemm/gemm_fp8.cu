/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of 8-bit floats for which cuBLASLt has no algorithm: sizes, scales or a
 * device that it does not take. Codes and their scales in, a product in bfloat16 out.
 */
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/vector.h"
#include "numbers/fp8_blocks.h"

/* A stored operand [rows, cols], and what its codes are multiplied by. */
struct coded {
    const f8_t *code;
    int64_t rows, cols, ld;
    bool wide; /* e5m2 */
    const float *inverse;
    struct block_scales s;
};

/* What the code of row r and column c is multiplied by. */
static __device__ inline float inverse_at(const struct coded &o, int64_t r, int64_t c)
{
    const struct block_scales &s = o.s;
    const int64_t row = s.transposed ? c : r, col = s.transposed ? r : c;
    const int64_t line = s.down ? col : row, k = s.down ? row : col;
    const int64_t tile = line / SCALE_TILE_LINES * s.tiles + k / (4 * SCALE_TILE_K);
    const int64_t at = tile * SCALE_TILE_BYTES + line % 32 * 16 +
                       line % SCALE_TILE_LINES / 32 * 4 + k / SCALE_TILE_K % 4;

    if (!s.inverse)
        return o.inverse ? *o.inverse : 1.0f;
    if (s.tiles)
        return e8m0_to_f32(((const uint8_t *)s.inverse)[at]);
    return ((const float *)
                s.inverse)[row / s.height * s.row_step + col / s.width * s.col_step];
}

/* to [rows, cols] without gaps. */
static __global__ void __launch_bounds__(MAP_BLOCK)
    widen_codes_kernel(struct coded o, bf16_t *to)
{
    GRID_STRIDE(i, o.rows * o.cols)
    {
        int64_t c, r = divide(i, o.cols, &c);
        const f8_t code = o.code[r * o.ld + c];

        store_float(to, i,
                    (o.wide ? e5m2_to_f32(code) : e4m3_to_f32(code)) *
                        inverse_at(o, r, c));
    }
}

static void *widen_codes(struct cuda_state *s, const struct coded &o)
{
    const int64_t n = o.rows * o.cols;
    bf16_t *to = (bf16_t *)cuda_scratch(s, (size_t)n * sizeof(*to));

    LAUNCH(widen_codes_kernel, elements_grid(n, MAP_BLOCK), MAP_BLOCK, 0, s, o, to);
    return to;
}

static void tell_widening(struct cuda_state *s, const struct gemm *p)
{
    char text[160];

    if (s->blas->widening_told)
        return;
    s->blas->widening_told = true;
    gemm_text(p, text, sizeof(text));
    cuda_say(s, " (in bfloat16, since cuBLASLt has no algorithm: %s)", text);
    if (!s->be.advice)
        s->be.advice = "cuBLASLt lacks 8-bit products that this run needs: they are "
                       "made in bfloat16, which is slower; widths, and rows of a "
                       "micro-batch, that are multiples of 128 may have one";
}

bool gemm_in_bf16(struct cuda_state *s, const struct gemm *p)
{
    struct gemm wide = *p;
    bool good;

    tell_widening(s, p);
    wide.lda = p->trans_a ? p->m : p->k;
    wide.ldb = p->trans_b ? p->k : p->n;
    wide.a =
        widen_codes(s, { (const f8_t *)p->a, p->trans_a ? p->k : p->m, wide.lda, p->lda,
                         p->a_type == ACCEL_F8E5M2, p->a_inverse, p->a_blocks });
    wide.b =
        widen_codes(s, { (const f8_t *)p->b, p->trans_b ? p->n : p->k, wide.ldb, p->ldb,
                         p->b_type == ACCEL_F8E5M2, p->b_inverse, p->b_blocks });
    wide.a_type = wide.b_type = ACCEL_BF16;
    wide.a_blocks.inverse = wide.b_blocks.inverse = NULL;
    good = gemm_product(s, &wide, GEMM_PLAIN);
    cuda_scratch_free(s, (void *)wide.b);
    cuda_scratch_free(s, (void *)wide.a);
    return good;
}
