/* SPDX-License-Identifier: Apache-2.0
 * minimal: a model of one's own on accel.h alone. Predicts the next byte with an
 * embedding and a residual two-layer perceptron; sharded, resumed, preemption-safe:
 *     srun --accel-config=fsdp.yaml ./minimal FILE.txt */
#include <stdio.h>
#include <accel.h>

enum { VOCAB = 256, WIDTH = 64, HIDDEN = 256 };
static accel_tensor_t *emb, *w1, *b1, *w2, *b2;

static accel_tensor_t *forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = accel_embedding(in[0], emb, NULL);
    accel_tensor_t *h = accel_linear(x, w1, b1, ACCEL_ACT_GELU);

    (void)m, (void)n;
    return accel_cross_entropy(accel_add(x, accel_linear(h, w2, b2, ACCEL_ACT_NONE)),
                               emb, NULL, in[1], NULL);
}

static void print_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

/* Prints what went wrong, if this rank knows it. Returns the exit code. */
static int finish(const accel_error_t *err)
{
    char text[1536];

    accel_error_format(err, text, sizeof(text));
    if (err->text[0])
        fprintf(stderr, "%s\n", text);
    return accel_exit_code(err->code);
}

int main(int argc, char **argv)
{
    static accel_class_t net; /* what is not set is 0 */
    static accel_options_t options;
    static accel_job_t job;
    static accel_error_t err;
    const int64_t ve[] = { VOCAB, WIDTH }, up[] = { HIDDEN, WIDTH },
                  down[] = { WIDTH, HIDDEN };
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 0.02f },
                       zero = { ACCEL_INIT_ZEROS, 0 };
    accel_tensor_t *batch[2];
    accel_t *run = NULL;

    net.name = "Perceptron", net.forward = forward;
    options.run_name = "minimal", options.log = print_line;
    job.steps = 300, job.warmup = 20, job.batch = 16, job.clip = 1, job.seed = 1;
    job.optimizer.lr = 3e-3f;
    if (accel_dataset_open(&job.data, argc > 1 ? argv[1] : "sample.txt", 64, 0, &err) ||
        accel_open(&run, &options, &err))
        return finish(&err);
    job.model = accel_module_new(run, &net, NULL, "");
    emb = accel_param(job.model, "embedding", 2, ve, normal);
    w1 = accel_param(job.model, "up.weight", 2, up, normal);
    b1 = accel_param(job.model, "up.bias", 1, up, zero);
    w2 = accel_param(job.model, "down.weight", 2, down, normal);
    b2 = accel_param(job.model, "down.bias", 1, down, zero);
    accel_prepare(run, &job, &err);
    while (accel_more(run))
        if (accel_next(run, batch, 2, &err) ||
            accel_backward(run, accel_call(job.model, batch, 2), &err) ||
            accel_step(run, &err))
            break;
    accel_close(run, &err);
    accel_dataset_close(job.data);
    return finish(&err);
}
