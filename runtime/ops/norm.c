/* SPDX-License-Identifier: Apache-2.0
 *
 * layernorm and rmsnorm over the last dimension, with gain and (layernorm) optional
 * bias. Where x is a sum that still waits (add.c), one kernel makes it and normalises
 * it. Both save x and two float32 numbers per row. in: x, gain, bias. saved: x, stats
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

/* Where the gradients of one call go; NULL: not wanted. */
struct norm_targets {
    void *dx;
    bool add;
    float *dgain, *dbias;
};

static void norm_grad(struct graph *g, const struct tape_entry *e,
                      const struct op_units *u, const struct norm_targets *to)
{
    const struct norm p =
        norm_describe(e->in[0], e->in[1], e->reals[0], e->ints[0] != 0);

    g->backend->norm_grad(g->backend, &p, to->dx, to->add, to->dgain, to->dbias,
                          e->out->grad->data, e->saved[0]->data, e->saved[1]->data,
                          op_values(g, u, e->in[1]));
}

/* In one call, but for a bias in another unit than the gain's: asking for its gradient
 * gives the gain's away. Each gradient of a parameter is its place in its unit's
 * buffer. */
static bool norm_grads(struct graph *g, const struct tape_entry *e,
                       const struct op_units *u, struct norm_targets *to)
{
    const accel_tensor_t *gain = e->in[1], *bias = e->in[2];
    const bool with_bias = bias && bias->needs_grad;
    const bool apart =
        with_bias && gain->needs_grad && gain->param->unit != bias->param->unit;

    if (gain->needs_grad && !(to->dgain = op_grad(g, e->op, gain)))
        return false;
    if (apart) {
        norm_grad(g, e, u, to);
        *to = (struct norm_targets){ NULL };
    }
    if (with_bias && !(to->dbias = op_grad(g, e->op, bias)))
        return false;
    norm_grad(g, e, u, to);
    return true;
}

/* The gain stays gathered for dx. */
static bool norm_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *dx = NULL;
    struct norm_targets to = { NULL };
    struct op_units u;
    bool good = true;

    if (!op_want(g, e->op, &u, e->in + 1, 2))
        return false;
    if (x->needs_grad) {
        dx = grad_target(g, x, &to.add);
        good = dx != NULL;
    }
    if (dx)
        to.dx = dx->data;
    good = good && norm_grads(g, e, &u, &to);
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

/* Queues what waits. A sum that waits, too, is made on the way. */
static bool norm_queue(struct graph *g, const struct waiting_result *w,
                       const struct narrow_copy *to)
{
    const struct backend *be = g->backend;
    const struct waiting_sum *sum = &g->waiting;
    const accel_tensor_t *x = w->in[0];
    const struct norm p = norm_describe(x, w->in[1], w->eps, w->rms);
    const void *gain, *bias;
    struct op_units u;

    if (!op_want(g, w->op, &u, w->in + 1, 2))
        return false;
    gain = op_values(g, &u, w->in[1]);
    bias = op_values(g, &u, w->in[2]);
    if (sum->sum != x) {
        be->norm(be, &p, w->out->data, w->stats->data, x->data, gain, bias, to);
    } else {
        be->add_norm(be, &p, x->data, w->out->data, w->stats->data, sum->x->data,
                     sum->y->data, gain, bias, to);
        op_sum_taken(g);
    }
    op_done(g, &u);
    return true;
}

/* The forward of both; `op` names it in messages and on the tape. */
static accel_tensor_t *normalize(const char *op, accel_tensor_t *x,
                                 accel_tensor_t *gain, accel_tensor_t *bias, float eps,
                                 bool rms)
{
    accel_tensor_t *in[] = { x, gain, bias }, *y, *stats;
    struct graph *g = op_graph_of_sum(op, in, bias ? 3 : 2);

    if (!g || !norm_fits(g, op, x, gain, bias, eps))
        return NULL;
    /* y has the shape and dtype of x; gain and bias are [cols] */
    y = graph_tensor(g, x->dtype, x->ndim, x->dim);
    /* float32 even with bfloat16: the backward multiplies by 1 / deviation */
    stats = graph_tensor(g, ACCEL_F32, 2, (int64_t[]){ 2, x->elems / gain->dim[0] });
    if (!y || !stats ||
        !op_result_waits(g, &(struct waiting_result){ .out = y,
                                                      .in = { x, gain, bias },
                                                      .stats = stats,
                                                      .eps = eps,
                                                      .rms = rms,
                                                      .op = op,
                                                      .queue = norm_queue }))
        return NULL;
    return op_record(g, in, 3,
                     &(struct tape_entry){ .op = op,
                                           .backward = norm_backward,
                                           .out = y,
                                           .in = { x, gain, bias },
                                           .saved = { x, stats },
                                           .ints = { rms },
                                           .reals = { eps } });
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
