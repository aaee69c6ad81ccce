/* SPDX-License-Identifier: Apache-2.0
 * cnn: a small convolutional network on accel.h alone, on the pictures of gratings.h.
 * Two convolutions with pooling, then one linear layer.
 *     srun --accel-config=fsdp.yaml ./cnn */
#include "gratings.h"

/* Parameters of the one module; owned by the run. */
static accel_tensor_t *w1, *b1, *w2, *b2, *w3, *b3;

/* in[0]: pictures [B, 1, 16, 16], in[1]: labels [B]. The shape of
 * the batch may change. */
static accel_tensor_t *cnn_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = accel_conv2d(in[0], w1, b1, 1, 2, ACCEL_ACT_RELU);

    (void)m, (void)n;
    /* [B, 8, 16, 16], halved by the pool. */
    x = accel_conv2d(accel_maxpool2d(x, 2, 2), w2, b2, 1, 1, ACCEL_ACT_RELU);
    x = accel_maxpool2d(x, 2, 2); /* [B, 16, 4, 4] */
    /* -1: as many rows as the batch has; 256 = 16 channels of 4 x 4. */
    x = accel_reshape(x, 2, (int64_t[]){ -1, 256 });
    return gratings_loss(accel_linear(x, w3, b3, ACCEL_ACT_NONE), in[1]);
}

/* Initial values by hand: bounds of 1 / sqrt(inputs of one output),
 * as torch draws them. */
int main(void)
{
    static const accel_class_t net = { .bytes = sizeof(net),
                                       .name = "ConvNet",
                                       .forward = cnn_forward };
    const accel_init_t zero = { ACCEL_INIT_ZEROS, 0 };
    accel_options_t options = { .bytes = sizeof(options),
                                .run_name = "cnn",
                                .log = gratings_line };
    accel_optimizer_t adamw = { .bytes = sizeof(adamw), .lr = 5e-3f };
    accel_job_t job = { .bytes = sizeof(job),
                        .optimizer = &adamw,
                        .steps = 500,
                        .warmup = 20,
                        .batch = 32,
                        .seed = 1 };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    if (gratings_new(&job.data, &err) || accel_open(&run, &options, &err))
        return fprintf(stderr, "error: %s\n", err.text), accel_exit_code(err.code);
    /* One module holds all parameters. A deep network has one per layer, so that the
     * layers can be gathered one at a time. */
    job.model = accel_module_new(run, &net, NULL, "");
    w1 = accel_param(job.model, "conv1.weight", 4, (int64_t[]){ 8, 1, 5, 5 },
                     (accel_init_t){ ACCEL_INIT_UNIFORM, 0.2f });
    b1 = accel_param(job.model, "conv1.bias", 1, (int64_t[]){ 8 }, zero);
    w2 = accel_param(job.model, "conv2.weight", 4, (int64_t[]){ 16, 8, 3, 3 },
                     (accel_init_t){ ACCEL_INIT_UNIFORM, 0.118f });
    b2 = accel_param(job.model, "conv2.bias", 1, (int64_t[]){ 16 }, zero);
    w3 = accel_param(job.model, "head.weight", 2, (int64_t[]){ CLASSES, 256 },
                     (accel_init_t){ ACCEL_INIT_UNIFORM, 0.0625f });
    b3 = accel_param(job.model, "head.bias", 1, (int64_t[]){ CLASSES }, zero);
    return gratings_train(run, &job);
}
