/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt2 end to end on the CPU backend: loss of a fresh model, learning a fixed batch,
 * same bits for any thread count, measured peak.
 */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/world/module_rig.h"

static const accel_model_config_t small = { .model_type = "gpt2",
                                            .layers = 2,
                                            .heads = 3,
                                            .width = 48,
                                            .context = 96,
                                            .vocab = 97 };

/* A batch, and that of `small`. */
struct batch {
    int samples, time, vocab;
};

static const struct batch small_batch = { 3, 71, 97 };

static bool rig_open(struct module_rig *k, const accel_model_config_t *cfg,
                     accel_dtype_t compute, int threads)
{
    if (!module_rig_open(k, compute, threads))
        return false;
    k->model = model_new(&k->g, cfg, NULL);
    return module_rig_fill(k, true, "GPT2Block");
}

/* Forward and, when recording, backward of a fixed batch; NAN on error. */
static float step(struct module_rig *k, const struct batch *b)
{
    accel_error_t err = { 0 };
    int64_t dims[2] = { b->samples, b->time };
    accel_tensor_t *in[2], *loss;
    float value = NAN;

    graph_reset(&k->g);
    in[0] = graph_tensor(&k->g, ACCEL_I32, 2, dims);
    in[1] = graph_tensor(&k->g, ACCEL_I32, 2, dims);
    for (int i = 0; i < b->samples * b->time; i++) {
        ((int32_t *)in[0]->data)[i] = (i * 7 + 3) % b->vocab;
        ((int32_t *)in[1]->data)[i] = i % 11 == 10 ? -1 : ((i + 1) * 7 + 3) % b->vocab;
    }
    loss = accel_call(k->model, in, 2);
    if (!loss || accel_tensor_read(loss, &value, 1, &err) ||
        (k->g.recording && graph_backward(&k->g, loss, 1.0f, &err))) {
        tap_diag("%s: %s", k->g.error.where, k->g.error.text);
        return NAN;
    }
    return value;
}

static void sgd(struct module_rig *k, float lr)
{
    for (int u = 0; u < k->units.count; u++)
        for (int64_t i = 0; i < k->units.unit[u].elems; i++)
            k->r.master[u][i] -= lr * k->r.grad[u][i];
    resident_zero_grad(&k->r);
    resident_refresh(&k->r);
}

static void test_learns(accel_dtype_t compute)
{
    const char *name = accel_dtype_name(compute);
    struct module_rig k;
    float first = NAN, last = NAN;

    if (!tap_ok(rig_open(&k, &small, compute, 2), "%s: open", name)) {
        module_rig_close(&k);
        return;
    }
    for (int i = 0; i < 60; i++) {
        last = step(&k, &small_batch);
        if (i == 0)
            first = last;
        sgd(&k, 0.5f);
    }
    tap_is_close(first, log(small.vocab), 0.02, "%s: fresh model knows nothing", name);
    tap_ok(last < 0.5f * first, "%s: learns a fixed batch: %g -> %g", name,
           (double)first, (double)last);
    tap_is_int(k.r.faults, 0, "%s: residency protocol", name);
    module_rig_close(&k);
}

/* FNV-1a over the bits of all gradients: to compare builds and machines by eye. */
static unsigned long long fingerprint(const struct module_rig *k)
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
    const struct batch large_batch = { 4, 131, 1009 };
    struct module_rig k[3];
    float loss[3];
    bool same = true;

    for (int i = 0; i < 3; i++) {
        if (!rig_open(&k[i], &cfg, compute, 1 << i))
            tap_ok(false, "%s: open", name);
        loss[i] = step(&k[i], &large_batch);
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
        module_rig_close(&k[i]);
}

static void test_measure(accel_dtype_t compute)
{
    const accel_field_t tokens = { ACCEL_I32, 1, { 71 } },
                        fields[] = { tokens, tokens };
    const char *name = accel_dtype_name(compute);
    size_t train = 0, eval = 0;
    struct module_rig k;

    if (!rig_open(&k, &small, compute, 2))
        tap_ok(false, "%s: open", name);
    tap_is_int(nn_measure(k.model, 3, fields, 2, true, &train, NULL), 0, "%s: measure",
               name);
    tap_is_int(nn_measure(k.model, 3, fields, 2, false, &eval, NULL), 0,
               "%s: evaluation", name);
    k.g.recording = false;
    step(&k, &small_batch);
    tap_is_int((long long)arena_peak_bytes(k.g.arena), (long long)eval,
               "%s: evaluation peak is the planned one", name);
    k.g.recording = true;
    step(&k, &small_batch);
    tap_is_int((long long)arena_peak_bytes(k.g.arena), (long long)train,
               "%s: training peak is the planned one", name);
    step(&k, &small_batch);
    tap_is_int((long long)arena_peak_bytes(k.g.arena), (long long)train,
               "%s: the second step needs no more", name);
    tap_ok(eval < train, "%s: evaluation needs less: %zu < %zu", name, eval, train);
    module_rig_close(&k);
}

/* What is frozen gets no gradient, and all else the same bits as before. */
static void test_frozen(const char *match)
{
    struct module_rig all, some;
    int touched = 0, other = 0, frozen = 0;
    float a, b;

    if (!rig_open(&all, &small, ACCEL_F32, 2) || !rig_open(&some, &small, ACCEL_F32, 2))
        tap_ok(false, "open");
    for (int u = 0; u < some.units.count; u++)
        for (int i = 0; i < some.units.unit[u].param_count; i++)
            if (!fnmatch(match, some.units.unit[u].param[i]->name, 0))
                some.units.unit[u].param[i]->needs_grad = false;
    a = step(&all, &small_batch);
    b = step(&some, &small_batch);
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
    module_rig_close(&all);
    module_rig_close(&some);
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
