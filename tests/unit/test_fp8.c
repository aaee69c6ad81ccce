/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of products in fp8 against a reference in double, written from the
 * formulas: encodings of every code, of halfway cases and of 10 million values; scales
 * and histories, step by step; the kernel that narrows, and the product of what it makes.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "numbers/floats.h"
#include "precision/fp8.h"
#include "tests/tap.h"
#include "tests/unit/fp8_rule.h"

/* ---- encodings ------------------------------------------------------------------- */

static int wrong_at(const struct fp8_format *f, float x)
{
    const double got = (double)fp8_number(f, fp8_code(f, x));

    return !fp8_same(got, fp8_nearest(f, (double)x));
}

/* Every finite code, and the places halfway to the next with their neighbours. */
static void test_codes(const struct fp8_format *f)
{
    const float last = (float)f->largest;
    int wrong = 0, codes = 0;

    for (int code = 0; code < 256; code++) {
        const float x = fp8_number(f, (f8_t)code), y = fp8_number(f, (f8_t)(code + 1));
        const float half = (float)(((double)x + (double)y) / 2);

        if (!isfinite(x))
            continue;
        codes++;
        wrong += fp8_code(f, x) != code;
        if (!isfinite(y) || code == 127)
            continue;
        wrong += wrong_at(f, half) + wrong_at(f, nextafterf(half, INFINITY)) +
                 wrong_at(f, nextafterf(half, -INFINITY));
    }
    tap_is_int(wrong, 0, "%s: %d codes and what is halfway between them",
               accel_dtype_name(f->type), codes);
    tap_ok(fp8_number(f, fp8_code(f, INFINITY)) == last &&
               fp8_number(f, fp8_code(f, -INFINITY)) == -last &&
               fp8_number(f, fp8_code(f, nextafterf(last, INFINITY))) == last &&
               fp8_number(f, fp8_code(f, FLT_MAX)) == last &&
               isnan(fp8_number(f, fp8_code(f, NAN))),
           "beyond the largest number it saturates, NaN stays");
}

/* Bits of float32 drawn by a linear congruence, and all of bfloat16's. */
static void test_millions(const struct fp8_format *f)
{
    uint32_t bits = 12345;
    int wrong = 0;

    for (int i = 0; i < 5000000; i++) {
        bits = bits * 1664525u + 1013904223u;
        wrong += wrong_at(f, minifloat_float(bits));
        /* where the format has numbers */
        wrong += wrong_at(f, minifloat_float((bits & 0x87ffffffu) + 0x38000000u));
    }
    for (uint32_t i = 0; i < 65536; i++)
        wrong += wrong_at(f, bf16_to_f32((bf16_t)i));
    tap_is_int(wrong, 0, "%s: 10 million values", accel_dtype_name(f->type));
}

/* ---- scales ---------------------------------------------------------------------- */

enum { STEPS = 300, MOST = 1024 };

/* One tensor in double: all it has ever seen. */
struct past {
    double seen[STEPS], scale;
    int count;
};

static void past_step(struct past *p, const struct fp8_recipe *r, double amax,
                      double largest, bool due)
{
    double most = 0, scale;

    if (amax == 0)
        return;
    p->seen[p->count++] = amax;
    /* the staging place is one of the history */
    for (int i = 0; i < p->count; i++)
        if (i >= p->count - r->history)
            most = fmax(most, p->seen[i]);
    most = r->most_recent ? amax : most;
    if (!due || isinf(most))
        return;
    scale = (double)(float)((double)(float)(largest / most) / pow(2, r->margin));
    p->scale = isinf(scale) ? (double)FLT_MAX : fmax(scale, 0x1p-127);
}

/* What a step sees: mostly plain numbers, sometimes nothing, infinity, the largest one or
 * a number so small that its scale is infinite. */
static float drawn(uint32_t *bits)
{
    *bits = *bits * 1664525u + 1013904223u;
    switch (*bits >> 27) {
    case 0:
        return 0;
    case 1:
        return INFINITY;
    case 2:
        return 1e-44f;
    case 3:
        return FLT_MAX;
    default:
        return minifloat_float(0x30000000u + (*bits >> 5));
    }
}

static bool same_histories(const struct fp8_linear *l, enum fp8_tensor t,
                           const struct past *p)
{
    const int64_t n = l->recipe->history;
    const float *history = fp8_history(l, t);

    for (int64_t i = 1; i < n; i++) {
        const int64_t at = p->count - n + i;

        if ((double)history[i] != (at >= 0 ? p->seen[at] : 0))
            return false;
    }
    return history[0] == 0 && (double)*fp8_scale(l, t) == p->scale &&
           l->inverse[t] == 1 / *fp8_scale(l, t);
}

static void test_scales(struct fp8_recipe r)
{
    static float state[FP8_TENSORS * (1 + MOST)];
    struct fp8_linear l = { .recipe = &r, .state = state };
    struct past past[FP8_TENSORS] = { { .scale = 1 }, { .scale = 1 }, { .scale = 1 } };
    uint32_t bits = 99;
    int wrong = 0;

    r.type[FP8_INPUT] = r.type[FP8_WEIGHT] = ACCEL_F8E4M3;
    r.type[FP8_GRADIENT] = ACCEL_F8E5M2;
    fp8_begin(&l);
    for (int step = 1; step <= STEPS; step++) {
        const bool due = step % r.interval == 0;

        for (int t = 0; t < FP8_TENSORS; t++) {
            const float amax = drawn(&bits);

            fp8_history(&l, (enum fp8_tensor)t)[0] = amax;
            past_step(&past[t], &r, (double)amax, t == FP8_GRADIENT ? 57344 : 448, due);
        }
        fp8_update(&l, due);
        for (int t = 0; t < FP8_TENSORS; t++)
            wrong += !same_histories(&l, (enum fp8_tensor)t, &past[t]);
    }
    /* a length of 1 has no place for what was */
    tap_is_int(wrong, 0, "history %d, margin %d, every %d, %s: scales of %d steps",
               (int)r.history, r.margin, (int)r.interval,
               r.most_recent ? "most recent" : "largest", STEPS);
    tap_ok(fp8_take(&l), "and the state is one");
}

/* The largest power of two up to largest number / amax, in double; its inverse is
 * exact. */
static void test_powers(void)
{
    static const accel_dtype_t types[] = { ACCEL_F8E4M3, ACCEL_F8E5M2 };
    static const float none[] = { 0, INFINITY, NAN };
    uint32_t bits = 7;
    int wrong = 0;

    for (int i = 0; i < 2000; i++) {
        const accel_dtype_t type = types[i % 2];
        const double largest = type == ACCEL_F8E4M3 ? 448 : 57344;
        const float amax = i < 40 ? ldexpf(1.75f, i - 20) : fabsf(drawn(&bits));
        float scale[2];

        cpu_scale_of(NULL, scale, type, true, &amax);
        if (amax > 0 && isfinite(amax))
            wrong += (double)scale[0] !=
                         exp2(fmin(127, floor(log2(largest / (double)amax)))) ||
                     scale[0] * scale[1] != 1;
    }
    for (int i = 0; i < 3; i++) {
        float scale[2];

        cpu_scale_of(NULL, scale, ACCEL_F8E4M3, true, &none[i]);
        wrong += scale[0] != 1 || scale[1] != 1;
    }
    tap_is_int(wrong, 0, "scales that are powers of two");
}

static void test_states(void)
{
    static const float bad[] = { NAN, 0, -1, INFINITY };
    const struct fp8_recipe r = { .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2 },
                                  .history = 3 };
    float state[12];
    struct fp8_linear l = { .recipe = &r, .state = state };
    struct fp8_live live[FP8_TENSORS];
    int wrong = 0;

    for (int t = 0; t < FP8_TENSORS; t++)
        for (int i = 0; i < 6; i++) {
            fp8_begin(&l);
            wrong += !fp8_take(&l);
            if (i < 4)
                *fp8_scale(&l, (enum fp8_tensor)t) = bad[i];
            else
                fp8_history(&l, (enum fp8_tensor)t)[i - 3] = i == 4 ? NAN : -1.0f;
            wrong += fp8_take(&l);
        }
    tap_is_int(wrong, 0, "states that no run leaves are no states");
    fp8_begin(&l);
    fp8_history(&l, FP8_WEIGHT)[0] = 3;
    fp8_update(&l, true);
    live[FP8_WEIGHT].amax = 5;
    fp8_show(&l, live);
    tap_ok(live[FP8_INPUT].scale == 1 && live[FP8_WEIGHT].scale == 448.0f / 3 &&
               live[FP8_WEIGHT].inverse == 1 / (448.0f / 3) &&
               live[FP8_WEIGHT].amax == 0,
           "kernels are shown the scales, and have seen nothing");
}

/* ---- the kernel, and products of what it makes ----------------------------------- */

enum { ELEMS = 70001 };

static float element(int64_t i)
{
    return (float)((i * 7919 + i / 13 * 31) % 257 - 128) / 64.0f;
}

static void test_quantize(struct backend *const be[3], const struct fp8_format *f,
                          accel_dtype_t type)
{
    float *x = malloc(ELEMS * sizeof(*x)), amax[2] = { 0 }, scale = 1.375f;
    void *src = malloc(ELEMS * 4);
    f8_t *y = malloc(ELEMS);
    int wrong = 0;

    for (int i = 0; i < ELEMS; i++)
        x[i] = element(i) * (i % 3 ? 0.01f : 100.0f);
    x[7] = NAN;
    x[ELEMS - 1] = -300.0f;
    floats_narrow(src, type, x, ELEMS);
    floats_widen(x, src, type, ELEMS);
    for (int k = 0; k < 3; k++) {
        amax[0] = amax[1] = 0;
        be[k]->quantize(be[k], y, f->type, src, type, ELEMS, &scale, &amax[0]);
        be[k]->quantize(be[k], NULL, f->type, src, type, ELEMS, &scale, &amax[1]);
        wrong += amax[0] != 300 || amax[1] != 300;
        for (int i = 0; i < ELEMS; i++)
            wrong += y[i] != fp8_code(f, x[i] * scale);
    }
    amax[0] = 1000;
    be[0]->quantize(be[0], y, f->type, src, type, ELEMS, &scale, &amax[0]);
    be[0]->quantize(be[0], y, f->type, src, type, 0, &scale, &amax[0]);
    tap_ok(wrong == 0 && amax[0] == 1000, "quantize %s to %s: %d wrong",
           accel_dtype_name(type), accel_dtype_name(f->type), wrong);
    free(x);
    free(src);
    free(y);
}

/* Sizes around and beyond the largest number, in whole vectors and behind them. */
static void test_saturation(struct backend *const be[3], const struct fp8_format *f)
{
    static const float sizes[] = { 447, 448,   449,   463,   465,  57343,    57345,
                                   1e6, 61440, 3e38f, 1e-7f, 0.0f, INFINITY, NAN };
    const float scale = 1;
    float x[87], amax = 0;
    f8_t y[87];
    int wrong = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(x); i++)
        x[i] = copysignf(sizes[i / 2 % ACCEL_ARRAY_SIZE(sizes)], i % 2 ? -1 : 1);
    for (int k = 0; k < 3; k++) {
        be[k]->quantize(be[k], y, f->type, x, ACCEL_F32, (int64_t)ACCEL_ARRAY_SIZE(x),
                        &scale, &amax);
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(x); i++)
            wrong += y[i] != fp8_code(f, x[i]);
    }
    tap_ok(wrong == 0 && isinf(amax), "%s: what is too large: %d wrong",
           accel_dtype_name(f->type), wrong);
}

struct product {
    int64_t m, n, k;
    bool trans_a, trans_b, add;
    accel_dtype_t out;
    accel_activation_t act;
};

static const struct product products[] = {
    { 33, 65, 515, false, true, false, ACCEL_BF16, ACCEL_ACT_NONE },
    { 5, 48, 96, false, true, false, ACCEL_BF16, ACCEL_ACT_GELU },
    { 16, 129, 64, false, false, false, ACCEL_F32, ACCEL_ACT_NONE },
    { 70, 33, 1031, true, false, true, ACCEL_F32, ACCEL_ACT_NONE },
    { 400, 800, 600, true, false, true, ACCEL_F32, ACCEL_ACT_NONE },
};

/* Element (r, c) of op(a) or op(b) from the stored codes. */
static double stored(const f8_t *at, const struct fp8_format *f, bool transposed,
                     int64_t rows, int64_t cols, int64_t r, int64_t c)
{
    return (double)fp8_number(f, transposed ? at[c * rows + r] : at[r * cols + c]);
}

/* The decoded operands are multiplied exactly, so only the order of the sum differs. */
static double product_excess(const struct product *s, const struct fp8_format *fb,
                             const f8_t *a, const f8_t *b, float by, const void *c)
{
    double worst = 0;

    for (int64_t r = 0; r < s->m; r += 3)
        for (int64_t j = 0; j < s->n; j += 5) {
            double sum = 0, size = 0, got, want;

            for (int64_t k = 0; k < s->k; k++) {
                const double p =
                    stored(a, &fp8_formats[0], s->trans_a, s->m, s->k, r, k) *
                    stored(b, fb, s->trans_b, s->k, s->n, k, j);

                sum += p;
                size += fabs(p);
            }
            want = sum * (double)by + (s->add ? 1.5 : 0);
            got = s->out == ACCEL_F32
                      ? (double)((const float *)c)[r * s->n + j]
                      : (double)bf16_to_f32(((const bf16_t *)c)[r * s->n + j]);
            if (s->act == ACCEL_ACT_GELU)
                want = 0.5 * want *
                       (1 + tanh(0.7978845608028654 *
                                 (want + 0.044715 * want * want * want)));
            worst = fmax(worst, fabs(got - want) /
                                    ((double)s->k * 0x1p-24 * size * (double)by +
                                     (s->out == ACCEL_F32 ? 0x1p-23 : 0x1p-8) *
                                         (fabs(want) + 1e-3)));
        }
    return worst;
}

static void test_product(struct backend *const be[3], const struct product *s,
                         const struct fp8_format *fb)
{
    const float inverse[2] = { 0.3125f, 0.01f };
    const size_t bytes = (size_t)(s->m * s->n) * accel_dtype_bytes(s->out);
    f8_t *a = malloc((size_t)(s->m * s->k)), *b = malloc((size_t)(s->n * s->k));
    void *c[3];
    struct gemm p = { .trans_a = s->trans_a,
                      .trans_b = s->trans_b,
                      .m = s->m,
                      .n = s->n,
                      .k = s->k,
                      .a = a,
                      .b = b,
                      .a_type = ACCEL_F8E4M3,
                      .b_type = fb->type,
                      .a_inverse = &inverse[0],
                      .b_inverse = &inverse[1],
                      .lda = s->trans_a ? s->m : s->k,
                      .ldb = s->trans_b ? s->k : s->n,
                      .c_type = s->out,
                      .ldc = s->n,
                      .add = s->add,
                      .act = s->act };
    double excess;

    for (int64_t i = 0; i < s->m * s->k; i++)
        a[i] = fp8_code(&fp8_formats[0], element(i) * 40);
    for (int64_t i = 0; i < s->n * s->k; i++)
        b[i] = fp8_code(fb, element(i + 5) * 3);
    for (int k = 0; k < 3; k++) {
        p.c = c[k] = malloc(bytes);
        be[k]->fill(be[k], c[k], s->out, s->m * s->n, s->add ? 1.5f : NAN);
        be[k]->gemm(be[k], &p);
    }
    excess = product_excess(s, fb, a, b, inverse[0] * inverse[1], c[0]);
    tap_ok(excess < 1 && !memcmp(c[0], c[1], bytes) && !memcmp(c[0], c[2], bytes),
           "%lld x %lld x %lld, e4m3 x %s: %.2g of what is allowed, the same bits on "
           "every instruction set and by 3 threads",
           (long long)s->m, (long long)s->n, (long long)s->k,
           accel_dtype_name(fb->type), excess);
    for (int k = 0; k < 3; k++)
        free(c[k]);
    free(a);
    free(b);
}

static void test_kernels(void)
{
    struct backend *be[3];

    fp8_backends_open(be);
    for (int i = 0; i < 2; i++) {
        test_saturation(be, &fp8_formats[i]);
        test_quantize(be, &fp8_formats[i], ACCEL_F32);
        test_quantize(be, &fp8_formats[i], ACCEL_BF16);
        test_quantize(be, &fp8_formats[i], ACCEL_F16);
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(products); i++) {
        test_product(be, &products[i], &fp8_formats[0]);
        test_product(be, &products[i], &fp8_formats[1]);
    }
    fp8_backends_close(be);
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        test_codes(&fp8_formats[i]);
        test_millions(&fp8_formats[i]);
    }
    for (int i = 0; i < 8; i++)
        test_scales((struct fp8_recipe){ .history = i < 4   ? 16
                                                    : i < 6 ? MOST
                                                            : i - 5,
                                         .margin = i % 3 - 1,
                                         .interval = i % 4 == 3 ? 3 : 1,
                                         .most_recent = i % 2 });
    for (int margin = -128; margin <= 128; margin += 64)
        test_scales((struct fp8_recipe){ .history = 16,
                                         .margin = margin,
                                         .interval = 1,
                                         .most_recent = margin > 0 });
    test_powers();
    test_states();
    test_kernels();
    return tap_done();
}
