/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that runs out of memory in an attempt works again after it: at once or into a
 * recorded step, with the same logits and no gradient left. Memory of activations goes
 * back to the device and comes again. Regions reach the profiler.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/model_run.h"

#define MIB ((int64_t)1 << 20)

enum { ROOM = 80, TOKENS = 10, MADE = 16 };

static void (*ranges_get)(char *buf, size_t len); /* NULL: a GPU */

struct attempts {
    accel_t *run;
    int made, size[MADE];
    bool late; /* memory runs out behind the forward, of which a part is launched */
    double loss;
};

/* A forward and backward of one sample, with `batch` MiB of activations besides. */
static accel_status_t attempt(void *user, int batch, accel_error_t *err)
{
    const int64_t ballast[] = { batch, MIB / 4 }, dims[] = { 1, TOKENS };
    int32_t ids[TOKENS], targets[TOKENS];
    struct attempts *a = user;
    accel_tensor_t *in[2], *loss;
    accel_status_t st;
    float value = NAN;

    a->size[a->made++ % MADE] = batch;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (3 * i + 1) % 41;
        targets[i] = (5 * i + 2) % 41;
    }
    a->run->backend->step_begin(a->run->backend);
    in[0] = accel_input(a->run, ACCEL_I32, 2, dims, ids, err);
    in[1] = accel_input(a->run, ACCEL_I32, 2, dims, targets, err);
    if (!a->late)
        graph_tensor(&a->run->graph, ACCEL_F32, 2, ballast);
    loss = accel_call(a->run->job.model, in, 2);
    if (a->late)
        graph_tensor(&a->run->graph, ACCEL_F32, 2, ballast);
    st = accel_backward(a->run, loss, err);
    if (st == ACCEL_OK)
        st = accel_tensor_read(loss, &value, 1, err);
    a->loss = (double)value;
    return st;
}

static void add_gradient(void *user, const char *name, float *gradient, int64_t first,
                         int64_t count)
{
    (void)name, (void)first;
    for (int64_t i = 0; i < count; i++)
        *(double *)user += fabs((double)gradient[i]);
}

/* The sum of all elements of the gradient, without signs. */
static double gradient_sum(accel_t *run)
{
    accel_error_t err = { 0 };
    double sum = 0;

    if (shard_each_gradient(run->shard, 0, add_gradient, &sum, &err))
        tap_diag("%s", err.text);
    return sum;
}

static bool same_logits(accel_t *run, const float *before)
{
    float now[MODEL_RUN_LOGITS];
    accel_error_t err = { 0 };
    int64_t n = 0;

    if (model_run_logits(run, "gpt2", now, &n, &err))
        tap_diag("%s", err.text);
    graph_reset(&run->graph);
    return n > 0 && !memcmp(now, before, (size_t)n * sizeof(*now));
}

/* Attempts 1 and 2 run call by call, later ones are recorded. */
static void test_find(accel_t *run, const float *logits)
{
    struct attempts a = { .run = run };
    accel_error_t err = { 0 };
    double loss = NAN;

    for (int round = 0; round < 3; round++) {
        int batch = 0;

        a.made = 0;
        a.late = round == 1;
        tap_ok(!accel_find_batch_size(run, 400, attempt, &a, &batch, &err),
               "a size is found %s", err.text);
        tap_ok(batch == 50 && a.made == 4 && a.size[1] == 200, "400, 200, 100, 50: %d",
               batch);
        tap_ok(isfinite(a.loss) && (round == 0 || a.loss == loss),
               "with the same loss in every round: %.9g", a.loss);
        loss = a.loss;
        tap_ok(gradient_sum(run) == 0, "its gradient is gone");
        tap_ok(run->status == ACCEL_OK && !run->backend->check(run->backend, &err) &&
                   same_logits(run, logits),
               "and the device computes as before %s", err.text);
    }
    tap_ok(attempt(&a, 1, &err) == ACCEL_OK && gradient_sum(run) > 0,
           "an attempt alone leaves one %s", err.text);
    shard_abandon(run->shard);
    run->loop.micro = 0;
}

static void test_free(accel_t *run, const float *logits)
{
    const struct backend *be = run->backend;
    struct backend_usage before, after;
    accel_error_t err = { 0 };
    int64_t bytes = 0;

    be->usage(be, &before);
    tap_ok(!accel_free_memory(run, &bytes, &err) && bytes >= 64 * MIB,
           "activations are given back %s", err.text);
    be->usage(be, &after);
    tap_ok(before.used >= after.used + (size_t)bytes &&
               after.held[MEMORY_ACTIVATIONS] == 0,
           "to the device: %zu MiB", (before.used - after.used) >> 20);
    tap_ok(same_logits(run, logits), "and come again");
}

static void test_regions(accel_t *run)
{
    accel_error_t err = { 0 };
    char seen[64];

    if (!ranges_get) {
        tap_skip(1, "the stand-in shows what a profiler would");
        return;
    }
    accel_region_begin(run, "outer", &err);
    accel_region_begin(run, "inner", &err);
    accel_region_end(run, "outer", &err);
    accel_region_end(run, "inner", &err);
    accel_region_end(run, "outer", &err);
    ranges_get(seen, sizeof(seen));
    tap_is_str(seen, "(outer(inner))", "regions are NVTX's ranges");
}

int main(void)
{
    static struct boot boot = { .size = 1, .local_size = 1, .nodes = 1 };
    static accel_t run;
    struct model_request r = { .dir = "none", .compute = ACCEL_F32 };
    struct backend_usage u;
    float logits[MODEL_RUN_LOGITS];
    accel_error_t err = { 0 };
    void *taken = NULL;
    int64_t n;

#ifdef __SANITIZE_ADDRESS__
    tap_skip_all("the stand-in's kernels have stacks of their own");
#endif
    setenv("FAKE_CUDA_MEMORY", "402653184", 0); /* a stand-in fills all it gives out */
    r.backend = cuda_device();
    cuda_stand_in("fakecuda_ranges_get", &ranges_get);
    if (boot_open(&boot, 1000, &err) || model_run_open(&run, &boot, &r, &err) ||
        model_run_logits(&run, "gpt2", logits, &n, &err)) {
        tap_ok(false, "open: %s", err.text);
        return tap_done();
    }
    graph_reset(&run.graph);
    run.loop.group.rule.every = 2;
    run.observe.every = 1;
    run.loop.losses = run.backend->host_alloc(run.backend, 2 * sizeof(float));
    /* only so much is left to activations */
    run.backend->usage(run.backend, &u);
    tap_ok(!run.backend->alloc(run.backend, MEMORY_WORK,
                               u.total - u.used - (size_t)(ROOM * MIB), &taken, &err),
           "most of the device is taken");
    test_find(&run, logits);
    test_free(&run, logits);
    test_regions(&run);
    run.backend->free(run.backend, taken);
    run.backend->host_free(run.backend, run.loop.losses, 2 * sizeof(float));
    model_run_close(&run);
    return tap_done();
}
