/* SPDX-License-Identifier: Apache-2.0
 *
 * powersgd_train RULE TEXT STEPS OUT: trains a small GPT-2 on TEXT, its log in OUT. RULE
 * says what gradients go through: `exact` sums, PowerSGD by `layers` or as one square,
 * `batched`. For tests/t/4180-train-gpus.t.
 */
#include <accel.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 16 };

static accel_status_t train_steps(accel_t *run, const accel_job_t *job,
                                  accel_error_t *err)
{
    accel_tensor_t *batch[2];
    accel_status_t st = ACCEL_OK;

    while (!st && accel_more(run)) {
        st = accel_next(run, batch, 2, err);
        if (!st)
            st = accel_backward(run, accel_call(job->model, batch, 2), err);
        if (!st)
            st = accel_step(run, err);
    }
    return st;
}

static accel_status_t train(accel_t *run, accel_job_t *job, const char *rule,
                            accel_error_t *err)
{
    const accel_model_config_t gpt2 = { .bytes = sizeof(accel_model_config_t),
                                        .model_type = "gpt2",
                                        .layers = 2,
                                        .heads = 2,
                                        .width = 32,
                                        .context = SEQ,
                                        .vocab = 256 };
    const accel_powersgd_t powersgd = { sizeof(powersgd), .rank = 2, .start = -1,
                                        .batched = strcmp(rule, "batched") == 0 };
    accel_status_t st = ACCEL_OK;

    job->model = accel_model_new(run, &gpt2, err);
    if (!job->model)
        return err->code;
    if (strcmp(rule, "exact") != 0)
        st = accel_powersgd(run, &powersgd, err);
    if (!st)
        st = accel_prepare(run, job, err);
    return st ? st : train_steps(run, job, err);
}

int main(int argc, char **argv)
{
    const accel_options_t options = { sizeof(options), .log = accel_log_stderr,
                                      .threads = 1 };
    accel_job_t job = { sizeof(job), .batch = 2, .clip = 1, .seed = 1,
                        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                           .lr = 1e-3f } };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    if (argc != 5)
        return 64;
    job.steps = atoi(argv[3]);
    job.out_dir = argv[4];
    if (!accel_dataset_open(&job.data, argv[2], SEQ, 0, &err) &&
        !accel_open(&run, &options, &err))
        train(run, &job, argv[1], &err);
    accel_close(run, NULL);
    accel_dataset_close(job.data);
    return accel_report(&err);
}
