/* SPDX-License-Identifier: Apache-2.0
 *
 * accumulated OUT STEPS K: a loop of STEPS steps of K micro-batches each, and the
 * gradient that each step's optimizer gets: "STEP G0 G1 G2" on stdout. The model is
 * w . x, the loss the mean of (w . x - y)^2; tests/t/4221-gradients-accelerate.t does
 * the same in Accelerate.
 */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 3, BATCH = 4 };

static accel_tensor_t *weight;

/* Between -1 and 1. */
static float number_of(int64_t sample, int i)
{
    return (float)((sample * 37 + i * 11 + sample * sample % 7) % 19 - 9) / 9.0f;
}

static accel_tensor_t *dot_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_mse(accel_linear(in[0], weight, NULL, ACCEL_ACT_NONE), in[1]);
}

/* Whole copies: every rank has all elements in one piece. */
static void print_gradient(void *user, const char *name, float *gradient, int64_t first,
                           int64_t count)
{
    const accel_t *run = user;

    (void)name, (void)first;
    if (!accel_is_main(run))
        return;
    printf("%lld", (long long)accel_steps_done(run) + 1);
    for (int64_t i = 0; i < count; i++)
        printf(" %.9g", gradient[i]);
    printf("\n");
}

static accel_status_t micro_batch(accel_t *run, accel_module_t *model,
                                  accel_error_t *err)
{
    float x[BATCH][WIDTH], y[BATCH];
    int64_t sample[BATCH];
    accel_tensor_t *in[2];

    if (accel_next_samples(run, sample, BATCH, err))
        return err->code;
    for (int r = 0; r < BATCH; r++) {
        for (int i = 0; i < WIDTH; i++)
            x[r][i] = number_of(sample[r], i);
        y[r] = number_of(sample[r], WIDTH);
    }
    in[0] = accel_input(run, ACCEL_F32, 2, (int64_t[]){ BATCH, WIDTH }, x, err);
    in[1] = accel_input(run, ACCEL_F32, 2, (int64_t[]){ BATCH, 1 }, y, err);
    if (accel_backward(run, accel_call(model, in, 2), err))
        return err->code;
    return accel_step(run, err);
}

int main(int argc, char **argv)
{
    static const accel_class_t dot = { sizeof(dot), "Dot", dot_forward, 0 };
    const accel_init_t zero = { ACCEL_INIT_ZEROS, 0 };
    const accel_options_t options = { sizeof(options), .log = accel_log_stderr,
                                      .threads = 1 };
    accel_job_t job = { sizeof(job), .batch = BATCH,
                        .optimizer =
                            &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                  .kind = ACCEL_SGD, .lr = 0.1f } };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    if (argc != 4)
        return 64;
    job.out_dir = argv[1];
    job.steps = atoi(argv[2]);
    job.accumulate = atoi(argv[3]);
    if (accel_open(&run, &options, &err))
        return accel_report(&err);
    job.model = accel_module_new(run, &dot, NULL, NULL);
    weight = accel_param(job.model, "weight", 2, (int64_t[]){ 1, WIDTH }, zero);
    if (!accel_on_gradient(run, NULL, print_gradient, run, &err) &&
        !accel_prepare(run, &job, &err))
        while (accel_more(run) && !micro_batch(run, job.model, &err))
            ;
    accel_close(run, NULL);
    return accel_report(&err);
}
