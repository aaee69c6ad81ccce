/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of odd shapes in every orientation and dtype against sums in double, and the
 * same bits for any number of threads; with the processor's bfloat16 instruction and
 * without. The same of a convolution, and with every instruction set.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "numbers/floats.h"
#include "tests/tap.h"

struct shape {
    int m, n, k;
};

static const struct shape shapes[] = {
    { 1, 1, 1 },     { 1, 33, 2 },     { 15, 31, 17 },    { 14, 32, 64 },
    { 13, 97, 33 },  { 127, 200, 31 }, { 517, 260, 515 }, { 40, 1601, 1031 },
    { 1, 70, 333 },  { 3, 1601, 200 }, { 5, 129, 128 },   { 8, 65, 479 }, /* few rows */
    { 1, 90, 2060 }, /* two long rows at a time */
};

/* Zeros. */
static void *need(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        exit(1);
    return p;
}

/* Of packed float32 results; the caller adds the operands. */
static struct gemm gemm_of(int64_t m, int64_t n, int64_t k, accel_dtype_t a,
                           accel_dtype_t b)
{
    return (struct gemm){
        .m = m, .n = n, .k = k, .a_type = a, .b_type = b, .c_type = ACCEL_F32, .ldc = n
    };
}

struct operands {
    struct gemm p;
    void *a, *b;
    float *c, *want, *before;
};

static float value(int64_t i)
{
    return (float)((i * 7919 + i / 13 * 31) % 257 - 128) /
           64.0f; /* exact in bfloat16 */
}

/* Element (r, c) is value(r * cols + c), stored as it is or transposed, in rows that
 * are `margin` elements longer than needed and hold NaN there. */
static void *stored(accel_dtype_t type, int64_t rows, int64_t cols, bool transposed,
                    int margin)
{
    int64_t across = transposed ? cols : rows, ld = (transposed ? rows : cols) + margin;
    size_t n = (size_t)(across * ld);
    float *f = need(n * sizeof(*f));

    for (int64_t i = 0; i < across * ld; i++) {
        int64_t r = i / ld, c = i % ld;

        f[i] = c >= ld - margin ? NAN : value(transposed ? c * cols + r : r * cols + c);
    }
    floats_narrow(f, type, f, n);
    return f;
}

static void *matrix(accel_dtype_t type, int64_t rows, int64_t cols, bool transposed)
{
    return stored(type, rows, cols, transposed, 3);
}

/* Rows side by side. */
static void *packed(accel_dtype_t type, int64_t rows, int64_t cols)
{
    return stored(type, rows, cols, false, 0);
}

/* The product in double: the same however the operands are stored, for their values are
 * exact in both dtypes. */
static double *product(const struct shape *s)
{
    int64_t elems = (int64_t)s->k * s->n;
    double *sum = need((size_t)s->m * (size_t)s->n * sizeof(*sum));
    double *b = need((size_t)elems * sizeof(*b));

    for (int64_t i = 0; i < elems; i++)
        b[i] = (double)value(i);
    for (int64_t r = 0; r < s->m; r++)
        for (int64_t k = 0; k < s->k; k++) {
            double a = (double)value(r * s->k + k);

            for (int64_t c = 0; c < s->n; c++)
                sum[r * s->n + c] += a * b[k * s->n + c];
        }
    free(b);
    return sum;
}

static void operands_open(struct operands *o, const struct shape *s, const double *sum,
                          int how, accel_dtype_t a, accel_dtype_t b)
{
    struct gemm *p = &o->p;
    size_t bytes = (size_t)s->m * (size_t)s->n * sizeof(float);

    *p = gemm_of(s->m, s->n, s->k, a, b);
    p->trans_a = how & 1;
    p->trans_b = how & 2;
    p->add = how & 4;
    p->lda = (p->trans_a ? p->m : p->k) + 3;
    p->ldb = (p->trans_b ? p->k : p->n) + 3;
    p->a = o->a = matrix(a, p->m, p->k, p->trans_a);
    p->b = o->b = matrix(b, p->k, p->n, p->trans_b);
    p->c = o->c = need(bytes);
    o->want = need(bytes);
    o->before = need(bytes);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        o->want[i] = (float)(sum[i] + (p->add ? 1.5 : 0.0));
        o->before[i] = p->add ? 1.5f : NAN;
    }
}

static void operands_close(struct operands *o)
{
    free(o->a);
    free(o->b);
    free(o->c);
    free(o->want);
    free(o->before);
}

/* Largest distance from what is wanted, per term of the sum. */
static double run(const struct backend *be, struct operands *o)
{
    int64_t n = o->p.m * o->p.n;
    double worst = 0;

    memcpy(o->c, o->before, (size_t)n * sizeof(float));
    be->gemm(be, &o->p);
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)o->c[i] - (double)o->want[i]) / (double)(o->p.k + 4);

        if (!(d <= worst))
            worst = d;
    }
    return worst;
}

static void test_shape(struct backend *const be[3], const struct shape *s,
                       const double *sum, accel_dtype_t a)
{
    bool close = true, same = true;
    double worst = 0;

    for (int how = 0; how < 12; how++) { /* from 8 on, one operand of each dtype */
        size_t bytes = (size_t)s->m * (size_t)s->n * sizeof(float);
        float *first = need(bytes);
        struct operands o;

        operands_open(&o, s, sum, how & 7, a, how & 8 ? ACCEL_F32 : a);
        for (int t = 0; t < 3; t++) {
            double d = run(be[t], &o);

            worst = d > worst ? d : worst;
            close = close && d < 1e-6;
            if (t == 0)
                memcpy(first, o.c, bytes);
            same = same && memcmp(first, o.c, bytes) == 0;
        }
        operands_close(&o);
        free(first);
    }
    tap_ok(close, "%d x %d x %d, %s: values, distance %.1e a term", s->m, s->n, s->k,
           accel_dtype_name(a), worst);
    tap_ok(same, "%d x %d x %d, %s: same bits with 1, 2 and 3 threads", s->m, s->n,
           s->k, accel_dtype_name(a));
}

/* c times a slope, and sums of rows beside it: the bits of the calls they stand for. */
static void test_backward(const struct backend *be, const struct shape *s,
                          accel_dtype_t type, accel_activation_t act)
{
    size_t elems = (size_t)s->m * (size_t)s->n, bytes = elems * sizeof(float);
    struct gemm p = gemm_of(s->m, s->n, s->k, type, type);
    float *want = need(bytes), *got = need(bytes);
    float *sums[2] = { need((size_t)s->m * sizeof(float)),
                       need((size_t)s->m * sizeof(float)) };
    void *x = packed(type, s->k, s->m), *pre = packed(type, s->m, s->n);
    void *b = matrix(type, s->k, s->n, false);

    p.trans_a = true;
    p.c_type = type;
    p.a = x;
    p.lda = s->m;
    p.b = b;
    p.ldb = s->n + 3;
    p.c = want;
    be->gemm(be, &p);
    be->act_grad(be, want, false, want, pre, type, (int64_t)elems, act);
    be->column_sum(be, sums[0], x, type, s->k, s->m, s->m);
    p.c = got;
    p.pre = pre;
    p.act_grad = true;
    p.act = act;
    p.row_sums = sums[1];
    be->gemm(be, &p);
    tap_ok(!memcmp(want, got, elems * accel_dtype_bytes(type)) &&
               !memcmp(sums[0], sums[1], (size_t)s->m * sizeof(float)),
           "%d x %d x %d, %s: slope %d and sums as by calls of their own", s->m, s->n,
           s->k, accel_dtype_name(type), (int)act);
    for (int i = 0; i < 2; i++)
        free(sums[i]);
    free(want);
    free(got);
    free(x);
    free(b);
    free(pre);
}

/* What is streamed has the bits of what is packed: a few rows of a product as all of
 * them, and few k as more of them that add 0. */
static void test_streamed(const struct backend *be, accel_dtype_t type, int64_t m,
                          int64_t k, int64_t all_m, int64_t all_k)
{
    const int64_t n = 128;
    float *got = need((size_t)(all_m * n) * sizeof(*got));
    float *want = need((size_t)(all_m * n) * sizeof(*want));
    float *f = need((size_t)(all_m * all_k) * sizeof(*f));
    const size_t row = (size_t)n * accel_dtype_bytes(type);
    char *b = packed(type, all_k + 1, n);
    struct gemm p = gemm_of(all_m, n, all_k, type, type);

    p.trans_a = true;
    p.a = f;
    p.lda = all_m;
    p.b = b;
    p.ldb = n;
    p.c = want;
    memset(b + (size_t)all_k * row, 0xff, row); /* NaN, not to be read */
    for (int64_t i = 0; i < all_m * k; i++)
        f[i] = value(i);
    floats_narrow(f, type, f, (size_t)(all_m * all_k));
    be->gemm(be, &p);
    p.m = m;
    p.k = k;
    p.c = got;
    be->gemm(be, &p);
    tap_ok(!memcmp(got, want, (size_t)(m * n) * sizeof(*got)),
           "%d rows, %d k, %s: streamed as packed", (int)m, (int)k,
           accel_dtype_name(type));
    free(got);
    free(want);
    free(f);
    free(b);
}

/* Few rows with float16 weights: the processor's conversion changes no sum. */
static void test_f16_rows(const struct backend *be, const struct shape *s)
{
    size_t bytes = (size_t)s->m * (size_t)s->n * sizeof(float);
    float *got = need(bytes), *want = need(bytes);
    struct gemm p = gemm_of(s->m, s->n, s->k, ACCEL_F32, ACCEL_F16);
    void *a = packed(ACCEL_F32, s->m, s->k);
    void *half = matrix(ACCEL_F16, s->k, s->n, true);
    void *wide = matrix(ACCEL_F32, s->k, s->n, true);

    p.trans_b = true;
    p.a = a;
    p.lda = s->k;
    p.b = half;
    p.ldb = s->k + 3;
    p.c = got;
    be->gemm(be, &p);
    p.b = wide;
    p.b_type = ACCEL_F32;
    p.c = want;
    be->gemm(be, &p);
    tap_ok(!memcmp(got, want, bytes), "%d x %d x %d: float16 sums as float32 ones",
           s->m, s->n, s->k);
    free(got);
    free(want);
    free(a);
    free(half);
    free(wide);
}

enum { CONV_X = 3 * 40 * 15 * 17, CONV_W = 50 * 40 * 9, CONV_Y = 3 * 50 * 15 * 17 };

/* y, dx, dweight and dbias. */
static const struct conv image = { ACCEL_F32, 3, 40, 15, 17, 50, 3, 3, 15, 17, 1, 1 };

static void convolve(const struct backend *be, float *out)
{
    float *in = need((CONV_X + CONV_W) * sizeof(*in));
    void *scratch = need(be->conv_scratch(be, &image, true));
    const struct conv_forward f = { .x = in, .weight = in + CONV_X, .y = out };
    const struct conv_backward b = { .x = in,
                                     .weight = in + CONV_X,
                                     .dy = out,
                                     .dx = out + CONV_Y,
                                     .dweight = out + CONV_Y + CONV_X,
                                     .dbias = out + CONV_Y + CONV_X + CONV_W };

    for (int i = 0; i < CONV_X + CONV_W; i++)
        in[i] = value(i) / 3;
    be->conv(be, &image, &f, scratch);
    be->conv_grad(be, &image, &b, scratch);
    free(in);
    free(scratch);
}

/* Shared by threads: a small one stays on the calling thread. */
static void test_conv(struct backend *const be[3])
{
    enum { ALL = CONV_Y + CONV_X + CONV_W + 50 };
    float *got = need(2 * ALL * sizeof(*got)), *want = got + ALL;

    convolve(be[0], want);
    for (int isa = 0; isa <= (int)tile_isa(); isa++)
        for (int k = 0; k < 3; k++) {
            struct cpu_state *state = be[k]->state;

            memset(got, 0, ALL * sizeof(*got));
            state->kernel = panel_kernel_of((enum tile_isa)isa);
            convolve(be[k], got);
            state->kernel = panel_kernel_of(tile_isa());
            tap_ok(!memcmp(got, want, ALL * sizeof(*got)),
                   "a convolution: the same bits, instruction set %d, %d threads", isa,
                   k + 1);
        }
    free(got);
}

int main(void)
{
    static const accel_dtype_t types[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F16 };
    struct backend *be[3];
    struct cpu_state *state[3];
    bool instruction;

    for (int i = 0; i < 3; i++) {
        if (backend_cpu_open(&be[i], i + 1, NULL))
            return 1;
        state[i] = be[i]->state;
    }
    tap_diag("isa %s", be[0]->isa);
    instruction = state[0]->bf16_products;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++) {
        double *sum = product(&shapes[i]);

        for (int t = 0; t < 3; t++)
            test_shape(be, &shapes[i], sum, types[t]);
        for (int k = 0; k < 3; k++)
            state[k]->bf16_products = false;
        if (instruction)
            test_shape(be, &shapes[i], sum, ACCEL_BF16);
        for (int k = 0; k < 3; k++)
            state[k]->bf16_products = instruction;
        free(sum);
    }
    for (size_t i = 8; i < ACCEL_ARRAY_SIZE(shapes); i++)
        test_f16_rows(be[1], &shapes[i]);
    for (int t = 0; t < 3; t++) {
        test_streamed(be[2], types[t], 3, 531, 40, 531);
        test_streamed(be[2], types[t], 8, 1030, 40, 1030);
        test_streamed(be[1], types[t], 40, 3, 40, 12);
        for (int i = 2; i < 7; i++)
            for (int act = ACCEL_ACT_GELU; act <= ACCEL_ACT_TANH; act++)
                test_backward(be[1], &shapes[i], types[t], (accel_activation_t)act);
    }
    test_conv(be);
    for (int i = 0; i < 3; i++)
        backend_close(be[i]);
    return tap_done();
}
