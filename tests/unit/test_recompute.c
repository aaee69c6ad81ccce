/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation checkpointing (same bits, less memory), ops of the program's own (equal to
 * ours, errors with their words), second names and lookups.
 */
#include <math.h>
#include <string.h>

#include "backend/device.h"
#include "models/model_config.h"
#include "tensor/tape.h"
#include "tests/tap.h"
#include "tests/world/resident.h"

struct rig {
    struct backend *be;
    struct graph g;
    accel_module_t *model;
    struct units units;
    struct resident r;
};

static bool rig_prepare(struct rig *k, accel_module_t *model)
{
    k->model = model;
    if (!model || nn_units_build(model, true, "", &k->units, NULL) ||
        resident_open(&k->r, &k->units, k->g.compute, 1))
        return false;
    k->g.residency = resident_residency(&k->r);
    return true;
}

static bool rig_begin(struct rig *k, accel_dtype_t compute)
{
    memset(k, 0, sizeof(*k));
    return !backend_cpu_open(&k->be, 2, NULL) &&
           !graph_open(&k->g, k->be, compute, false, NULL);
}

static void rig_close(struct rig *k)
{
    resident_close(&k->r);
    units_free(&k->units);
    nn_module_free(k->model);
    graph_close(&k->g);
    backend_close(k->be);
}

/* ---- recompute ------------------------------------------------------------------- */

enum { LAYERS = 4, BATCH = 2, TIME = 33, VOCAB = 61 };

static const accel_model_config_t small = { .model_type = "gpt2",
                                            .layers = LAYERS,
                                            .heads = 2,
                                            .width = 24,
                                            .context = TIME,
                                            .vocab = VOCAB };

/* Loss of a fixed batch; gradients stay in k->r.grad. */
static float step(struct rig *k)
{
    accel_tensor_t *in[2], *loss;
    float value = NAN;

    graph_reset(&k->g);
    resident_zero_grad(&k->r);
    for (int i = 0; i < 2; i++) {
        in[i] = graph_tensor(&k->g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        for (int j = 0; j < BATCH * TIME; j++)
            ((int32_t *)in[i]->data)[j] = ((j + i) * 7 + 3) % VOCAB;
    }
    loss = accel_call(k->model, in, 2);
    if (!loss || accel_tensor_read(loss, &value, 1, NULL) ||
        graph_backward(&k->g, loss, 1.0f, NULL))
        tap_diag("%s: %s", k->g.error.where, k->g.error.text);
    return value;
}

static bool same_gradients(const struct rig *a, const struct rig *b)
{
    bool same = true;

    for (int u = 0; u < a->units.count; u++)
        same = same && !memcmp(a->r.grad[u], b->r.grad[u],
                               (size_t)a->units.unit[u].elems * sizeof(float));
    return same;
}

static void test_recompute(accel_dtype_t compute, float dropout)
{
    const accel_field_t tokens = { ACCEL_I32, 1, { TIME } };
    accel_model_config_t cfg = small;
    const char *name = accel_dtype_name(compute);
    struct rig plain, again;
    float a, b;
    size_t foretold = 0, peak;

    cfg.resid_dropout = cfg.attn_dropout = dropout;
    if (!rig_begin(&plain, compute) ||
        !rig_prepare(&plain, model_new(&plain.g, &cfg, NULL)) ||
        !rig_begin(&again, compute) ||
        !rig_prepare(&again, model_new(&again.g, &cfg, NULL))) {
        tap_ok(0, "open");
        return;
    }
    tap_is_int(nn_recompute_units(again.model), LAYERS, "%s: every block", name);
    a = step(&plain);
    b = step(&again);
    tap_ok(isfinite(a) && a == b, "%s: same loss %.9g", name, (double)b);
    tap_ok(same_gradients(&plain, &again), "%s, dropout %g: same bits in all gradients",
           name, (double)dropout);
    tap_ok(again.g.draws.calls == plain.g.draws.calls &&
               (again.g.draws.calls > 0) == (dropout > 0),
           "%s: and the next draw is the same", name);
    peak = arena_peak_bytes(again.g.arena);
    tap_ok(peak < arena_peak_bytes(plain.g.arena) * 2 / 3,
           "%s: peak %zu instead of %zu bytes", name, peak,
           arena_peak_bytes(plain.g.arena));
    nn_measure(again.model, BATCH, (accel_field_t[]){ tokens, tokens }, 2, true,
               &foretold, NULL);
    tap_is_int((long long)foretold, (long long)peak, "%s: the peak is foretold", name);
    tap_is_int(again.r.faults, 0, "%s: residency protocol", name);
    rig_close(&plain);
    rig_close(&again);
}

static accel_tensor_t *first_of(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    return n ? in[0] : NULL;
}

/* What there is nothing to run again for, and what the tape cannot hold. */
static void test_edges(void)
{
    static const accel_class_t same = { sizeof(same), "Same", first_of, 0 };
    accel_tensor_t *in[TAPE_MAX_IN + 1];
    struct rig k;

    if (!rig_begin(&k, ACCEL_F32))
        return;
    k.model = nn_module_new(&k.g, &same, NULL, "");
    accel_module_recompute(k.model, 1);
    for (int i = 0; i <= TAPE_MAX_IN; i++)
        in[i] = graph_tensor(&k.g, ACCEL_F32, 1, (int64_t[]){ 2 });
    tap_ok(accel_call(k.model, in, TAPE_MAX_IN) == in[0] && !in[0]->needs_grad &&
               tape_length(&k.g) == 0,
           "a module that gives its input back leaves nothing on the tape");
    tap_ok(k.g.recording, "and recording goes on");
    tap_ok(!accel_call(k.model, in, TAPE_MAX_IN + 1) &&
               strstr(k.g.error.text, "was given 9 inputs"),
           "%s", k.g.error.text);
    graph_reset(&k.g);
    rig_close(&k);
}

/* ---- backward in one product ----------------------------------------------------- */

static struct {
    int products, slopes, sums, own_slopes, own_sums;
    struct backend real;
} count;

static void count_gemm(const struct backend *be, const struct gemm *p)
{
    count.products++;
    count.slopes += p->act_grad;
    count.sums += p->row_sums != NULL;
    count.real.gemm(be, p);
}

static void count_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                           const void *pre, accel_dtype_t type, int64_t n,
                           accel_activation_t act)
{
    count.own_slopes++;
    count.real.act_grad(be, dx, add, dy, pre, type, n, act);
}

static void count_column_sum(const struct backend *be, float *dst, const void *src,
                             accel_dtype_t type, int64_t rows, int64_t cols, int64_t ld)
{
    count.own_sums++;
    count.real.column_sum(be, dst, src, type, rows, cols, ld);
}

/* The slope of GELU comes with the product behind it, the bias's gradient with the
 * weight's: of a block qkv, proj, fc and proj, that is 4 biases. */
static void test_one_product(bool recompute)
{
    struct rig k;

    memset(&count, 0, sizeof(count));
    if (!rig_begin(&k, ACCEL_BF16) || !rig_prepare(&k, model_new(&k.g, &small, NULL))) {
        tap_ok(0, "open");
        return;
    }
    if (recompute)
        nn_recompute_units(k.model);
    count.real = *k.be;
    k.be->gemm = count_gemm;
    k.be->act_grad = count_act_grad;
    k.be->column_sum = count_column_sum;
    step(&k);
    tap_is_int(count.slopes, LAYERS, "%s: slopes that a product makes",
               recompute ? "again" : "saved");
    tap_is_int(count.sums, 4 * LAYERS, "gradients of biases that one makes");
    tap_is_int(count.own_slopes + count.own_sums, 0, "passes of their own");
    rig_close(&k);
}

/* ---- ops of one's own ------------------------------------------------------------ */

/* y = x scaled by the parameter w (one number a column): shape, forward, backward. */
struct scale_attr {
    int refuse; /* 1: in shape, 2: in forward, 3: in backward */
    int calls;
};

static accel_status_t scale_shape(const void *attr, const accel_array_t *in, int n,
                                  accel_array_t *out, accel_error_t *err)
{
    const struct scale_attr *a = attr;

    if (n != 2 || in[0].data || in[1].dims[0] != in[0].dims[in[0].ndim - 1] ||
        a->refuse == 1)
        return accel_error_set(err, ACCEL_EINVAL, "columns do not fit", "count them");
    *out = in[0];
    return ACCEL_OK;
}

static accel_status_t scale_forward(const void *attr, const accel_array_t *in, int n,
                                    const accel_array_t *out, accel_error_t *err)
{
    const struct scale_attr *a = attr;
    const float *x = in[0].data, *w = in[1].data;
    float *y = out->data;

    (void)n;
    if (a->refuse == 2)
        return accel_error_set(err, ACCEL_EIO, "no luck", NULL);
    for (int64_t i = 0; i < out->elems; i++)
        y[i] = x[i] * w[i % in[1].elems];
    return ACCEL_OK;
}

static accel_status_t scale_backward(const void *attr, const accel_array_t *in, int n,
                                     const accel_array_t *out,
                                     const accel_array_t *dout,
                                     const accel_array_t *din, accel_error_t *err)
{
    const struct scale_attr *a = attr;
    const float *x = in[0].data, *w = in[1].data, *dy = dout->data;
    float *dx = din[0].data, *dw = din[1].data;

    (void)n;
    (void)out;
    if (a->refuse == 3)
        return accel_error_set(err, ACCEL_EINVAL, "no way back", NULL);
    for (int64_t i = 0; i < dout->elems; i++) {
        if (dx)
            dx[i] += dy[i] * w[i % in[1].elems];
        dw[i % in[1].elems] += dy[i] * x[i];
    }
    return ACCEL_OK;
}

static const accel_op_t scale_op = { sizeof(scale_op), "scale", scale_shape,
                                     scale_forward, scale_backward };
static const accel_op_t no_forward = { sizeof(no_forward), "empty", scale_shape, NULL,
                                       NULL };

struct own {
    accel_tensor_t *gain, *other, *head;
    struct scale_attr attr;
    const accel_op_t *op;
};

/* loss = cross_entropy(scale(scale(x, gain), other), head): two own ops in a row. */
static accel_tensor_t *own_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct own *o = accel_module_state(m);
    accel_tensor_t *x;

    (void)n;
    x = accel_apply(o->op, (accel_tensor_t *[]){ in[0], o->gain }, 2, &o->attr);
    x = accel_apply(o->op, (accel_tensor_t *[]){ x, o->other }, 2, &o->attr);
    return accel_cross_entropy(x, o->head, NULL, in[1], NULL);
}

static const accel_class_t own_class = { sizeof(own_class), "Own", own_forward,
                                         sizeof(struct own) };

static accel_tensor_t *own_call(struct rig *k)
{
    accel_tensor_t *in[2];

    graph_reset(&k->g);
    resident_zero_grad(&k->r);
    in[0] = graph_tensor(&k->g, ACCEL_F32, 2, (int64_t[]){ 3, 5 });
    in[1] = graph_tensor(&k->g, ACCEL_I32, 1, (int64_t[]){ 3 });
    for (int i = 0; i < 15; i++)
        ((float *)in[0]->data)[i] = (float)(i % 7) - 2.5f;
    for (int i = 0; i < 3; i++)
        ((int32_t *)in[1]->data)[i] = i;
    return accel_call(k->model, in, 2);
}

static double own_loss(struct rig *k)
{
    accel_tensor_t *loss = own_call(k);
    float value = NAN;

    accel_tensor_read(loss, &value, 1, NULL);
    return (double)value;
}

/* Central differences in every element of the two own parameters. */
static void test_own_gradient(struct rig *k, const struct own *o)
{
    accel_tensor_t *param[] = { o->gain, o->other };
    float grad[2][5], step_size = 1e-2f;
    double worst = 0;

    if (graph_backward(&k->g, own_call(k), 1.0f, NULL))
        tap_diag("%s", k->g.error.text);
    for (int p = 0; p < 2; p++)
        memcpy(grad[p], k->r.grad[0] + param[p]->param->unit_offset, sizeof(grad[p]));
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 5; i++) {
            float *w = k->r.master[0] + param[p]->param->unit_offset + i, old = *w;
            double up, down;

            *w = old + step_size;
            resident_refresh(&k->r);
            up = own_loss(k);
            *w = old - step_size;
            resident_refresh(&k->r);
            down = own_loss(k);
            *w = old;
            resident_refresh(&k->r);
            worst = fmax(worst, fabs((up - down) / (2.0 * (double)step_size) -
                                     (double)grad[p][i]));
        }
    tap_ok(worst < 2e-4, "own op: gradients differ by %.2g from differences", worst);
}

static void refused(struct rig *k, const char *text, accel_status_t status)
{
    accel_error_t err = { 0 };
    accel_tensor_t *loss = own_call(k);

    tap_ok(graph_backward(&k->g, loss, 1.0f, &err) == status &&
               strstr(err.text, text) && strstr(err.where, "model: "),
           "%s: %s", err.where, err.text);
}

static void test_own(void)
{
    const int64_t five = 5;
    accel_module_t *m;
    struct own *o;
    struct rig k;

    if (!rig_begin(&k, ACCEL_F32))
        return;
    m = nn_module_new(&k.g, &own_class, NULL, "");
    o = accel_module_state(m);
    o->op = &scale_op;
    o->gain = accel_param(m, "gain", 1, &five, (accel_init_t){ ACCEL_INIT_NORMAL, 1 });
    o->other = accel_param(m, "other", 1, &five, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    o->head = accel_param(m, "head", 2, (int64_t[]){ 4, 5 },
                          (accel_init_t){ ACCEL_INIT_NORMAL, 1 });
    tap_ok(!accel_apply(&scale_op, (accel_tensor_t *[]){ o->gain, o->other }, 2,
                        &o->attr) &&
               strstr(k.g.error.text, "parameter gain has no values yet"),
           "own op before the parameters have values");
    graph_reset(&k.g);
    if (!rig_prepare(&k, m))
        return;
    test_own_gradient(&k, o);
    o->attr.refuse = 1;
    refused(&k, "columns do not fit", ACCEL_EINVAL);
    o->attr.refuse = 2;
    refused(&k, "no luck", ACCEL_EIO);
    o->attr.refuse = 3;
    refused(&k, "no way back", ACCEL_EINVAL);
    o->op = &no_forward;
    refused(&k, "incomplete", ACCEL_EINVAL);
    graph_reset(&k.g);
    rig_close(&k);
}

/* ---- names ----------------------------------------------------------------------- */

static void test_names(void)
{
    const accel_model_config_t cfg = { .model_type = "gpt2",
                                       .layers = 12,
                                       .heads = 1,
                                       .width = 2,
                                       .context = 2,
                                       .vocab = 3 };
    accel_module_t *m, *head;
    accel_tensor_t *wte;
    struct rig k;

    if (!rig_begin(&k, ACCEL_F32))
        return;
    m = model_new(&k.g, &cfg, NULL);
    k.model = m;
    tap_ok(accel_module_find(m, "") == m, "the root");
    tap_is_str(accel_module_find(m, "h.1.attn.c_proj")->path, "h.1.attn.c_proj",
               "a module whose parent's name holds a dot");
    tap_is_str(accel_module_find(m, "h.11")->path, "h.11", "not its prefix");
    tap_ok(!accel_module_find(m, "h") && !accel_module_find(m, "h.1.") &&
               !accel_module_find(NULL, "h") && !accel_module_find(m, NULL),
           "no such module");
    wte = accel_param_find(m, "wte.weight");
    head = nn_module_new(&k.g, &own_class, m, "lm_head");
    tap_ok(wte && accel_tie(head, "weight", wte) == wte &&
               accel_param_find(m, "lm_head.weight") == wte,
           "a second name");
    tap_ok(!accel_param_find(m, "lm_head.bias") && !accel_param_find(m, "weight"),
           "no such parameter");
    tap_ok(!accel_tie(head, "weight", wte) &&
               strstr(k.g.error.text, "lm_head.weight already exists"),
           "a second name twice: %s", k.g.error.text);
    graph_reset(&k.g);
    tap_ok(!accel_tie(head, "bias", NULL) &&
               strstr(k.g.error.text, "needs a parameter"),
           "a second name of nothing: %s", k.g.error.text);
    graph_reset(&k.g);
    rig_close(&k);
}

/* ---- buffers --------------------------------------------------------------------- */

/* The output is x + buffer. */
static accel_tensor_t *shift_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    (void)n;
    return accel_add(in[0], m->buffer[0]);
}

static const accel_class_t shift_class = { sizeof(shift_class), "Shift", shift_forward,
                                           0 };

static void test_buffers(void)
{
    const int64_t dims[] = { 2, 3 };
    const accel_init_t half = { ACCEL_INIT_CONSTANT, 0.5f };
    float values[6] = { 1, 2, 3, 4, 5, 6 }, back[6] = { 0 };
    accel_tensor_t *b, *x, *y;
    accel_error_t err = { 0 };
    struct rig k;

    if (!rig_begin(&k, ACCEL_F32))
        return;
    k.model = nn_module_new(&k.g, &shift_class, NULL, "");
    b = accel_buffer(k.model, "shift", ACCEL_F32, 2, dims, half);
    x = graph_tensor(&k.g, ACCEL_F32, 2, dims);
    tap_ok(!accel_call(k.model, &x, 1) &&
               strstr(k.g.error.text, "buffer shift has no values yet"),
           "used before accel_prepare: %s", k.g.error.text);
    tap_is_int(accel_tensor_write(b, values, sizeof(values), &err), ACCEL_EINVAL,
               "written before: %s", err.text);
    tap_is_int(nn_buffers_open(k.model, &err), ACCEL_OK, "open");
    for (int i = 0; i < 2; i++) {
        graph_reset(&k.g);
        x = graph_tensor(&k.g, ACCEL_F32, 2, dims);
        accel_tensor_write(x, values, sizeof(values), &err);
        y = accel_call(k.model, &x, 1);
        tap_ok(!accel_tensor_read(y, back, 6, &err) && back[5] == (i ? 12.0f : 6.5f),
               "values of a buffer stay over the steps: %g", (double)back[5]);
        accel_tensor_write(b, values, sizeof(values), &err);
    }
    tap_is_int(accel_tensor_write(b, values, 5, &err), ACCEL_EINVAL, "%s", err.text);
    tap_is_int(nn_buffers_list(k.model, NULL), 1, "list");
    graph_reset(&k.g);
    rig_close(&k);
}

/* A rehearsal has no values: what is read back is zero, whatever was there. */
static void test_rehearsal(void)
{
    struct backend *be = NULL, *meta = NULL;
    float x[4] = { 1, 2, 3, 4 }, y[4] = { 1, 2, 3, 4 };
    const float from[4] = { 5, 6, 7, 8 };

    if (!tap_ok(!backend_cpu_open(&be, 1, NULL) && !backend_meta_open(&meta, be, NULL),
                "open"))
        return;
    meta->to_host(meta, x, from, ACCEL_F32, 4);
    meta->to_host_bytes(meta, y, from, sizeof(y));
    for (int i = 0; i < 4; i++)
        if (x[i] != 0 || y[i] != 0)
            x[0] = NAN;
    tap_ok(x[0] == 0, "a rehearsal reads zeros");
    backend_close(meta);
    backend_close(be);
}

int main(void)
{
    test_recompute(ACCEL_F32, 0);
    test_recompute(ACCEL_BF16, 0);
    test_recompute(ACCEL_F32, 0.25f);
    test_edges();
    test_rehearsal();
    test_one_product(false);
    test_one_product(true);
    test_own();
    test_names();
    test_buffers();
    return tap_done();
}
