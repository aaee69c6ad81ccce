/* SPDX-License-Identifier: Apache-2.0
 *
 * add: x + y. Both inputs share the gradient of the sum; nothing is saved.
 */
#include <string.h>

#include "ops/ops.h"

static const char op[] = "add";

static bool backward(struct graph *g, const struct tape_entry *e)
{
    return grad_share(g, e->in[0], e->out->grad) &&
           grad_share(g, e->in[1], e->out->grad);
}

accel_tensor_t *accel_add(accel_tensor_t *x, accel_tensor_t *y)
{
    accel_tensor_t *in[] = { x, y }, *sum;
    struct graph *g = op_graph(op, in, 2);

    if (!g)
        return NULL;
    if (x->name || y->name || x->dtype != y->dtype ||
        (x->dtype != ACCEL_F32 && x->dtype != ACCEL_BF16))
        return graph_fail(g, A0603, op, "give both the same dtype",
                          "x (%s) and y (%s) must be activations of the same dtype",
                          x->name ? x->name : accel_dtype_name(x->dtype),
                          y->name ? y->name : accel_dtype_name(y->dtype));
    if (x->ndim != y->ndim || memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof(*x->dim)))
        return op_misfit(g, op, x, "x", y, "y", "the shapes must be equal");
    sum = graph_tensor(g, x->dtype, x->ndim, x->dim);
    if (!sum)
        return NULL;
    g->backend->add(g->backend, sum->data, x->data, y->data, x->dtype, x->elems);
    sum->needs_grad = g->recording && (x->needs_grad || y->needs_grad);
    if (sum->needs_grad &&
        !tape_record(g,
                     &(struct tape_entry){
                         .op = op, .backward = backward, .out = sum, .in = { x, y } }))
        return NULL;
    return sum;
}
