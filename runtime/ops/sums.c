/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax, sum, mean and cast. softmax saves its result, the others nothing but sizes.
 */
#include "ops/ops.h"

/* ---- softmax --------------------------------------------------------------------- */

/* From the result alone: dx = (dy - sum of dy y) y. */
static bool softmax_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *y = e->saved[0], *dx;
    const struct backend *be = g->backend;
    bool add;

    dx = grad_target(g, x, &add);
    if (dx)
        be->softmax_grad(be, dx->data, add, e->out->grad->data, y->data, y->dtype,
                         op_rows(y), op_last_size(y));
    return dx != NULL;
}

accel_tensor_t *accel_softmax(accel_tensor_t *x)
{
    static const char op[] = "softmax";
    struct graph *g = op_graph(op, &x, 1);
    accel_tensor_t *y;

    if (!g || !op_floats(g, op, x, "x"))
        return NULL;
    /* the result is saved instead of x, which may then be freed */
    y = graph_tensor(g, x->dtype, x->ndim, x->dim);
    if (!y)
        return NULL;
    g->backend->softmax(g->backend, y->data, x->data, x->dtype, op_rows(x),
                        op_last_size(x));
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = op,
                                           .backward = softmax_backward,
                                           .out = y,
                                           .in = { x },
                                           .saved = { y } });
}

/* ---- sum and mean ---------------------------------------------------------------- */

/* Views x as [a][b][c], to be summed over b. dim -1: all of x is b. */
static void around(const accel_tensor_t *x, int dim, int64_t to[3])
{
    /* x[a, b, c] lies at (a B + b) C + c: dimensions before `dim` are a, those after it
     * are c */
    to[0] = to[2] = 1;
    to[1] = dim < 0 ? x->elems : x->dim[dim];
    for (int i = 0; i < dim; i++)
        to[0] *= x->dim[i];
    for (int i = dim + 1; i < x->ndim && dim >= 0; i++)
        to[2] *= x->dim[i];
}

/* What becomes of a sum. */
enum sum_kind { SUM, MEAN, UNCOUNTED };

/* The mean of nothing is 0, not NaN. */
static float scale_of(enum sum_kind kind, const int64_t dim[3])
{
    return kind == SUM ? 1.0f : kind == MEAN && dim[1] ? 1.0f / (float)dim[1] : 0.0f;
}

/* Each element of x gets the gradient of the sum that it went into. ints: dimension,
 * kind. Saves nothing: the sizes of x are enough. */
static bool reduce_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dy = e->out->grad, *dx;
    const struct backend *be = g->backend;
    int64_t dim[3];
    bool add;

    dx = grad_target(g, x, &add);
    if (!dx)
        return false;
    around(x, (int)e->ints[0], dim);
    be->reduce_grad(be, dx->data, dx->dtype, add, dy->data, dy->dtype, dim,
                    scale_of((enum sum_kind)e->ints[1], dim));
    return true;
}

/* The forward of all three. A sum over everything is a loss: float32 whatever x is. */
static accel_tensor_t *reduce(const char *op, accel_tensor_t *x, int dim,
                              enum sum_kind kind)
{
    struct graph *g = op_graph(op, &x, 1);
    int64_t dims[TENSOR_MAX_DIMS] = { 1 }, cut[3];
    accel_tensor_t *y;
    int n = 0;

    if (!g || !op_floats(g, op, x, "x") || (dim != -1 && !op_dim(g, op, x, dim)))
        return NULL;
    for (int i = 0; i < x->ndim && dim >= 0; i++)
        /* the summed dimension disappears; a scalar has shape [1] */
        if (i != dim)
            dims[n++] = x->dim[i];
    y = graph_tensor(g, dim < 0 ? ACCEL_F32 : x->dtype, n ? n : 1, dims);
    if (!y)
        return NULL;
    around(x, dim, cut);
    g->backend->reduce(g->backend, y->data, y->dtype, x->data, x->dtype, cut,
                       scale_of(kind, cut));
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = op,
                                           .backward = reduce_backward,
                                           .out = y,
                                           .in = { x },
                                           .ints = { dim, kind } });
}

accel_tensor_t *accel_sum(accel_tensor_t *x, int dim)
{
    return reduce("sum", x, dim, SUM);
}

accel_tensor_t *accel_mean(accel_tensor_t *x, int dim)
{
    return reduce("mean", x, dim, MEAN);
}

accel_tensor_t *op_uncounted(accel_tensor_t *loss)
{
    return reduce("uncounted", loss, -1, UNCOUNTED);
}

/* ---- cast ------------------------------------------------------------------------ */

/* The gradient is cast back to the dtype of x. */
static bool cast_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dy = e->out->grad, *dx;
    const struct backend *be = g->backend;
    bool add;

    dx = grad_target(g, x, &add);
    if (dx)
        /* a narrower x has lost digits already; its gradient loses the same ones */
        be->cast(be, dx->data, dx->dtype, add, dy->data, dy->dtype, dy->elems);
    return dx != NULL;
}

accel_tensor_t *accel_cast(accel_tensor_t *x, accel_dtype_t dtype)
{
    static const char op[] = "cast";
    struct graph *g = op_graph(op, &x, 1);
    accel_tensor_t *y;

    if (!g || !op_computed(g, op, x, "x"))
        return NULL;
    /* no copy: x itself is the result */
    if (x->dtype == dtype)
        return x;
    /* integers come from batches only; no kernel writes them */
    if (!accel_dtype_is_float(dtype))
        return graph_fail(g, A0605, op, "cast to float32, bfloat16 or float16",
                          "cannot cast x to %s", accel_dtype_name(dtype));
    y = graph_tensor(g, dtype, x->ndim, x->dim);
    if (!y)
        return NULL;
    g->backend->cast(g->backend, y->data, dtype, false, x->data, x->dtype, x->elems);
    return op_record(g, &x, 1,
                     &(struct tape_entry){
                         .op = op, .backward = cast_backward, .out = y, .in = { x } });
}
