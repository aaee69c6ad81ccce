/* SPDX-License-Identifier: Apache-2.0
 *
 * linear: act(x weight^T + bias). With an activation, the value before it is saved;
 * with RELU the result itself, which gives the derivative just as well. A linear that
 * is the only reader of such a result multiplies its input gradient by that derivative
 * in the product's epilogue, which saves a pass over memory. Operands may be narrowed
 * to 8 bits (linear_fp8.h). in: x, weight, bias. saved: x, narrowed where its
 * gradient's product takes it so, and the value for the derivative. ints: the
 * activation.
 */
#include "ops/linear_fp8.h"

static const char op[] = "linear";

/* The gradient before the activation, in the compute dtype: out->grad itself, or
 * scratch that the caller frees. And the same in fp8, for the gradients of input and
 * weight. */
struct delta {
    const void *data;
    accel_dtype_t type;
    void *scratch;
    struct factor for_input, for_weight;
};

/* grad_before: our only reader has applied the derivative already. delta is [rows, out]
 * in either case. */
static bool delta_open(struct graph *g, const struct tape_entry *e, struct delta *d)
{
    d->type = e->out->grad->dtype;
    d->data = op_grad_before(
        g, e, e->out->grad_before ? ACCEL_ACT_NONE : (accel_activation_t)e->ints[0],
        &d->scratch);
    return d->data != NULL;
}

/* May this op store the gradient of x before the activation that made x? Only if nobody
 * else adds to that gradient. */
static bool passes_act(const accel_tensor_t *x)
{
    return x->before && x->before->data && x->readers == 1 && !x->grad;
}

/* delta as the operand of one of the two products. */
static struct factor delta_factor(const struct delta *d, bool narrow,
                                  const struct factor *in_8_bits)
{
    return narrow ? *in_8_bits : (struct factor){ .data = d->data, .type = d->type };
}

/* dx = delta weight [rows, out] [out, in]. Rows are all leading dimensions of x. */
static bool input_grad(struct graph *g, accel_tensor_t *x, const accel_tensor_t *w,
                       const void *values, const struct delta *d)
{
    int64_t rows = x->elems / w->dim[1];
    struct gemm p = { .m = rows, .n = w->dim[1], .k = w->dim[0] };
    struct factor dy, weight;
    accel_tensor_t *dx;

    if (!x->needs_grad)
        return true;
    dy = delta_factor(d, fp8_narrows(g, w, FP8_INPUT_GRADIENT), &d->for_input);
    if (!fp8_weight(g, w, FP8_INPUT_GRADIENT, values, &weight))
        return false;
    /* x = act(before): hand down the gradient by `before`, which is what the op that
     * made x wants */
    if (passes_act(x)) {
        p.act_grad = x->grad_before = true;
        p.act = x->act;
        p.pre = x->before->data;
    }
    dx = grad_target(g, x, &p.add);
    if (dx) {
        /* a: [rows, out], b: [out, in], c: [rows, in], all row-major without gaps */
        factors_take(&p, &dy, &weight);
        p.lda = w->dim[0];
        p.trans_b = weight.transposed;
        p.ldb = weight.transposed ? w->dim[0] : w->dim[1];
        p.c = dx->data;
        p.c_type = g->compute;
        p.ldc = w->dim[1];
        g->backend->gemm(g->backend, &p);
    }
    graph_scratch_free(g, weight.scratch);
    return dx != NULL;
}

/* Are the gradients of weight and bias available at the same time (one unit)? Then the
 * bias gets its gradient along with the weight's product. */
static bool side_by_side(const accel_tensor_t *w, const accel_tensor_t *bias)
{
    return bias && bias->needs_grad && w->needs_grad &&
           bias->param->unit == w->param->unit;
}

/* dweight += delta^T x and, with side_by_side, dbias += the column sums of delta [rows,
 * out]^T [rows, in] -> [out, in]. x: what the forward has saved. The sum over rows is
 * the long one, and a fixed order of it is the backend's business. A bias never sees
 * what was lost in narrowing. */
static bool weight_grad(struct graph *g, const accel_tensor_t *x, int64_t rows,
                        const accel_tensor_t *w, const accel_tensor_t *bias,
                        const struct delta *d)
{
    const struct factor in = fp8_taken(g, w, x, FP8_WEIGHT_GRADIENT, rows);
    const struct factor dy = delta_factor(d, factor_is_narrow(&in), &d->for_weight);
    /* transposed copies have zeros in the rows that there are not */
    const int64_t k = in.transposed ? narrow_ld(rows) : rows;
    struct gemm p = { .trans_a = !in.transposed,
                      .trans_b = in.transposed,
                      .m = w->dim[0],
                      .n = w->dim[1],
                      .k = k,
                      .lda = in.transposed ? k : w->dim[0],
                      .ldb = in.transposed ? k : w->dim[1],
                      .c_type = ACCEL_F32,
                      .ldc = w->dim[1],
                      /* a parameter's gradient sums over micro-batches and uses of the
                       * weight */
                      .add = true };

    float *sums = NULL;

    if (!w->needs_grad)
        return true;
    factors_take(&p, &dy, &in);
    p.c = op_grad(g, op, w);
    /* one unit: asking for the second does not give the first one's buffer up */
    if (p.c && side_by_side(w, bias))
        sums = op_grad(g, op, bias);
    if (g->error.code)
        return false;
    if (!factor_is_narrow(&dy))
        p.row_sums = sums;
    else if (sums)
        g->backend->column_sum(g->backend, sums, d->data, d->type, rows, p.m, p.m);
    g->backend->gemm(g->backend, &p);
    return true;
}

/* dbias += the column sums of delta, unless the weight's product has made them */
static bool bias_grad(struct graph *g, const accel_tensor_t *w,
                      const accel_tensor_t *bias, int64_t rows, const struct delta *d)
{
    float *to;

    if (!bias || !bias->needs_grad || side_by_side(w, bias))
        return true;
    to = op_grad(g, op, bias);
    if (to)
        g->backend->column_sum(g->backend, to, d->data, d->type, rows, bias->dim[0],
                               bias->dim[0]);
    return to != NULL;
}

/* The weight stays gathered for all three products: one gather per backward. */
static bool linear_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *x = e->in[0], *w = e->in[1], *bias = e->in[2];
    const int64_t rows = x->elems / w->dim[1];
    struct op_units u;
    struct delta d;
    bool good;

    if (!op_want_coded(g, op, &u, e->in + 1, 2))
        return false;
    good = delta_open(g, e, &d);
    if (good) {
        good = fp8_gradient(g, e, d.data, d.type, &d.for_input, &d.for_weight) &&
               input_grad(g, x, w, op_values(g, &u, w), &d) &&
               weight_grad(g, e->saved[0], rows, w, bias, &d) &&
               bias_grad(g, w, bias, rows, &d);
        graph_scratch_free(g, d.for_weight.scratch);
        graph_scratch_free(g, d.for_input.scratch);
        graph_scratch_free(g, d.scratch);
    }
    op_done(g, &u);
    return good;
}

/* Checks x [..., in], weight [out, in], bias [out] or NULL, and the activation. */
static bool linear_shapes_fit(struct graph *g, accel_tensor_t *x, accel_tensor_t *w,
                              accel_tensor_t *bias, accel_activation_t act)
{
    /* no parameter is int8 */
    if ((x->dtype != ACCEL_I8 && !op_activation(g, op, x, "x")) ||
        !op_parameter(g, op, w, "weight", 2))
        return false;
    /* torch's layout, [out, in]: weights of Hugging Face are used as they are */
    if (w->dim[1] != x->dim[x->ndim - 1])
        return op_misfit(g, op, x, "x", w, "weight",
                         "weight is [out, in] and x is [..., in]");
    if (bias && !op_parameter(g, op, bias, "bias", 1))
        return false;
    if (bias && bias->dim[0] != w->dim[0])
        return op_misfit(g, op, w, "weight", bias, "bias", "bias must be [out]");
    return op_act(g, op, act);
}

/* Numbers of int8 stay as they are where the products widen them on the way; every
 * compute dtype holds them exactly. NULL: sticky error. */
static accel_tensor_t *as_operand(struct graph *g, accel_tensor_t *x,
                                  const accel_tensor_t *w)
{
    accel_tensor_t *wide;

    if (x->dtype != ACCEL_I8 || (g->backend->int8_operands && !w->param->fp8))
        return x;
    wide = graph_tensor(g, g->compute, x->ndim, x->dim);
    if (wide)
        g->backend->cast(g->backend, wide->data, g->compute, false, x->data, x->dtype,
                         x->elems);
    return wide;
}

/* y [rows, out] = act(x [rows, in] weight^T + bias); all leading dimensions are rows.
 * `in` is x as the product takes it. */
static bool linear_forward(struct graph *g, const struct op_units *u,
                           const struct factor *in, accel_tensor_t *x,
                           accel_tensor_t *w, accel_tensor_t *bias,
                           accel_activation_t act, accel_tensor_t *y,
                           accel_tensor_t *pre)
{
    struct factor weight;
    struct gemm p = { .trans_b = true,
                      .m = x->elems / w->dim[1],
                      .n = w->dim[0],
                      .k = w->dim[1],
                      .lda = w->dim[1],
                      .ldb = w->dim[1],
                      .c = y->data,
                      .c_type = g->compute,
                      .ldc = w->dim[0],
                      .bias = op_values(g, u, bias),
                      .bias_type = g->compute,
                      .act = act,
                      .pre = pre ? pre->data : NULL,
                      .fast = true };

    if (!fp8_weight(g, w, FP8_FORWARD, op_values(g, u, w), &weight))
        return false;
    factors_take(&p, in, &weight);
    g->backend->gemm(g->backend, &p);
    graph_scratch_free(g, weight.scratch);
    return true;
}

accel_tensor_t *accel_linear(accel_tensor_t *x, accel_tensor_t *weight,
                             accel_tensor_t *bias, accel_activation_t act)
{
    accel_tensor_t *in[] = { x, weight, bias }, *y, *pre = NULL;
    struct narrow_input narrow;
    struct graph *g = op_graph_of_result(op, in, 2);
    struct op_units u;
    struct factor factor;
    int64_t dims[TENSOR_MAX_DIMS];

    if (!g || !linear_shapes_fit(g, x, weight, bias, act))
        return NULL;
    /* y has the shape of x, but for the last dimension: [..., in] to [..., out] */
    for (int i = 0; i < x->ndim; i++)
        dims[i] = x->dim[i];
    dims[x->ndim - 1] = weight->dim[0];
    /* the epilogue adds the bias and applies the activation before the one rounding */
    y = graph_tensor(g, g->compute, x->ndim, dims);
    /* only a backward needs the value before the activation */
    if (y && g->recording && act != ACCEL_ACT_NONE && act != ACCEL_ACT_RELU)
        pre = graph_tensor(g, g->compute, x->ndim, dims);
    x = as_operand(g, x, weight);
    if (!x)
        return NULL;
    fp8_input(g, x, weight, &narrow);
    if (g->error.code || !op_want_coded(g, op, &u, in + 1, 2))
        return NULL;
    factor = fp8_taken(g, weight, narrow.now ? narrow.now : x, FP8_FORWARD,
                       x->elems / weight->dim[1]);
    linear_forward(g, &u, &factor, x, weight, bias, act, y, pre);
    op_done(g, &u);
    /* for a later linear that reads y: see passes_act */
    y->before = act == ACCEL_ACT_RELU ? y : pre;
    y->act = act;
    /* a frozen weight does not end the gradient: x may need it */
    return op_record(g, in, 3,
                     &(struct tape_entry){ .op = op,
                                           .backward = linear_backward,
                                           .out = y,
                                           .in = { x, weight, bias },
                                           .saved = { narrow.kept ? narrow.kept : x,
                                                      act == ACCEL_ACT_RELU ? y : pre },
                                           .ints = { (int)act } });
}
