/* SPDX-License-Identifier: Apache-2.0
 *
 * maxpool2d: the largest element of each window. Saves the place of each maximum, one
 * int32 each, instead of x. Windows lie wholly inside: there is no padding. ints: size,
 * stride.
 */
#include "ops/ops.h"

static const char op[] = "maxpool2d";

/* Samples and channels alike are planes to the backend. */
static struct pool maxpool2d_describe(const accel_tensor_t *x, int64_t size,
                                      int64_t stride)
{
    return (struct pool){ .type = x->dtype,
                          .planes = x->dim[0] * x->dim[1],
                          .height = x->dim[2],
                          .width = x->dim[3],
                          .out_h = (x->dim[2] - size) / stride + 1,
                          .out_w = (x->dim[3] - size) / stride + 1,
                          .size = size,
                          .stride = stride };
}

/* The places saved by the forward say where each gradient goes. */
static bool maxpool2d_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    struct pool p = maxpool2d_describe(x, e->ints[0], e->ints[1]);
    const struct backend *be = g->backend;
    void *scratch;
    bool add;

    /* scratch for float32 sums: windows may overlap, and their gradients are rounded
     * once */
    dx = grad_target(g, x, &add);
    scratch = dx ? graph_scratch(g, be->maxpool_scratch(be, &p)) : NULL;
    if (!scratch)
        return false;
    be->maxpool_grad(be, &p, dx->data, add, e->out->grad->data, e->saved[0]->data,
                     scratch);
    graph_scratch_free(g, scratch);
    return true;
}

/* A place within a plane must fit an int32. */
static bool maxpool2d_fits(struct graph *g, const accel_tensor_t *x, int size,
                           int stride)
{
    char shape[96];

    if (!op_floats(g, op, x, "x"))
        return false;
    if (size < 1 || stride < 1)
        return graph_fail(g, A0605, op, "use at least 1 for both",
                          "invalid size %d or stride %d", size, stride);
    if (x->ndim != 4 || x->dim[2] < size || x->dim[3] < size ||
        x->dim[2] > INT32_MAX / (x->dim[3] ? x->dim[3] : 1))
        return graph_fail(g, A0602, op,
                          "pass x as [B, C, H, W], no smaller than a window",
                          "x %s has no window of %d x %d",
                          tensor_shape_text(x, shape, sizeof(shape)), size, size);
    return true;
}

accel_tensor_t *accel_maxpool2d(accel_tensor_t *x, int size, int stride)
{
    struct graph *g = op_graph(op, &x, 1);
    accel_tensor_t *y, *where;
    int64_t dims[4];
    struct pool p;

    if (!g || !maxpool2d_fits(g, x, size, stride))
        return NULL;
    /* out_h = floor((H - size) / stride) + 1: rows that fill no window are left out */
    p = maxpool2d_describe(x, size, stride);
    dims[0] = x->dim[0];
    dims[1] = x->dim[1];
    dims[2] = p.out_h;
    dims[3] = p.out_w;
    y = graph_tensor(g, x->dtype, 4, dims);
    /* allocated without a tape, too: the kernel writes it in any case */
    where = graph_tensor(g, ACCEL_I32, 4, dims);
    if (!y || !where)
        return NULL;
    g->backend->maxpool(g->backend, &p, y->data, where->data, x->data);
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = op,
                                           .backward = maxpool2d_backward,
                                           .out = y,
                                           .in = { x },
                                           .saved = { where },
                                           .ints = { size, stride } });
}
