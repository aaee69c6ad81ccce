/* SPDX-License-Identifier: Apache-2.0
 *
 * The head with its loss on a CUDA device, or on the stand-in, whose new memory is NaN,
 * beside the CPU: vocabularies whose rows are padded, with and without a bias, one
 * chunk and two. Kept or made again, a chunk's logits give the same bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/resident.h"

enum { COLS = 8, MOST_ROWS = 4160, MOST_VOCAB = 257 };

struct head_case {
    int rows, vocab;
    bool bias;
    accel_dtype_t type;
    int again; /* chunks that are made again without room */
};

struct outcome {
    float loss, dx[MOST_ROWS * COLS], dw[MOST_VOCAB * COLS], db[MOST_VOCAB];
    int products;
};

static struct {
    int products;
    struct backend real;
} count;

static void count_gemm(const struct backend *be, const struct gemm *p)
{
    count.products++;
    count.real.gemm(be, p);
}

struct net {
    accel_tensor_t *weight, *bias;
    bool biased;
};

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct net *net = accel_module_state(m);

    (void)n;
    return accel_cross_entropy(in[0], net->weight, net->biased ? net->bias : NULL,
                               in[1], NULL);
}

static const accel_class_t net_class = { sizeof(net_class), "Head", net_forward,
                                         sizeof(struct net) };

static accel_tensor_t *input(struct graph *g, const struct head_case *c)
{
    static float x[MOST_ROWS * COLS];
    const int64_t n = (int64_t)c->rows * COLS;
    accel_tensor_t *t = graph_tensor(g, g->compute, 3, (int64_t[]){ 1, c->rows, COLS });
    void *wide;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 64.0f;
    t->needs_grad = true;
    if (c->type == ACCEL_F32) {
        g->backend->from_host(g->backend, t->data, x, (size_t)n * sizeof(*x));
        return t;
    }
    wide = graph_tensor(g, ACCEL_F32, 1, &n)->data;
    g->backend->from_host(g->backend, wide, x, (size_t)n * sizeof(*x));
    g->backend->narrow(g->backend, t->data, ACCEL_BF16, wide, n);
    return t;
}

static bool step(struct graph *g, accel_module_t *m, struct resident *r,
                 const struct head_case *c, struct outcome *out)
{
    static int32_t target[MOST_ROWS];
    const struct net *net = accel_module_state(m);
    accel_tensor_t *in[2], *loss;
    accel_error_t err = { 0 };
    bool good;

    for (int i = 0; i < c->rows; i++)
        target[i] = i % 7 == 6 ? -1 : i * 31 % c->vocab;
    in[0] = input(g, c);
    in[1] = graph_tensor(g, ACCEL_I32, 2, (int64_t[]){ 1, c->rows });
    g->backend->from_host(g->backend, in[1]->data, target,
                          (size_t)c->rows * sizeof(*target));
    loss = accel_call(m, in, 2);
    good = loss && !accel_tensor_read(loss, &out->loss, 1, &err) &&
           !graph_backward(g, loss, 1.0f, &err) &&
           !accel_tensor_read(in[0]->grad, out->dx, (size_t)c->rows * COLS, &err);
    if (!good)
        tap_diag("%s %s", g->error.text, err.text);
    resident_pull(r);
    memcpy(out->dw, r->grad[0] + net->weight->param->unit_offset,
           (size_t)c->vocab * COLS * sizeof(float));
    memcpy(out->db, r->grad[0] + net->bias->param->unit_offset,
           (size_t)c->vocab * sizeof(float));
    out->products = count.products;
    return good;
}

/* Zeroed first, so that outcomes can be compared as a whole. */
static bool run(const struct head_case *c, struct backend *be, size_t room,
                struct outcome *out)
{
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 1 };
    const int64_t vocab = c->vocab;
    struct units units = { 0 };
    struct resident r;
    struct graph g;
    accel_module_t *m;
    struct net *net;
    bool good;

    memset(out, 0, sizeof(*out));
    count.products = 0;
    count.real = *be;
    if (graph_open(&g, be, c->type, false, NULL))
        return false;
    m = nn_module_new(&g, &net_class, NULL, "");
    net = accel_module_state(m);
    net->biased = c->bias;
    net->weight = accel_param(m, "weight", 2, (int64_t[]){ vocab, COLS }, normal);
    net->bias = accel_param(m, "bias", 1, &vocab, normal);
    be->gemm = count_gemm;
    g.logits_room = room;
    good = !nn_units_build(m, false, NULL, &units, NULL) &&
           !resident_open(&r, &units, c->type, 1);
    if (good) {
        g.residency = resident_residency(&r);
        good = step(&g, m, &r, c, out);
        resident_close(&r);
    }
    be->gemm = count.real.gemm;
    units_free(&units);
    nn_module_free(m);
    graph_close(&g);
    return good;
}

/* The largest distance, in parts of the largest value. */
static double distance(const float *got, const float *want, int64_t n)
{
    double far = 0, largest = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);

        far = isnan(d) ? INFINITY : fmax(far, d);
        largest = fmax(largest, fabs((double)want[i]));
    }
    return far / largest;
}

static void test_head(const struct head_case *c, struct backend *cpu,
                      struct backend *device)
{
    static struct outcome want, got, kept;
    const double most = c->type == ACCEL_F32 ? 1e-5 : 0x1p-7;
    char what[96];
    double far;

    snprintf(what, sizeof(what), "%d rows, %d classes%s, %s", c->rows, c->vocab,
             c->bias ? ", bias" : "", accel_dtype_name(c->type));
    if (!tap_ok(run(c, cpu, 0, &want) && run(c, device, 0, &got) &&
                    run(c, device, (size_t)1 << 30, &kept),
                "%s: run", what))
        return;
    far = fmax(distance(&got.loss, &want.loss, 1),
               distance(got.dx, want.dx, (int64_t)c->rows * COLS));
    far = fmax(far, distance(got.dw, want.dw, (int64_t)c->vocab * COLS));
    far = fmax(far, distance(got.db, want.db, c->vocab));
    tap_ok(far < most, "%s: as on the CPU, off by %.1e", what, far);
    tap_is_int(got.products - kept.products, c->again, "%s: products that are spared",
               what);
    kept.products = got.products;
    tap_ok(!memcmp(&got, &kept, sizeof(got)), "%s: the same bits", what);
}

int main(void)
{
    static const struct head_case cases[] = {
        { 67, 131, false, ACCEL_F32, 0 },        { 67, 131, true, ACCEL_F32, 0 },
        { 67, 257, false, ACCEL_BF16, 0 },       { 67, 257, true, ACCEL_BF16, 0 },
        { MOST_ROWS, 13, false, ACCEL_BF16, 1 },
    };
    struct backend *device = cuda_device(), *cpu = NULL;
    accel_error_t err = { 0 };

    if (backend_cpu_open(&cpu, 1, &err)) {
        tap_ok(false, "the CPU backend: %s", err.text);
        return tap_done();
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        test_head(&cases[i], cpu, device);
    backend_close(device);
    backend_close(cpu);
    return tap_done();
}
