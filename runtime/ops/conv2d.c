/* SPDX-License-Identifier: Apache-2.0
 *
 * conv2d: act(x * weight + bias) over two dimensions, x [B, C, H, W], weight [O, C, kh,
 * kw]. With an activation, the value before it is saved; with RELU the result itself.
 * in: x, weight, bias. saved: x and that value. ints: stride, pad, activation.
 */
#include "ops/ops.h"

static const char op[] = "conv2d";

/* The call as the backend takes it. x and weight have passed conv2d_fits. */
static struct conv conv2d_describe(const accel_tensor_t *x, const accel_tensor_t *w,
                                   int64_t stride, int64_t pad)
{
    return (struct conv){ .type = x->dtype,
                          .batch = x->dim[0],
                          .channels = x->dim[1],
                          .height = x->dim[2],
                          .width = x->dim[3],
                          .outputs = w->dim[0],
                          .kernel_h = w->dim[2],
                          .kernel_w = w->dim[3],
                          .out_h = (x->dim[2] + 2 * pad - w->dim[2]) / stride + 1,
                          .out_w = (x->dim[3] + 2 * pad - w->dim[3]) / stride + 1,
                          .stride = stride,
                          .pad = pad };
}

/* Weight and bias may live in different units, so their gradients are asked for one at
 * a time. */
static bool gradients(struct graph *g, const struct tape_entry *e, const struct conv *p,
                      struct conv_backward *b, void *scratch)
{
    const struct backend *be = g->backend;
    accel_tensor_t *x = e->in[0], *w = e->in[1], *bias = e->in[2], *dx;

    /* images need no gradient: the first layer saves its largest product */
    if (x->needs_grad) {
        dx = grad_target(g, x, &b->add);
        if (!dx)
            return false;
        b->dx = dx->data;
    }
    if (w->needs_grad) {
        b->dweight = op_grad(g, op, w);
        if (!b->dweight)
            return false;
    }
    /* one call for both */
    if (b->dx || b->dweight)
        be->conv_grad(be, p, b, scratch);
    if (!bias || !bias->needs_grad)
        return true;
    /* the weight's buffer may be gone once the bias's is asked for */
    b->dx = NULL;
    b->dweight = NULL;
    b->dbias = op_grad(g, op, bias);
    if (b->dbias)
        be->conv_grad(be, p, b, scratch);
    return b->dbias != NULL;
}

/* dx, dweight and dbias; the weight stays gathered until all are queued. */
static bool conv2d_backward(struct graph *g, const struct tape_entry *e)
{
    struct conv p = conv2d_describe(e->in[0], e->in[1], e->ints[0], e->ints[1]);
    struct conv_backward b = { .x = e->in[0]->data };
    void *own, *scratch = NULL;
    struct op_units u;
    bool good;

    /* dx needs the weight; the bias is held because its gradient is asked for */
    if (!op_want(g, op, &u, e->in + 1, 2))
        return false;
    b.weight = op_values(g, &u, e->in[1]);
    b.dy = op_grad_before(g, e, (accel_activation_t)e->ints[2], &own);
    if (b.dy)
        scratch = graph_scratch(g, g->backend->conv_scratch(g->backend, &p, true));
    good = scratch && gradients(g, e, &p, &b, scratch);
    /* in the reverse order; freeing NULL is fine */
    graph_scratch_free(g, scratch);
    graph_scratch_free(g, own);
    op_done(g, &u);
    return good;
}

/* INT32_MAX / 4 keeps every later sum of sizes far from overflow. */
static bool conv2d_fits(struct graph *g, accel_tensor_t *x, accel_tensor_t *w,
                        accel_tensor_t *bias, int stride, int pad,
                        accel_activation_t act)
{
    if (!op_activation(g, op, x, "x") || !op_parameter(g, op, w, "weight", 4))
        return false;
    if (x->ndim != 4 || x->dim[1] != w->dim[1])
        return op_misfit(g, op, x, "x", w, "weight",
                         "x is [B, C, H, W] and weight is [O, C, kh, kw]");
    if (stride < 1 || pad < 0 || pad > INT32_MAX / 4)
        return graph_fail(g, A0605, op,
                          "use a stride of at least 1 and a pad of at least 0",
                          "invalid stride %d or pad %d", stride, pad);
    /* the output would have no row or no column */
    if (x->dim[2] + 2 * (int64_t)pad < w->dim[2] ||
        x->dim[3] + 2 * (int64_t)pad < w->dim[3])
        return op_misfit(g, op, x, "x", w, "weight",
                         "the kernel is larger than x and its padding");
    if (bias && !op_parameter(g, op, bias, "bias", 1))
        return false;
    if (bias && bias->dim[0] != w->dim[0])
        return op_misfit(g, op, w, "weight", bias, "bias", "bias must be [O]");
    return op_act(g, op, act);
}

/* Runs the forward with params gathered. False: sticky error. */
static bool conv2d_forward(struct graph *g, const struct conv *p,
                           struct conv_forward *f, accel_tensor_t *const *params)
{
    /* columns of x, unfolded for the product; the backend says how many at a time */
    void *scratch = graph_scratch(g, g->backend->conv_scratch(g->backend, p, false));
    struct op_units u;
    const bool good = scratch && op_want(g, op, &u, params, 2);

    if (good) {
        f->weight = op_values(g, &u, params[0]);
        f->bias = op_values(g, &u, params[1]);
        g->backend->conv(g->backend, p, f, scratch);
        op_done(g, &u);
    }
    graph_scratch_free(g, scratch);
    return good;
}

accel_tensor_t *accel_conv2d(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, int stride, int pad,
                             accel_activation_t act)
{
    accel_tensor_t *in[] = { x, weight, bias }, *y, *pre = NULL;
    struct graph *g = op_graph(op, in, 2);
    struct conv_forward f;
    struct conv p;
    int64_t dims[4];

    if (!g || !conv2d_fits(g, x, weight, bias, stride, pad, act))
        return NULL;
    /* out_h = floor((H + 2 pad - kh) / stride) + 1, and the same for the width */
    p = conv2d_describe(x, weight, stride, pad);
    dims[0] = p.batch;
    dims[1] = p.outputs;
    dims[2] = p.out_h;
    dims[3] = p.out_w;
    y = graph_tensor(g, x->dtype, 4, dims);
    /* only a backward needs the value before the activation */
    if (y && g->recording && act != ACCEL_ACT_NONE && act != ACCEL_ACT_RELU)
        pre = graph_tensor(g, x->dtype, 4, dims);
    if (g->error.code)
        return NULL;
    f = (struct conv_forward){
        .y = y->data, .pre = pre ? pre->data : NULL, .x = x->data, .act = act
    };
    if (!conv2d_forward(g, &p, &f, in + 1))
        return NULL;
    /* recorded for any of x, weight and bias */
    return op_record(
        g, in, 3,
        &(struct tape_entry){ .op = op,
                              .backward = conv2d_backward,
                              .out = y,
                              .in = { x, weight, bias },
                              .saved = { x, act == ACCEL_ACT_RELU ? y : pre },
                              .ints = { stride, pad, (int64_t)act } });
}
