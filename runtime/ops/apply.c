/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that the program defines: shape, forward and backward, which work on the tensors'
 * memory. In: a table of three functions. Out: an op like ours, on the tape. No shape
 * or status from the program is trusted unchecked.
 */

#include "ops/ops.h"

/* A tensor as the program's functions see it. A copy: whatever the function writes into
 * it changes nothing of ours. */
static accel_array_t apply_describe(const accel_tensor_t *t, accel_dtype_t type,
                                    void *data)
{
    accel_array_t a = {
        .dtype = type, .ndim = t->ndim, .elems = t->elems, .data = data
    };

    for (int i = 0; i < t->ndim; i++)
        a.dims[i] = t->dim[i];
    return a;
}

/* Turns a failure of the program's function into the graph's, with its own words and
 * its code. */
static void *own_failure(struct graph *g, const char *op, accel_status_t st,
                         const accel_error_t *err)
{
    graph_fail(g, A0620, op,
               err->hint[0] ? err->hint : "check that op's function in the program",
               "%s", err->text[0] ? err->text : "the op's function failed");
    g->error.code = st;
    return NULL;
}

/* Prepared parameters live in a unit; values that are not trained are plain tensors. A
 * parameter that accel_prepare has not placed yet has no unit either. */
static bool is_parameter(const accel_tensor_t *t)
{
    return tensor_unit(t) >= 0;
}

/* The inputs as the functions see them. Parameters stay gathered until op_done(u). */
static bool open_inputs(struct graph *g, const char *op, accel_tensor_t *const *in,
                        int n, struct op_units *u, accel_array_t *arrays_out)
{
    accel_tensor_t *parameter[TAPE_MAX_IN] = { 0 };

    for (int i = 0; i < n; i++) {
        if (in[i]->name && !in[i]->data && !is_parameter(in[i]))
            return graph_fail(g, A0604, op, "call accel_prepare before the forward",
                              "parameter %s has no values yet", in[i]->name);
        /* op_want gathers at most two units, and skips what is NULL */
        parameter[i] = is_parameter(in[i]) ? in[i] : NULL;
    }
    if (!op_want(g, op, u, parameter, n))
        return false;
    for (int i = 0; i < n; i++)
        /* a parameter is seen in the compute dtype, whatever its master copy has */
        arrays_out[i] = parameter[i]
                            ? apply_describe(in[i], g->compute,
                                             (void *)(uintptr_t)op_values(g, u, in[i]))
                            : apply_describe(in[i], in[i]->dtype, in[i]->data);
    return true;
}

/* The place that the derivative with respect to `in` is added to, zeroed if it is new:
 * the program's function always adds. data stays NULL if nobody needs it. */
static bool open_gradient(struct graph *g, const char *op, accel_tensor_t *in,
                          accel_array_t *array_out)
{
    const struct backend *be = g->backend;
    accel_tensor_t *t;
    bool add;

    *array_out = apply_describe(in, is_parameter(in) ? ACCEL_F32 : in->dtype, NULL);
    if (!in->needs_grad)
        return true;
    if (is_parameter(in)) {
        array_out->data = op_grad(g, op, in);
        return array_out->data != NULL;
    }
    t = grad_target(g, in, &add);
    if (!t)
        return false;
    /* the first contribution: start from zero */
    if (!add)
        be->fill(be, t->data, t->dtype, t->elems, 0.0f);
    array_out->data = t->data;
    return true;
}

/* Gathers inputs and gradients, calls the program. A rehearsal (shapes_only) makes the
 * same allocations but skips the call: the pointers point to no memory. */
static bool apply_backward(struct graph *g, const struct tape_entry *e)
{
    const accel_op_t *own = e->ref[0];
    accel_array_t in[TAPE_MAX_IN], din[TAPE_MAX_IN], out, dout;
    accel_error_t err = { 0 };
    accel_status_t st;
    struct op_units u;
    int n = (int)e->ints[0];

    if (!open_inputs(g, own->name, e->in, n, &u, in))
        return false;
    for (int i = 0; i < n; i++)
        if (!open_gradient(g, own->name, e->in[i], &din[i])) {
            op_done(g, &u);
            return false;
        }
    out = apply_describe(e->out, e->out->dtype, e->out->data);
    dout = apply_describe(e->out->grad, e->out->grad->dtype, e->out->grad->data);
    st = g->backend->shapes_only
             ? ACCEL_OK
             : own->backward(e->ref[1], in, n, &out, &dout, din, &err);
    /* kernels that the function queued on the device still see the values */
    op_done(g, &u);
    if (st)
        own_failure(g, own->name, st, &err);
    return !st;
}

/* The output tensor, of the shape that the program's function returns. That function
 * sees shapes only: data is NULL. */
static accel_tensor_t *output(struct graph *g, const accel_op_t *own, const void *attr,
                              const accel_array_t *in, int n)
{
    accel_array_t shape[TAPE_MAX_IN], out = { .dtype = g->compute };
    accel_error_t err = { 0 };
    accel_status_t st;

    /* values would tempt a program to size its result by them: then the meta run, which
     * has none, would plan another shape */
    for (int i = 0; i < n; i++) {
        shape[i] = in[i];
        shape[i].data = NULL;
    }
    st = own->shape(attr, shape, n, &out, &err);
    if (st)
        return own_failure(g, own->name, st, &err);
    return graph_tensor(g, out.dtype, out.ndim, out.dims);
}

/* The forward. */
static accel_tensor_t *apply_run(struct graph *g, const accel_op_t *own,
                                 accel_tensor_t *const *in, int n, const void *attr)
{
    accel_array_t arrays[TAPE_MAX_IN];
    accel_error_t err = { 0 };
    accel_status_t st = ACCEL_OK;
    struct op_units u;
    accel_tensor_t *y;

    if (!open_inputs(g, own->name, in, n, &u, arrays))
        return NULL;
    y = output(g, own, attr, arrays, n);
    if (y && !g->backend->shapes_only) {
        /* uninitialized: the function writes every element */
        accel_array_t out = apply_describe(y, y->dtype, y->data);

        st = own->forward(attr, arrays, n, &out, &err);
    }
    op_done(g, &u);
    return st ? own_failure(g, own->name, st, &err) : y;
}

/* Everything is saved, as we cannot know what the program's backward reads. */
static bool apply_record(struct graph *g, const accel_op_t *own,
                         accel_tensor_t *const *in, int n, const void *attr,
                         accel_tensor_t *y)
{
    struct tape_entry e = { .op = own->name,
                            .backward = apply_backward,
                            .out = y,
                            .ints = { n },
                            .ref = { own, attr } };
    bool needed = false;

    for (int i = 0; i < n; i++) {
        e.in[i] = e.saved[i] = in[i];
        needed = needed || in[i]->needs_grad;
    }
    /* without a backward the op ends the gradient, like a detached tensor */
    y->needs_grad = g->recording && needed && own->backward;
    if (!y->needs_grad)
        return true;
    e.saved[n] = y; /* the backward may read the output */
    return tape_record(g, &e);
}

/* At most TAPE_MAX_IN - 1 inputs: the entry saves the output beside them. */
accel_tensor_t *accel_apply(const accel_op_t *op, accel_tensor_t *const *in, int n,
                            const void *attr)
{
    accel_error_t err = { 0 };
    accel_op_t own; /* the tape keeps the program's: it outlives the step */
    const bool sized = op && !sized_read(SIZED(accel_op_t, backward), &own, op, &err);
    const char *name = sized && op->name ? op->name : "apply";
    struct graph *g = in && n > 0 && n < TAPE_MAX_IN ? op_graph(name, in, n) : NULL;
    accel_tensor_t *y;

    if (!g) {
        /* too many inputs is the only mistake left to name; op_graph named the others
         */
        g = in && n > 0 && in[0] ? in[0]->g : NULL;
        if (g && n >= TAPE_MAX_IN)
            graph_fail(g, A0605, name, "pass at most 7 tensors",
                       "a custom op was given %d inputs", n);
        return NULL;
    }
    if (op && !sized)
        return graph_fail(g, message_of(&err), name, err.hint, "%s: %s", err.where,
                          err.text);
    if (!op || !op->name || !op->shape || !op->forward)
        return graph_fail(g, A0605, name, "set name, shape and forward of accel_op_t",
                          "the table of a custom op is incomplete");
    y = apply_run(g, op, in, n, attr);
    return y && apply_record(g, op, in, n, attr, y) ? y : NULL;
}
