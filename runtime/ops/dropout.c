/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout: zeroes elements by a mask that is drawn from a counter. Nothing is saved:
 * the backward, and a recomputed forward, draw the same mask again. In evaluation the
 * op returns x itself. ints: number of the draw, elements per sample. reals: the
 * probability.
 */
#include "backend/maths.h"
#include "ops/ops.h"

static const char op[] = "dropout";

/* `call` is g->draws.calls as its forward found it; `per_sample` elements belong to
 * each sample of the micro-batch; p is in [0, 1). Counting from first_sample makes the
 * mask of a sample independent of the rank that has it. */
static struct mask dropout_mask(const struct graph *g, uint32_t call,
                                int64_t per_sample, float p)
{
    return (struct mask){ .seed = g->draws.seed,
                          .stream = MATHS_MASK_STREAM | call,
                          .first =
                              (uint64_t)g->draws.first_sample * (uint64_t)per_sample,
                          .threshold = (uint32_t)((double)p * 0x1p32),
                          .scale = (float)(1.0 / (1.0 - (double)p)) };
}

/* The same mask on the gradient: the mask is its own derivative. */
static bool dropout_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    struct mask mask = dropout_mask(g, (uint32_t)e->ints[0], e->ints[1], e->reals[0]);
    const struct backend *be = g->backend;
    bool add;

    dx = grad_target(g, x, &add);
    if (dx)
        be->dropout(be, dx->data, add, e->out->grad->data, x->dtype, x->elems, &mask);
    return dx != NULL;
}

/* The first dimension must hold the samples, as per_sample is taken from it. */
static bool dropout_fits(struct graph *g, accel_tensor_t *x, float p)
{
    char shape[96];

    if (!op_floats(g, op, x, "x"))
        return false;
    if (!(p >= 0.0f && p < 1.0f))
        return graph_fail(g, A0605, op, "use a probability of at least 0 and below 1",
                          "the probability %g is not in [0, 1)", (double)p);
    if (g->training && p > 0.0f && x->dim[0] % g->draws.batch)
        return graph_fail(g, A0602, op,
                          "keep the samples in the first dimension, so that each has "
                          "the same mask with any number of ranks",
                          "x %s: the first size is not a multiple of the %lld samples",
                          tensor_shape_text(x, shape, sizeof(shape)),
                          (long long)g->draws.batch);
    return true;
}

accel_tensor_t *accel_dropout(accel_tensor_t *x, float p)
{
    struct graph *g = op_graph(op, &x, 1);
    accel_tensor_t *y;
    struct mask mask;
    int64_t call, per_sample;

    if (!g || !dropout_fits(g, x, p))
        return NULL;
    /* no copy and no draw: x itself is the result */
    if (!g->training || p == 0.0f)
        return x;
    /* kept elements are scaled by 1 / (1 - p), so that evaluation needs no factor */
    y = graph_tensor(g, x->dtype, x->ndim, x->dim);
    if (!y)
        return NULL;
    /* the number of the draw within this forward; a recomputed forward starts over from
     * it */
    call = g->draws.calls++;
    /* the samples of the micro-batch divide the first dimension (dropout_fits) */
    per_sample = x->elems / g->draws.batch;
    mask = dropout_mask(g, (uint32_t)call, per_sample, p);
    g->backend->dropout(g->backend, y->data, false, x->data, x->dtype, x->elems, &mask);
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = op,
                                           .backward = dropout_backward,
                                           .out = y,
                                           .in = { x },
                                           .ints = { call, per_sample },
                                           .reals = { p } });
}
