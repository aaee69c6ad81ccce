/* SPDX-License-Identifier: Apache-2.0
 *
 * Every op against a naive one in double: values, and gradients against central
 * differences of the naive one. Odd sizes, both dtypes, parameters of one op in one
 * unit and in two.
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "numbers/bf16.h"
#include "ops/ops.h"
#include "tests/tap.h"
#include "tests/unit/reference.h"
#include "tests/world/op_rig.h"
#include "tests/world/resident.h"

enum kind { EMBED, NORM, LINEAR, GELU, ATTENTION, ADD, TWICE, XENT };

/* a, b, c, d: what they mean is in the table's comment. */
static const struct op_case {
    enum kind kind;
    const char *name;
    int a, b, c, d;
    bool second; /* positions, or bias */
} cases[] = {
    /* batch, time, width, vocab */
    { EMBED, "embedding", 1, 1, 1, 1, true },
    { EMBED, "embedding", 3, 7, 67, 11, true },
    { EMBED, "embedding without positions", 2, 5, 130, 3, false },
    /* rows, width */
    { NORM, "layernorm", 1, 0, 1, 0, true },
    { NORM, "layernorm", 131, 0, 17, 0, true },
    { NORM, "layernorm", 3, 0, 263, 0, true },
    /* rows, in, out */
    { LINEAR, "linear", 1, 1, 1, 0, true },
    { LINEAR, "linear", 7, 13, 401, 0, true },
    { LINEAR, "linear", 521, 3, 5, 0, false },
    { LINEAR, "linear", 2, 1031, 2, 0, true },
    { LINEAR, "linear", 1, 64, 130, 0, false },
    { LINEAR, "linear", 5, 131, 67, 0, false },
    { LINEAR, "linear", 8, 33, 129, 0, true },
    { GELU, "linear with GELU", 1, 1, 1, 0, true },
    { GELU, "linear with GELU", 5, 37, 67, 0, true },
    { GELU, "linear with GELU", 5, 37, 389, 0, false },
    /* batch, time, width, heads */
    { ATTENTION, "attention", 1, 1, 1, 1, false },
    { ATTENTION, "attention", 2, 67, 15, 3, false },
    { ATTENTION, "attention", 1, 131, 16, 2, false },
    { ATTENTION, "attention", 3, 64, 7, 7, false },
    /* rows, width */
    { ADD, "add", 1, 0, 1, 0, false },
    { ADD, "add", 13, 0, 97, 0, false },
    { TWICE, "add of a tensor and itself", 13, 0, 97, 0, false },
    /* rows, width, vocab */
    { XENT, "cross_entropy", 1, 1, 1, 0, false },
    { XENT, "cross_entropy", 31, 17, 389, 0, false },
    { XENT, "cross_entropy in chunks", 4200, 3, 5, 0, false },
};

struct value { /* one differentiable input */
    int ndim;
    int64_t dim[3], elems;
    bool param;
    double *v;
    accel_tensor_t *t;
};

struct check {
    const struct op_case *c;
    struct value in[3];
    int inputs;
    int32_t *ids; /* ids or targets */
    int64_t id_count, out_elems;
    double *weight; /* loss = sum of weight * output */
    double *out;
};

static void add_value(struct check *k, bool param, int ndim, int64_t a, int64_t b,
                      int64_t c, accel_dtype_t compute)
{
    struct value *v = &k->in[k->inputs++];

    *v = (struct value){ .ndim = ndim, .dim = { a, b, c }, .param = param };
    v->elems = a * (ndim > 1 ? b : 1) * (ndim > 2 ? c : 1);
    v->v = rig_random(v->elems, compute, 2);
}

static void describe(struct check *k, accel_dtype_t t)
{
    const struct op_case *c = k->c;
    int top = 0;

    switch (c->kind) {
    case EMBED:
        add_value(k, true, 2, c->d, c->c, 0, t);
        if (c->second)
            add_value(k, true, 2, c->b + 2, c->c, 0, t);
        k->id_count = c->a * c->b;
        k->out_elems = k->id_count * c->c;
        top = c->d;
        break;
    case NORM:
        add_value(k, false, 2, c->a, c->c, 0, t);
        add_value(k, true, 1, c->c, 0, 0, t);
        add_value(k, true, 1, c->c, 0, 0, t);
        k->out_elems = c->a * c->c;
        break;
    case LINEAR:
    case GELU:
        add_value(k, false, 2, c->a, c->b, 0, t);
        add_value(k, true, 2, c->c, c->b, 0, t);
        if (c->second)
            add_value(k, true, 1, c->c, 0, 0, t);
        k->out_elems = c->a * c->c;
        break;
    case ATTENTION:
        add_value(k, false, 3, c->a, c->b, 3 * c->c, t);
        k->out_elems = c->a * c->b * c->c;
        break;
    case ADD:
    case TWICE:
        add_value(k, false, 2, c->a, c->c, 0, t);
        if (c->kind == ADD)
            add_value(k, false, 2, c->a, c->c, 0, t);
        k->out_elems = c->a * c->c;
        break;
    case XENT:
        add_value(k, false, 2, c->a, c->b, 0, t);
        add_value(k, true, 2, c->c, c->b, 0, t);
        k->id_count = c->a;
        k->out_elems = 1;
        top = c->c;
        break;
    }
    k->ids = calloc((size_t)k->id_count + 1, sizeof(*k->ids));
    for (int64_t i = 0; i < k->id_count; i++)
        k->ids[i] =
            c->kind == XENT && i % 7 == 3 ? -1 - (int)(i % 3) : (int)(i * 7919 % top);
    k->weight = rig_random(k->out_elems, t, 1);
    if (c->kind == XENT)
        k->weight[0] = 0.625;
    k->out = calloc((size_t)k->out_elems, sizeof(double));
}

static double reference(const struct check *k)
{
    const struct op_case *c = k->c;
    double *y = k->out, loss = 0;
    double *v0 = k->in[0].v, *v1 = k->in[1].v, *v2 = k->in[2].v;

    switch (c->kind) {
    case EMBED:
        ref_embedding(y, k->ids, v0, c->second ? v1 : NULL, c->a * c->b, c->b, c->c);
        break;
    case NORM:
        ref_layernorm(y, v0, v1, v2, c->a, c->c, 1e-5f);
        break;
    case LINEAR:
    case GELU:
        ref_linear(y, v0, v1, v2, c->a, c->b, c->c, c->kind == GELU);
        break;
    case ATTENTION:
        ref_attention(y, v0, c->a, c->b, c->c, c->d);
        break;
    case ADD:
    case TWICE:
        for (int64_t i = 0; i < k->out_elems; i++)
            y[i] = v0[i] + (c->kind == ADD ? v1[i] : v0[i]);
        break;
    case XENT:
        y[0] = ref_cross_entropy(v0, v1, k->ids, c->a, c->b, c->c);
        break;
    }
    for (int64_t i = 0; i < k->out_elems; i++)
        loss += k->weight[i] * y[i];
    return loss;
}

static accel_tensor_t *check_forward(struct check *k, struct graph *g)
{
    const struct op_case *c = k->c;
    accel_tensor_t *t0 = k->in[0].t, *t1 = k->in[1].t, *t2 = k->in[2].t, *ids = NULL;

    if (k->id_count) {
        int64_t dims[2] = { c->a, c->kind == EMBED ? c->b : 1 };

        ids = graph_tensor(g, ACCEL_I32, c->kind == EMBED ? 2 : 1, dims);
        memcpy(ids->data, k->ids, (size_t)k->id_count * sizeof(*k->ids));
    }
    switch (c->kind) {
    case EMBED:
        return accel_embedding(ids, t0, c->second ? t1 : NULL);
    case NORM:
        return accel_layernorm(t0, t1, t2, 1e-5f);
    case LINEAR:
        return accel_linear(t0, t1, t2, ACCEL_ACT_NONE);
    case GELU:
        return accel_linear(t0, t1, t2, ACCEL_ACT_GELU);
    case ATTENTION:
        return accel_attention(t0, NULL, NULL,
                               &(accel_attention_t){ sizeof(accel_attention_t),
                                                     .heads = c->d, .causal = 1 });
    case ADD:
        return accel_add(t0, t1);
    case TWICE:
        return accel_add(t0, t0);
    case XENT:
        return accel_cross_entropy(t0, t1, NULL, ids, NULL);
    }
    return NULL;
}

static void write_values(void *to, const double *from, int64_t n, accel_dtype_t t)
{
    for (int64_t i = 0; i < n; i++)
        if (t == ACCEL_BF16)
            ((bf16_t *)to)[i] = f32_to_bf16((float)from[i]);
        else
            ((float *)to)[i] = (float)from[i];
}

static void check_values(struct check *k, const accel_tensor_t *y, double tolerance,
                         const char *what)
{
    reference(k);
    rig_check(y, k->out, tolerance, what);
}

static void check_grad(struct check *k, int which, const struct resident *r,
                       double tolerance, const char *what)
{
    struct value *v = &k->in[which];
    int64_t stride = v->elems / 60 + 1, n = 0;
    double got[64], want[64], far;
    float *all = malloc((size_t)v->elems * sizeof(*all));

    if (v->param)
        memcpy(all, r->grad[v->t->param->unit] + v->t->param->unit_offset,
               (size_t)v->elems * sizeof(*all));
    else
        accel_tensor_read(v->t->grad, all, (size_t)v->elems, NULL);
    for (int64_t i = 0; i < v->elems; i += stride) {
        double h = 1e-5, keep = v->v[i], up, down;

        v->v[i] = keep + h;
        up = reference(k);
        v->v[i] = keep - h;
        down = reference(k);
        v->v[i] = keep;
        got[n] = all[i];
        want[n++] = (up - down) / (2 * h);
    }
    far = rig_distance(got, want, n, 1e-3);
    tap_ok(far < tolerance, "%s: gradient of input %d, distance %.1e", what, which,
           far);
    free(all);
}

static accel_tensor_t *part_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    return n ? in[0] : NULL;
}

static const accel_class_t root_class = { sizeof(root_class), "Root", part_forward, 0 };
static const accel_class_t part_class = { sizeof(part_class), "PartBlock", part_forward,
                                          0 };

static void declare(struct check *k, struct graph *g, accel_module_t *root)
{
    char name[8];

    for (int i = 0; i < k->inputs; i++) {
        struct value *v = &k->in[i];

        if (!v->param)
            continue;
        snprintf(name, sizeof(name), "p%d", i);
        v->t = accel_param(nn_module_new(g, &part_class, root, name), "w", v->ndim,
                           v->dim, (accel_init_t){ 0 });
    }
    /* A tree without parameters is no model; ops without any still need a root. */
    accel_param(root, "unused", 1, &(int64_t){ 1 }, (accel_init_t){ 0 });
}

static void place(struct check *k, struct graph *g, struct resident *r)
{
    for (int i = 0; i < k->inputs; i++) {
        struct value *v = &k->in[i];

        if (v->param) {
            write_values(r->master[v->t->param->unit] + v->t->param->unit_offset, v->v,
                         v->elems, ACCEL_F32);
            continue;
        }
        v->t = graph_tensor(g, g->compute, v->ndim, v->dim);
        v->t->needs_grad = true;
        write_values(v->t->data, v->v, v->elems, g->compute);
    }
    resident_refresh(r);
}

static void run_case(const struct op_case *c, struct backend *be, accel_dtype_t compute,
                     bool wrap)
{
    double tolerance = compute == ACCEL_F32 ? 1e-5 : 2e-2;
    struct check k = { .c = c };
    accel_error_t err = { 0 };
    struct units units;
    struct resident r;
    accel_module_t *root;
    accel_tensor_t *y, *loss = NULL;
    struct graph g;
    char what[128];

    snprintf(what, sizeof(what), "%s %d,%d,%d,%d %s%s", c->name, c->a, c->b, c->c, c->d,
             accel_dtype_name(compute), wrap ? ", units apart" : "");
    describe(&k, compute);
    graph_open(&g, be, compute, false, &err);
    root = nn_module_new(&g, &root_class, NULL, "");
    declare(&k, &g, root);
    if (nn_units_build(root, wrap, "PartBlock", &units, &err) ||
        resident_open(&r, &units, compute, 1))
        tap_ok(false, "%s: %s", what, err.text);
    g.residency = resident_residency(&r);
    place(&k, &g, &r);
    y = check_forward(&k, &g);
    if (!tap_ok(y != NULL, "%s: forward %s", what, g.error.text))
        return;
    check_values(&k, y, tolerance, what);
    if (c->kind != XENT)
        loss = rig_weigh(&g, y, k.weight);
    tap_ok(!graph_backward(&g, loss ? loss : y, c->kind == XENT ? 0.625f : 1.0f, &err),
           "%s: backward %s", what, err.text);
    for (int i = 0; i < k.inputs; i++)
        check_grad(&k, i, &r, tolerance, what);
    tap_is_int(r.faults, 0, "%s: residency protocol", what);
    for (int i = 0; i < k.inputs; i++)
        free(k.in[i].v);
    free(k.ids);
    free(k.weight);
    free(k.out);
    resident_close(&r);
    units_free(&units);
    nn_module_free(root);
    graph_close(&g);
}

/* ---- where float32 ends ---------------------------------------------------------- */

/* To `rel`, with less than the smallest normal number as good as 0. */
static bool near(double got, double want, double rel)
{
    return isnan(want) ? isnan(got)
                       : got == want || fabs(got - want) <= rel * fabs(want) + 2e-38;
}

static double by_libm(double x, accel_activation_t act, bool slope)
{
    switch (act) {
    case ACCEL_ACT_SIGMOID:
        return slope ? 1 / (1 + exp(-x)) / (1 + exp(x)) : 1 / (1 + exp(-x));
    case ACCEL_ACT_EXP:
        return (float)exp(x);
    default:
        return slope ? (float)(1 / x) : log(x);
    }
}

static void test_functions(struct backend *be)
{
    static const accel_activation_t acts[] = { ACCEL_ACT_SIGMOID, ACCEL_ACT_EXP,
                                               ACCEL_ACT_LOG };
    static const float edges[] = { 0,      -0.0f,    1e-45f,    1e-40f, 1.17549435e-38f,
                                   1e-30f, 87,       88.5f,     88.8f,  -87,
                                   -87.5f, -103,     200,       -200,   3.4e38f,
                                   1,      INFINITY, -INFINITY, NAN,    -1e-40f,
                                   -1 };
    enum { EDGES = sizeof(edges) / sizeof(*edges), MANY = 20000 };
    static float x[EDGES + MANY], one[EDGES + MANY], y[EDGES + MANY], dx[EDGES + MANY];

    memcpy(x, edges, sizeof(edges));
    for (int i = 0; i < MANY; i++)
        x[EDGES + i] = (float)exp((i - MANY / 2) * 80.0 / (MANY / 2));
    for (int i = 0; i < EDGES + MANY; i++)
        one[i] = 1;
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(acts); k++) {
        const char *name = k == 0 ? "sigmoid" : k == 1 ? "exp" : "log";
        int wrong = 0, steep = 0;

        be->act(be, y, x, ACCEL_F32, EDGES + MANY, acts[k], NULL);
        be->act_grad(be, dx, false, one, x, ACCEL_F32, EDGES + MANY, acts[k]);
        for (int i = 0; i < EDGES + MANY; i++) {
            wrong += !near(y[i], by_libm(x[i], acts[k], false), 1e-6);
            /* a logarithm of nothing has no slope */
            steep += !(k == 2 && x[i] <= 0) && !(k == 0 && isinf(x[i])) &&
                     !near(dx[i], by_libm(x[i], acts[k], true), 1e-6);
        }
        tap_is_int(wrong, 0, "%s on all of float32", name);
        tap_is_int(steep, 0, "and its slope");
    }
}

/* Losses of logits keep their digits where a sigmoid has none left. */
static void test_logits(struct backend *be)
{
    static const float x[] = {
        -300, -87, -30, -17, -1e-5f, 0, 1e-5f, 3, 17, 30, 87, 300
    };
    static const float y[] = { 0, 1, 0.25f };
    const float one = 1;
    int wrong = 0, steep = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(x); i++)
        for (size_t k = 0; k < ACCEL_ARRAY_SIZE(y); k++) {
            double s = 1 / (1 + exp(-x[i])), not = 1 / (1 + exp(x[i]));
            double want = fmax(x[i], 0) - x[i] * y[k] + log1p(exp(-fabs(x[i])));
            float loss, dx, dy;

            be->pair_loss(be, &loss, PAIR_LOGIT, &x[i], ACCEL_F32, &y[k], ACCEL_F32, 1);
            be->pair_loss_grad(be, &dx, false, false, PAIR_LOGIT, &x[i], ACCEL_F32,
                               &y[k], ACCEL_F32, &one, 1);
            be->pair_loss_grad(be, &dy, false, true, PAIR_LOGIT, &x[i], ACCEL_F32,
                               &y[k], ACCEL_F32, &one, 1);
            wrong += !near(loss, want, 1e-6);
            steep += !near(dx, s * (1 - y[k]) - not *y[k], 1e-6) || dy != -x[i];
        }
    tap_is_int(wrong, 0, "binary cross-entropy from the smallest to the largest logit");
    tap_is_int(steep, 0, "and its derivatives");
}

/* A product must not leave the program's OpenMP changed. */
static void test_settings(int threads)
{
    const int before = omp_get_max_threads();
    float a[4] = { 1, 2, 3, 4 }, c[4] = { 0 };
    struct gemm p = { .m = 2, .n = 2, .k = 2, .a = a, .b = a, .c = c };
    struct backend *be = NULL;

    omp_set_num_threads(3);
    p.lda = p.ldb = p.ldc = 2;
    if (backend_cpu_open(&be, threads, NULL))
        tap_ok(false, "open");
    be->gemm(be, &p);
    tap_ok(c[0] == 7 && c[1] == 10 && c[2] == 15 && c[3] == 22, "2 x 2 product");
    tap_is_int(omp_get_max_threads(), 3, "%d threads: OpenMP as it was", threads);
    backend_close(be);
    omp_set_num_threads(before);
}

int main(void)
{
    struct backend *be = NULL;
    accel_error_t err = { 0 };

    test_settings(1);
    test_settings(2);

    if (!tap_ok(!backend_cpu_open(&be, 2, &err), "open %s", err.text))
        return tap_done();
    tap_diag("isa %s, %d threads", be->isa, be->threads);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        bool two = cases[i].kind <= GELU;

        run_case(&cases[i], be, ACCEL_F32, false);
        run_case(&cases[i], be, ACCEL_BF16, false);
        if (two)
            run_case(&cases[i], be, ACCEL_F32, true);
    }
    test_functions(be);
    test_logits(be);
    backend_close(be);
    return tap_done();
}
