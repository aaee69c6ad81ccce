/* SPDX-License-Identifier: Apache-2.0
 *
 * add: x + y. Both inputs share the gradient of the sum, so the backward neither
 * computes nor copies unless an input has a gradient already. Nothing is saved. The
 * kernel waits for the next op, so that a norm of the sum can take the addition over:
 * also where a residual ends one block, and the norm begins the next.
 */
#include "ops/ops.h"

static const char op[] = "add";

/* x and y may be one tensor: then grad_share adds the second time. */
static bool add_backward(struct graph *g, const struct tape_entry *e)
{
    return grad_share(g, e->in[0], e->out->grad) &&
           grad_share(g, e->in[1], e->out->grad);
}

accel_tensor_t *accel_add(accel_tensor_t *x, accel_tensor_t *y)
{
    accel_tensor_t *in[] = { x, y }, *sum;
    struct graph *g = op_graph(op, in, 2);

    if (!g || !op_alike(g, op, x, "x", y, "y"))
        return NULL;
    /* nothing is broadcast: both inputs have the shape of the result */
    sum = graph_tensor(g, x->dtype, x->ndim, x->dim);
    if (!sum)
        return NULL;
    op_sum_waits(g, sum, x, y);
    return op_record(
        g, in, 2,
        &(struct tape_entry){
            .op = op, .backward = add_backward, .out = sum, .in = { x, y } });
}
