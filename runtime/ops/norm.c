/* SPDX-License-Identifier: Apache-2.0
 *
 * layernorm and rmsnorm over the last dimension, with gain and (layernorm) optional
 * bias. Both save x and two float32 numbers per row. in: x, gain, bias. saved: x, stats
 * [2, rows]. ints: rms. reals: eps.
 */
#include "ops/ops.h"

/* All leading dimensions are rows. */
static struct norm norm_describe(const accel_tensor_t *x, const accel_tensor_t *gain,
                                 float eps, bool rms)
{
    return (struct norm){ .type = x->dtype,
                          .rows = x->elems / gain->dim[0],
                          .cols = gain->dim[0],
                          .eps = eps,
                          .rms = rms };
}

/* Gradient of gain (which 1) or bias (2) alone. */
static bool param_grad(struct graph *g, const struct tape_entry *e,
                       const struct norm *p, int which)
{
    const struct backend *be = g->backend;
    const accel_tensor_t *t = e->in[which];
    float *to;

    if (!t || !t->needs_grad)
        return true;
    to = op_grad(g, e->op, t);
    if (to)
        /* to is the parameter's own place in its unit's buffer */
        be->norm_param_grad(be, p, which == 1 ? to : NULL, which == 2 ? to : NULL,
                            e->out->grad->data, e->saved[0]->data, e->saved[1]->data);
    return to != NULL;
}

/* In one pass if both live in one unit, whose gradient buffer then holds both. */
static bool param_grads(struct graph *g, const struct tape_entry *e,
                        const struct norm *p)
{
    const struct backend *be = g->backend;
    accel_tensor_t *gain = e->in[1], *bias = e->in[2];
    float *dgain;

    /* two units, or one of the two frozen: a pass for each */
    if (!bias || gain->unit != bias->unit || !gain->needs_grad || !bias->needs_grad)
        return param_grad(g, e, p, 1) && param_grad(g, e, p, 2);
    dgain = op_grad(g, e->op, gain);
    if (!dgain)
        return false;
    /* the bias lies at its own offset in the same buffer */
    be->norm_param_grad(be, p, dgain, dgain - gain->unit_offset + bias->unit_offset,
                        e->out->grad->data, e->saved[0]->data, e->saved[1]->data);
    return true;
}

/* dx first: it needs the gain while it is gathered. */
static bool norm_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *gain = e->in[1];
    struct norm p = norm_describe(x, gain, e->reals[0], e->ints[0] != 0);
    const struct backend *be = g->backend;
    struct op_units u;
    bool add, good = true;

    if (!op_want(g, e->op, &u, e->in + 1, 2))
        return false;
    /* the sums for gain and bias read dy and x again; they do not need the gain */
    if (x->needs_grad) {
        accel_tensor_t *dx = grad_target(g, x, &add);

        good = dx != NULL;
        if (good)
            be->norm_grad(be, &p, dx->data, add, e->out->grad->data, x->data,
                          e->saved[1]->data, op_values(g, &u, gain));
    }
    good = good && param_grads(g, e, &p);
    op_done(g, &u);
    return good;
}

/* eps 0 is allowed, although a constant row then has no finite 1 / deviation. */
static bool norm_fits(struct graph *g, const char *op, accel_tensor_t *x,
                      accel_tensor_t *gain, accel_tensor_t *bias, float eps)
{
    if (!op_activation(g, op, x, "x") || !op_parameter(g, op, gain, "gain", 1))
        return false;
    /* only the last dimension is normalized, as in every model here */
    if (gain->dim[0] != x->dim[x->ndim - 1])
        return op_misfit(g, op, x, "x", gain, "gain", "the last size must be equal");
    if (bias && !op_parameter(g, op, bias, "bias", 1))
        return false;
    if (bias && bias->dim[0] != gain->dim[0])
        return op_misfit(g, op, gain, "gain", bias, "bias", "they must be equal");
    /* written so that a NaN is refused, too */
    if (!(eps >= 0.0f))
        return graph_fail(g, A0605, op, "use at least 0; 1e-5 is usual",
                          "eps %g is negative", (double)eps);
    return true;
}

/* The forward of both; `op` names it in messages and on the tape. */
static accel_tensor_t *normalize(const char *op, accel_tensor_t *x,
                                 accel_tensor_t *gain, accel_tensor_t *bias, float eps,
                                 bool rms)
{
    accel_tensor_t *in[] = { x, gain, bias }, *y, *stats;
    struct graph *g = op_graph(op, in, bias ? 3 : 2);
    struct op_units u;
    struct norm p;

    if (!g || !norm_fits(g, op, x, gain, bias, eps))
        return NULL;
    /* y has the shape and dtype of x; gain and bias are [cols] */
    p = norm_describe(x, gain, eps, rms);
    y = graph_tensor(g, x->dtype, x->ndim, x->dim);
    /* float32 even with bfloat16: the backward multiplies by 1 / deviation */
    stats = graph_tensor(g, ACCEL_F32, 2, (int64_t[]){ 2, p.rows });
    if (!y || !stats || !op_want(g, op, &u, in + 1, 2))
        return NULL;
    g->backend->norm(g->backend, &p, y->data, stats->data, x->data,
                     op_values(g, &u, gain), op_values(g, &u, bias));
    op_done(g, &u);
    y->needs_grad = op_needs_grad(g, in, 3);
    if (y->needs_grad &&
        !tape_record(g, &(struct tape_entry){ .op = op,
                                              .backward = norm_backward,
                                              .out = y,
                                              .in = { x, gain, bias },
                                              .saved = { x, stats },
                                              .ints = { rms },
                                              .reals = { eps } }))
        return NULL;
    return y;
}

accel_tensor_t *accel_layernorm(accel_tensor_t *x, accel_tensor_t *gain,
                                accel_tensor_t *bias, float eps)
{
    return normalize("layernorm", x, gain, bias, eps, false);
}

accel_tensor_t *accel_rmsnorm(accel_tensor_t *x, accel_tensor_t *gain, float eps)
{
    return normalize("rmsnorm", x, gain, NULL, eps, true);
}
