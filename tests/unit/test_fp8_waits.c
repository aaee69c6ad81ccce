/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of a norm, an activation or a gated product waits for what reads it: a
 * linear in fp8 has its copies made by the same kernel, with the bits and largest
 * magnitudes of two; all else finds the result made. Kernels are counted on the CPU.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"
#include "precision/fp8.h"
#include "tests/tap.h"
#include "tests/world/module_rig.h"
#include "tests/world/op_rig.h"

enum { ROWS = 24, IN = 48, OUT = 32, ELEMS = ROWS * IN };

/* Kernels so far: those that make a result, alone and with copies, and those that only
 * narrow. */
static struct {
    struct backend real;
    int alone, both, quantize, add;
    /* numbers that were only looked at */
    int64_t looked;
} count;

static void note(const struct narrow_copy *to)
{
    if (to)
        count.both++;
    else
        count.alone++;
}

static void count_act(const struct backend *be, void *y, const void *x,
                      accel_dtype_t type, int64_t n, accel_activation_t act,
                      const struct narrow_copy *to)
{
    note(to);
    count.real.act(be, y, x, type, n, act, to);
}

static void count_gated(const struct backend *be, void *y, const void *gate,
                        const void *up, accel_dtype_t type, int64_t n,
                        accel_activation_t act, const struct narrow_copy *to)
{
    note(to);
    count.real.gated(be, y, gate, up, type, n, act, to);
}

static void count_norm(const struct backend *be, const struct norm *p, void *y,
                       float *stats, const void *x, const void *gain, const void *bias,
                       const struct narrow_copy *to)
{
    note(to);
    count.real.norm(be, p, y, stats, x, gain, bias, to);
}

static void count_add_norm(const struct backend *be, const struct norm *p, void *sum,
                           void *y, float *stats, const void *a, const void *b,
                           const void *gain, const void *bias,
                           const struct narrow_copy *to)
{
    note(to);
    count.real.add_norm(be, p, sum, y, stats, a, b, gain, bias, to);
}

static void count_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                           const void *src, accel_dtype_t type, int64_t n,
                           const float *scale, float *amax)
{
    count.quantize++;
    count.looked += dst ? 0 : n;
    count.real.quantize(be, dst, to, src, type, n, scale, amax);
}

static void count_add(const struct backend *be, void *dst, const void *a, const void *b,
                      accel_dtype_t type, int64_t n)
{
    count.add++;
    count.real.add(be, dst, a, b, type, n);
}

static void is_counted(int alone, int both, int quantize, const char *what)
{
    tap_ok(count.alone == alone && count.both == both && count.quantize == quantize,
           "%s: %d alone, %d with copies, %d that narrow", what, count.alone,
           count.both, count.quantize);
    count.alone = count.both = count.quantize = 0;
    count.looked = count.add = 0;
}

/* ---- the rig --------------------------------------------------------------------- */

struct rig {
    struct module_rig mod;
    accel_module_t *inner;
    /* two linears, and one that is not narrowed */
    accel_tensor_t *weight[3], *gain, *bias;
    /* of the module `inner`, while its forward runs */
    accel_tensor_t *kept;
    struct residency whole;
    struct fp8_linear linear[2];
    struct fp8_live live[2][FP8_TENSORS];
};

static struct rig *in_forward;

static accel_tensor_t *inner_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    (void)m, (void)n;
    in_forward->kept = accel_activate(in[0], ACCEL_ACT_GELU);
    return in[0];
}

static accel_tensor_t *inside_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    (void)m, (void)n;
    return accel_mul(accel_mul(in[0], in[0]), accel_add(in[0], in[0]));
}

static accel_tensor_t *norm_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_layernorm(accel_add(in[0], in[0]), in_forward->gain, in_forward->bias,
                           1e-5f);
}

static void rig_scales(struct rig *k, const struct fp8_recipe *recipe, float apart)
{
    for (int i = 0; i < 2; i++) {
        struct fp8_linear *l = &k->linear[i];

        l->recipe = recipe;
        l->state = calloc(FP8_TENSORS * (size_t)(1 + recipe->history), sizeof(float));
        fp8_begin(l);
        for (int t = 0; t < FP8_TENSORS; t++)
            *fp8_scale(l, (enum fp8_tensor)t) = fp8_scale_for(4, recipe->type[t], 0, 1);
        if (i == 1)
            *fp8_scale(l, FP8_INPUT) *= apart;
        fp8_take(l);
        fp8_show(l, k->live[i]);
        l->live = k->live[i];
        k->weight[i]->param->fp8 = l;
    }
}

static void rig_open(struct rig *k, const struct fp8_recipe *recipe, float apart,
                     accel_forward_f inner)
{
    static accel_class_t top = { sizeof(top), "Top", NULL, 0 },
                         part = { sizeof(part), "Part", NULL, 0 };
    const int64_t dims[] = { OUT, IN };
    struct backend *be;
    accel_module_t *m;

    memset(k, 0, sizeof(*k));
    top.forward = part.forward = inner;
    in_forward = k;
    if (!module_rig_open(&k->mod, ACCEL_BF16, 1))
        exit(1);
    k->mod.g.narrows = true;
    m = k->mod.model = nn_module_new(&k->mod.g, &top, NULL, NULL);
    k->inner = nn_module_new(&k->mod.g, &part, m, "inner");
    for (int i = 0; i < 3; i++)
        k->weight[i] = accel_param(m, (const char *[]){ "a", "b", "c" }[i], 2, dims,
                                   (accel_init_t){ ACCEL_INIT_NORMAL, 0.3f });
    k->gain =
        accel_param(m, "gain", 1, dims + 1, (accel_init_t){ ACCEL_INIT_NORMAL, 1 });
    k->bias =
        accel_param(m, "bias", 1, dims + 1, (accel_init_t){ ACCEL_INIT_NORMAL, 1 });
    if (!module_rig_fill(&k->mod, false, NULL))
        exit(1);
    k->whole = k->mod.g.residency;
    rig_scales(k, recipe, apart);
    memset(&count, 0, sizeof(count));
    be = k->mod.be;
    count.real = *be;
    be->act = count_act;
    be->gated = count_gated;
    be->norm = count_norm;
    be->add_norm = count_add_norm;
    be->quantize = count_quantize;
    be->add = count_add;
}

static void rig_close(struct rig *k)
{
    free(k->linear[0].state);
    free(k->linear[1].state);
    module_rig_close(&k->mod);
}

/* Up to 2 * by. */
static accel_tensor_t *numbers(struct graph *g, double by)
{
    double v[ELEMS];

    for (int i = 0; i < ELEMS; i++)
        v[i] = by * ((i * 29 % 64) - 31) / 16;
    return rig_tensor(g, v, 1, ROWS, IN);
}

static float first_of(const accel_tensor_t *t)
{
    float v[ELEMS] = { NAN };

    if (accel_tensor_read(t, v, (size_t)t->elems, NULL))
        return NAN;
    return v[0];
}

/* ---- the same bits --------------------------------------------------------------- */

enum kind { RMS, NORM, SUM_NORM, GATED, MUL, ACT, RELU, KINDS };
static const char *const names[KINDS] = { "rmsnorm", "layernorm", "norm of a sum",
                                          "gated",   "mul",       "activate",
                                          "relu" };

static accel_tensor_t *result(const struct rig *k, enum kind kind, accel_tensor_t *x,
                              accel_tensor_t *y)
{
    switch (kind) {
    case RMS:
        return accel_rmsnorm(x, k->gain, 1e-5f);
    case NORM:
        return accel_layernorm(x, k->gain, k->bias, 1e-5f);
    case SUM_NORM:
        return accel_rmsnorm(accel_add(x, y), k->gain, 1e-5f);
    case GATED:
        return accel_gated(x, y, ACCEL_ACT_SILU);
    case MUL:
        return accel_mul(x, y);
    case ACT:
        return accel_activate(x, ACCEL_ACT_GELU);
    default:
        return accel_activate(x, ACCEL_ACT_RELU);
    }
}

/* For E4M3 forward and E5M2 back. */
#define RECIPE(...)                                                                    \
    {                                                                                  \
        .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2 }, __VA_ARGS__              \
    }

/* A recipe; kernels that narrow, of the two linears' inputs, weights and gradients, in
 * a forward and a backward, where results do not wait; and numbers that are only looked
 * at where they do: the second linear reads the first one's magnitude. */
static const struct row {
    const char *name;
    struct fp8_recipe recipe;
    float apart; /* the second scale in parts of the first */
    int narrow, looked;
} rows[] = {
    { "delayed", RECIPE(.history = 2), 1, 8, 1 },
    { "two scales", RECIPE(.history = 2), 0.5f, 8, 0 },
    { "wide forward", RECIPE(.history = 2, .wide = { true }), 1, 6, 1 },
    { "current", RECIPE(.current = true), 1, 14, 4 * OUT *IN + 2 * ROWS *OUT },
    { "blocks", RECIPE(.current = true, .blocks = FP8_BLOCKS_32), 1, 0, 0 },
};

struct outcome {
    float grad[3 * IN * OUT + 2 * IN];
    uint16_t y[2][ROWS * OUT], dx[ELEMS];
    struct fp8_live live[2][FP8_TENSORS];
};

static void step(const struct row *row, enum kind kind, bool waits, struct outcome *o)
{
    double by[ROWS * OUT];
    struct rig k;
    accel_tensor_t *x, *y, *p, *out[2], *loss;

    rig_open(&k, &row->recipe, row->apart, inner_forward);
    k.mod.g.narrows = waits;
    for (int i = 0; i < ROWS * OUT; i++)
        by[i] = (i * 13 % 32 - 15) / 8.0;
    x = numbers(&k.mod.g, 1);
    y = numbers(&k.mod.g, 0.5);
    p = result(&k, kind, x, y);
    for (int i = 0; i < 2; i++)
        out[i] = accel_linear(p, k.weight[i], NULL, ACCEL_ACT_NONE);
    loss = rig_weigh(&k.mod.g, accel_add(out[0], out[1]), by);
    tensor_retain(x);
    for (int i = 0; i < 2; i++)
        memcpy(o->y[i], out[i]->data, sizeof(o->y[i]));
    if (graph_backward(&k.mod.g, loss, 1, NULL))
        tap_diag("%s: %s", k.mod.g.error.where, k.mod.g.error.text);
    if (x->grad)
        memcpy(o->dx, x->grad->data, sizeof(o->dx));
    resident_pull(&k.mod.r);
    memcpy(o->grad, k.mod.r.grad[k.gain->param->unit], sizeof(o->grad));
    memcpy(o->live, k.live, sizeof(o->live));
    rig_close(&k);
}

static void test_bits(const struct row *row, enum kind kind)
{
    const bool takes = !row->recipe.blocks;
    static struct outcome apart, waited;
    char text[96];

    memset(&apart, 0, sizeof(apart));
    memset(&waited, 0xff, sizeof(waited));
    snprintf(text, sizeof(text), "%s, %s", row->name, names[kind]);
    step(row, kind, false, &apart);
    is_counted(1, 0, row->narrow, text);
    step(row, kind, true, &waited);
    tap_is_int(count.looked, row->looked, "%s: numbers that are looked at", text);
    is_counted(!takes, takes, row->narrow - takes, text);
    tap_ok(!memcmp(&apart, &waited, sizeof(apart)) && apart.y[1][0] &&
               (row->recipe.current || apart.live[1][FP8_INPUT].amax > 0),
           "%s: the same bits", text);
}

/* ---- largest magnitudes ---------------------------------------------------------- */

static void reads(struct rig *k, int linear, accel_tensor_t *x)
{
    if (!accel_linear(x, k->weight[linear], NULL, ACCEL_ACT_NONE))
        tap_diag("%s", k->mod.g.error.text);
}

/* In parts of that of numbers(1). */
static void has_seen(const struct rig *k, float a, float b, int64_t looked,
                     const char *what)
{
    const float first = k->live[0][FP8_INPUT].amax / 2;
    const float second = k->live[1][FP8_INPUT].amax / 2;

    tap_ok(first == a && second == b, "%s: %g and %g", what, (double)first,
           (double)second);
    tap_is_int(count.looked, looked, "%s: numbers that are looked at", what);
    count.looked = 0;
}

/* A linear takes the magnitude of another one only where both have seen the same. */
static void test_notes(void)
{
    static const uint16_t zeros[ELEMS];
    struct rig k;
    accel_tensor_t *x;

    rig_open(&k, &rows[0].recipe, 1, inner_forward);
    for (int i = 1; i <= 2; i++) {
        reads(&k, 0, x = numbers(&k.mod.g, i));
        reads(&k, 1, x);
        has_seen(&k, (float)i, (float)i, 1, "two linears of one input");
    }
    reads(&k, 0, x = numbers(&k.mod.g, 3));
    reads(&k, 0, numbers(&k.mod.g, 8));
    reads(&k, 1, x);
    has_seen(&k, 8, 3, ELEMS, "the first alone has seen another since");
    reads(&k, 0, x = numbers(&k.mod.g, 2));
    reads(&k, 1, x);
    has_seen(&k, 8, 3, ELEMS, "and had seen it before the next one");
    k.mod.g.recomputing = true;
    reads(&k, 0, numbers(&k.mod.g, 16));
    k.mod.g.recomputing = false;
    has_seen(&k, 8, 3, 0, "what runs again was seen before");
    rig_close(&k);
    rig_open(&k, &rows[0].recipe, 1, inner_forward);
    reads(&k, 0, x = numbers(&k.mod.g, 4));
    tap_is_int(accel_tensor_write(x, zeros, sizeof(zeros), NULL), 0, "it changes");
    reads(&k, 1, x);
    has_seen(&k, 4, 0, 0, "an input that has changed");
    rig_close(&k);
}

/* ---- what comes between ---------------------------------------------------------- */

static void test_readers(void)
{
    struct rig k;
    accel_tensor_t *x, *y, *p;
    float want;

    rig_open(&k, &rows[0].recipe, 1, inner_forward);
    x = numbers(&k.mod.g, 1);
    y = numbers(&k.mod.g, 0.5);
    p = accel_mul(x, y);
    is_counted(0, 0, 0, "a product that waits");
    want = first_of(p);
    is_counted(1, 0, 0, "is made to be read");
    first_of(accel_rmsnorm(accel_add(x, y), k.gain, 1e-5f));
    tap_is_int(count.add, 0, "a sum that waits for its norm is made by that");
    is_counted(1, 0, 0, "which waits, too, until it is read");
    accel_linear(p, k.weight[0], NULL, ACCEL_ACT_NONE);
    is_counted(0, 0, 2, "and narrowed by its linear, whose weight is, too");
    p = accel_mul(x, y);
    accel_linear(p, k.weight[2], NULL, ACCEL_ACT_NONE);
    is_counted(1, 0, 0, "a linear in bfloat16");
    p = accel_mul(x, y);
    accel_linear(x, k.weight[0], NULL, ACCEL_ACT_NONE);
    is_counted(1, 0, 2, "a linear of another tensor");
    p = accel_rmsnorm(accel_rmsnorm(x, k.gain, 1e-5f), k.gain, 1e-5f);
    is_counted(1, 0, 0, "a norm of a norm");
    p = accel_mul(x, y);
    is_counted(1, 0, 0, "of which the second is made for the next");
    tap_is_int(accel_tensor_write(x, (uint16_t[ELEMS]){ 0 }, 2 * ELEMS, NULL), 0,
               "a factor changes");
    tap_ok(first_of(p) == want, "behind the product: %g", (double)first_of(p));
    is_counted(1, 0, 0, "which was made of the old values");
    graph_reset(&k.mod.g);
    x = numbers(&k.mod.g, 1);
    k.mod.g.training = false;
    accel_linear(accel_mul(x, x), k.weight[0], NULL, ACCEL_ACT_NONE);
    is_counted(1, 0, 0, "an evaluation in bfloat16");
    (void)accel_mul(x, x);
    graph_reset(&k.mod.g);
    x = numbers(&k.mod.g, 1);
    accel_linear(x, k.weight[2], NULL, ACCEL_ACT_NONE);
    is_counted(0, 0, 0, "the next micro-batch begins without one");
    rig_close(&k);
}

/* What a module has computed goes with it, but for what its result is made of. */
static void test_inside(void)
{
    uint16_t got[2][ROWS * OUT] = { { 0 } };

    for (int waits = 0; waits < 2; waits++) {
        struct rig k;
        accel_tensor_t *x, *y;

        rig_open(&k, &rows[0].recipe, 1, inside_forward);
        k.mod.g.recording = false;
        k.mod.g.narrows = waits;
        x = numbers(&k.mod.g, 1);
        y = accel_linear(accel_call(k.inner, &x, 1), k.weight[0], NULL, ACCEL_ACT_NONE);
        is_counted(1 + !waits, waits, 2 - waits, "a product of products");
        if (y)
            memcpy(got[waits], y->data, sizeof(got[waits]));
        rig_close(&k);
    }
    tap_ok(got[0][0] && !memcmp(got[0], got[1], sizeof(got[0])),
           "of numbers that are still there: the same bits");
}

/* A module keeps its result to itself. */
static void test_border(void)
{
    struct rig k;
    accel_tensor_t *x;

    rig_open(&k, &rows[0].recipe, 1, inner_forward);
    k.mod.g.recording = false;
    x = numbers(&k.mod.g, 1);
    accel_call(k.inner, &x, 1);
    tap_ok(!accel_linear(k.kept, k.weight[0], NULL, ACCEL_ACT_NONE) &&
               strstr(k.mod.g.error.text, "is used after its module returned"),
           "a result that a module keeps to itself is gone: %s", k.mod.g.error.text);
    rig_close(&k);
}

static accel_status_t want_fails(void *user, int unit, void **data, accel_error_t *err)
{
    (void)user, (void)unit, (void)data;
    return accel_fail(err, A0606, "none", "no memory for the unit");
}

/* The parameters of a norm are asked for when it is queued. */
static void test_failure(void)
{
    accel_error_t err = { 0 };
    struct rig k;
    accel_tensor_t *x, *y;
    float one[ELEMS];

    rig_open(&k, &rows[0].recipe, 1, inner_forward);
    x = numbers(&k.mod.g, 1);
    y = accel_rmsnorm(x, k.gain, 1e-5f);
    k.mod.g.residency.want = want_fails;
    tap_ok(accel_tensor_read(y, one, ELEMS, &err) != ACCEL_OK &&
               strstr(err.text, "no memory for the unit"),
           "a norm without its gain cannot be read: %s", err.text);
    graph_reset(&k.mod.g);
    x = numbers(&k.mod.g, 1);
    y = accel_rmsnorm(x, k.gain, 1e-5f);
    tap_ok(!accel_linear(y, k.weight[0], NULL, ACCEL_ACT_NONE) &&
               strstr(k.mod.g.error.text, "no memory for the unit"),
           "nor multiplied: %s", k.mod.g.error.text);
    k.mod.g.residency = k.whole;
    rig_close(&k);
}

/* A module that ends in a norm of a sum, which its backward computes again. */
static void test_recomputed(void)
{
    static uint16_t dx[2][ELEMS];
    double by[ROWS * OUT];

    for (int i = 0; i < ROWS * OUT; i++)
        by[i] = (i * 13 % 32 - 15) / 8.0;
    for (int again = 0; again < 2; again++) {
        struct rig k;
        accel_tensor_t *x, *loss;

        rig_open(&k, &rows[0].recipe, 1, norm_forward);
        k.inner->recompute = again;
        x = numbers(&k.mod.g, 1);
        tensor_retain(x);
        loss = rig_weigh(
            &k.mod.g,
            accel_linear(accel_call(k.inner, &x, 1), k.weight[0], NULL, ACCEL_ACT_NONE),
            by);
        is_counted(0, 1, 1, "a norm at the end of a module");
        tap_ok(loss && !graph_backward(&k.mod.g, loss, 1, NULL), "its backward %s",
               k.mod.g.error.text);
        is_counted(again, 0, 2, again ? "computes it again" : "does not compute it");
        if (x->grad)
            memcpy(dx[again], x->grad->data, sizeof(dx[again]));
        rig_close(&k);
    }
    tap_ok(!memcmp(dx[0], dx[1], sizeof(dx[0])) && dx[0][0], "the same bits");
}

int main(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        for (int kind = 0; kind < KINDS; kind++)
            test_bits(&rows[i], (enum kind)kind);
    test_notes();
    test_readers();
    test_inside();
    test_border();
    test_failure();
    test_recomputed();
    return tap_done();
}
