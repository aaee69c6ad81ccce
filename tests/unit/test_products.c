/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of odd shapes in every orientation and dtype against sums in double, and the same
 * bits for any number of threads; with the processor's bfloat16 instruction and without.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "common/bf16.h"
#include "tests/tap.h"

struct shape {
    int m, n, k;
};

static const struct shape shapes[] = {
    { 1, 1, 1 },    { 1, 33, 2 },     { 15, 31, 17 },    { 14, 32, 64 },
    { 13, 97, 33 }, { 127, 200, 31 }, { 517, 260, 515 }, { 40, 1601, 1031 },
};

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

/* Stored with rows 3 elements longer than needed, which hold NaN. */
static void *matrix(accel_dtype_t type, int64_t rows, int64_t cols, int64_t ld)
{
    size_t n = (size_t)(rows * ld);
    float *f = malloc(n * sizeof(*f));

    if (!f)
        exit(1);
    for (int64_t i = 0; i < rows * ld; i++)
        f[i] = i % ld < cols ? value(i) : NAN;
    if (type == ACCEL_BF16)
        bf16_narrow((bf16_t *)(void *)f, f, n);
    return f;
}

static double at(const void *p, accel_dtype_t type, int64_t i)
{
    return type == ACCEL_BF16 ? (double)bf16_to_f32(((const bf16_t *)p)[i])
                              : (double)((const float *)p)[i];
}

static void operands_open(struct operands *o, const struct shape *s, int how,
                          accel_dtype_t a, accel_dtype_t b)
{
    struct gemm *p = &o->p;
    size_t bytes = (size_t)s->m * (size_t)s->n * sizeof(float);

    *p = (struct gemm){ .trans_a = how & 1,
                        .trans_b = how & 2,
                        .m = s->m,
                        .n = s->n,
                        .k = s->k,
                        .a_type = a,
                        .b_type = b,
                        .c_type = ACCEL_F32,
                        .ldc = s->n,
                        .add = how & 4 };
    p->lda = (p->trans_a ? p->m : p->k) + 3;
    p->ldb = (p->trans_b ? p->k : p->n) + 3;
    p->a = o->a = matrix(a, p->trans_a ? p->k : p->m, p->lda - 3, p->lda);
    p->b = o->b = matrix(b, p->trans_b ? p->n : p->k, p->ldb - 3, p->ldb);
    p->c = o->c = malloc(bytes);
    o->want = malloc(bytes);
    o->before = malloc(bytes);
    if (!o->c || !o->want || !o->before)
        exit(1);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double sum = p->add ? 1.5 : 0.0;
        int64_t r = i / p->n, c = i % p->n;

        for (int64_t k = 0; k < p->k; k++)
            sum += at(o->a, a, p->trans_a ? k * p->lda + r : r * p->lda + k) *
                   at(o->b, b, p->trans_b ? c * p->ldb + k : k * p->ldb + c);
        o->want[i] = (float)sum;
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

static void test_shape(struct backend *const be[3], const struct shape *s, bool narrow)
{
    accel_dtype_t a = narrow ? ACCEL_BF16 : ACCEL_F32;
    bool close = true, same = true;
    double worst = 0;

    for (int how = 0; how < 12; how++) { /* from 8 on, one operand of each dtype */
        size_t bytes = (size_t)s->m * (size_t)s->n * sizeof(float);
        float *first = malloc(bytes);
        struct operands o;

        operands_open(&o, s, how & 7, a, how & 8 ? ACCEL_F32 : a);
        for (int t = 0; first && t < 3; t++) {
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

int main(void)
{
    struct backend *be[3];
    struct cpu_state *state[3];

    for (int i = 0; i < 3; i++) {
        if (backend_cpu_open(&be[i], i + 1, NULL))
            return 1;
        state[i] = be[i]->state;
    }
    tap_diag("isa %s", be[0]->isa);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++) {
        test_shape(be, &shapes[i], false);
        test_shape(be, &shapes[i], true);
    }
    if (state[0]->bf16_products) {
        for (int i = 0; i < 3; i++)
            state[i]->bf16_products = false;
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
            test_shape(be, &shapes[i], true);
    }
    for (int i = 0; i < 3; i++)
        backend_close(be[i]);
    return tap_done();
}
