/* SPDX-License-Identifier: Apache-2.0
 *
 * An addition waits for what reads its sum: a norm makes both in one kernel, with the
 * bits of two, also over the border of a module; all else finds the sum made. Kernels
 * are counted on the CPU.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/world/op_rig.h"
#include "tests/world/module_rig.h"

enum { LAYERS = 3, BATCH = 2, TIME = 5, VOCAB = 19, WIDTH = 8, ELEMS = 24 };

/* Kernels so far; and whether additions wait, or a norm gets them made. */
static struct {
    struct backend real;
    int add, norm, both;
    bool apart;
} count;

static void count_add(const struct backend *be, void *dst, const void *a, const void *b,
                      accel_dtype_t type, int64_t n)
{
    count.add++;
    count.real.add(be, dst, a, b, type, n);
}

static void count_norm(const struct backend *be, const struct norm *p, void *y,
                       float *stats, const void *x, const void *gain, const void *bias,
                       const struct narrow_copy *narrow)
{
    count.norm++;
    count.real.norm(be, p, y, stats, x, gain, bias, narrow);
}

static void count_add_norm(const struct backend *be, const struct norm *p, void *sum,
                           void *y, float *stats, const void *a, const void *b,
                           const void *gain, const void *bias,
                           const struct narrow_copy *narrow)
{
    count.both++;
    if (!count.apart) {
        count.real.add_norm(be, p, sum, y, stats, a, b, gain, bias, narrow);
        return;
    }
    count.real.add(be, sum, a, b, p->type, p->rows * p->cols);
    count.real.norm(be, p, y, stats, sum, gain, bias, narrow);
}

static void rig_open(struct module_rig *k, accel_dtype_t compute)
{
    if (!module_rig_open(k, compute, 2))
        exit(1);
    memset(&count, 0, sizeof(count));
    count.real = *k->be;
    k->be->add = count_add;
    k->be->norm = count_norm;
    k->be->add_norm = count_add_norm;
}

static void is_counted(int add, int norm, int both, const char *what)
{
    tap_ok(count.add == add && count.norm == norm && count.both == both,
           "%s: %d additions, %d norms, %d of both", what, count.add, count.norm,
           count.both);
    count.add = count.norm = count.both = 0;
}

/* ---- the kernel ------------------------------------------------------------------ */

static void test_kernel(int64_t rows, int64_t cols, accel_dtype_t type, bool rms)
{
    const struct norm p = { type, rows, cols, 1e-5f, rms };
    const size_t bytes = (size_t)(rows * cols) * 4, stat = (size_t)rows * 2 * 4;
    char *mem[10];
    struct backend *be;

    if (backend_cpu_open(&be, 2, NULL))
        exit(1);
    for (int i = 0; i < 10; i++) {
        float *v = calloc(1, bytes + stat + 64);

        /* halves of a bfloat16 pair are both numbers of that size */
        for (size_t k = 0; k < (bytes + stat) / 4; k++)
            v[k] = (float)((k * 37 + (size_t)i * 11) % 101) / 32.0f - 1.5f;
        mem[i] = (char *)v;
    }
    be->add_norm(be, &p, mem[0], mem[1], (float *)mem[2], mem[6], mem[7], mem[8],
                 rms ? NULL : mem[9], NULL);
    be->add(be, mem[3], mem[6], mem[7], type, rows * cols);
    be->norm(be, &p, mem[4], (float *)mem[5], mem[3], mem[8], rms ? NULL : mem[9],
             NULL);
    tap_ok(
        !memcmp(mem[0], mem[3], (size_t)(rows * cols) * accel_dtype_bytes(type)) &&
            !memcmp(mem[1], mem[4], (size_t)(rows * cols) * accel_dtype_bytes(type)) &&
            !memcmp(mem[2], mem[5], stat),
        "%lld x %lld %s%s: the bits of two kernels", (long long)rows, (long long)cols,
        accel_dtype_name(type), rms ? ", rms" : "");
    for (int i = 0; i < 10; i++)
        free(mem[i]);
    backend_close(be);
}

/* ---- the op ---------------------------------------------------------------------- */

struct net {
    accel_tensor_t *gain, *kept;
    accel_module_t *inner;
};

static accel_tensor_t *inner_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct net *net = accel_module_state(m->parent);

    (void)n;
    net->kept = accel_add(in[0], accel_add(in[0], in[0]));
    return net->kept;
}

/* The sum is not what it returns. */
static accel_tensor_t *loses_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct net *net = accel_module_state(m->parent);

    (void)n;
    net->kept = accel_add(in[0], in[0]);
    return in[0];
}

static accel_tensor_t *no_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    (void)n;
    return in[0];
}

static const accel_class_t root_class = { sizeof(root_class), "Net", no_forward,
                                          sizeof(struct net) },
                           inner_class = { sizeof(inner_class), "Inner", inner_forward,
                                           0 },
                           loses_class = { sizeof(loses_class), "Loses", loses_forward,
                                           0 };

static struct net *net_open(struct module_rig *k, const accel_class_t *inner)
{
    const int64_t cols = WIDTH;
    accel_module_t *m;
    struct net *net;

    rig_open(k, ACCEL_F32);
    m = nn_module_new(&k->g, &root_class, NULL, "");
    net = accel_module_state(m);
    net->gain = accel_param(m, "gain", 1, &cols, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    net->inner = nn_module_new(&k->g, inner, m, "inner");
    k->model = m;
    if (!module_rig_fill(k, true, NULL))
        exit(1);
    return net;
}

static accel_tensor_t *numbers(struct graph *g, double by)
{
    double v[ELEMS];

    for (int i = 0; i < ELEMS; i++)
        v[i] = by * (i % 7 - 2);
    return rig_tensor(g, v, 1, ELEMS / WIDTH, WIDTH);
}

static float first_of(const accel_tensor_t *t)
{
    float v[ELEMS] = { NAN };

    if (accel_tensor_read(t, v, (size_t)t->elems, NULL))
        return NAN;
    return v[0];
}

/* What comes between the addition and the norm. */
static void test_readers(void)
{
    struct module_rig k;
    struct net *net = net_open(&k, &inner_class);
    accel_tensor_t *x = numbers(&k.g, 1), *y = numbers(&k.g, 0.5), *s;
    const float other[ELEMS] = { 100 };

    s = accel_add(x, y);
    accel_rmsnorm(s, net->gain, 1e-5f);
    is_counted(0, 0, 1, "a norm of the sum");
    tap_ok(first_of(s) == -3.0f, "which is there to be read: %g", (double)first_of(s));
    is_counted(0, 0, 0, "and is not made again");

    s = accel_add(x, y);
    accel_rmsnorm(x, net->gain, 1e-5f);
    is_counted(1, 1, 0, "a norm of another tensor");
    accel_rmsnorm(s, net->gain, 1e-5f);
    is_counted(0, 1, 0, "then of the sum");
    accel_rmsnorm(accel_add(s, accel_add(x, y)), net->gain, 1e-5f);
    is_counted(1, 0, 1, "of the second of two sums");

    s = accel_add(x, y);
    tap_ok(first_of(s) == -3.0f, "a sum that is read: %g", (double)first_of(s));
    is_counted(1, 0, 0, "is made");
    s = accel_add(x, y);
    tap_is_int(accel_tensor_write(y, other, sizeof(other), NULL), 0, "y changes");
    tap_ok(first_of(s) == -3.0f, "behind the sum: %g", (double)first_of(s));
    is_counted(1, 0, 0, "which was made of the old values");

    s = accel_add(accel_sum(x, -1), accel_sum(x, -1));
    tap_ok(!graph_backward(&k.g, s, 1.0f, NULL), "a loss that is a sum");
    is_counted(1, 0, 0, "is made before the backward");
    s = accel_add(x, y);
    graph_reset(&k.g);
    x = numbers(&k.g, 1);
    accel_rmsnorm(x, net->gain, 1e-5f);
    is_counted(0, 1, 0, "the next micro-batch begins without one");
    module_rig_close(&k);
}

/* The summands are the module's, and go with it. */
static void test_border(void)
{
    struct module_rig k;
    struct net *net = net_open(&k, &inner_class);
    accel_tensor_t *x, *s;

    k.g.recording = false;
    x = numbers(&k.g, 1);
    s = accel_call(net->inner, &x, 1);
    is_counted(1, 0, 0, "a module has made all but its last sum");
    accel_rmsnorm(s, net->gain, 1e-5f);
    is_counted(0, 0, 1, "which the norm behind it makes");
    tap_ok(first_of(s) == -6.0f, "of values that were still there: %g",
           (double)first_of(s));
    module_rig_close(&k);
    net = net_open(&k, &loses_class);
    x = numbers(&k.g, 1);
    accel_call(net->inner, &x, 1);
    tap_ok(!accel_rmsnorm(net->kept, net->gain, 1e-5f) &&
               strstr(k.g.error.text, "is used after its module returned"),
           "a sum that a module keeps to itself is gone: %s", k.g.error.text);
    module_rig_close(&k);
}

/* ---- a model --------------------------------------------------------------------- */

/* Loss and gradients of the first unit of blocks of a fixed batch. */
static float model_step(struct module_rig *k, float *grad, int64_t n)
{
    accel_tensor_t *in[2], *loss;
    float value = NAN;

    for (int i = 0; i < 2; i++) {
        in[i] = graph_tensor(&k->g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        for (int j = 0; j < BATCH * TIME; j++)
            ((int32_t *)in[i]->data)[j] = ((j + i) * 7 + 3) % VOCAB;
    }
    loss = accel_call(k->model, in, 2);
    if (!loss || accel_tensor_read(loss, &value, 1, NULL))
        tap_diag("%s: %s", k->g.error.where, k->g.error.text);
    /* the first norm has no sum before it */
    is_counted(0, 1, 2 * LAYERS, "a forward");
    if (graph_backward(&k->g, loss, 1.0f, NULL))
        tap_diag("%s: %s", k->g.error.where, k->g.error.text);
    memcpy(grad, k->r.grad[1], (size_t)n * sizeof(*grad));
    return value;
}

static void test_model(accel_dtype_t type)
{
    const accel_model_config_t cfg = { .model_type = "gpt2",
                                       .layers = LAYERS,
                                       .heads = 2,
                                       .width = WIDTH,
                                       .context = TIME,
                                       .vocab = VOCAB };
    float grad[3][1024], loss[3];
    int64_t n = 0;
    struct module_rig k;

    for (int form = 0; form < 3; form++) {
        rig_open(&k, type);
        k.model = model_new(&k.g, &cfg, NULL);
        if (!module_rig_fill(&k, true, NULL))
            exit(1);
        count.apart = form == 1;
        if (form == 2)
            nn_recompute_units(k.model);
        n = k.units.unit[1].elems;
        loss[form] = model_step(&k, grad[form], n);
        if (form == 2)
            /* the residual behind the attention, not the one at the end */
            is_counted(0, LAYERS, LAYERS, "blocks that are computed again");
        else
            is_counted(0, 0, 0, "no forward in the backward");
        module_rig_close(&k);
    }
    for (int form = 1; form < 3; form++)
        tap_ok(loss[0] == loss[form] &&
                   !memcmp(grad[0], grad[form], (size_t)n * sizeof(float)),
               "%s, %s: the same bits", accel_dtype_name(type),
               form == 1 ? "two kernels each" : "computed again");
}

int main(void)
{
    static const int64_t shapes[][2] = { { 0, 8 }, { 1, 1 }, { 7, 33 }, { 65, 768 } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
        for (int how = 0; how < 4; how++)
            test_kernel(shapes[i][0], shapes[i][1],
                        how & 1 ? i % 2 ? ACCEL_F16 : ACCEL_BF16 : ACCEL_F32, how & 2);
    test_readers();
    test_border();
    test_model(ACCEL_F32);
    test_model(ACCEL_BF16);
    test_model(ACCEL_F16);
    return tap_done();
}
