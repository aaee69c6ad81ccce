/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses of two tensors of one shape, as one float32: the mean over pairs of numbers
 * (mse, binary_cross_entropy; ints: which) or over rows (soft_cross_entropy). saved: x,
 * y, and the log-sum-exp of the rows.
 */
#include "ops/ops.h"

/* The gradient of both inputs, one after the other: they may be the same tensor. Only
 * the loss over rows has saved the log-sum-exp of them. */
static bool loss_backward(struct graph *g, const struct tape_entry *e)
{
    const accel_tensor_t *x = e->in[0], *y = e->in[1], *lse = e->saved[2];
    const struct backend *be = g->backend;

    for (int i = 0; i < 2; i++) {
        accel_tensor_t *d;
        bool add;

        if (!e->in[i]->needs_grad)
            continue;
        d = grad_target(g, e->in[i], &add);
        if (!d)
            return false;
        if (lse)
            be->soft_xent_grad(be, d->data, add, i == 1, x->data, y->data, x->dtype,
                               lse->data, e->out->grad->data, op_rows(x),
                               op_last_size(x));
        else
            be->pair_loss_grad(be, d->data, add, i == 1, (enum pair_loss)e->ints[0],
                               x->data, x->dtype, y->data, y->dtype, e->out->grad->data,
                               x->elems);
    }
    return true;
}

/* A loss is float32 whatever its inputs are. */
static accel_tensor_t *new_loss(struct graph *g)
{
    return graph_tensor(g, ACCEL_F32, 1, (const int64_t[]){ 1 });
}

/* The dtypes of the two may differ. */
static accel_tensor_t *pair_mean(const char *op, accel_tensor_t *x, accel_tensor_t *y,
                                 enum pair_loss loss)
{
    accel_tensor_t *in[] = { x, y }, *mean;
    struct graph *g = op_graph(op, in, 2);

    if (!g || !op_floats(g, op, x, "x") || !op_floats(g, op, y, "y") ||
        !op_same_shape(g, op, x, "x", y, "y"))
        return NULL;
    mean = new_loss(g);
    if (!mean)
        return NULL;
    g->backend->pair_loss(g->backend, mean->data, loss, x->data, x->dtype, y->data,
                          y->dtype, x->elems);
    return op_record(g, in, 2,
                     &(struct tape_entry){ .op = op,
                                           .backward = loss_backward,
                                           .out = mean,
                                           .in = { x, y },
                                           .saved = { x, y },
                                           .ints = { (int64_t)loss } });
}

accel_tensor_t *accel_mse(accel_tensor_t *x, accel_tensor_t *y)
{
    return pair_mean("mse", x, y, PAIR_SQUARE);
}

accel_tensor_t *accel_binary_cross_entropy(accel_tensor_t *x, accel_tensor_t *y)
{
    return pair_mean("binary_cross_entropy", x, y, PAIR_LOGIT);
}

/* ---- soft targets ---------------------------------------------------------------- */

accel_tensor_t *accel_soft_cross_entropy(accel_tensor_t *x, accel_tensor_t *y)
{
    static const char op[] = "soft_cross_entropy";
    accel_tensor_t *in[] = { x, y }, *mean, *lse, *loss;
    struct graph *g = op_graph(op, in, 2);
    int64_t rows;

    if (!g || !op_alike(g, op, x, "x", y, "y"))
        return NULL;
    rows = op_rows(x);
    lse = graph_tensor(g, ACCEL_F32, 1, &rows);
    loss = lse ? graph_tensor(g, ACCEL_F32, 1, &rows) : NULL;
    mean = loss ? new_loss(g) : NULL;
    if (!mean)
        return NULL;
    g->backend->soft_xent(g->backend, lse->data, loss->data, x->data, y->data, x->dtype,
                          rows, op_last_size(x));
    g->backend->reduce(g->backend, mean->data, ACCEL_F32, loss->data, ACCEL_F32,
                       (const int64_t[]){ 1, rows, 1 }, rows ? 1.0f / (float)rows : 0);
    return op_record(g, in, 2,
                     &(struct tape_entry){ .op = op,
                                           .backward = loss_backward,
                                           .out = mean,
                                           .in = { x, y },
                                           .saved = { x, y, lse } });
}
