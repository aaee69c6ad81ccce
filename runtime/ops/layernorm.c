/* SPDX-License-Identifier: Apache-2.0
 *
 * layernorm over the last dimension, with gain and bias. Saves x and two numbers a row.
 */
#include "ops/ops.h"

static const char op[] = "layernorm";

static bool param_grad(struct graph *g, const struct tape_entry *e, int which,
                       int64_t rows, int64_t cols)
{
    const struct backend *be = g->backend;
    float *to = op_grad(g, op, e->in[which]);

    if (!to)
        return false;
    be->norm_param_grad(be, which == 1 ? to : NULL, which == 2 ? to : NULL,
                        e->out->grad->data, e->saved[0]->data, e->saved[1]->data,
                        g->compute, rows, cols);
    return true;
}

static bool both_grads(struct graph *g, const struct tape_entry *e, int64_t rows,
                       int64_t cols)
{
    const struct backend *be = g->backend;
    accel_tensor_t *gain = e->in[1], *bias = e->in[2];
    float *dgain;

    if (gain->unit != bias->unit)
        return param_grad(g, e, 1, rows, cols) && param_grad(g, e, 2, rows, cols);
    dgain = op_grad(g, op, gain);
    if (!dgain)
        return false;
    be->norm_param_grad(be, dgain, dgain - gain->unit_offset + bias->unit_offset,
                        e->out->grad->data, e->saved[0]->data, e->saved[1]->data,
                        g->compute, rows, cols);
    return true;
}

static bool backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *gain = e->in[1];
    const struct backend *be = g->backend;
    int64_t cols = gain->dim[0], rows = x->elems / cols;
    struct op_units u;
    bool add, good = true;

    if (!op_want(g, op, &u, e->in + 1, 2))
        return false;
    if (x->needs_grad) {
        accel_tensor_t *dx = grad_target(g, x, &add);

        good = dx != NULL;
        if (good)
            be->norm_grad(be, dx->data, add, e->out->grad->data, x->data,
                          e->saved[1]->data, op_values(g, &u, gain), g->compute, rows,
                          cols);
    }
    good = good && both_grads(g, e, rows, cols);
    op_done(g, &u);
    return good;
}

static bool shapes_fit(struct graph *g, accel_tensor_t *x, accel_tensor_t *gain,
                       accel_tensor_t *bias, float eps)
{
    if (!op_activation(g, op, x, "x") || !op_parameter(g, op, gain, "gain", 1) ||
        !op_parameter(g, op, bias, "bias", 1))
        return false;
    if (gain->dim[0] != x->dim[x->ndim - 1])
        return op_misfit(g, op, x, "x", gain, "gain", "the last size must be equal");
    if (bias->dim[0] != gain->dim[0])
        return op_misfit(g, op, gain, "gain", bias, "bias", "they must be equal");
    if (!(eps >= 0.0f))
        return graph_fail(g, A0605, op, "use 0 or more; 1e-5 is usual",
                          "eps %g is negative", (double)eps);
    return true;
}

accel_tensor_t *accel_layernorm(accel_tensor_t *x, accel_tensor_t *gain,
                                accel_tensor_t *bias, float eps)
{
    accel_tensor_t *in[] = { x, gain, bias }, *y, *stats;
    struct graph *g = op_graph(op, in, 3);
    struct op_units u;
    int64_t cols, rows;

    if (!g || !shapes_fit(g, x, gain, bias, eps))
        return NULL;
    cols = gain->dim[0];
    rows = x->elems / cols;
    y = graph_tensor(g, g->compute, x->ndim, x->dim);
    stats = graph_tensor(g, ACCEL_F32, 2, (int64_t[]){ 2, rows });
    if (!y || !stats || !op_want(g, op, &u, in + 1, 2))
        return NULL;
    g->backend->norm(g->backend, y->data, stats->data, x->data, op_values(g, &u, gain),
                     op_values(g, &u, bias), g->compute, rows, cols, eps);
    op_done(g, &u);
    y->needs_grad = g->recording;
    if (g->recording && !tape_record(g, &(struct tape_entry){ .op = op,
                                                              .backward = backward,
                                                              .out = y,
                                                              .in = { x, gain, bias },
                                                              .saved = { x, stats } }))
        return NULL;
    return y;
}
