/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step in the steady state allocates nothing: the program's malloc family
 * counts its calls (malloc_count.h), and after the second step no more are made, in any library.
 */
#include <stdlib.h>

#include "bootstrap/boot.h"
#include "models/model_config.h"
#include "optim/optim.h"
#include "shard/shard.h"
#include "tests/tap.h"
#include "tests/unit/malloc_count.h"

enum { BATCH = 2, TIME = 70, STEPS = 10, SETTLED = 2, VOCAB = 211 };

struct rig {
    struct graph g;
    struct backend *be;
    accel_module_t *model;
    struct units units;
    struct boot boot;
    struct comm *comm;
    struct shard *shard;
};

static bool rig_open(struct rig *r, accel_dtype_t compute)
{
    const accel_model_config_t cfg = { .model_type = "gpt2",
                                       .layers = 2,
                                       .heads = 2,
                                       .width = 48,
                                       .context = TIME,
                                       .vocab = VOCAB };
    const struct shard_optim adamw = { .settings =
                                           optim_defaults((accel_optimizer_t){ 0 }) };
    struct shard_options o = { .strategy = SHARD_FULL,
                               .precision = { compute, compute, compute, false, false },
                               .optim = &adamw,
                               .optims = 1 };

    *r = (struct rig){ 0 };
    if (backend_cpu_open(&r->be, 2, NULL) || boot_open(&r->boot, 10000, NULL) ||
        comm_open(&r->comm, &r->boot, NULL, NULL) ||
        graph_open(&r->g, r->be, compute, false, NULL))
        return false;
    o.backend = r->be;
    r->model = model_new(&r->g, &cfg, NULL);
    if (!r->model || nn_units_build(r->model, true, "", &r->units, NULL) ||
        shard_open(&r->shard, r->comm, &o, &r->units, NULL))
        return false;
    shard_init(r->shard, 1);
    r->g.residency = shard_residency(r->shard);
    return true;
}

static void rig_close(struct rig *r)
{
    shard_close(r->shard);
    units_free(&r->units);
    nn_module_free(r->model);
    graph_close(&r->g);
    comm_close(r->comm);
    boot_free(&r->boot);
    backend_close(r->be);
}

static bool step(struct rig *r, int t)
{
    accel_tensor_t *in[2], *loss;
    accel_error_t err = { 0 };
    double sum;

    graph_reset(&r->g);
    for (int k = 0; k < 2; k++) {
        in[k] = graph_tensor(&r->g, ACCEL_I32, 2, (int64_t[]){ BATCH, TIME });
        for (int i = 0; in[k] && i < BATCH * TIME; i++)
            ((int32_t *)in[k]->data)[i] = (i + k + t) * 31 % VOCAB;
    }
    loss = accel_call(r->model, in, 2);
    if (shard_backward_begin(r->shard, 1, &err) ||
        graph_backward(&r->g, loss, 1.0f, &err) || shard_backward_end(r->shard, &err) ||
        shard_reduce(r->shard, 0, &err) || shard_grad_sumsq(r->shard, 0, &sum, &err))
        return false;
    shard_update(r->shard, 0, 1e-3f, t, 1.0f, NULL);
    return true;
}

static void test_steady(accel_dtype_t compute)
{
    const char *name = accel_dtype_name(compute);
    int from = 0, before = malloc_calls();
    bool good = true;
    struct rig r;

    tap_ok(rig_open(&r, compute), "%s: open", name);
    tap_ok(malloc_calls() > before, "%s: calls are counted", name);
    for (int t = 1; t <= STEPS && good; t++) {
        if (t == SETTLED + 1)
            from = malloc_calls();
        good = step(&r, t);
    }
    tap_ok(good, "%s: %d steps", name, STEPS);
    tap_is_int(malloc_calls() - from, 0, "%s: no allocation from step %d to step %d",
               name, SETTLED + 1, STEPS);
    rig_close(&r);
}

int main(void)
{
    test_steady(ACCEL_F32);
    test_steady(ACCEL_BF16);
    return tap_done();
}
