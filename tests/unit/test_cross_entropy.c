/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-entropy with and without a head and a bias, targets that do not count, label
 * smoothing, several chunks of rows: loss and gradients against formulas in double.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "tests/tap.h"
#include "tests/world/op_rig.h"
#include "tests/world/module_rig.h"

static const struct row {
    int rows, cols, vocab;
    bool head, bias;
    int ignore; /* -1: none */
    float smoothing;
    accel_dtype_t type;
} table[] = {
    { 1, 1, 1, true, false, -1, 0, ACCEL_F32 },
    { 7, 5, 13, true, true, -1, 0, ACCEL_F32 },
    { 7, 5, 13, true, true, 3, 0.1f, ACCEL_F32 },
    { 31, 17, 101, true, false, 0, 0.3f, ACCEL_F32 },
    { 3, 9, 2, true, true, 1, 0, ACCEL_F32 },
    { 5, 11, 11, false, false, -1, 0, ACCEL_F32 },
    { 67, 3, 3, false, false, 2, 0.1f, ACCEL_F32 },
    { 4, 7, 7, false, false, -1, 1, ACCEL_F32 },
    { 131, 5, 300007, true, true, 5, 0.1f, ACCEL_F32 },
    { 8229, 2, 5, true, true, 3, 0.1f, ACCEL_F32 }, /* three chunks of rows */
    { 8229, 5, 5, false, false, -1, 0, ACCEL_F32 },
    { 7, 5, 13, true, true, 3, 0.1f, ACCEL_BF16 },
    { 29, 19, 37, true, false, -1, 0.1f, ACCEL_BF16 },
    { 5, 11, 11, false, false, -1, 0, ACCEL_BF16 },
    { 7, 5, 13, true, true, 3, 0.1f, ACCEL_F16 },
    { 29, 19, 37, true, false, -1, 0.1f, ACCEL_F16 },
    { 5, 11, 11, false, false, -1, 0, ACCEL_F16 },
};

struct net {
    accel_tensor_t *weight, *bias;
    const struct row *row;
};

static accel_tensor_t *head_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct net *net = accel_module_state(m);
    const int32_t ignore = net->row->ignore;
    const accel_cross_entropy_t o = { sizeof(o),
                                      .ignore_index = ignore < 0 ? NULL : &ignore,
                                      .label_smoothing = net->row->smoothing };

    (void)n;
    return accel_cross_entropy(in[0], net->row->head ? net->weight : NULL,
                               net->row->bias ? net->bias : NULL, in[1], &o);
}

static const accel_class_t net_class = { sizeof(net_class), "Head", head_forward,
                                         sizeof(struct net) };

struct want { /* everything in double */
    double loss, *dx, *dw, *db;
};

static void reference(const struct row *c, const double *x, const double *w,
                      const double *b, const int32_t *target, struct want *out)
{
    double *z = malloc((size_t)c->vocab * sizeof(*z)), s = (double)c->smoothing;
    int counted = 0;

    for (int r = 0; r < c->rows; r++)
        counted += target[r] >= 0 && target[r] != c->ignore;
    out->loss = 0;
    for (int r = 0; r < c->rows; r++) {
        double max = -INFINITY, sum = 0, mean = 0;

        if (target[r] < 0 || target[r] == c->ignore)
            continue;
        for (int v = 0; v < c->vocab; v++) {
            z[v] = c->head ? (c->bias ? b[v] : 0) : x[r * c->cols + v];
            for (int k = 0; c->head && k < c->cols; k++)
                z[v] += x[r * c->cols + k] * w[(int64_t)v * c->cols + k];
            max = fmax(max, z[v]);
            mean += z[v] / c->vocab;
        }
        for (int v = 0; v < c->vocab; v++)
            sum += exp(z[v] - max);
        out->loss += (max + log(sum) - (1 - s) * z[target[r]] - s * mean) / counted;
        for (int v = 0; v < c->vocab; v++) {
            double dz = exp(z[v] - max) / sum - s / c->vocab;

            dz = (dz - (v == target[r] ? 1 - s : 0)) / counted;
            if (c->bias)
                out->db[v] += dz;
            if (!c->head)
                out->dx[r * c->cols + v] += dz;
            for (int k = 0; c->head && k < c->cols; k++) {
                out->dx[r * c->cols + k] += dz * w[(int64_t)v * c->cols + k];
                out->dw[(int64_t)v * c->cols + k] += dz * x[r * c->cols + k];
            }
        }
    }
    free(z);
}

static void near(const struct row *c, const float *got, const double *want, int64_t n,
                 const char *what)
{
    double *g = malloc((size_t)n * sizeof(*g)), far;

    for (int64_t i = 0; i < n; i++)
        g[i] = (double)got[i];
    far = rig_distance(g, want, n, 1e-6);
    tap_ok(far < (c->type == ACCEL_F32   ? 1e-5
                  : c->type == ACCEL_F16 ? 3e-3
                                         : 2e-2),
           "%d x %d, %d classes%s%s, ignoring %d, smoothing %g, %s: %s (%.2g)", c->rows,
           c->cols, c->vocab, c->head ? ", head" : "", c->bias ? " and bias" : "",
           c->ignore, (double)c->smoothing, accel_dtype_name(c->type), what, far);
    free(g);
}

static void compare(const struct row *c, struct net *net, const struct resident *r,
                    accel_tensor_t *x, const struct want *w)
{
    int64_t n = (int64_t)c->rows * c->cols;
    float *dx = malloc((size_t)n * sizeof(*dx));

    accel_tensor_read(x->grad, dx, (size_t)n, NULL);
    near(c, dx, w->dx, n, "gradient of x");
    if (c->head)
        near(c, r->grad[0] + net->weight->param->unit_offset, w->dw,
             (int64_t)c->vocab * c->cols, "gradient of the weight");
    if (c->bias)
        near(c, r->grad[0] + net->bias->param->unit_offset, w->db, c->vocab,
             "gradient of the bias");
    free(dx);
}

static void run(const struct row *c, struct module_rig *k)
{
    struct graph *g = &k->g;
    struct resident *r = &k->r;
    int64_t n = (int64_t)c->rows * c->cols, nw = (int64_t)c->vocab * c->cols;
    struct net *net = accel_module_state(k->model);
    double *x = rig_random(n, c->type, 2), *w = rig_random(nw, c->type, 1);
    double *b = rig_random(c->vocab, c->type, 1);
    int32_t *target = malloc((size_t)c->rows * sizeof(*target));
    accel_tensor_t *in[2], *loss;
    struct want want = { 0, calloc((size_t)n, 8), calloc((size_t)nw, 8),
                         calloc((size_t)c->vocab, 8) };
    float value = NAN;

    for (int64_t i = 0; i < nw; i++)
        r->master[0][net->weight->param->unit_offset + i] = (float)w[i];
    for (int i = 0; i < c->vocab; i++)
        r->master[0][net->bias->param->unit_offset + i] = (float)b[i];
    for (int i = 0; i < c->rows; i++)
        target[i] = i % 5 == 4 ? -7 : (int32_t)((i * 31L) % c->vocab);
    resident_refresh(r);
    resident_zero_grad(r);
    reference(c, x, w, b, target, &want);
    in[0] = rig_tensor(g, x, 1, c->rows, c->cols);
    in[1] = graph_tensor(g, ACCEL_I32, 2, (int64_t[]){ 1, c->rows });
    memcpy(in[1]->data, target, (size_t)c->rows * sizeof(*target));
    loss = accel_call(k->model, in, 2);
    if (!loss || accel_tensor_read(loss, &value, 1, NULL) ||
        graph_backward(g, loss, 1.0f, NULL))
        tap_diag("%s: %s", g->error.where, g->error.text);
    near(c, &value, &want.loss, 1, "loss");
    compare(c, net, r, in[0], &want);
    tap_is_int(r->faults, 0, "residency protocol");
    free(want.dx);
    free(want.dw);
    free(want.db);
    free(target);
    free(x);
    free(w);
    free(b);
}

static void test_row(const struct row *c)
{
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 1 };
    const int64_t vocab = c->vocab;
    struct module_rig k;
    accel_module_t *m;
    struct net *net;

    if (!module_rig_open(&k, c->type, 2))
        exit(1);
    m = nn_module_new(&k.g, &net_class, NULL, "");
    net = accel_module_state(m);
    net->row = c;
    net->weight = accel_param(m, "weight", 2, (int64_t[]){ c->vocab, c->cols }, normal);
    net->bias = accel_param(m, "bias", 1, &vocab, normal);
    k.model = m;
    if (!module_rig_fill(&k, false, NULL))
        exit(1);
    run(c, &k);
    module_rig_close(&k);
}

/* Settings that cannot be, and targets that are no class, by their place in the
 * batch. */
static void test_misuse(void)
{
    static const float smoothings[] = { -0.1f, 1.1f, NAN, INFINITY };
    enum { LONG = 8229, CLASSES = 5 };
    static const int64_t places[] = { 0, 4095, 4096, 8200, LONG - 1 };
    double *zero = calloc(LONG * CLASSES, sizeof(*zero));
    accel_tensor_t *x, *t;
    struct module_rig k;
    char text[80];

    if (!module_rig_open(&k, ACCEL_F32, 2))
        exit(1);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(places) + ACCEL_ARRAY_SIZE(smoothings);
         i++) {
        bool place = i < ACCEL_ARRAY_SIZE(places);
        accel_cross_entropy_t o = { .bytes = sizeof(o) };

        graph_reset(&k.g);
        x = rig_tensor(&k.g, zero, 1, LONG, CLASSES);
        t = graph_tensor(&k.g, ACCEL_I32, 2, (int64_t[]){ 1, LONG });
        memset(t->data, 0, LONG * sizeof(int32_t));
        snprintf(text, sizeof(text), "label smoothing");
        if (place) {
            ((int32_t *)t->data)[places[i]] = CLASSES;
            snprintf(text, sizeof(text), "target %lld of the batch is not below %d",
                     (long long)places[i], CLASSES);
        } else {
            o.label_smoothing = smoothings[i - ACCEL_ARRAY_SIZE(places)];
        }
        tap_ok(!accel_cross_entropy(x, NULL, NULL, t, &o) &&
                   strstr(k.g.error.text, text),
               "%s", k.g.error.text);
    }
    graph_reset(&k.g);
    module_rig_close(&k);
    free(zero);
}

/* Logits of which somebody else has made a gradient already: this one is added. */
static void test_added(void)
{
    const double zero[6] = { 0 }, twice[6] = { 2, 2, 2, 2, 2, 2 };
    accel_tensor_t *x, *t, *loss;
    struct module_rig k;
    float dx[6];

    if (!module_rig_open(&k, ACCEL_F32, 1))
        exit(1);
    x = rig_tensor(&k.g, zero, 1, 2, 3);
    t = graph_tensor(&k.g, ACCEL_I32, 2, (int64_t[]){ 1, 2 });
    memset(t->data, 0, 2 * sizeof(int32_t));
    loss = accel_cross_entropy(x, NULL, NULL, t, NULL);
    loss = accel_add(loss, rig_weigh(&k.g, x, twice));
    tap_ok(loss && !graph_backward(&k.g, loss, 1.0f, NULL) &&
               !accel_tensor_read(x->grad, dx, 6, NULL) &&
               fabsf(dx[0] - (2 - 1 / 3.f)) < 1e-5f &&
               fabsf(dx[4] - (2 + 1 / 6.f)) < 1e-5f,
           "the gradient is added to another: %g, %g %s", (double)dx[0], (double)dx[4],
           k.g.error.text);
    loss = NULL;
    graph_reset(&k.g);
    module_rig_close(&k);
}

/* A head of two units, and a bias alone. */
static void test_parameters(void)
{
    static const accel_class_t part = { sizeof(part), "PartBlock", head_forward, 0 };
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 1 };
    const int64_t three = 3;
    const double zero[4] = { 0 };
    accel_tensor_t *x, *t, *weight, *bias;
    accel_module_t *m;
    struct module_rig k;

    if (!module_rig_open(&k, ACCEL_F32, 1))
        exit(1);
    m = nn_module_new(&k.g, &part, NULL, "");
    weight = accel_param(m, "weight", 2, (int64_t[]){ 3, 2 }, normal);
    bias = accel_param(nn_module_new(&k.g, &part, m, "a"), "bias", 1, &three, normal);
    k.model = m;
    if (!module_rig_fill(&k, true, NULL))
        exit(1);
    for (int i = 0; i < 2; i++) {
        x = rig_tensor(&k.g, zero, 1, 2, 2);
        t = graph_tensor(&k.g, ACCEL_I32, 2, (int64_t[]){ 1, 2 });
        memset(t->data, 0, 2 * sizeof(int32_t));
        tap_ok(
            !accel_cross_entropy(x, i ? NULL : weight, bias, t, NULL) &&
                strstr(k.g.error.text, i ? "a bias but no weight" : "different units"),
            "%s", k.g.error.text);
        graph_reset(&k.g);
    }
    module_rig_close(&k);
}

int main(void)
{
    rig_seed(7);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(table); i++)
        test_row(&table[i]);
    test_misuse();
    test_added();
    test_parameters();
    return tap_done();
}
