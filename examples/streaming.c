/* SPDX-License-Identifier: Apache-2.0
 * streaming: learns from what a command prints, as it comes: rank 0 reads the pipe and
 * sends each rank its part. A resumed run starts the command again and reads on where
 * it was:  srun --accel-config=fsdp.yaml ./streaming 'zcat text.gz' [STEPS [OUT]] */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <accel.h>

enum { CONTEXT = 32, WIDE = 64, BATCH = 16 };

static accel_tensor_t *emb, *up, *down;

struct command {
    const char *text;
    FILE *pipe;
};

/* What a command that failed has printed is not all there is. */
static int command_ended(struct command *c)
{
    const int status = pclose(c->pipe);

    c->pipe = NULL;
    if (status == 0)
        return 0;
    fprintf(stderr, "streaming: '%s' failed with %s %d\n", c->text,
            WIFEXITED(status) ? "exit code" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return -1;
}

/* accel_iterable.next: bytes, and the byte behind each of them. A wait for the pipe
 * ends with an error once the run is told to stop. */
static int command_next(void *user, void *const *dst)
{
    unsigned char bytes[CONTEXT + 1];
    struct command *c = user;

    if (fread(bytes, 1, sizeof(bytes), c->pipe) < sizeof(bytes))
        return ferror(c->pipe) ? -1 : command_ended(c);
    for (int i = 0; i < CONTEXT; i++) {
        ((int32_t *)dst[0])[i] = bytes[i];
        ((int32_t *)dst[1])[i] = bytes[i + 1];
    }
    return 1;
}

/* accel_iterable.rewind: every epoch runs the command again. The one before, if it is
 * not at its end, ends when it writes again. */
static int command_rewind(void *user, int64_t epoch)
{
    struct command *c = user;

    (void)epoch;
    if (c->pipe)
        pclose(c->pipe);
    c->pipe = popen(c->text, "r");
    return c->pipe ? 0 : -1;
}

static accel_tensor_t *bytes_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    accel_tensor_t *x = accel_embedding(in[0], emb, NULL);

    (void)m, (void)n;
    x = accel_add(x, accel_linear(accel_linear(x, up, NULL, ACCEL_ACT_GELU), down, NULL,
                                  ACCEL_ACT_NONE));
    return accel_cross_entropy(x, emb, NULL, in[1], NULL);
}

static accel_status_t train_bytes(accel_t *run, const accel_job_t *job,
                                  accel_loader_t *l, accel_error_t *err)
{
    accel_tensor_t *batch[2];
    accel_status_t st = accel_prepare(run, job, err);
    int got;

    while (!st && accel_more(run)) {
        st = accel_loader_next(l, batch, 2, &got, err);
        if (st || !got)
            continue; /* the command has ended: the next call runs it again */
        st = accel_backward(run, accel_call(job->model, batch, 2), err);
        st = st ? st : accel_step(run, err);
    }
    return st;
}

int main(int argc, char **argv)
{
    static const accel_class_t net = { sizeof(net), "Perceptron", bytes_forward, 0 };
    const accel_field_t fields[] = { { ACCEL_I32, 1, { CONTEXT } },
                                     { ACCEL_I32, 1, { CONTEXT } } };
    const accel_options_t options = { .bytes = sizeof(options),
                                      .run_name = "streaming",
                                      .log = accel_log_stderr };
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 0.02f };
    const int64_t wide[] = { 256, WIDE }, tall[] = { WIDE, 256 };
    struct command c = { .text = argc > 1 ? argv[1] : "cat sample.txt" };
    const accel_iterable_t source = { sizeof(source), command_next, command_rewind, &c,
                                      0 };
    accel_loader_options_t ahead = { .bytes = sizeof(ahead),
                                     .drop_last = 1,
                                     .prefetch = 4 };
    accel_job_t job = { .bytes = sizeof(job),
                        .optimizer = &(accel_optimizer_t){
                            .bytes = sizeof(accel_optimizer_t), .lr = 3e-3f } };
    accel_dataset_t *data = NULL;
    accel_loader_t *loader;
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    job.steps = argc > 2 ? atoi(argv[2]) : 200;
    job.out_dir = argc > 3 ? argv[3] : NULL;
    if (accel_dataset_iterable_new(&data, &source, fields, 2, &err) ||
        accel_open(&run, &options, &err))
        return accel_report(&err);
    ahead.batch = job.batch = BATCH / accel_world_size(run);
    job.model = accel_module_new(run, &net, NULL, "");
    emb = accel_param(job.model, "embedding", 2, wide, normal);
    up = accel_param(job.model, "up.weight", 2, wide, normal);
    down = accel_param(job.model, "down.weight", 2, tall, normal);
    if (!accel_loader_new(&loader, run, "text", data, &ahead, &err))
        train_bytes(run, &job, loader, &err);
    accel_close(run, err.code ? NULL : &err);
    accel_dataset_close(data);
    return accel_report(&err);
}
