/* SPDX-License-Identifier: Apache-2.0
 *
 * activate: act(x); sigmoid, exp and log by name. gated: act(gate) * up. mul: gated
 * without an activation. They save their inputs; activate with RELU saves its result,
 * which gives the derivative just as well and lets x be freed. ints: the activation.
 * scale: by * x; saves nothing. reals: the factor.
 */
#include "ops/ops.h"

/* dx (+)= dy * act'(x). The saved tensor is x or, with RELU, the result: its sign is
 * the sign of x. */
static bool activate_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    const struct backend *be = g->backend;
    bool add;

    dx = grad_target(g, x, &add);
    if (dx)
        be->act_grad(be, dx->data, add, e->out->grad->data, e->saved[0]->data, x->dtype,
                     x->elems, (accel_activation_t)e->ints[0]);
    return dx != NULL;
}

/* Queues what waits: act(x), or act(gate) * up. */
static bool activate_queue(struct graph *g, const struct waiting_result *w,
                           const struct narrow_copy *to)
{
    const accel_tensor_t *x = w->in[0], *up = w->in[1], *y = w->out;

    if (up)
        g->backend->gated(g->backend, y->data, x->data, up->data, y->dtype, y->elems,
                          w->act, to);
    else
        g->backend->act(g->backend, y->data, x->data, y->dtype, y->elems, w->act, to);
    return true;
}

static accel_tensor_t *activate(const char *op, accel_tensor_t *x,
                                accel_activation_t act)
{
    struct graph *g = op_graph(op, &x, 1);
    accel_tensor_t *y;

    if (!g || !op_floats(g, op, x, "x") || !op_act(g, op, act))
        return NULL;
    /* no copy: x itself is the result, and its gradient is its own */
    if (act == ACCEL_ACT_NONE)
        return x;
    y = graph_tensor(g, x->dtype, x->ndim, x->dim);
    if (!y)
        return NULL;
    op_result_waits(g,
                    &(struct waiting_result){
                        .out = y, .in = { x }, .act = act, .queue = activate_queue });
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = op,
                                           .backward = activate_backward,
                                           .out = y,
                                           .in = { x },
                                           .saved = { act == ACCEL_ACT_RELU ? y : x },
                                           .ints = { (int64_t)act } });
}

accel_tensor_t *accel_activate(accel_tensor_t *x, accel_activation_t act)
{
    return activate("activate", x, act);
}

accel_tensor_t *accel_sigmoid(accel_tensor_t *x)
{
    return activate("sigmoid", x, ACCEL_ACT_SIGMOID);
}

accel_tensor_t *accel_exp(accel_tensor_t *x)
{
    return activate("exp", x, ACCEL_ACT_EXP);
}

accel_tensor_t *accel_log(accel_tensor_t *x)
{
    return activate("log", x, ACCEL_ACT_LOG);
}

static bool scale_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx;
    bool add;

    dx = grad_target(g, x, &add);
    if (dx)
        g->backend->multiply(g->backend, dx->data, add, e->out->grad->data, x->dtype,
                             x->elems, e->reals[0]);
    return dx != NULL;
}

accel_tensor_t *accel_scale(accel_tensor_t *x, float by)
{
    static const char op[] = "scale";
    struct graph *g = op_graph(op, &x, 1);
    accel_tensor_t *y;

    if (!g || !op_floats(g, op, x, "x"))
        return NULL;
    y = graph_tensor(g, x->dtype, x->ndim, x->dim);
    if (!y)
        return NULL;
    g->backend->multiply(g->backend, y->data, false, x->data, x->dtype, x->elems, by);
    return op_record(g, &x, 1,
                     &(struct tape_entry){ .op = op,
                                           .backward = scale_backward,
                                           .out = y,
                                           .in = { x },
                                           .reals = { by } });
}

/* Gradient of gate (which 0) or up (1) alone: they may be the same tensor, or only one
 * may need it. */
static bool factor_grad(struct graph *g, const struct tape_entry *e, int which)
{
    accel_tensor_t *gate = e->in[0], *up = e->in[1], *to;
    const struct backend *be = g->backend;
    bool add;

    /* a frozen factor: its product with dy would be thrown away */
    if (!e->in[which]->needs_grad)
        return true;
    to = grad_target(g, e->in[which], &add);
    if (to)
        be->gated_grad(be, which ? NULL : to->data, add, which ? to->data : NULL, add,
                       e->out->grad->data, gate->data, up->data, gate->dtype,
                       gate->elems, (accel_activation_t)e->ints[0]);
    return to != NULL;
}

/* Both gradients in one pass over memory where possible. */
static bool gated_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *gate = e->in[0], *up = e->in[1], *dgate, *dup;
    const struct backend *be = g->backend;
    bool add_gate, add_up;

    /* x * x: both gradients go to one tensor, which one call may not write twice */
    if (gate == up || !gate->needs_grad || !up->needs_grad)
        return factor_grad(g, e, 0) && factor_grad(g, e, 1);
    /* memory: dy, gate and up are read once instead of twice */
    dgate = grad_target(g, gate, &add_gate);
    /* the first failure is sticky: no second attempt */
    dup = dgate ? grad_target(g, up, &add_up) : NULL;
    if (dup)
        be->gated_grad(be, dgate->data, add_gate, dup->data, add_up, e->out->grad->data,
                       gate->data, up->data, gate->dtype, gate->elems,
                       (accel_activation_t)e->ints[0]);
    return dup != NULL;
}

/* The forward of gated and mul; names for the messages. */
static accel_tensor_t *product(const char *op, accel_tensor_t *gate,
                               const char *gate_name, accel_tensor_t *up,
                               const char *up_name, accel_activation_t act)
{
    accel_tensor_t *in[] = { gate, up }, *y;
    struct graph *g = op_graph(op, in, 2);

    if (!g || !op_act(g, op, act) || !op_alike(g, op, gate, gate_name, up, up_name))
        return NULL;
    /* one pass: act(gate) is never stored, the backward computes it again */
    y = graph_tensor(g, gate->dtype, gate->ndim, gate->dim);
    if (!y)
        return NULL;
    op_result_waits(
        g, &(struct waiting_result){
               .out = y, .in = { gate, up }, .act = act, .queue = activate_queue });
    return op_record(g, in, 2,
                     &(struct tape_entry){ .op = op,
                                           .backward = gated_backward,
                                           .out = y,
                                           .in = { gate, up },
                                           .saved = { gate, up },
                                           .ints = { (int64_t)act } });
}

accel_tensor_t *accel_gated(accel_tensor_t *gate, accel_tensor_t *up,
                            accel_activation_t act)
{
    return product("gated", gate, "gate", up, "up", act);
}

/* A gate without an activation: the product rule for two factors. */
accel_tensor_t *accel_mul(accel_tensor_t *x, accel_tensor_t *y)
{
    return product("mul", x, "x", y, "y", ACCEL_ACT_NONE);
}
