/* SPDX-License-Identifier: Apache-2.0
 * mlp: a perceptron of three layers with dropout on accel.h alone, on the pictures of
 * gratings.h, which it sees as 256 numbers.
 *     srun --accel-config=fsdp.yaml ./mlp */
#include "gratings.h"

enum { WIDTH = 192 };
/* Parameters of the one module; owned by the run. */
static accel_tensor_t *w1, *b1, *w2, *b2, *w3, *b3;

/* in[0]: pictures, flattened to [B, 256]; in[1]: labels [B]. Dropout is off
 * while the run evaluates. */
static accel_tensor_t *mlp_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = accel_reshape(in[0], 2, (int64_t[]){ -1, SIDE * SIDE });

    (void)m, (void)n;
    x = accel_dropout(accel_linear(x, w1, b1, ACCEL_ACT_GELU), 0.1f);
    x = accel_dropout(accel_linear(x, w2, b2, ACCEL_ACT_GELU), 0.1f);
    return gratings_loss(accel_linear(x, w3, b3, ACCEL_ACT_NONE), in[1]);
}

/* One bound serves all layers: near 1 / sqrt(256) and 1 / sqrt(192). */
int main(void)
{
    static const accel_class_t net = { .bytes = sizeof(net),
                                       .name = "Perceptron",
                                       .forward = mlp_forward };
    const accel_init_t zero = { ACCEL_INIT_ZEROS, 0 },
                       small = { ACCEL_INIT_UNIFORM, 0.07f };
    accel_options_t options = { .bytes = sizeof(options),
                                .run_name = "mlp",
                                .log = gratings_line };
    accel_optimizer_t adamw = { .bytes = sizeof(adamw), .lr = 2e-3f };
    accel_job_t job = { .bytes = sizeof(job),
                        .optimizer = &adamw,
                        .steps = 300,
                        .warmup = 20,
                        .batch = 64,
                        .seed = 1 };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    /* A data set needs no run, so it can come first. */
    if (gratings_new(&job.data, &err) || accel_open(&run, &options, &err))
        return fprintf(stderr, "error: %s\n", err.text), accel_exit_code(err.code);
    /* Shapes only: accel_prepare decides which rank holds which part, and fills it
     * in. */
    job.model = accel_module_new(run, &net, NULL, "");
    w1 = accel_param(job.model, "in.weight", 2, (int64_t[]){ WIDTH, SIDE * SIDE },
                     small);
    b1 = accel_param(job.model, "in.bias", 1, (int64_t[]){ WIDTH }, zero);
    w2 = accel_param(job.model, "mid.weight", 2, (int64_t[]){ WIDTH, WIDTH }, small);
    b2 = accel_param(job.model, "mid.bias", 1, (int64_t[]){ WIDTH }, zero);
    w3 = accel_param(job.model, "head.weight", 2, (int64_t[]){ CLASSES, WIDTH }, small);
    b3 = accel_param(job.model, "head.bias", 1, (int64_t[]){ CLASSES }, zero);
    return gratings_train(run, &job);
}
