/* SPDX-License-Identifier: Apache-2.0
 *
 * byo_modules: the network of examples/byo.c as modules. The ops call the very
 * functions of that file, so that both ways into the library must give the same bits;
 * with a third argument the library's own ops compute instead.
 *     byo_modules OUT STEPS [ops]
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define main byo_main
#include "examples/byo.c"
#undef main

static accel_status_t linear_shape(const void *attr, const accel_array_t *in, int n,
                                   accel_array_t *out, accel_error_t *err)
{
    (void)attr;
    if (n != 3 || in[0].ndim != 2 || in[1].dims[1] != in[0].dims[1])
        return accel_error_set(err, ACCEL_EINVAL, "rows and a matrix", NULL);
    *out = in[0];
    out->dims[1] = in[1].dims[0];
    return ACCEL_OK;
}

static accel_status_t linear_run(const void *attr, const accel_array_t *in, int n,
                                 const accel_array_t *out, accel_error_t *err)
{
    const bool *relu = attr;
    float *y = out->data;

    (void)n, (void)err;
    linear(in[0].data, in[1].data, in[2].data, y, (int)in[0].dims[1],
           (int)out->dims[1]);
    for (int64_t i = 0; *relu && i < out->elems; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
    return ACCEL_OK;
}

static accel_status_t linear_back(const void *attr, const accel_array_t *in, int n,
                                  const accel_array_t *out, const accel_array_t *dout,
                                  const accel_array_t *din, accel_error_t *err)
{
    float dy[BATCH * WIDE], dx[BATCH * WIDE];
    const bool *relu = attr;
    const float *y = out->data;

    (void)n, (void)err;
    for (int64_t i = 0; i < out->elems; i++)
        dy[i] = !*relu || y[i] > 0 ? ((const float *)dout->data)[i] : 0;
    linear_backward(in[0].data, in[1].data, dy, din[0].data ? dx : NULL, din[1].data,
                    din[2].data, (int)in[0].dims[1], (int)out->dims[1]);
    for (int64_t i = 0; din[0].data && i < in[0].elems; i++)
        ((float *)din[0].data)[i] += dx[i];
    return ACCEL_OK;
}

static accel_status_t squares_shape(const void *attr, const accel_array_t *in, int n,
                                    accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)err, (void)n;
    *out = in[0];
    out->ndim = 1;
    out->dims[0] = 1;
    return ACCEL_OK;
}

static accel_status_t squares_run(const void *attr, const accel_array_t *in, int n,
                                  const accel_array_t *out, accel_error_t *err)
{
    float dy[BATCH];

    (void)attr, (void)err, (void)n;
    *(float *)out->data = squares(in[0].data, in[1].data, dy, (int)in[0].elems);
    return ACCEL_OK;
}

static accel_status_t squares_back(const void *attr, const accel_array_t *in, int n,
                                   const accel_array_t *out, const accel_array_t *dout,
                                   const accel_array_t *din, accel_error_t *err)
{
    float dy[BATCH];

    (void)attr, (void)err, (void)n, (void)out;
    squares(in[0].data, in[1].data, dy, (int)in[0].elems);
    for (int64_t i = 0; i < in[0].elems; i++)
        ((float *)din[0].data)[i] += dy[i] * *(const float *)dout->data;
    return ACCEL_OK;
}

static const accel_op_t linear_op = { sizeof(linear_op), .name = "hand_linear",
                                      .shape = linear_shape, .forward = linear_run,
                                      .backward = linear_back };
static const accel_op_t squares_op = { sizeof(squares_op), .name = "hand_squares",
                                       .shape = squares_shape, .forward = squares_run,
                                       .backward = squares_back };

struct layer {
    accel_tensor_t *weight, *bias;
    bool relu, own_ops;
};

static accel_tensor_t *layer_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    struct layer *l = accel_module_state(m);
    accel_tensor_t *all[] = { in[0], l->weight, l->bias };

    (void)n;
    if (l->own_ops)
        return accel_linear(in[0], l->weight, l->bias,
                            l->relu ? ACCEL_ACT_RELU : ACCEL_ACT_NONE);
    return accel_apply(&linear_op, all, 3, &l->relu);
}

static const accel_class_t layer_class = { sizeof(layer_class), "LayerBlock",
                                           layer_forward, sizeof(struct layer) };
static accel_module_t *layers[2];
static bool own_ops;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *x = accel_call(layers[0], in, 1), *pair[2];

    (void)m, (void)n;
    pair[0] = accel_call(layers[1], &x, 1);
    pair[1] = in[1];
    return own_ops ? accel_mse(pair[0], pair[1])
                   : accel_apply(&squares_op, pair, 2, NULL);
}

static void layer_new(accel_t *run, accel_module_t *net, int k, const char *name,
                      int64_t out, int64_t in)
{
    struct layer *l;

    layers[k] = accel_module_new(run, &layer_class, net, name);
    l = accel_module_state(layers[k]);
    if (!l)
        return;
    l->weight = accel_param(layers[k], "weight", 2, (int64_t[]){ out, in },
                            (accel_init_t){ ACCEL_INIT_UNIFORM, 0.5f });
    l->bias = accel_param(layers[k], "bias", 1, &out, (accel_init_t){ 0 });
    l->relu = k == 0;
    l->own_ops = own_ops;
}

int main(int argc, char **argv)
{
    static const accel_class_t net = { .bytes = sizeof(net),
                                       .name = "Net",
                                       .forward = net_forward };
    const accel_field_t fields[] = { { ACCEL_F32, 1, { IN } },
                                     { ACCEL_F32, 1, { 1 } } };
    accel_job_t job = { sizeof(job), .batch = BATCH, .seed = 1,
                        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t),
                                                           .lr = 1e-2f } };
    accel_options_t options = { sizeof(options), .run_name = "byo",
                                .log = accel_log_stderr };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    if (argc < 3)
        return 64;
    own_ops = argc > 3 && !strcmp(argv[3], "ops");
    job.out_dir = argv[1];
    job.steps = atoi(argv[2]);
    if (!accel_open(&run, &options, &err) &&
        !accel_dataset_new(&job.data, 4096, fields, 2, fetch, NULL, 0, &err)) {
        job.model = accel_module_new(run, &net, NULL, "");
        layer_new(run, job.model, 0, "first", WIDE, IN);
        layer_new(run, job.model, 1, "last", 1, WIDE);
        accel_prepare(run, &job, &err);
    }
    while (run && accel_more(run)) {
        accel_tensor_t *batch[2];

        if (accel_next(run, batch, 2, &err) ||
            accel_backward(run, accel_call(job.model, batch, 2), &err) ||
            accel_step(run, &err))
            break;
    }
    if (accel_close(run, &err) != ACCEL_OK)
        fprintf(stderr, "%s: %s\n", err.text, err.hint);
    accel_dataset_close(job.data);
    return accel_exit_code(err.code);
}
