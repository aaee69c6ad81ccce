/* SPDX-License-Identifier: Apache-2.0
 *
 * reshape, slice and transpose. Tensors are contiguous. Whatever only renames the sizes
 * shares the data, and so does a slice of whole rows from the front dimension. All else
 * is one copy, made at once, because every kernel reads contiguous rows. A view is a
 * tensor of its own on the tape, and holds the one whose data it shares.
 */
#include <string.h>

#include "ops/ops.h"

static const char reshape_op[] = "reshape", slice_op[] = "slice",
                  transpose_op[] = "transpose";

/* ---- reshape --------------------------------------------------------------------- */

/* The gradient of a renaming is the gradient, renamed: a view, no copy. */
static bool same_data_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dy;
    bool good;

    dy = graph_view(g, e->out->grad, x->ndim, x->dim);
    if (!dy)
        return false;
    /* held by the link from x alone, not by the scope of a module */
    dy->scoped = false;
    good = grad_share(g, x, dy);
    tensor_release(dy);
    return good;
}

/* y shares the data of x. */
static accel_tensor_t *rename_sizes(struct graph *g, const char *op, accel_tensor_t *x,
                                    int ndim, const int64_t *dims)
{
    accel_tensor_t *y = graph_view(g, x, ndim, dims);

    if (!y)
        return NULL;
    return op_record(
        g, &x, 1,
        &(struct tape_entry){
            .op = op, .backward = same_data_backward, .out = y, .in = { x } });
}

/* Copies dims to `to`, with the one that is -1 computed. False: they do not fit. */
static bool complete(int64_t *to, int ndim, const int64_t *dims, int64_t elems)
{
    int64_t known = 1;
    int open = -1;

    for (int i = 0; i < ndim; i++) {
        to[i] = dims[i];
        /* a second -1 is a size below 0 and refused below */
        if (dims[i] == -1 && open < 0)
            open = i;
        else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known))
            return false;
    }
    if (open < 0)
        return known == elems;
    /* with a 0 among the other sizes, the open one could be anything */
    if (known == 0 || elems % known)
        return false;
    to[open] = elems / known;
    return true;
}

/* Never copies: tensors are contiguous. */
accel_tensor_t *accel_reshape(accel_tensor_t *x, int ndim, const int64_t *dims)
{
    struct graph *g = op_graph(reshape_op, &x, 1);
    int64_t to[TENSOR_MAX_DIMS];
    /* only carries sizes that do not fit into the message */
    accel_tensor_t want = { 0 };
    char xs[96], ys[96];

    if (!g || !op_computed(g, reshape_op, x, "x"))
        return NULL;
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS || !dims)
        return graph_fail(g, A0608, reshape_op, "use 1 to 4 dimensions",
                          "a tensor cannot have %d dimensions", ndim);
    if (!complete(to, ndim, dims, x->elems)) {
        want.ndim = ndim;
        memcpy(want.dim, dims, (size_t)ndim * sizeof(*dims));
        return graph_fail(g, A0602, reshape_op,
                          "keep the number of elements; one size may be -1",
                          "x %s cannot become %s", tensor_shape_text(x, xs, sizeof(xs)),
                          tensor_shape_text(&want, ys, sizeof(ys)));
    }
    return rename_sizes(g, reshape_op, x, ndim, to);
}

/* ---- slice ----------------------------------------------------------------------- */

/* x as [outer][size][inner] around dimension `dim`. */
struct around {
    int64_t outer, size, inner;
};

static struct around view_split(const accel_tensor_t *x, int dim)
{
    struct around a = { 1, x->dim[dim], 1 };

    for (int i = 0; i < dim; i++)
        a.outer *= x->dim[i];
    for (int i = dim + 1; i < x->ndim; i++)
        a.inner *= x->dim[i];
    return a;
}

/* The address of element `at`. */
static void *element(const accel_tensor_t *t, int64_t at)
{
    return (char *)t->data + at * (int64_t)accel_dtype_bytes(t->dtype);
}

/* dx is zero outside of the slice. */
static bool slice_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    struct around a = view_split(x, (int)e->ints[0]);
    const struct backend *be = g->backend;
    bool add;

    dx = grad_target(g, x, &add);
    if (!dx)
        return false;
    /* what the slice leaves out would be uninitialized */
    if (!add)
        be->fill(be, dx->data, dx->dtype, dx->elems, 0.0f);
    /* rows of the slice, `count` of the `size` elements of each outer row */
    be->copy_rows(be, element(dx, e->ints[1] * a.inner), a.size * a.inner, add,
                  e->out->grad->data, e->ints[2] * a.inner, dx->dtype, a.outer,
                  e->ints[2] * a.inner);
    return true;
}

/* outer 1: the slice is contiguous already, so y is a view. */
static accel_tensor_t *cut(struct graph *g, accel_tensor_t *x, struct around a, int dim,
                           int64_t begin, int64_t count)
{
    int64_t dims[TENSOR_MAX_DIMS];
    accel_tensor_t *y;

    memcpy(dims, x->dim, sizeof(dims));
    dims[dim] = count;
    /* a view costs no memory, but keeps all of x alive while it is held */
    y = a.outer == 1 ? graph_view(g, x, x->ndim, dims)
                     : graph_tensor(g, x->dtype, x->ndim, dims);
    if (!y)
        return NULL;
    if (a.outer == 1)
        y->data = element(x, begin * a.inner);
    else
        g->backend->copy_rows(g->backend, y->data, count * a.inner, false,
                              element(x, begin * a.inner), a.size * a.inner, x->dtype,
                              a.outer, count * a.inner);
    return y;
}

/* A view in the first dimension, a copy in any other. */
accel_tensor_t *accel_slice(accel_tensor_t *x, int dim, int64_t begin, int64_t count)
{
    struct graph *g = op_graph(slice_op, &x, 1);
    accel_tensor_t *y;
    char shape[96];

    if (!g || !op_computed(g, slice_op, x, "x") || !op_dim(g, slice_op, x, dim))
        return NULL;
    if (begin < 0 || count < 0 || begin > x->dim[dim] || count > x->dim[dim] - begin)
        return graph_fail(
            g, A0602, slice_op, "stay within the dimension",
            "x %s does not have %lld elements from %lld on in dimension %d",
            tensor_shape_text(x, shape, sizeof(shape)), (long long)count,
            (long long)begin, dim);
    y = cut(g, x, view_split(x, dim), dim, begin, count);
    if (!y)
        return NULL;
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = slice_op,
                                           .backward = slice_backward,
                                           .out = y,
                                           .in = { x },
                                           .ints = { dim, begin, count } });
}

/* ---- transpose ------------------------------------------------------------------- */

/* Views x as [a][b][c][d][e], where b and d are the dimensions that change places. */
static void five(const accel_tensor_t *x, int first, int second, int64_t dim[5])
{
    for (int i = 0; i < 5; i++)
        dim[i] = 1;
    for (int i = 0; i < x->ndim; i++)
        /* the index counts the borders that i has passed: 0 before first, 1 at it, 2
         * between, 3 at second, 4 after it */
        dim[(i >= first) + (i > first) + (i >= second) + (i > second)] *= x->dim[i];
}

/* The same exchange, from the sizes of the result. */
static bool transpose_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    const struct backend *be = g->backend;
    int64_t dim[5], b;
    bool add;

    dx = grad_target(g, x, &add);
    if (!dx)
        return false;
    /* dy has b and d exchanged; exchanging them again gives the order of x */
    five(x, (int)e->ints[0], (int)e->ints[1], dim);
    b = dim[1];
    dim[1] = dim[3];
    dim[3] = b;
    be->transpose(be, dx->data, add, e->out->grad->data, dx->dtype, dim);
    return true;
}

accel_tensor_t *accel_transpose(accel_tensor_t *x, int dim0, int dim1)
{
    struct graph *g = op_graph(transpose_op, &x, 1);
    int first = dim0 < dim1 ? dim0 : dim1, second = dim0 < dim1 ? dim1 : dim0;
    int64_t dims[TENSOR_MAX_DIMS], dim[5];
    accel_tensor_t *y;

    if (!g || !op_computed(g, transpose_op, x, "x") ||
        !op_dim(g, transpose_op, x, dim0) || !op_dim(g, transpose_op, x, dim1))
        return NULL;
    memcpy(dims, x->dim, sizeof(dims));
    /* dims of the result; the kernel takes the cut of x into five */
    dims[dim0] = x->dim[dim1];
    dims[dim1] = x->dim[dim0];
    five(x, first, second, dim);
    /* Nothing moves if at most one of the sizes involved is greater than 1. */
    if ((dim[1] > 1) + (dim[2] > 1) + (dim[3] > 1) < 2)
        return rename_sizes(g, transpose_op, x, x->ndim, dims);
    y = graph_tensor(g, x->dtype, x->ndim, dims);
    if (!y)
        return NULL;
    g->backend->transpose(g->backend, y->data, false, x->data, x->dtype, dim);
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = transpose_op,
                                           .backward = transpose_backward,
                                           .out = y,
                                           .in = { x },
                                           .ints = { first, second } });
}
