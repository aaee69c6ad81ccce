/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of cublasLtMatmul: d = epilogue(alpha op(a) op(b) + beta c + bias), each
 * element a float32 sum in the order of k, rounded once.
 */
#pragma GCC optimize("O3")
#include <math.h>
#include <string.h>
#include <vector>

#include "numbers/minifloat.h"
#include "fake_blaslt.h"

typedef cublasLtMatrixLayoutOpaque_t layout;

enum { RELU = 2, BIAS = 4, BGRAD = 16, GELU = 32, DGELU = 64, AUX = 128 };

/* ---- elements --------------------------------------------------------------------------- */

static float load(const void *p, int32_t type, int64_t i)
{
    uint32_t bits;
    float x;

    if (type == CUDA_R_32F)
        return ((const float *)p)[i];
    if (type == CUDA_R_16F)
        return f16_to_f32(((const f16_t *)p)[i]);
    if (type == CUDA_R_8F_E4M3)
        return e4m3_to_f32(((const f8_t *)p)[i]);
    if (type == CUDA_R_8F_E5M2)
        return e5m2_to_f32(((const f8_t *)p)[i]);
    bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void store(void *p, int32_t type, int64_t i, float x)
{
    uint32_t bits;

    if (type == CUDA_R_32F) {
        ((float *)p)[i] = x;
        return;
    }
    if (type == CUDA_R_16F) {
        ((f16_t *)p)[i] = f32_to_f16(x);
        return;
    }
    memcpy(&bits, &x, sizeof(bits));
    if ((bits & 0x7fffffff) > 0x7f800000)
        bits |= 1u << 22; /* NaN stays NaN */
    else
        bits += 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
    ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
}

static int64_t place(const layout *l, int64_t row, int64_t col)
{
    return col * l->ld + row;
}

/* GELU by tanh, as the library's. */
static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));

    return 0.5f * (1 + t) +
           0.5f * x * (1 - t * t) * 0.79788456f * (1 + 0.134145f * x * x);
}

/* ---- a product ------------------------------------------------------------------- */

struct part {
    const struct product *p;
    int64_t m, n, k;
    std::vector<float> a, b; /* op(a) [k][m], op(b) [n][k] */
    /* [k][m], where blocks have scales */
    std::vector<float> a_scale;
};

static void read_operands(struct part *t)
{
    const struct product *p = t->p;
    const layout *la = &p->a_layout, *lb = &p->b_layout;
    bool ta = p->desc.trans_a != CUBLAS_OP_N, tb = p->desc.trans_b != CUBLAS_OP_N;

    t->a.resize((size_t)(t->m * t->k));
    t->b.resize((size_t)(t->n * t->k));
    for (int64_t l = 0; l < t->k; l++)
        for (int64_t i = 0; i < t->m; i++)
            t->a[(size_t)(l * t->m + i)] =
                load(p->a, la->type, ta ? place(la, l, i) : place(la, i, l));
    for (int64_t j = 0; j < t->n; j++)
        for (int64_t l = 0; l < t->k; l++)
            t->b[(size_t)(j * t->k + l)] =
                load(p->b, lb->type, tb ? place(lb, j, l) : place(lb, l, j));
}

/* ---- scales ---------------------------------------------------------------------------- */

enum { BLOCK = 128 };

static int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static int64_t line_of(int64_t scales)
{
    return (scales + 3) / 4 * 4;
}

/* Bytes for 128 lines by 4 blocks of 32 lie together, tile by tile along k. */
enum { MX_BLOCK = 32, MX_TILE = 512 };

int64_t fake_scale_bytes(int32_t mode, int64_t k, int64_t lines)
{
    const int64_t each = sizeof(float);

    switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
        return blocks_of(lines) * blocks_of(k) * MX_TILE;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
        return blocks_of(k) * line_of(lines) * each;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
        return blocks_of(lines) * line_of(blocks_of(k)) * each;
    default:
        return each;
    }
}

static float mx_scale_at(const void *scales, int64_t k, int64_t l, int64_t line)
{
    const int64_t tile = line / BLOCK * blocks_of(k) + l / BLOCK;
    const int64_t at =
        line % BLOCK % 32 * 16 + line % BLOCK / 32 * 4 + l % BLOCK / MX_BLOCK;
    const uint8_t e = ((const uint8_t *)scales)[tile * MX_TILE + at];

    return e == 255 ? NAN : (float)ldexp(1, e - 127);
}

/* What number l of a line of an operand is multiplied by: for blocks of a line all lines'
 * scales of one block lie side by side, for square ones those along k. */
static float scale_at(const void *scales, int32_t mode, int64_t k, int64_t lines,
                      int64_t l, int64_t line)
{
    const float *s = (const float *)scales;

    if (!s)
        return 1;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0)
        return mx_scale_at(scales, k, l, line);
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F)
        return s[l / BLOCK * line_of(lines) + line];
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
        return s[line / BLOCK * line_of(blocks_of(k)) + l / BLOCK];
    return *s;
}

static bool has_blocks(const struct product *p)
{
    return p->desc.a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

/* Tensor cores multiply zeros behind the end of k, by the scales that a tile has there. */
static void sum_tile_rest(const struct part *t, int64_t j, float *sum)
{
    const cublasLtMatmulDescOpaque_t *e = &t->p->desc;
    const int64_t first = (t->k + MX_BLOCK - 1) / MX_BLOCK * MX_BLOCK;

    if (e->a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0)
        return;
    for (int64_t l = first; l < blocks_of(t->k) * BLOCK; l += MX_BLOCK)
        for (int64_t i = 0; i < t->m; i++)
            sum[i] += 0 * mx_scale_at(e->a_scale, t->k, l, i) *
                      mx_scale_at(e->b_scale, t->k, l, j);
}

/* The scales of blocks: b's are multiplied into it. They are powers of two. */
static void read_scales(struct part *t)
{
    const cublasLtMatmulDescOpaque_t *e = &t->p->desc;

    if (!has_blocks(t->p))
        return;
    t->a_scale.resize(t->a.size());
    for (int64_t l = 0; l < t->k; l++) {
        for (int64_t i = 0; i < t->m; i++)
            t->a_scale[(size_t)(l * t->m + i)] =
                scale_at(e->a_scale, e->a_mode, t->k, t->m, l, i);
        for (int64_t j = 0; j < t->n; j++)
            t->b[(size_t)(j * t->k + l)] *=
                scale_at(e->b_scale, e->b_mode, t->k, t->n, l, j);
    }
}

/* sum[m] of column j, where blocks have scales those of each apart. */
static void sum_column(const struct part *t, int64_t j, float *sum)
{
    memset(sum, 0, (size_t)t->m * sizeof(*sum));
    for (int64_t l = 0; l < t->k; l++) {
        const float *a = &t->a[(size_t)(l * t->m)];
        const float b = t->b[(size_t)(j * t->k + l)];

        if (t->a_scale.empty()) {
            for (int64_t i = 0; i < t->m; i++)
                sum[i] += a[i] * b;
            continue;
        }
        for (int64_t i = 0; i < t->m; i++)
            sum[i] += a[i] * b * t->a_scale[(size_t)(l * t->m + i)];
    }
    sum_tile_rest(t, j, sum);
}

/* What the epilogue makes of element i of column j. */
static float finish(const struct part *t, int64_t i, int64_t j, float x)
{
    const cublasLtMatmulDescOpaque_t *e = &t->p->desc;
    int64_t aux = j * e->aux_ld + i;

    if (e->epilogue & BIAS)
        x += load(e->bias, e->bias_type, i);
    if ((e->epilogue & GELU) && (e->epilogue & AUX))
        store(e->aux, e->aux_type, aux, x);
    if (e->epilogue & GELU)
        return gelu(x);
    if (e->epilogue & RELU)
        return x > 0 ? x : 0;
    if (e->epilogue & DGELU)
        return x * gelu_slope(load(e->aux, e->aux_type, aux));
    return x;
}

static void write_gradient(const struct part *t, const std::vector<float> &sum)
{
    const cublasLtMatmulDescOpaque_t *e = &t->p->desc;

    for (size_t i = 0; i < sum.size(); i++)
        store((void *)e->bias, e->bias_type, (int64_t)i, sum[i]);
}

/* Sums of an operand over k. */
static void operand_gradient(const struct part *t)
{
    bool of_a = t->p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    std::vector<float> sum((size_t)(of_a ? t->m : t->n));

    for (int64_t i = 0; i < (int64_t)sum.size(); i++)
        for (int64_t l = 0; l < t->k; l++)
            sum[(size_t)i] +=
                of_a ? t->a[(size_t)(l * t->m + i)] : t->b[(size_t)(i * t->k + l)];
    write_gradient(t, sum);
}

void fake_product(const struct product *p)
{
    const layout *a = &p->a_layout;
    bool ta = p->desc.trans_a != CUBLAS_OP_N;
    struct part t = { p,
                      (int64_t)p->d_layout.rows,
                      (int64_t)p->d_layout.cols,
                      (int64_t)(ta ? a->rows : a->cols),
                      {},
                      {},
                      {} };
    uint32_t epilogue = p->desc.epilogue;
    std::vector<float> column((size_t)t.m), gradient((size_t)t.m);
    const float *sa = (const float *)p->desc.a_scale;
    const float *sb = (const float *)p->desc.b_scale;
    const float by = has_blocks(p) ? 1 : (sa ? *sa : 1) * (sb ? *sb : 1);

    read_operands(&t);
    read_scales(&t);
    for (int64_t j = 0; j < t.n; j++) {
        sum_column(&t, j, column.data());
        for (int64_t i = 0; i < t.m; i++) {
            float x = p->alpha * by * column[(size_t)i];

            if (p->beta != 0)
                x += p->beta * load(p->c, p->c_layout.type, place(&p->c_layout, i, j));
            x = finish(&t, i, j, x);
            store(p->d, p->d_layout.type, place(&p->d_layout, i, j), x);
            gradient[(size_t)i] += x;
        }
    }
    if (epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB))
        operand_gradient(&t);
    else if (epilogue & BGRAD)
        write_gradient(&t, gradient);
}
