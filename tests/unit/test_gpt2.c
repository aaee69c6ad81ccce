/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt2 end to end on the CPU backend: loss of a fresh model, learning a fixed batch,
 * same bits for any thread count, measured peak.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/world/resident.h"

struct rig {
    struct backend *be;
    struct graph g;
    accel_module_t *model;
    struct units units;
    struct resident r;
    int batch, time, vocab;
};

static bool rig_open(struct rig *k, const accel_model_config_t *cfg,
                     accel_dtype_t compute, int threads, int batch, int time)
{
    accel_error_t err = { 0 };

    memset(k, 0, sizeof(*k));
    k->batch = batch;
    k->time = time;
    k->vocab = cfg->vocab;
    if (backend_cpu_open(&k->be, threads, &err) ||
        graph_open(&k->g, k->be, compute, false, &err))
        return false;
    k->model = model_new(&k->g, cfg, &err);
    if (!k->model || nn_units_build(k->model, true, "GPT2Block", &k->units, &err) ||
        resident_open(&k->r, &k->units, compute, 1))
        return false;
    k->g.residency = resident_residency(&k->r);
    return true;
}

static void rig_close(struct rig *k)
{
    resident_close(&k->r);
    units_free(&k->units);
    nn_module_free(k->model);
    graph_close(&k->g);
    backend_close(k->be);
}

/* Forward and, when recording, backward of a fixed batch; NAN on error. */
static float step(struct rig *k)
{
    accel_error_t err = { 0 };
    int64_t dims[2] = { k->batch, k->time };
    accel_tensor_t *in[2], *loss;
    float value = NAN;

    graph_reset(&k->g);
    in[0] = graph_tensor(&k->g, ACCEL_I32, 2, dims);
    in[1] = graph_tensor(&k->g, ACCEL_I32, 2, dims);
    for (int i = 0; i < k->batch * k->time; i++) {
        ((int32_t *)in[0]->data)[i] = (i * 7 + 3) % k->vocab;
        ((int32_t *)in[1]->data)[i] = i % 11 == 10 ? -1 : ((i + 1) * 7 + 3) % k->vocab;
    }
    loss = accel_call(k->model, in, 2);
    if (!loss || accel_tensor_read(loss, &value, 1, &err) ||
        (k->g.recording && graph_backward(&k->g, loss, 1.0f, &err))) {
        tap_diag("%s: %s", k->g.error.where, k->g.error.text);
        return NAN;
    }
    return value;
}

static void sgd(struct rig *k, float lr)
{
    for (int u = 0; u < k->units.count; u++)
        for (int64_t i = 0; i < k->units.unit[u].elems; i++)
            k->r.master[u][i] -= lr * k->r.grad[u][i];
    resident_zero_grad(&k->r);
    resident_refresh(&k->r);
}

static const accel_model_config_t small = { .model_type = "gpt2",
                                            .layers = 2,
                                            .heads = 3,
                                            .width = 48,
                                            .context = 96,
                                            .vocab = 97 };

static void test_learns(accel_dtype_t compute)
{
    const char *name = accel_dtype_name(compute);
    struct rig k;
    float first = NAN, last = NAN;

    if (!tap_ok(rig_open(&k, &small, compute, 2, 3, 71), "%s: open", name)) {
        rig_close(&k);
        return;
    }
    for (int i = 0; i < 60; i++) {
        last = step(&k);
        if (i == 0)
            first = last;
        sgd(&k, 0.5f);
    }
    tap_is_close(first, log(small.vocab), 0.02, "%s: fresh model knows nothing", name);
    tap_ok(last < 0.5f * first, "%s: learns a fixed batch: %g -> %g", name,
           (double)first, (double)last);
    tap_is_int(k.r.faults, 0, "%s: residency protocol", name);
    rig_close(&k);
}

/* FNV-1a over the bits of all gradients: to compare builds and machines by eye. */
static unsigned long long fingerprint(const struct rig *k)
{
    unsigned long long h = 14695981039346656037u;

    for (int u = 0; u < k->units.count; u++) {
        const unsigned char *p = (const unsigned char *)k->r.grad[u];

        for (int64_t i = 0; i < k->units.unit[u].elems * 4; i++)
            h = (h ^ p[i]) * 1099511628211u;
    }
    return h;
}

static void test_threads(accel_dtype_t compute)
{
    const char *name = accel_dtype_name(compute);
    const accel_model_config_t cfg = { .model_type = "gpt2",
                                       .layers = 2,
                                       .heads = 4,
                                       .width = 196,
                                       .context = 150,
                                       .vocab = 1009 };
    struct rig k[3];
    float loss[3];
    bool same = true;

    for (int i = 0; i < 3; i++) {
        if (!rig_open(&k[i], &cfg, compute, 1 << i, 4, 131))
            tap_ok(false, "%s: open", name);
        loss[i] = step(&k[i]);
    }
    tap_ok(!isnan(loss[0]) && !memcmp(&loss[0], &loss[1], 4) &&
               !memcmp(&loss[0], &loss[2], 4),
           "%s: same loss bits with 1, 2 and 4 threads", name);
    for (int i = 1; i < 3; i++)
        for (int u = 0; u < k[0].units.count; u++)
            same = same && !memcmp(k[0].r.grad[u], k[i].r.grad[u],
                                   (size_t)k[0].units.unit[u].elems * 4);
    tap_ok(same, "%s: same gradient bits with 1, 2 and 4 threads", name);
    tap_diag("%s: loss %a, gradients %016llx (%s)", name, (double)loss[0],
             fingerprint(&k[0]), k[0].be->isa);
    for (int i = 0; i < 3; i++)
        rig_close(&k[i]);
}

static void test_measure(accel_dtype_t compute)
{
    const accel_field_t tokens = { ACCEL_I32, 1, { 71 } },
                        fields[] = { tokens, tokens };
    const char *name = accel_dtype_name(compute);
    size_t train = 0, eval = 0;
    struct rig k;

    if (!rig_open(&k, &small, compute, 2, 3, 71))
        tap_ok(false, "%s: open", name);
    tap_is_int(nn_measure(k.model, 3, fields, 2, true, &train, NULL), 0, "%s: measure",
               name);
    tap_is_int(nn_measure(k.model, 3, fields, 2, false, &eval, NULL), 0,
               "%s: evaluation", name);
    k.g.recording = false;
    step(&k);
    tap_is_int((long long)arena_peak_bytes(k.g.arena), (long long)eval,
               "%s: evaluation peak is the planned one", name);
    k.g.recording = true;
    step(&k);
    tap_is_int((long long)arena_peak_bytes(k.g.arena), (long long)train,
               "%s: training peak is the planned one", name);
    step(&k);
    tap_is_int((long long)arena_peak_bytes(k.g.arena), (long long)train,
               "%s: the second step needs no more", name);
    tap_ok(eval < train, "%s: evaluation needs less: %zu < %zu", name, eval, train);
    rig_close(&k);
}

/* What is frozen gets no gradient, and all else the same bits as before. */
static void test_frozen(const char *match)
{
    struct rig all, some;
    int touched = 0, other = 0, frozen = 0;
    float a, b;

    if (!rig_open(&all, &small, ACCEL_F32, 2, 3, 71) ||
        !rig_open(&some, &small, ACCEL_F32, 2, 3, 71))
        tap_ok(false, "open");
    for (int u = 0; u < some.units.count; u++)
        for (int i = 0; i < some.units.unit[u].param_count; i++)
            if (!fnmatch(match, some.units.unit[u].param[i]->name, 0))
                some.units.unit[u].param[i]->needs_grad = false;
    a = step(&all);
    b = step(&some);
    for (int u = 0; u < some.units.count; u++)
        for (int i = 0; i < some.units.unit[u].param_count; i++) {
            const accel_tensor_t *p = some.units.unit[u].param[i];
            const float *x = some.r.grad[u] + p->param->unit_offset;
            const float *y = all.r.grad[u] + p->param->unit_offset;

            frozen += !p->needs_grad;
            for (int64_t k = 0; k < p->elems; k++)
                if (p->needs_grad)
                    other += x[k] != y[k];
                else
                    touched += x[k] != 0;
        }
    tap_ok(a == b && frozen > 0 && !touched && !other,
           "%s: %d frozen, %d of their gradients touched, %d others changed", match,
           frozen, touched, other);
    rig_close(&all);
    rig_close(&some);
}

int main(void)
{
    static const char *const globs[] = {
        "*.bias", "*.weight", "h.0.*", "h.*", "wte.*", "w?e.*", "ln_f.*", "*.mlp.c_fc.*"
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(globs); i++)
        test_frozen(globs[i]);
    test_learns(ACCEL_F32);
    test_learns(ACCEL_BF16);
    test_learns(ACCEL_F16);
    test_threads(ACCEL_BF16);
    if (!TAP_SANITIZED) {
        test_threads(ACCEL_F32);
        test_threads(ACCEL_F16);
    }
    test_measure(ACCEL_F32);
    test_measure(ACCEL_BF16);
    test_measure(ACCEL_F16);
    return tap_done();
}
