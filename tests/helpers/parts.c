/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: a small model that uses what the reference trainer does not: an op of its own,
 * a buffer that counts steps, a gradient function, a tied weight, recomputed blocks.
 *     parts TEXT OUT STEPS [recompute]
 * At the end it prints the buffer, so that a test sees whether a resumed run had it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <accel.h>

enum { VOCAB = 256, WIDTH = 24, BLOCKS = 3 };

struct block {
    accel_tensor_t *weight, *bias, *scale;
};

struct net {
    accel_tensor_t *table, *steps;
    accel_module_t *block[BLOCKS];
};

/* y = x * (1 + s) by columns */
static accel_status_t scale_shape(const void *attr, const accel_array_t *in, int n,
                                  accel_array_t *out, accel_error_t *err)
{
    (void)attr;
    if (n != 2 || in[1].dims[0] != in[0].dims[in[0].ndim - 1])
        return accel_error_set(err, ACCEL_EINVAL, "one scale a column", NULL);
    *out = in[0];
    return ACCEL_OK;
}

static accel_status_t scale_forward(const void *attr, const accel_array_t *in, int n,
                                    const accel_array_t *out, accel_error_t *err)
{
    const float *x = in[0].data, *s = in[1].data;

    (void)attr, (void)n, (void)err;
    for (int64_t i = 0; i < out->elems; i++)
        ((float *)out->data)[i] = x[i] * (1.0f + s[i % in[1].elems]);
    return ACCEL_OK;
}

static accel_status_t scale_backward(const void *attr, const accel_array_t *in, int n,
                                     const accel_array_t *out,
                                     const accel_array_t *dout,
                                     const accel_array_t *din, accel_error_t *err)
{
    const float *x = in[0].data, *s = in[1].data, *dy = dout->data;
    float *dx = din[0].data, *ds = din[1].data;

    (void)attr, (void)n, (void)out, (void)err;
    for (int64_t i = 0; i < dout->elems; i++) {
        if (dx)
            dx[i] += dy[i] * (1.0f + s[i % in[1].elems]);
        ds[i % in[1].elems] += dy[i] * x[i];
    }
    return ACCEL_OK;
}

static const accel_op_t scale = { sizeof(scale), "scale", scale_shape, scale_forward,
                                  scale_backward };

static accel_tensor_t *block_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct block *b = accel_module_state(m);
    accel_tensor_t *y = accel_linear(in[0], b->weight, b->bias, ACCEL_ACT_GELU);

    (void)n;
    return accel_add(in[0],
                     accel_apply(&scale, (accel_tensor_t *[]){ y, b->scale }, 2, NULL));
}

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct net *net = accel_module_state(m);
    accel_tensor_t *x = accel_embedding(in[0], net->table, NULL);

    (void)n;
    for (int i = 0; i < BLOCKS; i++)
        x = accel_call(net->block[i], &x, 1);
    return accel_cross_entropy(x, accel_param_find(m, "head.weight"), NULL, in[1],
                               NULL);
}

static const accel_class_t block_class = { sizeof(block_class), "PartBlock",
                                           block_forward, sizeof(struct block) };
static const accel_class_t net_class = { sizeof(net_class), "Parts", net_forward,
                                         sizeof(struct net) };

static accel_module_t *build(accel_t *run, int recompute)
{
    const accel_init_t normal = { ACCEL_INIT_NORMAL, 0.1f },
                       tenth = { ACCEL_INIT_CONSTANT, 0.1f }, zero = { 0 };
    const int64_t width = WIDTH, one = 1;
    accel_module_t *root = accel_module_new(run, &net_class, NULL, "");
    struct net *net = accel_module_state(root);

    if (!net)
        return NULL;
    net->table = accel_param(root, "table", 2, (int64_t[]){ VOCAB, WIDTH }, normal);
    net->steps = accel_buffer(root, "steps", ACCEL_I32, 1, &one, zero);
    for (int i = 0; i < BLOCKS; i++) {
        char name[16];
        struct block *b;

        snprintf(name, sizeof(name), "b.%d", i);
        net->block[i] = accel_module_new(run, &block_class, root, name);
        b = accel_module_state(net->block[i]);
        if (!b)
            return NULL;
        b->weight = accel_param(net->block[i], "weight", 2, (int64_t[]){ WIDTH, WIDTH },
                                normal);
        b->bias = accel_param(net->block[i], "bias", 1, &width, zero);
        b->scale = accel_param(net->block[i], "scale", 1, &width, tenth);
        accel_module_recompute(net->block[i], recompute);
    }
    accel_tie(accel_module_new(run, &net_class, root, "head"), "weight", net->table);
    return root;
}

/* Doubles the gradient of the weights. */
static void twice(void *user, const char *name, float *gradient, int64_t first,
                  int64_t count)
{
    (void)name, (void)first;
    ++*(int64_t *)user;
    for (int64_t i = 0; i < count; i++)
        gradient[i] *= 2.0f;
}

static accel_status_t train(accel_t *run, const accel_job_t *job, accel_error_t *err)
{
    struct net *net = accel_module_state(job->model);
    accel_tensor_t *batch[2];
    accel_status_t st = ACCEL_OK;
    int64_t pieces = 0;
    float steps;

    if (accel_on_gradient(run, "b.*.weight", twice, &pieces, err) ||
        accel_prepare(run, job, err))
        return err->code;
    while (st == ACCEL_OK && accel_more(run)) {
        int32_t now = (int32_t)accel_steps_done(run) + 1;

        st = accel_next(run, batch, 2, err);
        if (st == ACCEL_OK)
            st = accel_backward(run, accel_call(job->model, batch, 2), err);
        if (st == ACCEL_OK)
            st = accel_tensor_write(net->steps, &now, sizeof(now), err);
        if (st == ACCEL_OK)
            st = accel_step(run, err);
    }
    if (st == ACCEL_OK)
        st = accel_tensor_read(net->steps, &steps, 1, err);
    if (st == ACCEL_OK && accel_is_main(run))
        printf("buffer %g, gradient pieces %s\n", (double)steps,
               pieces ? "seen" : "none");
    return st;
}

static void log_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
    accel_options_t options = { sizeof(options), .run_name = "parts", .log = log_line,
                                .threads = 1 };
    accel_optimizer_t adamw = { sizeof(adamw), .lr = 1e-2f };
    accel_job_t job = { sizeof(job), .optimizer = &adamw, .warmup = 2,
                        .batch = 4,  .clip = 1,           .seed = 3 };
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    char text[1600];

    if (argc < 4)
        return 64;
    job.out_dir = argv[2];
    job.steps = atol(argv[3]);
    if (accel_open(&run, &options, &err) == ACCEL_OK &&
        accel_dataset_open(&job.data, argv[1], 16, 0, &err) == ACCEL_OK) {
        job.model = build(run, argc > 4 && !strcmp(argv[4], "recompute"));
        train(run, &job, &err);
    }
    if (accel_close(run, &err) != ACCEL_OK || err.code) {
        accel_error_format(&err, text, sizeof(text));
        fprintf(stderr, "%s\n", text);
    }
    accel_dataset_close(job.data);
    return accel_exit_code(err.code);
}
