/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the CUDA backend beside those of the CPU: odd shapes, every
 * orientation and dtype, bias, activation and the value before it. Twice: the same
 * bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "tests/unit/cuda_rig.h"
#include "tests/tap.h"

static const struct shape {
    int64_t m, n, k;
} shapes[] = {
    { 1, 1, 1 }, { 5, 8, 16 }, { 3, 17, 9 }, { 16, 24, 40 }, { 33, 65, 31 },
};

/* Operands on both sides; the rig has their memory. */
struct pair {
    struct gemm host, device;
    struct cuda_rig *rig;
};

static const void *operand(struct cuda_rig *rig, const void **out, accel_dtype_t type,
                           int64_t n, float scale)
{
    struct cuda_array a = cuda_rig_values(rig, type, n, scale);

    *out = a.device;
    return a.host;
}

static void open_pair(struct pair *o, struct cuda_rig *rig, const struct shape *s,
                      int how)
{
    struct gemm *p = &o->host;

    memset(o, 0, sizeof(*o));
    o->rig = rig;
    rig->skew = s->k & 1; /* some shapes begin at no multiple of 16 bytes */
    p->trans_a = how & 1;
    p->trans_b = how & 2;
    p->m = s->m;
    p->n = s->n;
    p->k = s->k;
    p->lda = (p->trans_a ? p->m : p->k) + (how & 4 ? 3 : 0);
    p->ldb = (p->trans_b ? p->k : p->n) + (how & 4 ? 3 : 0);
    p->ldc = p->n + (how & 4 ? 3 : 0);
}

/* c and pre begin as the same values on both sides. */
static void fill_pair(struct pair *o, bool bias, bool pre)
{
    struct gemm *p = &o->host, *d = &o->device;
    int64_t rows_a = p->trans_a ? p->k : p->m, rows_b = p->trans_b ? p->n : p->k;
    const void *a, *b, *v = NULL;
    struct cuda_array c = cuda_rig_values(o->rig, p->c_type, p->m * p->ldc, 1.0f);
    struct cuda_array before = cuda_rig_values(o->rig, p->c_type, p->m * p->ldc, 1.0f);

    p->a = operand(o->rig, &a, p->a_type, rows_a * p->lda, 1.0f);
    p->b = operand(o->rig, &b, p->b_type, rows_b * p->ldb, 0.25f);
    if (bias)
        p->bias = operand(o->rig, &v, p->bias_type, p->n, 1.0f);
    p->c = c.host;
    p->pre = pre ? before.host : NULL;
    *d = *p;
    d->a = a;
    d->b = b;
    d->bias = v;
    d->c = c.device;
    d->pre = pre ? before.device : NULL;
}

/* Runs both, the device's twice; the worst distance of c and pre. */
static double distance(struct pair *o, bool *same)
{
    const struct gemm *p = &o->host, *d = &o->device;
    const struct backend *be = o->rig->device;
    size_t bytes = (size_t)(p->m * p->ldc) * accel_dtype_bytes(p->c_type);
    void *before = cuda_rig_copy(o->rig, p->c, bytes), *once = NULL;
    double worst, other;

    o->rig->cpu->gemm(o->rig->cpu, p);
    be->gemm(be, d);
    once = cuda_rig_fetch(o->rig, d->c, bytes);
    be->from_host(be, d->c, before, bytes);
    be->gemm(be, d);
    *same = !memcmp(once, cuda_rig_fetch(o->rig, d->c, bytes), bytes);
    worst = cuda_rig_distance(p->c, once, p->c_type, p->m * p->ldc);
    if (p->pre) {
        other = cuda_rig_distance(p->pre, cuda_rig_fetch(o->rig, d->pre, bytes),
                                  p->c_type, p->m * p->ldc);
        worst = other > worst ? other : worst;
    }
    return worst;
}

/* What the products of one test have in common. */
struct choice {
    accel_dtype_t a, b, c;
    accel_activation_t act;
};

/* Makes variant `how` of a product of that shape. */
typedef void make_f(struct pair *o, struct cuda_rig *rig, const struct shape *s,
                    const struct choice *t, int how);

/* All shapes in so many variants: the worst distance, and whether bits repeat. */
static double all_products(struct cuda_rig *rig, make_f *make, const struct choice *t,
                           int variants, bool *same_out)
{
    double worst = 0;

    *same_out = true;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        for (int how = 0; how < variants; how++) {
            struct pair o;
            bool same;
            double d;

            make(&o, rig, &shapes[i], t, how);
            d = distance(&o, &same);
            worst = d > worst ? d : worst;
            *same_out = *same_out && same;
            cuda_rig_reset(rig);
        }
    return worst;
}

static void make_plain(struct pair *o, struct cuda_rig *rig, const struct shape *s,
                       const struct choice *t, int how)
{
    open_pair(o, rig, s, how);
    o->host.a_type = t->a;
    o->host.b_type = t->b;
    o->host.c_type = t->c;
    o->host.add = how & 8;
    fill_pair(o, false, false);
}

static void test_types(struct cuda_rig *rig, int types)
{
    const struct choice t = { types & 1 ? ACCEL_BF16 : ACCEL_F32,
                              types & 2 ? ACCEL_BF16 : ACCEL_F32,
                              types & 4 ? ACCEL_BF16 : ACCEL_F32, ACCEL_ACT_NONE };
    bool same;
    double worst = all_products(rig, make_plain, &t, 16, &same);

    tap_ok(worst <= 1.0, "%s x %s to %s: %.2f of the bound", accel_dtype_name(t.a),
           accel_dtype_name(t.b), accel_dtype_name(t.c), worst);
    tap_ok(same, "%s x %s to %s: the same bits twice", accel_dtype_name(t.a),
           accel_dtype_name(t.b), accel_dtype_name(t.c));
}

static const struct {
    accel_activation_t act;
    const char *name;
} acts[] = {
    { ACCEL_ACT_NONE, "no activation" }, { ACCEL_ACT_GELU, "GELU" },
    { ACCEL_ACT_GELU_ERF, "erf GELU" },  { ACCEL_ACT_SILU, "SiLU" },
    { ACCEL_ACT_RELU, "RELU" },          { ACCEL_ACT_RELU2, "squared RELU" },
    { ACCEL_ACT_TANH, "tanh" },
};

/* Bias of either type, the value before saved or not, rows that an epilogue fits or
 * not. */
static void make_act(struct pair *o, struct cuda_rig *rig, const struct shape *s,
                     const struct choice *t, int how)
{
    open_pair(o, rig, s, (how & 4) | 2);
    o->host.a_type = o->host.b_type = t->a;
    o->host.c_type = how & 1 ? ACCEL_F32 : t->a;
    o->host.bias_type = how >= 16 ? ACCEL_F32 : t->a;
    o->host.act = t->act;
    fill_pair(o, how >= 8, how & 2 && t->act != ACCEL_ACT_NONE);
}

/* The product times the slope of an activation; `pre` is read. */
static void make_slope(struct pair *o, struct cuda_rig *rig, const struct shape *s,
                       const struct choice *t, int how)
{
    open_pair(o, rig, s, how & 7);
    o->host.a_type = o->host.b_type = t->a;
    o->host.c_type = how & 8 ? ACCEL_BF16 : t->a;
    o->host.act = t->act;
    o->host.act_grad = true;
    fill_pair(o, false, true);
}

static void test_act(struct cuda_rig *rig, int act, accel_dtype_t type)
{
    const struct choice t = { type, type, type, acts[act].act };
    bool same, slopes_same;
    double worst = all_products(rig, make_act, &t, 24, &same);
    double slopes = all_products(rig, make_slope, &t, 16, &slopes_same);

    tap_ok(worst <= 1.0 && same, "%s, %s: %.2f of the bound, the same bits twice",
           accel_dtype_name(type), acts[act].name, worst);
    tap_ok(slopes <= 1.0 && slopes_same,
           "%s, slope of %s: %.2f of the bound, the same bits", accel_dtype_name(type),
           acts[act].name, slopes);
}

/* The gradients of a weight and its bias: both added to. */
static void test_sums(struct cuda_rig *rig, accel_dtype_t a, accel_dtype_t b)
{
    double worst = 0;
    bool same = true, one;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++) {
        const size_t bytes = (size_t)shapes[i].m * sizeof(float);
        struct cuda_array sums;
        struct pair o;
        float *twice;
        double d;

        open_pair(&o, rig, &shapes[i], 1);
        o.host.a_type = a;
        o.host.b_type = b;
        o.host.c_type = ACCEL_F32;
        o.host.add = true;
        fill_pair(&o, false, false);
        sums = cuda_rig_values(rig, ACCEL_F32, shapes[i].m, 1.0f);
        twice = cuda_rig_copy(rig, sums.host, bytes);
        o.host.row_sums = sums.host;
        o.device.row_sums = sums.device;
        d = distance(&o, &one); /* the device's runs twice */
        for (int64_t j = 0; j < shapes[i].m; j++)
            twice[j] += 2 * (o.host.row_sums[j] - twice[j]);
        worst = d > worst ? d : worst;
        d = cuda_rig_distance(twice, cuda_rig_fetch(rig, sums.device, bytes), ACCEL_F32,
                              shapes[i].m);
        worst = d > worst ? d : worst;
        same = same && one;
        cuda_rig_reset(rig);
    }
    tap_ok(worst <= 1.0 && same, "%s x %s and sums of rows: %.2f of the bound",
           accel_dtype_name(a), accel_dtype_name(b), worst);
}

/* Bits where an own kernel ends the product; else the library's kernel may be another
 * one. */
static bool alike(const struct gemm *p, const void *taped, const void *plain)
{
    const int64_t n = p->m * p->ldc;
    const bool fused =
        p->act == ACCEL_ACT_GELU && p->ldc % 8 == 0 && p->bias_type == ACCEL_BF16;

    return fused ? cuda_rig_distance(taped, plain, ACCEL_BF16, n) <= 1.0
                 : !memcmp(taped, plain, (size_t)n * 2);
}

/* GELU with its value before saved, and the same without: as training and as
 * evaluation. */
static void test_taped(struct cuda_rig *rig)
{
    int differ = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        for (int how = 0; how < 16; how++) {
            const struct backend *be = rig->device;
            const void *taped;
            struct pair o;
            size_t bytes;

            open_pair(&o, rig, &shapes[i], (how & 4) | 2);
            o.host.a_type = o.host.b_type = o.host.c_type = ACCEL_BF16;
            o.host.bias_type = how & 8 ? ACCEL_F32 : ACCEL_BF16;
            o.host.act = how & 1 ? ACCEL_ACT_GELU : ACCEL_ACT_GELU_ERF;
            bytes = (size_t)(o.host.m * o.host.ldc) * 2;
            rig->skew = 0; /* as the arena has it */
            fill_pair(&o, true, true);
            be->gemm(be, &o.device);
            taped = cuda_rig_fetch(rig, o.device.c, bytes);
            o.device.pre = NULL;
            be->gemm(be, &o.device);
            differ += !alike(&o.host, taped, cuda_rig_fetch(rig, o.device.c, bytes));
            cuda_rig_reset(rig);
        }
    tap_is_int(differ, 0, "the same with a value saved and without");
}

/* Not a number stays one, whatever the activation. */
static void test_nan(struct cuda_rig *rig)
{
    int lost = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(acts); i++) {
        struct pair o;
        float nan = NAN;
        const float *c;

        open_pair(&o, rig, &shapes[1], 0);
        o.host.act = acts[i].act;
        fill_pair(&o, true, false);
        rig->device->from_host(rig->device, (void *)(uintptr_t)o.device.a, &nan,
                               sizeof(nan));
        rig->device->gemm(rig->device, &o.device);
        c = cuda_rig_fetch(rig, o.device.c, sizeof(*c));
        lost += !isnan(c[0]);
        cuda_rig_reset(rig);
    }
    tap_is_int(lost, 0, "not a number stays one");
}

/* Nothing to do: nothing is touched, and nothing fails. */
static void test_empty(struct cuda_rig *rig)
{
    struct gemm p = { .m = 0, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4 };
    accel_error_t err = { .text = "" };

    rig->device->gemm(rig->device, &p);
    p.m = 4;
    p.n = 0;
    rig->device->gemm(rig->device, &p);
    p.n = 4;
    p.k = 0;
    p.add = true;
    rig->device->gemm(rig->device, &p);
    tap_ok(!rig->device->sync(rig->device, &err), "empty products %s", err.text);
}

static void test_epilogues(struct cuda_rig *rig)
{
    for (int i = 0; i < (int)ACCEL_ARRAY_SIZE(acts); i++) {
        test_act(rig, i, ACCEL_F32);
        test_act(rig, i, ACCEL_BF16);
    }
    for (int types = 0; types < 4; types++)
        test_sums(rig, types & 1 ? ACCEL_BF16 : ACCEL_F32,
                  types & 2 ? ACCEL_BF16 : ACCEL_F32);
    test_taped(rig);
}

/* The same where cuBLASLt has no kernel for any epilogue, where it refuses what it
 * proposed, and where none is asked for: own kernels do it. */
static void test_without(const char *variable, const char *value)
{
    struct cuda_rig rig;

    tap_diag("%s=%s", variable, value);
    setenv(variable, value, 1);
    cuda_rig_open(&rig);
    test_epilogues(&rig);
    cuda_rig_close(&rig);
    unsetenv(variable);
}

int main(void)
{
    struct cuda_rig rig;

    cuda_rig_open(&rig);
    for (int types = 0; types < 8; types++)
        test_types(&rig, types);
    test_epilogues(&rig);
    test_nan(&rig);
    test_empty(&rig);
    cuda_rig_close(&rig);
    test_without("FAKE_CUDA_NO_EPILOGUES", "4,32,36,160,164,192,512");
    test_without("FAKE_CUDA_REFUSE_EPILOGUES", "4,32,36,160,164,192,512");
    test_without("ACCEL_CUDA_EPILOGUES", "forward");
    test_without("ACCEL_CUDA_EPILOGUES", "none");
    return tap_done();
}
