/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales of blocks against a reference in double, written from the formulas: scale,
 * inverse and code of every number, for every shape of block, with ragged ends, blocks
 * of zeros, NaN, infinity and the largest and smallest numbers; and products of what
 * has been narrowed, with the same bits on every instruction set.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/floats.h"
#include "numbers/fp8_blocks.h"
#include "tests/tap.h"
#include "tests/unit/fp8_rule.h"

/* ---- scales ---------------------------------------------------------------------- */

/* The exponent of the scale of a block. */
static int reference_exponent(const struct fp8_format *f, double amax, bool e8m0)
{
    double ratio;
    int up;

    if (e8m0) {
        /* two roundings to float32 are part of the formula */
        ratio = (double)(float)(amax * (double)(float)(1 / f->largest));
        if (isinf(ratio))
            return -127;
        if (ratio == 0)
            return 127;
        /* ceil(log2) */
        up = ilogb(ratio) + (ldexp(1, ilogb(ratio)) < ratio);
        return up < -127 ? 127 : -up;
    }
    if (amax == 0 || isinf(amax))
        return 0;
    ratio = (double)(float)(f->largest / amax);
    return isinf(ratio) ? 127 : ilogb(ratio);
}

static int scale_is_wrong(const struct fp8_format *f, float amax)
{
    const int block = reference_exponent(f, (double)amax, false);
    const int mx = reference_exponent(f, (double)amax, true);

    return ((double)fp8_block_scale(amax, f->type) != ldexp(1, block)) +
           ((int)e8m0_of(amax, f->type) != 127 - mx) +
           ((double)e8m0_to_f32(e8m0_of(amax, f->type)) != ldexp(1, -mx));
}

/* Every power of two with its neighbours, the format's largest number times powers of
 * two with theirs, where codes change, and numbers from all over. */
static void test_scales(const struct fp8_format *f)
{
    uint32_t bits = 4711;
    int wrong = scale_is_wrong(f, 0) + scale_is_wrong(f, INFINITY) +
                scale_is_wrong(f, FLT_MAX) + scale_is_wrong(f, 0x1p-149f);

    for (int e = -149; e < 128; e++)
        for (int i = 0; i < 2; i++) {
            const float x = (float)ldexp(i ? f->largest : 1, e - 8 * i);

            wrong += scale_is_wrong(f, x) + scale_is_wrong(f, nextafterf(x, 0)) +
                     scale_is_wrong(f, nextafterf(x, INFINITY));
        }
    for (int i = 0; i < 2000000; i++) {
        bits = bits * 1664525u + 1013904223u;
        if ((bits & 0x7fffffffu) <= 0x7f800000u)
            wrong += scale_is_wrong(f, minifloat_float(bits & 0x7fffffffu));
    }
    tap_is_int(wrong, 0, "%s: scales", accel_dtype_name(f->type));
    for (int e = 0; e < 255; e++)
        wrong += (double)e8m0_to_f32((uint8_t)e) != ldexp(1, e - 127);
    tap_is_int(wrong, 0, "and every code of theirs");
}

/* ---- matrices -------------------------------------------------------------------- */

/* A matrix in storage type, and what it becomes. */
struct matrix {
    int64_t rows, cols;
    accel_dtype_t type, to;
    struct block_scales s;
    void *src;
    float *x; /* as float32 */
    f8_t *codes;
};

static const struct fp8_format *format_of(const struct matrix *m)
{
    return &fp8_formats[m->to == ACCEL_F8E5M2];
}

static int64_t blocks_of(const struct matrix *m)
{
    return (m->rows + m->s.height - 1) / m->s.height * blocks_across(&m->s);
}

static int64_t block_at(const struct matrix *m, int64_t r, int64_t c)
{
    return r / m->s.height * blocks_across(&m->s) + c / m->s.width;
}

static double inverse_at(const struct matrix *m, int64_t r, int64_t c)
{
    const int64_t i = block_at(m, r, c);

    return m->s.e8m0 ? ldexp(1, ((const uint8_t *)m->s.inverse)[i] - 127)
                     : (double)((const float *)m->s.inverse)[i];
}

/* Numbers whose sizes differ from place to place, by rows and by columns, some of them
 * halfway between two codes; blocks of zeros, and `odd` ones. */
static void matrix_fill(struct matrix *m, bool odd)
{
    static const float strange[] = { NAN, INFINITY, -INFINITY, -0.0f, FLT_MAX, 1e-40f };
    uint32_t bits = 77;

    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++) {
            float *x = &m->x[r * m->cols + c];

            bits = bits * 1664525u + 1013904223u;
            *x = (float)((int)(bits >> 8) % 513 - 256) / 64.0f *
                 (float)ldexp(1, (int)((r / 5 * 7 + c / 11 * 3) % 13) - 6);
            if (r < 40 && c < 40)
                *x = r % 2 ? 0.0f : -0.0f;
            if (odd && bits % 997 < 6)
                *x = strange[bits % 997];
        }
    floats_narrow(m->src, m->type, m->x, (size_t)(m->rows * m->cols));
    floats_widen(m->x, m->src, m->type, (size_t)(m->rows * m->cols));
}

static struct matrix matrix_new(int64_t rows, int64_t cols, accel_dtype_t type,
                                accel_dtype_t to, struct block_shape shape, bool e8m0,
                                bool odd)
{
    struct matrix m = { .rows = rows, .cols = cols, .type = type, .to = to };
    const size_t n = (size_t)(rows * cols);

    m.s = (struct block_scales){
        .e8m0 = e8m0, .height = shape.height, .width = shape.width, .cols = cols
    };
    m.s.inverse = malloc((size_t)blocks_of(&m) * sizeof(float));
    m.src = malloc(n * sizeof(float));
    m.x = malloc(n * sizeof(float));
    m.codes = malloc(n);
    matrix_fill(&m, odd);
    return m;
}

static void matrix_free(struct matrix *m)
{
    free(m->s.inverse);
    free(m->src);
    free(m->x);
    free(m->codes);
}

static int matrix_wrong(const struct matrix *m)
{
    const struct fp8_format *f = format_of(m);
    double *amax = calloc((size_t)blocks_of(m), sizeof(*amax));
    int wrong = 0;

    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++) {
            const double x = fabs((double)m->x[r * m->cols + c]);
            double *most = &amax[block_at(m, r, c)];

            *most = x > *most ? x : *most;
        }
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++) {
            const int e = reference_exponent(f, amax[block_at(m, r, c)], m->s.e8m0);
            const double x = (double)m->x[r * m->cols + c];
            const double want = fp8_nearest(f, (double)(float)ldexp(x, e));
            const double got = (double)fp8_number(f, m->codes[r * m->cols + c]);

            wrong += inverse_at(m, r, c) != ldexp(1, -e);
            wrong += !fp8_same(got, want);
        }
    free(amax);
    return wrong;
}

static void quantize(const struct backend *be, struct matrix *m, accel_dtype_t type)
{
    void *const dst[] = { m->codes, NULL };
    const struct block_scales s[2] = { m->s };

    be->quantize_blocks(be, dst, m->to, m->src, type, m->rows, s);
}

static const struct block_shape shapes[] = {
    { 1, 128 }, { 128, 1 }, { 128, 128 }, { 1, 32 }, { 32, 1 }
};

/* Blocks are cut at the ends of rows and columns, and chunks of columns, too. */
static void test_matrices(struct backend *const be[3])
{
    static const accel_dtype_t types[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F16 };
    static const int64_t sizes[][2] = { { 300, 700 }, { 1, 16 }, { 33, 129 } };

    for (int i = 0; i < 5 * 3 * 2; i++) {
        const struct block_shape shape = shapes[i % 5];
        const accel_dtype_t type = types[i / 5 % 3];
        const accel_dtype_t to = fp8_formats[i / 15].type;
        int wrong = 0, apart = 0;

        for (int j = 0; j < 3; j++) {
            struct matrix m =
                matrix_new(sizes[j][0], sizes[j][1], type, to, shape, i % 5 > 2, true);
            const size_t n = (size_t)(m.rows * m.cols);
            f8_t *first = malloc(n);

            for (int k = 0; k < 3; k++) {
                quantize(be[k], &m, type);
                wrong += matrix_wrong(&m);
                if (k == 0)
                    memcpy(first, m.codes, n);
                apart += memcmp(first, m.codes, n) != 0;
            }
            free(first);
            matrix_free(&m);
        }
        tap_ok(wrong == 0 && apart == 0, "%d x %d, %s to %s: %d wrong",
               (int)shape.height, (int)shape.width, accel_dtype_name(type),
               accel_dtype_name(to), wrong);
    }
}

/* ---- products -------------------------------------------------------------------- */

struct product {
    enum fp8_product product;
    int64_t rows, in, out;
};

static const struct product products[] = {
    { FP8_FORWARD, 130, 560, 272 },         { FP8_FORWARD, 3, 144, 48 },
    { FP8_INPUT_GRADIENT, 130, 272, 560 },  { FP8_INPUT_GRADIENT, 2, 48, 144 },
    { FP8_WEIGHT_GRADIENT, 600, 144, 272 }, { FP8_WEIGHT_GRADIENT, 3, 48, 32 },
};

/* A decoded element times its scale. */
static double decoded(const struct matrix *m, int64_t r, int64_t c)
{
    return (double)fp8_number(format_of(m), m->codes[r * m->cols + c]) *
           inverse_at(m, r, c);
}

/* How far off c [p.m, p.n] is, in parts of what the order of a sum allows. */
static double product_excess(const struct gemm *p, const struct matrix *a,
                             const struct matrix *b, const float *c)
{
    double worst = 0;

    for (int64_t i = 0; i < p->m; i += 3)
        for (int64_t j = 0; j < p->n; j += 5) {
            double sum = 0, size = 0x1p-100;

            for (int64_t k = 0; k < p->k; k++) {
                const double term = (p->trans_a ? decoded(a, k, i) : decoded(a, i, k)) *
                                    (p->trans_b ? decoded(b, j, k) : decoded(b, k, j));

                sum += term;
                size += fabs(term);
            }
            worst = fmax(worst, fabs((double)c[i * p->n + j] - sum) /
                                    ((double)p->k * 0x1p-24 * size));
        }
    return worst;
}

/* The operands of a linear's product, as it is called. */
static struct gemm product_of(const struct product *s, const struct matrix *a,
                              const struct matrix *b)
{
    struct gemm p = { .a = a->codes,
                      .b = b->codes,
                      .a_type = a->to,
                      .b_type = b->to,
                      .a_blocks = a->s,
                      .b_blocks = b->s,
                      .lda = a->cols,
                      .ldb = b->cols,
                      .c_type = ACCEL_F32 };

    p.trans_a = s->product == FP8_WEIGHT_GRADIENT;
    p.trans_b = s->product == FP8_FORWARD;
    p.m = p.trans_a ? a->cols : a->rows;
    p.k = p.trans_a ? a->rows : a->cols;
    p.n = p.trans_b ? b->rows : b->cols;
    p.ldc = p.n;
    return p;
}

static void test_product(struct backend *const be[3], const struct product *s,
                         enum fp8_blocks blocks)
{
    static const enum fp8_tensor operands[][2] = { { FP8_INPUT, FP8_WEIGHT },
                                                   { FP8_GRADIENT, FP8_WEIGHT },
                                                   { FP8_GRADIENT, FP8_INPUT } };
    struct matrix m[2];
    struct gemm p;
    float *c[3];
    size_t bytes;
    double excess;

    for (int i = 0; i < 2; i++) {
        const enum fp8_tensor t = operands[s->product][i];
        const int64_t rows = t == FP8_WEIGHT ? s->out : s->rows;
        const int64_t cols = t == FP8_GRADIENT ? s->out : s->in;

        m[i] = matrix_new(rows, cols, ACCEL_BF16, ACCEL_F8E4M3,
                          fp8_block_shape(blocks, t, s->product),
                          blocks == FP8_BLOCKS_32, false);
        quantize(be[0], &m[i], ACCEL_BF16);
    }
    p = product_of(s, &m[0], &m[1]);
    bytes = (size_t)(p.m * p.n) * sizeof(float);
    for (int k = 0; k < 3; k++) {
        p.c = c[k] = malloc(bytes);
        be[k]->gemm(be[k], &p);
    }
    excess = product_excess(&p, &m[0], &m[1], c[0]);
    tap_ok(
        excess < 1 && !memcmp(c[0], c[1], bytes) && !memcmp(c[0], c[2], bytes),
        "blocks of %d, product %d of %d x %d x %d: %.2g of what is allowed, the same "
        "bits on every instruction set and by 3 threads",
        blocks == FP8_BLOCKS_32 ? 32 : 128, (int)s->product, (int)p.m, (int)p.n,
        (int)p.k, excess);
    for (int k = 0; k < 3; k++)
        free(c[k]);
    matrix_free(&m[0]);
    matrix_free(&m[1]);
}

/* Blocks lie along what a product sums over; only weights have square ones. */
static void test_shapes(void)
{
    static const struct block_shape want[2][FP8_TENSORS][FP8_PRODUCTS] = {
        { { { 1, 128 }, { 0, 0 }, { 128, 1 } },
          { { 128, 128 }, { 128, 128 }, { 0, 0 } },
          { { 0, 0 }, { 1, 128 }, { 128, 1 } } },
        { { { 1, 32 }, { 0, 0 }, { 32, 1 } },
          { { 1, 32 }, { 32, 1 }, { 0, 0 } },
          { { 0, 0 }, { 1, 32 }, { 32, 1 } } },
    };
    int wrong = 0;

    for (int b = 0; b < 2; b++)
        for (int t = 0; t < FP8_TENSORS; t++)
            for (int p = 0; p < FP8_PRODUCTS; p++) {
                const struct block_shape *w = &want[b][t][p];
                const struct block_shape got =
                    fp8_block_shape(b ? FP8_BLOCKS_32 : FP8_BLOCKS_128,
                                    (enum fp8_tensor)t, (enum fp8_product)p);

                wrong +=
                    w->height && (got.height != w->height || got.width != w->width);
            }
    tap_is_int(wrong, 0, "shapes of blocks");
}

int main(void)
{
    struct backend *be[3];

    fp8_backends_open(be);
    test_scales(&fp8_formats[0]);
    test_scales(&fp8_formats[1]);
    test_shapes();
    test_matrices(be);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(products); i++) {
        test_product(be, &products[i], FP8_BLOCKS_128);
        test_product(be, &products[i], FP8_BLOCKS_32);
    }
    fp8_backends_close(be);
    return tap_done();
}
