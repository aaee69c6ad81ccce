/* SPDX-License-Identifier: Apache-2.0
 * minimal: a model of your own that predicts the next byte; sharded, resumed and
 * preemption-safe, in C or C++:  srun --accel-config=fsdp.yaml ./minimal FILE.txt */
#include <accel.h>
static accel_tensor_t *emb, *up, *down;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = accel_embedding(in[0], emb, NULL);
    accel_tensor_t *h = accel_linear(x, up, NULL, ACCEL_ACT_GELU);
    (void)m, (void)n;
    x = accel_add(x, accel_linear(h, down, NULL, ACCEL_ACT_NONE));
    return accel_cross_entropy(x, emb, NULL, in[1], NULL);
}

int main(int argc, char **argv)
{
    static const accel_class_t net = { sizeof(net), "Perceptron", net_forward, 0 };
    const accel_options_t options = { sizeof options, NULL, "minimal", accel_log_stderr,
                                      NULL,           0,    0 };
    static accel_optimizer_t adamw; /* zero: defaults */
    static accel_job_t job;
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 0.02f };
    const int64_t wide[] = { 256, 64 }, tall[] = { 64, 256 };
    static accel_error_t err;
    accel_tensor_t *batch[2];
    accel_t *run = NULL;
    adamw.bytes = sizeof adamw, adamw.lr = 3e-3f, job.optimizer = &adamw;
    job.bytes = sizeof job, job.steps = 300, job.batch = 16, job.clip = 1;
    if (accel_dataset_open(&job.data, argc > 1 ? argv[1] : "sample.txt", 64, 0, &err) ||
        accel_open(&run, &options, &err))
        return accel_report(&err);
    job.model = accel_module_new(run, &net, NULL, "");
    emb = accel_param(job.model, "embedding", 2, wide, normal);
    up = accel_param(job.model, "up.weight", 2, wide, normal);
    down = accel_param(job.model, "down.weight", 2, tall, normal);
    accel_prepare(run, &job, &err);
    while (accel_more(run) && !accel_next(run, batch, 2, &err) &&
           !accel_backward(run, accel_call(job.model, batch, 2), &err))
        accel_step(run, &err);
    accel_close(run, &err);
    return accel_report(&err);
}
