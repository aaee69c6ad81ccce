/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of int8 that a linear takes as they are: the run has the bits of one that
 * casts them first, in every compute dtype and in fp8, in training and evaluation.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

enum { FEATURES = 32, HIDDEN = 48, OUT = 16, BATCH = 24, STEPS = 6 };

static char dir[64] = "/tmp/accel-int8.XXXXXX";
static char config[96];
#define CONFIG "distributed_type: MULTI_CPU\nnum_processes: 1\nuse_cpu: true\n"

struct net {
    accel_module_t *root;
    accel_tensor_t *first, *second;
    bool casts; /* the program casts its batch */
};

static struct net net;
static int runs;

/* features int8 [B, FEATURES], targets float32 [B, OUT] -> a float32 */
static accel_tensor_t *forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = net.casts ? accel_cast(in[0], m->g->compute) : in[0];

    (void)n;
    x = accel_linear(x, net.first, NULL, ACCEL_ACT_RELU);
    x = accel_linear(x, net.second, NULL, ACCEL_ACT_NONE);
    return accel_mse(accel_cast(x, ACCEL_F32), in[1]);
}

static int features(void *user, int64_t index, void *const *dst)
{
    int8_t *x = dst[0];
    int sum = 0;

    (void)user;
    for (int64_t i = 0; i < FEATURES; i++) {
        x[i] = (int8_t)(index * 37 + i * i * 11);
        sum += i % 3 ? x[i] : -x[i];
    }
    for (int i = 0; i < OUT; i++)
        ((float *)dst[1])[i] = (float)(sum * (i - 7)) / 512;
    return 0;
}

/* The losses of the steps; before and behind them those of an evaluation. */
static void run_net(const char *precision, bool casts, double loss[STEPS + 2])
{
    static const accel_class_t cls = { .bytes = sizeof(cls),
                                       .name = "Net",
                                       .forward = forward };
    const accel_field_t fields[] = { { ACCEL_I8, 1, { FEATURES } },
                                     { ACCEL_F32, 1, { OUT } } };
    accel_options_t o = { sizeof(o), .config_file = config, .run_name = "int8",
                          .threads = 2 };
    accel_job_t j = { sizeof(j), .steps = STEPS, .batch = BATCH, .seed = 3 };
    accel_error_t err = { 0 };
    accel_tensor_t *batch[2], *got;
    accel_t *run = NULL;
    char out[96];
    float value;

    run_folder_write(config, precision);
    snprintf(out, sizeof(out), "%s/%d", dir, ++runs);
    j.out_dir = out;
    for (int i = 0; i < STEPS + 2; i++)
        loss[i] = NAN;
    if (accel_open(&run, &o, &err))
        tap_diag("open: %s", err.text);
    /* one kernel whatever the operands are: that of pairs of bfloat16 has bits of its own
     */
    ((struct cpu_state *)run->backend->state)->bf16_products = false;
    j.optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .kind = ACCEL_SGD,
                                        .lr = 1e-3f };
    accel_dataset_new(&j.data, 200, fields, 2, features, NULL, 0.2, &err);
    net.casts = casts;
    net.root = j.model = accel_module_new(run, &cls, NULL, "");
    net.first = accel_param(net.root, "first", 2, (int64_t[]){ HIDDEN, FEATURES },
                            (accel_init_t){ ACCEL_INIT_NORMAL, 0.02f });
    net.second = accel_param(net.root, "second", 2, (int64_t[]){ OUT, HIDDEN },
                             (accel_init_t){ ACCEL_INIT_NORMAL, 0.02f });
    if (accel_prepare(run, &j, &err))
        tap_diag("prepare: %s", err.text);
    accel_evaluate(run, 0, &loss[0], &err);
    for (int i = 0; i < STEPS && !accel_next(run, batch, 2, &err); i++) {
        got = accel_call(j.model, batch, 2);
        if (accel_tensor_read(got, &value, 1, &err) || accel_backward(run, got, &err) ||
            accel_step(run, &err))
            break;
        loss[1 + i] = (double)value;
    }
    if (accel_evaluate(run, 0, &loss[STEPS + 1], &err))
        tap_diag("%s", err.text);
    tap_is_int(accel_close(run, &err), ACCEL_OK, "closed %s", err.text);
    accel_dataset_close(j.data);
}

static void test_precision(const char *name, const char *precision)
{
    double as_it_is[STEPS + 2], cast[STEPS + 2];

    run_net(precision, false, as_it_is);
    run_net(precision, true, cast);
    tap_ok(!memcmp(as_it_is, cast, sizeof(cast)), "%s: the same bits, %.9g to %.9g",
           name, as_it_is[1], as_it_is[STEPS]);
    tap_ok(as_it_is[STEPS + 1] < 0.9 * as_it_is[0], "%s: it learns, %.3g to %.3g", name,
           as_it_is[0], as_it_is[STEPS + 1]);
}

int main(void)
{
    run_folder_make(dir, "", config, sizeof(config));
    test_precision("float32", CONFIG "mixed_precision: no\n");
    test_precision("bfloat16", CONFIG "mixed_precision: bf16\n");
    test_precision("float16", CONFIG "mixed_precision: fp16\n");
    test_precision(
        "fp8",
        CONFIG "mixed_precision: fp8\naccel:\n  precision:\n    modules: \"*=fp8\"\n");
    run_folder_remove(dir);
    return tap_done();
}
