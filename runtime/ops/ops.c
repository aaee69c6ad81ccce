/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the ops (see ops.h): checks, residency calls, gradient bookkeeping. In:
 * tensors as a program passes them. Out: values, gradients, or the graph's sticky
 * error. Nothing here computes but the addition of two gradients.
 */
#include <string.h>

#include "ops/ops.h"

/* ---- the start of an op ---------------------------------------------------------- */

/* What only the queue to come holds is gone when that is done, so that its use is
 * found. And what nobody takes is queued while the device's mark is still its own. */
static bool waits_on(const struct graph *g, const accel_tensor_t *sum,
                     const accel_tensor_t *result)
{
    const accel_tensor_t *last = g->result.out ? g->result.out : g->waiting.sum;

    return last && last == (g->result.out ? result : sum) && last->refs > 1;
}

/* Every op starts here, so this is also where it is marked for late failures. What
 * waits does so on only for an op that takes it: `sum` or `result`, or NULL. */
static struct graph *op_start(const char *op, accel_tensor_t *const *in, int n,
                              const accel_tensor_t *sum, const accel_tensor_t *result)
{
    struct graph *g = NULL;
    char shape[96];

    for (int i = 0; i < n && !g; i++)
        g = in[i] ? in[i]->g : NULL;
    /* an earlier op has failed: its error stays, and this one adds nothing */
    if (!g || g->error.code)
        return NULL;
    if (!waits_on(g, sum, result) && !graph_queue_waiting(g))
        return NULL;
    for (int i = 0; i < n; i++) {
        if (!in[i])
            return graph_fail(g, A0601, op, "check what the caller passes",
                              "input %d is NULL", i + 1);
        /* a tensor of another run has other units, and perhaps another device */
        if (in[i]->g != g)
            return graph_fail(g, A0601, op, "pass tensors of this run's forward",
                              "input %d, %s, belongs to another run", i + 1,
                              tensor_shape_text(in[i], shape, sizeof(shape)));
        /* buffers get their memory in accel_prepare */
        if (!in[i]->data && in[i]->buffer)
            return graph_fail(g, A0604, op, "call accel_prepare before the forward",
                              "buffer %s has no values yet", in[i]->buffer);
        if (!in[i]->data && !in[i]->name)
            return graph_fail(
                g, A0601, op,
                "return it from the module that created it, or "
                "create it in this forward",
                "input %d, %s, is used after its module returned or its step ended",
                i + 1, tensor_shape_text(in[i], shape, sizeof(shape)));
    }
    /* late failures of the device are told with this op's name */
    graph_mark(g, op, false);
    return g;
}

struct graph *op_graph(const char *op, accel_tensor_t *const *in, int n)
{
    return op_start(op, in, n, NULL, NULL);
}

struct graph *op_graph_of_sum(const char *op, accel_tensor_t *const *in, int n)
{
    return op_start(op, in, n, in[0], NULL);
}

struct graph *op_graph_of_result(const char *op, accel_tensor_t *const *in, int n)
{
    return op_start(op, in, n, NULL, in[0]);
}

bool op_activation(struct graph *g, const char *op, const accel_tensor_t *t,
                   const char *what)
{
    if (!t->name && t->dtype == g->compute)
        return true;
    return graph_fail(g, A0603, op,
                      "see the op's description in accel_ops.h for its dtype",
                      "%s must be an activation of dtype %s, not %s %s", what,
                      accel_dtype_name(g->compute), t->name ? "parameter" : "dtype",
                      t->name ? t->name : accel_dtype_name(t->dtype));
}

bool op_parameter(struct graph *g, const char *op, const accel_tensor_t *t,
                  const char *what, int ndim)
{
    char shape[96];

    if (!t->name)
        return graph_fail(g, A0603, op, "declare it with accel_param",
                          "%s must be a parameter, not an activation %s", what,
                          tensor_shape_text(t, shape, sizeof(shape)));
    /* parameters are checked when they are used, and not when they are declared: only
     * the op knows what fits */
    if (t->ndim != ndim)
        return graph_fail(g, A0602, op, "declare it with that many sizes (accel_param)",
                          "%s must have %d dimensions, but %s is %s", what, ndim,
                          t->name, tensor_shape_text(t, shape, sizeof(shape)));
    /* a parameter has a unit from accel_prepare on */
    if (t->param->unit < 0)
        return graph_fail(g, A0604, op, "call accel_prepare before the forward",
                          "parameter %s has no values yet", t->name);
    return true;
}

bool op_int32(struct graph *g, const char *op, const accel_tensor_t *t,
              const char *what)
{
    if (!t->name && t->dtype == ACCEL_I32)
        return true;
    return graph_fail(g, A0603, op, "pass the batch's ids unchanged",
                      "%s must be int32, not %s %s", what,
                      t->name ? "parameter" : "dtype",
                      t->name ? t->name : accel_dtype_name(t->dtype));
}

bool op_computed(struct graph *g, const char *op, const accel_tensor_t *t,
                 const char *what)
{
    if (!t->name)
        return true;
    return graph_fail(g, A0603, op,
                      "pass the result of an op, or a tensor of the batch",
                      "%s must not be a parameter (%s)", what, t->name);
}

bool op_floats(struct graph *g, const char *op, const accel_tensor_t *t,
               const char *what)
{
    if (!op_computed(g, op, t, what))
        return false;
    if (accel_dtype_is_float(t->dtype))
        return true;
    return graph_fail(g, A0603, op, "cast it first (accel_cast)",
                      "%s must be float32, bfloat16 or float16, not %s", what,
                      accel_dtype_name(t->dtype));
}

bool op_same_shape(struct graph *g, const char *op, const accel_tensor_t *x,
                   const char *x_name, const accel_tensor_t *y, const char *y_name)
{
    if (x->ndim != y->ndim || memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof(*x->dim)))
        return op_misfit(g, op, x, x_name, y, y_name, "the shapes must be equal");
    return true;
}

bool op_alike(struct graph *g, const char *op, const accel_tensor_t *x,
              const char *x_name, const accel_tensor_t *y, const char *y_name)
{
    if (!op_floats(g, op, x, x_name) || !op_floats(g, op, y, y_name))
        return false;
    if (x->dtype != y->dtype)
        return graph_fail(g, A0603, op, "cast one of them (accel_cast)",
                          "%s is %s, but %s is %s: both must have the same dtype",
                          x_name, accel_dtype_name(x->dtype), y_name,
                          accel_dtype_name(y->dtype));
    return op_same_shape(g, op, x, x_name, y, y_name);
}

bool op_dim(struct graph *g, const char *op, const accel_tensor_t *t, int dim)
{
    char shape[96];

    if (dim >= 0 && dim < t->ndim)
        return true;
    return graph_fail(g, A0605, op, "count dimensions from 0", "%s has no dimension %d",
                      tensor_shape_text(t, shape, sizeof(shape)), dim);
}

bool op_act(struct graph *g, const char *op, accel_activation_t act)
{
    /* the value comes from a program, and may be any int */
    if ((int)act >= ACCEL_ACT_NONE && act <= ACCEL_ACT_LOG)
        return true;
    return graph_fail(g, A0605, op, "use one of accel_activation_t",
                      "unknown activation %d", (int)act);
}

bool op_options(struct graph *g, const char *op, const struct sized *type,
                void *own_out, const void *theirs)
{
    accel_error_t err;

    if (sized_read(type, own_out, theirs, &err) == ACCEL_OK)
        return true;
    return graph_fail(g, message_of(&err), op, err.hint, "%s: %s", err.where, err.text);
}

void *op_misfit(struct graph *g, const char *op, const accel_tensor_t *x,
                const char *x_name, const accel_tensor_t *y, const char *y_name,
                const char *rule)
{
    char xs[96], ys[96];

    return graph_fail(g, A0602, op, "see the op's description in accel_ops.h",
                      "%s %s and %s %s do not fit: %s", x_name,
                      tensor_shape_text(x, xs, sizeof(xs)), y_name,
                      tensor_shape_text(y, ys, sizeof(ys)), rule);
}

/* Makes an error of the residency the graph's, in its own words. graph_fail does
 * nothing if there is one by then. */
static bool residency_failed(struct graph *g, const char *op, accel_status_t st,
                             const accel_error_t *err)
{
    if (!g->error.code && err->code)
        g->error = *err;
    return graph_fail(g, A0003, op, "report this with the output of `accel env`",
                      "cannot access the parameters (%s)", accel_status_name(st));
}

bool op_want(struct graph *g, const char *op, struct op_units *u,
             accel_tensor_t *const *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (t[i] && t[i]->param->coded)
            return graph_fail(g, A0606, op,
                              "name its module in accel.precision.modules: "
                              "\"GLOB=bf16\"",
                              "parameter %s is gathered in fp8, which only linears "
                              "take",
                              t[i]->name);
        /* the rehearsal of a run finds what is to be gathered in its own dtype */
        if (t[i] && g->backend->shapes_only)
            t[i]->param->taken_wide = true;
    }
    return op_want_coded(g, op, u, t, n);
}

/* A module may use a parameter of another one, but not of one with another dtype. */
static bool op_sees(struct graph *g, const char *op, const accel_tensor_t *t)
{
    if (!t || t->param->seen_as == g->compute)
        return true;
    return graph_fail(
        g, A0606, op,
        "give the modules that use it one dtype: accel.precision.modules, "
        "or accel_module_precision",
        "parameter %s is %s here, but module '%s' computes in %s", t->name,
        accel_dtype_name(t->param->seen_as), g->module_path,
        accel_dtype_name(g->compute));
}

/* Units are gathered in the order of t; a unit that two tensors share counts once. */
bool op_want_coded(struct graph *g, const char *op, struct op_units *u,
                   accel_tensor_t *const *t, int n)
{
    accel_error_t err = { 0 };

    u->count = 0;
    for (int i = 0; i < n; i++)
        if (!op_sees(g, op, t[i]))
            return false;
    for (int i = 0; i < n; i++) {
        bool have = !t[i];
        accel_status_t st;

        for (int k = 0; k < u->count; k++)
            /* the same unit twice would need two dones and gather nothing new */
            have = have || u->unit[k] == t[i]->param->unit;
        if (have)
            continue;
        /* placed by an accel_prepare that failed before it opened the shards */
        if (!g->residency.want)
            return graph_fail(g, A0604, op, "call accel_prepare before the forward",
                              "parameter %s has no values", t[i]->name);
        /* the gather ring has two slots, so a third unit would wait for itself for ever
         */
        if (u->count == 2) {
            op_done(g, u);
            return graph_fail(g, A0606, op, "wrap fewer modules",
                              "one op uses parameters of three units");
        }
        st = g->residency.want(g->residency.user, t[i]->param->unit, &u->base[u->count],
                               &err);
        if (st) {
            op_done(g, u);
            return residency_failed(g, op, st, &err);
        }
        u->unit[u->count++] = t[i]->param->unit;
    }
    return true;
}

/* In the reverse order of op_want. */
void op_done(struct graph *g, const struct op_units *u)
{
    for (int k = u->count - 1; k >= 0; k--)
        g->residency.done(g->residency.user, u->unit[k]);
}

const void *op_values(const struct graph *g, const struct op_units *u,
                      const accel_tensor_t *t)
{
    /* a gathered unit is one array in the compute dtype, apart from what is coded */
    const size_t elem = accel_dtype_bytes(g->compute);
    const size_t at = t ? (size_t)t->param->unit_offset * elem -
                              (size_t)t->param->coded_before * (elem - 1)
                        : 0;

    for (int k = 0; t && k < u->count; k++)
        /* op_want has put every unit of the op here */
        if (u->unit[k] == t->param->unit)
            return (const char *)u->base[k] + at;
    return NULL;
}

accel_tensor_t *op_record(struct graph *g, accel_tensor_t *const *t, int n,
                          const struct tape_entry *e)
{
    bool needed = false;

    for (int i = 0; i < n; i++)
        needed = needed || (t[i] && t[i]->needs_grad);
    /* without recording nobody needs one */
    e->out->needs_grad = g->recording && needed;
    return e->out->needs_grad && !tape_record(g, e) ? NULL : e->out;
}

/* The residency hands out one unit's buffer; the parameter lies at its offset in it. */
float *op_grad(struct graph *g, const char *op, const accel_tensor_t *t)
{
    accel_error_t err = { 0 };
    /* a unit's gradients are one array, in float32 whatever the compute dtype */
    float *base;
    accel_status_t st =
        g->residency.grad(g->residency.user, t->param->unit, &base, &err);

    if (st) {
        residency_failed(g, op, st, &err);
        return NULL;
    }
    return base + t->param->unit_offset;
}

/* A tensor for the gradient of x, uninitialized. */
static accel_tensor_t *grad_new(struct graph *g, const accel_tensor_t *x)
{
    accel_tensor_t *t = graph_tensor(g, x->dtype, x->ndim, x->dim);

    if (t)
        t->scoped = false; /* held only by the link from x */
    return t;
}

/* Does nobody else read the gradient `t`, so that it may be written to? A view counts
 * as alone if it is the last holder of its data. */
static bool alone(const accel_tensor_t *t)
{
    return t->refs == 1 && (!t->base || t->base->refs == 1);
}

/* Where a second loss meets what the backward of the first has freed. */
static void *grad_refuse(struct graph *g)
{
    return graph_fail(g, A0610, g->op, "run the forward once for each backward",
                      "backward: another loss's backward has been through this part of "
                      "the graph, which is freed");
}

/* A gradient that others hold is copied before it is changed (copy on write). So add
 * and reshape may pass on the tensor itself, and only a second contribution pays for a
 * copy. */
accel_tensor_t *grad_target(struct graph *g, accel_tensor_t *x, bool *add_out)
{
    accel_tensor_t *old = x->grad, *t;

    if (x->spent)
        return grad_refuse(g);
    *add_out = old != NULL;
    /* nobody would see the change */
    if (old && alone(old))
        return old;
    t = grad_new(g, x);
    if (!t)
        return NULL;
    /* another tensor shares the old one and must not see what is added here */
    if (old)
        g->backend->copy(g->backend, t->data, old->data,
                         (size_t)t->elems * accel_dtype_bytes(t->dtype));
    /* the link from x to the old one ends; its other holders keep it */
    tensor_release(old);
    x->grad = t;
    return t;
}

/* The sum of two gradients may need a new tensor: both may be shared. */
bool grad_share(struct graph *g, accel_tensor_t *x, accel_tensor_t *dy)
{
    const struct backend *be = g->backend;
    accel_tensor_t *t;

    if (!x->needs_grad)
        return true;
    if (x->spent)
        return grad_refuse(g);
    /* the first contribution: hold it, copy nothing */
    if (!x->grad) {
        tensor_retain(dy);
        x->grad = dy;
        return true;
    }
    t = alone(x->grad) ? x->grad : grad_new(g, x);
    if (!t)
        return false;
    /* one pass reads both, wherever the sum goes */
    be->add(be, t->data, x->grad->data, dy->data, t->dtype, t->elems);
    if (t != x->grad)
        tensor_release(x->grad);
    x->grad = t;
    return true;
}

const void *op_grad_before(struct graph *g, const struct tape_entry *e,
                           accel_activation_t act, void **scratch_out)
{
    const accel_tensor_t *dy = e->out->grad;
    const struct backend *be = g->backend;

    *scratch_out = NULL;
    /* without an activation there is nothing to undo and nothing to copy */
    if (act == ACCEL_ACT_NONE)
        return dy->data;
    *scratch_out = graph_scratch(g, (size_t)dy->elems * accel_dtype_bytes(dy->dtype));
    if (*scratch_out)
        be->act_grad(be, *scratch_out, false, dy->data, e->saved[1]->data, dy->dtype,
                     dy->elems, act);
    return *scratch_out;
}

/* A hash of the call's number (splitmix64), so the streams lie far from those of
 * initial values and sample order, which use the same key. */
uint64_t op_draw_stream(struct graph *g)
{
    uint64_t z = 0xd6e8feb86659fd93u + ++g->draws.calls * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
