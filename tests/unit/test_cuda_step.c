/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step of a 12-layer GPT-2 puts on a device besides products and attention,
 * counted by the stand-in: kernels, copies and fills, at once or into a recording; and
 * how often the host waits. On a GPU the losses alone are judged.
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/run_boxes.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/cuda_run.h"
#include "handle/run.h"

enum { BATCH = 2, SEQ = 32, STEPS = 4, COUNTED = 3, MOST_NAMES = 128, MOST_WORK = 90 };

static int (*kernels_get)(struct fakecuda_kernel *out, int most); /* NULL: a GPU */
static void (*counts_get)(struct fakecuda_counts *out);

/* ---- counting -------------------------------------------------------------------- */

struct counts {
    struct fakecuda_kernel kernel[MOST_NAMES];
    struct fakecuda_counts all;
    int kernels;
};

static void count_now(struct counts *c)
{
    c->kernels = kernels_get(c->kernel, MOST_NAMES);
    counts_get(&c->all);
}

/* What `to` has beyond `from`; names only come, none goes. */
static struct fakecuda_kernel beyond(const struct counts *from,
                                     const struct fakecuda_kernel *to)
{
    struct fakecuda_kernel more = *to;

    for (int i = 0; i < from->kernels; i++)
        if (!strcmp(from->kernel[i].name, to->name)) {
            more.eager -= from->kernel[i].eager;
            more.recorded -= from->kernel[i].recorded;
        }
    return more;
}

/* Prints the table; returns what is neither product nor attention. */
static int64_t work_between(const struct counts *from, const struct counts *to)
{
    uint64_t eager = 0, recorded = 0;

    for (int i = 0; i < to->kernels; i++) {
        const struct fakecuda_kernel k = beyond(from, &to->kernel[i]);

        if (k.eager + k.recorded == 0)
            continue;
        tap_diag("%6llu eager %6llu recorded  %s", (unsigned long long)k.eager,
                 (unsigned long long)k.recorded, k.name);
        if (strstr(k.name, "attention"))
            continue;
        eager += k.eager;
        recorded += k.recorded;
    }
    tap_diag("%6llu eager %6llu recorded  beside %llu products and attention",
             (unsigned long long)eager, (unsigned long long)recorded,
             (unsigned long long)(to->all.matmuls - from->all.matmuls));
    return (int64_t)(eager + recorded);
}

/* ---- a run ----------------------------------------------------------------------- */

/* Loss and gradient norm of each step, from the log. */
static float losses[STEPS], norms[STEPS];
static int logged;

static void note_loss(void *user, accel_log_level_t level, const char *line)
{
    const char *loss = strstr(line, " loss "), *norm = strstr(line, " norm ");

    (void)user;
    (void)level;
    if (strncmp(line, "step ", 5) || !loss || !norm || logged == STEPS)
        return;
    losses[logged] = strtof(loss + 6, NULL);
    norms[logged++] = strtof(norm + 6, NULL);
}

/* One step. reads: the program reads the loss of each micro-batch itself. */
static accel_status_t one_step(accel_t *run, const accel_job_t *j, double *sum_out,
                               accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int micro = 0; micro < j->accumulate && !st; micro++) {
        accel_tensor_t *batch[2], *loss = NULL;
        float value = 0;

        st = accel_next(run, batch, 2, err);
        if (!st)
            loss = accel_call(j->model, batch, 2);
        if (!st)
            st = accel_backward(run, loss, err);
        if (!st && sum_out)
            st = accel_tensor_read(loss, &value, 1, err);
        if (sum_out)
            *sum_out += (double)value / j->accumulate;
        if (!st)
            st = accel_step(run, err);
    }
    return st;
}

/* name: of the config. */
static accel_status_t open_run(accel_t **run_out, accel_job_t *j, const char *name,
                               int layers, accel_error_t *err)
{
    const accel_model_config_t cfg = { .bytes = sizeof(accel_model_config_t),
                                       .model_type = "gpt2",
                                       .layers = layers,
                                       .heads = 2,
                                       .width = 64,
                                       .context = SEQ,
                                       .vocab = 256 };
    char text[96];
    accel_status_t st = cuda_run_open(run_out, name, note_loss, err);

    snprintf(text, sizeof(text), "%s/text.txt", cuda_run_dir);
    if (!st)
        st = accel_dataset_open(&j->data, text, SEQ, 0, err);
    if (!st)
        j->model = accel_model_new(*run_out, &cfg, err);
    return st ? st : accel_prepare(*run_out, j, err);
}

/* Steps with `accumulate` micro-batches; the third is counted, when code is loaded,
 * algorithms are chosen and a graph is there to be updated. */
static void test_run(const char *name, int layers, int accumulate)
{
    static struct counts from, to;
    accel_job_t j = { sizeof(j),
                      .steps = STEPS,
                      .batch = BATCH,
                      .accumulate = accumulate,
                      .seed = 3,
                      .clip = 1,
                      .log_every = 1,
                      .out_dir = cuda_run_dir,
                      .optimizer =
                          &(accel_optimizer_t){ sizeof(accel_optimizer_t), .lr = 1e-3f,
                                                .weight_decay = 0.1f } };
    accel_error_t err = { 0 };
    double sum = 0;
    accel_t *run = NULL;
    accel_status_t st = open_run(&run, &j, name, layers, &err);

    logged = 0;
    for (int t = 1; t <= STEPS && !st; t++) {
        if (t == COUNTED && kernels_get)
            count_now(&from);
        st = one_step(run, &j, t == STEPS ? &sum : NULL, &err);
        if (t == COUNTED && kernels_get)
            count_now(&to);
    }
    tap_ok(!st, "%s, %d micro-batches: %d steps %s", name, accumulate, STEPS, err.text);
    tap_is_int(logged, STEPS, "and as many losses");
    tap_ok(losses[STEPS - 1] < losses[0] && losses[0] > 5 && losses[0] < 6,
           "the loss falls from %.3f to %.3f", (double)losses[0],
           (double)losses[STEPS - 1]);
    tap_ok(fabs(sum - (double)losses[STEPS - 1]) < 1e-4,
           "and is the mean of what the program reads: %.5f", sum);
    if (kernels_get && !strcmp(name, CUDA_RUN_GPU)) {
        const int64_t work = work_between(&from, &to);

        if (accumulate == 1)
            tap_ok(work <= MOST_WORK, "%lld kernels, copies and fills, at most %d",
                   (long long)work, MOST_WORK);
        tap_is_int((long long)(to.all.host_waits - from.all.host_waits), 1,
                   "the host waits once in a step");
        tap_is_int(
            (long long)(to.all.instantiations - from.all.instantiations), 0,
            "of %llu graphs none is built again",
            (unsigned long long)(to.all.graph_launches - from.all.graph_launches));
    }
    accel_close(run, NULL);
    accel_dataset_close(j.data);
}

/* A part of a checkpoint, and all of it, into the device's memory: `value` is what
 * parameter `name` has now. */
static void test_parts(accel_t *run, const char *name, const float *value,
                       int64_t elems)
{
    static const char other[] = "h.0.mlp.c_fc.bias";
    enum { OTHERS = 256 };
    const accel_part_t part = { sizeof(part), .match = name };
    float *zeros = calloc((size_t)elems, sizeof(*zeros)), was[OTHERS], got[OTHERS];
    float *read = calloc((size_t)elems, sizeof(*read));
    size_t bytes = (size_t)elems * sizeof(*read);
    accel_error_t err = { 0 };
    char state[96];

    snprintf(state, sizeof(state), "%s/state", cuda_run_dir);
    tap_ok(zeros && read && !accel_param_read(run, other, 0, was, OTHERS, &err) &&
               !accel_save_state(run, state, &err) &&
               !accel_param_write(run, name, zeros, elems, &err) &&
               !accel_param_write(run, other, zeros, OTHERS, &err) &&
               !accel_load_part(run, state, &part, NULL, &err) &&
               !accel_param_read(run, name, 0, read, elems, &err) &&
               !accel_param_read(run, other, 0, got, OTHERS, &err) &&
               memcmp(read, value, bytes) == 0 && memcmp(got, zeros, sizeof(got)) == 0,
           "a part of a checkpoint is loaded, and only that %s", err.text);
    tap_ok(!accel_load_state(run, state, &err) &&
               !accel_param_read(run, other, 0, got, OTHERS, &err) &&
               memcmp(got, was, sizeof(got)) == 0,
           "and all of it %s", err.text);
    free(zeros);
    free(read);
}

/* Whole copies are not offloaded, whatever the config asks for: where the shards are
 * decides. */
static void test_home(accel_t *run)
{
    struct run_boxes boxes = { 0 };
    accel_error_t err = { 0 };
    bool on_device = true;

    tap_ok(!backend_cpu_open(&run->home, 1, &err) && run_home(run) == run->backend &&
               !run_boxes(run, &boxes, &err),
           "a processor beside the device %s", err.text);
    for (size_t i = 0; i < boxes.shard_count; i++)
        on_device = on_device && boxes.device && boxes.device[i];
    tap_ok(boxes.shard_count > 0 && on_device, "does not make the shards its own");
    run_boxes_free(&boxes);
}

/* Weights of the device by name, between two steps; the next one goes on from them. */
static void test_params(void)
{
    static const char name[] = "h.1.mlp.c_fc.weight";
    enum { ELEMS = 64 * 256 };
    static float was[ELEMS], set[ELEMS], got[ELEMS], after[ELEMS];
    accel_job_t j = { sizeof(j),
                      .steps = STEPS,
                      .batch = BATCH,
                      .accumulate = 1,
                      .seed = 3,
                      .out_dir = cuda_run_dir,
                      .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                         .lr = 1e-3f } };
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    bool moved = false, near = true;
    accel_status_t st = open_run(&run, &j, CUDA_RUN_GPU, 2, &err);

    if (!st)
        st = one_step(run, &j, NULL, &err);
    if (!st)
        test_home(run);
    if (!st)
        st = accel_param_read(run, name, 0, was, ELEMS, &err);
    for (int i = 0; i < ELEMS; i++)
        set[i] = was[i] / 2 + 0.001f * (float)(i % 7);
    if (!st)
        st = accel_param_write(run, name, set, ELEMS, &err);
    if (!st)
        st = accel_param_read(run, name, ACCEL_ALL_RANKS, got, ELEMS, &err);
    tap_ok(!st && memcmp(set, got, sizeof(set)) == 0,
           "a parameter of the device is what was written %s", err.text);
    if (!st)
        st = one_step(run, &j, NULL, &err);
    if (!st)
        st = accel_param_read(run, name, 0, after, ELEMS, &err);
    for (int i = 0; i < ELEMS; i++) {
        moved = moved || after[i] != set[i];
        near = near && fabsf(after[i] - set[i]) < 0.01f;
    }
    tap_ok(!st && moved && near, "and the next step goes on from there %s", err.text);
    if (!st)
        test_parts(run, name, after, ELEMS);
    accel_close(run, NULL);
    accel_dataset_close(j.data);
}

/* A gradient that is not complete in time shows in the norm. */
static void test_beside_cpu(void)
{
    float loss[STEPS], norm[STEPS];
    double far = 0;

    test_run(CUDA_RUN_GPU, 12, 1);
    memcpy(loss, losses, sizeof(loss));
    memcpy(norm, norms, sizeof(norm));
    test_run(CUDA_RUN_CPU, 12, 1);
    for (int t = 0; t < STEPS; t++) {
        far = fmax(far, fabs((double)loss[t] / (double)losses[t] - 1));
        far = fmax(far, fabs((double)norm[t] / (double)norms[t] - 1));
    }
    tap_ok(far < 0.02, "losses and norms are the CPU's, off by %.4f", far);
}

int main(int argc, char **argv)
{
    char text[4096];

    (void)argc;
    cuda_run_begin(argv);
    cuda_stand_in("fakecuda_kernels_get", &kernels_get);
    cuda_stand_in("fakecuda_counts_get", &counts_get);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i * i % 23);
    cuda_run_write("text.txt", text, sizeof(text));
    test_beside_cpu();
    test_run(CUDA_RUN_GPU, 2, 2);
    test_params();
    cuda_run_end();
    return tap_done();
}
