/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders in a training: the loss of a rank without samples in every precision, ranks
 * with different numbers of batches, and a validation loader beside the data of the
 * job.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accel.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

enum { WIDTH = 16, BATCH = 2 };

static char dir[] = "/tmp/accel-train.XXXXXX", config[96];

static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = (float)(index + 1);
    return 0;
}

/* The mean of W x: each element of W has the gradient mean(x) / WIDTH. */
static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t **weight = accel_module_state(m);

    (void)n;
    return accel_mean(accel_linear(in[0], *weight, NULL, ACCEL_ACT_NONE), -1);
}

struct training {
    accel_t *run;
    accel_module_t *model;
    accel_dataset_t *data;
    accel_loader_t *loader;
};

/* with_data: the job has the data, a fifth of which is held out. */
static accel_status_t training_open(struct training *t, int samples, bool with_data,
                                    const accel_loader_options_t *o, accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward,
                                       sizeof(accel_tensor_t *) };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    const accel_options_t options = { sizeof(options), .config_file = config,
                                      .threads = 1 };
    const accel_schedule_t constant = { sizeof(constant),
                                        .kind = ACCEL_SCHEDULE_CONSTANT };
    const int64_t dims[] = { WIDTH, WIDTH };
    accel_job_t job = { sizeof(job),
                        .steps = 9,
                        .batch = BATCH,
                        .out_dir = dir,
                        .schedule = &constant,
                        .optimizer = &(accel_optimizer_t){
                            sizeof(accel_optimizer_t), .kind = ACCEL_SGD, .lr = 4 } };
    accel_status_t st = accel_dataset_new(&t->data, samples, &field, 1, fetch, NULL,
                                          with_data ? 0.2 : 0, err);

    ACCEL_TRY(st, accel_open(&t->run, &options, err));
    if (st)
        return st;
    t->model = accel_module_new(t->run, &cls, NULL, "");
    *(accel_tensor_t **)accel_module_state(t->model) =
        accel_param(t->model, "weight", 2, dims, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    job.model = t->model;
    job.data = with_data ? t->data : NULL;
    st = accel_prepare(t->run, &job, err);
    return st ? st : accel_loader_new(&t->loader, t->run, "five", t->data, o, err);
}

static void training_close(struct training *t)
{
    accel_close(t->run, NULL);
    accel_dataset_close(t->data);
}

static accel_status_t step_of(struct training *t, accel_tensor_t *loss, float *loss_out,
                              accel_error_t *err)
{
    accel_status_t st = accel_backward(t->run, loss, err);

    ACCEL_TRY(st, accel_tensor_read(loss, loss_out, 1, err));
    ACCEL_TRY(st, accel_step(t->run, err));
    return st;
}

/* A step of the loader's next batch; its loss before it, on this rank. */
static accel_status_t loader_step(struct training *t, float *loss_out, int *got_out,
                                  accel_error_t *err)
{
    accel_tensor_t *batch;
    accel_status_t st = accel_loader_next(t->loader, &batch, 1, got_out, err);

    if (st || !*got_out)
        return st;
    return step_of(t, accel_loader_loss(t->loader, accel_call(t->model, &batch, 1)),
                   loss_out, err);
}

/* ---- a rank that joins ----------------------------------------------------------- */

/* 5 samples, 2 a batch, 2 ranks: in the second step rank 1 has none. The gradients are
 * (1.5 + 3.5) / 2 and (5 + 0) / 2, by 4 / WIDTH: the weights end at 1 - 5 / 4. */
static int joining_rank(struct boot *b, void *arg)
{
    const accel_loader_options_t o = { sizeof(o), .batch = BATCH,
                                       .sampler = ACCEL_SAMPLER_SEQUENTIAL, .uneven = 1,
                                       .join = 1 };
    struct training t = { 0 };
    accel_error_t err = { 0 };
    float loss = -1, weight[WIDTH * WIDTH];
    int got = 0;

    EXPECT(!training_open(&t, 5, false, &o, &err), "%s: %s", (char *)arg, err.text);
    EXPECT(!loader_step(&t, &loss, &got, &err) && got && loss > 0, "%s: %g: %s",
           (char *)arg, (double)loss, err.text);
    EXPECT(!loader_step(&t, &loss, &got, &err) && got &&
               accel_loader_real(t.loader) == !b->rank && (loss == 0) == (b->rank == 1),
           "%s: the last batch: %g: %s", (char *)arg, (double)loss, err.text);
    EXPECT(!loader_step(&t, &loss, &got, &err) && !got, "%s: the end: %s", (char *)arg,
           err.text);
    EXPECT(!accel_param_read(t.run, "weight", ACCEL_ALL_RANKS, weight, WIDTH * WIDTH,
                             &err),
           "%s", err.text);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        EXPECT(fabsf(weight[i] + 0.25f) < 0.01f, "%s: weight %d is %g", (char *)arg, i,
               (double)weight[i]);
    training_close(&t);
    return 0;
}

static void test_join(void)
{
    static const char *const precisions[] = { "no", "bf16", "fp16", "fp8" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(precisions); i++) {
        char text[128];

        snprintf(text, sizeof(text),
                 "distributed_type: MULTI_CPU\nuse_cpu: true\nmixed_precision: %s\n"
                 "accel:\n  checkpoint: {save: false}\n",
                 precisions[i]);
        run_folder_write(config, text);
        tap_is_int(
            open_world(2, 1, joining_rank, (void *)(uintptr_t)precisions[i], HANG_S), 0,
            "%s: a rank without samples takes part in the step", precisions[i]);
    }
}

/* ---- ranks with different numbers of batches ------------------------------------- */

static int uneven_rank(struct boot *b, void *arg)
{
    const accel_loader_options_t o = { sizeof(o), .batch = BATCH, .uneven = 1 };
    struct training t = { 0 };
    accel_error_t err = { 0 };
    accel_status_t st;
    float loss;
    int got = 0;

    (void)arg;
    EXPECT(!training_open(&t, 5, false, &o, &err), "%s", err.text);
    do
        st = loader_step(&t, &loss, &got, &err);
    while (!st);
    EXPECT(strstr(err.hint, "loader 'five' is uneven") && strstr(err.hint, "Set join"),
           "rank %d: %s; %s", b->rank, err.text, err.hint);
    training_close(&t);
    return 0;
}

/* ---- beside the data of the job -------------------------------------------------- */

/* The mean of the losses over the held-out samples; -1: failed. */
static double validate(struct training *t, accel_error_t *err)
{
    accel_tensor_t *batch;
    double sum = 0;
    int got = 1, n = 0;
    float loss;

    accel_inference_mode(t->run, 1);
    for (;; n++) {
        if (accel_loader_next(t->loader, &batch, 1, &got, err))
            return -1;
        if (!got)
            break;
        if (accel_tensor_read(accel_call(t->model, &batch, 1), &loss, 1, err))
            return -1;
        sum += (double)loss;
    }
    accel_inference_mode(t->run, 0);
    return sum / n;
}

static accel_status_t job_step(struct training *t, float *loss_out, accel_error_t *err)
{
    accel_tensor_t *batch;
    accel_status_t st = accel_next(t->run, &batch, 1, err);

    return st ? st : step_of(t, accel_call(t->model, &batch, 1), loss_out, err);
}

/* Losses of 3 steps, with a validation behind each or none. */
static bool beside(bool validates, float *losses_out)
{
    const accel_loader_options_t o = { sizeof(o), .batch = BATCH,
                                       .sampler = ACCEL_SAMPLER_SEQUENTIAL,
                                       .held_out = 1, .prefetch = 2 };
    struct training t = { 0 };
    accel_error_t err = { 0 };
    double mean, held = 0;
    bool good = !training_open(&t, 20, true, &o, &err);

    for (int i = 0; i < 3 && good; i++) {
        good = !job_step(&t, &losses_out[i], &err);
        if (!good || !validates)
            continue;
        mean = validate(&t, &err);
        good = mean >= 0 || !err.text[0];
        good = good && !accel_evaluate(t.run, 0, &held, &err) &&
               fabs(mean - held) < 1e-5 * fabs(held);
    }
    if (!good)
        tap_diag("%s", err.text);
    training_close(&t);
    return good;
}

static void test_beside(void)
{
    float with[3] = { 0 }, without[3] = { 1 };

    run_folder_write(config, "distributed_type: 'NO'\nuse_cpu: true\n"
                             "accel:\n  checkpoint: {save: false}\n");
    tap_ok(beside(true, with), "each validation has the loss of accel_evaluate");
    tap_ok(beside(false, without) && memcmp(with, without, sizeof(with)) == 0,
           "and the training is that without");
}

int main(void)
{
    run_folder_make(dir, "", config, sizeof(config));
    test_join();
    run_folder_write(config, "distributed_type: MULTI_CPU\nuse_cpu: true\n"
                             "accel:\n  checkpoint: {save: false}\n");
    tap_is_int(open_world(2, 1, uneven_rank, NULL, HANG_S), 0,
               "ranks with different numbers of batches: the loader and the cure");
    test_beside();
    run_folder_remove(dir);
    return tap_done();
}
