/* SPDX-License-Identifier: Apache-2.0
 *
 * The call of a module, which gives its forward a scope, and activation checkpointing:
 * the forward of a module marked `recompute` runs without a tape, only its inputs are
 * kept, and backward runs it again. In: a module and its inputs. Out: the same bits
 * with and without recomputation, because random draws are counted and the count is
 * restored.
 */
#include "nn/nn.h"
#include "ops/ops.h"

static const char op[] = "recompute";

/* What is in the caller's dtype becomes one of the module's. */
static accel_tensor_t *cast_input(const accel_module_t *m, accel_tensor_t *x)
{
    return x && !x->name && x->dtype == m->g->compute ? accel_cast(x, m->types.compute)
                                                      : x;
}

/* One float32, a loss, stays as it is. */
static accel_tensor_t *cast_output(const accel_module_t *m, accel_tensor_t *out)
{
    const bool loss = out && out->elems == 1 && out->dtype == ACCEL_F32;

    return out && !out->name && !loss && out->dtype == m->types.compute
               ? accel_cast(out, m->types.output)
               : out;
}

accel_tensor_t *nn_types_enter(const accel_module_t *m, accel_tensor_t *x,
                               accel_dtype_t *outer_out)
{
    x = cast_input(m, x);
    *outer_out = m->g->compute;
    m->g->compute = m->types.compute;
    return x;
}

accel_tensor_t *nn_types_leave(const accel_module_t *m, accel_tensor_t *y,
                               accel_dtype_t outer)
{
    y = cast_output(m, y);
    m->g->compute = outer;
    return y;
}

/* The forward of a module whose types are not its caller's. */
static accel_tensor_t *forward_in_types(accel_module_t *m, accel_tensor_t *const *in,
                                        int n)
{
    accel_tensor_t *cast[TAPE_MAX_IN];
    accel_dtype_t outer;

    if (n > TAPE_MAX_IN)
        return graph_fail(m->g, A0605, NULL, "pass at most 8 tensors",
                          "module '%s' was given %d inputs", m->path, n);
    for (int i = 0; i < n; i++)
        cast[i] = cast_input(m, in[i]);
    if (m->g->error.code)
        return NULL;
    nn_types_enter(m, NULL, &outer);
    return nn_types_leave(m, m->cls->forward(m, cast, n), outer);
}

/* module_path is for messages and for the tape, depth for calls that are not allowed
 * inside a forward. Both are set back when the forward fails. */
static accel_tensor_t *module_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    struct graph *g = m->g;
    const char *outer = g->module_path;
    const bool same = m->types.compute == g->compute && m->types.output == g->compute;
    int mark = scope_begin(g);
    accel_tensor_t *out;

    g->module_path = m->path;
    g->depth++;
    out = same ? m->cls->forward(m, in, n) : forward_in_types(m, in, n);
    g->depth--;
    if (!out)
        graph_fail(g, A0609, NULL, "return the output of an op",
                   "the forward of class %s returned NULL", m->cls->name);
    g->module_path = outer;
    if (g->error.code)
        return NULL;
    scope_end(g, mark, out);
    return out;
}

/* The module's place on the tape: runs its forward once more, now recorded above
 * `base`, and takes the backward down to `base`. ints: number of inputs, draws before
 * the forward. ref: the module. With the count of draws set back, dropout masks are the
 * same ones. */
static bool recompute_backward(struct graph *g, const struct tape_entry *e)
{
    accel_module_t *m = (accel_module_t *)(uintptr_t)e->ref[0];
    uint32_t calls = g->draws.calls;
    int base = tape_length(g), mark = scope_begin(g);
    accel_tensor_t *out;
    bool good;

    g->draws.calls = (uint32_t)e->ints[1];
    g->recomputing = true;
    out = module_forward(m, e->in, (int)e->ints[0]);
    g->recomputing = false;
    g->draws.calls = calls;
    if (!out)
        return false;
    /* backward reads the statistics of a norm, and the sum that it is made of */
    if (g->result.out && !op_result_taken(g, NULL))
        return false;
    /* nobody reads the output again: where that is a sum, it need not be made */
    op_sum_taken(g);
    /* The gradient moves over: a second holder would cost a copy in the first op. */
    out->grad = e->out->grad;
    e->out->grad = NULL;
    good = graph_backward_to(g, base);
    /* also `out`, which no later op reads */
    scope_end(g, mark, NULL);
    return good;
}

/* A module that hands an input through has nothing to recompute. */
static bool is_input(const accel_tensor_t *t, accel_tensor_t *const *in, int n)
{
    for (int i = 0; i < n; i++)
        if (in[i] == t)
            return true;
    return false;
}

/* The output needs a gradient even where no input does: the module's parameters do. */
static accel_tensor_t *recompute_call(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    struct graph *g = m->g;
    struct tape_entry e = { .op = op,
                            .backward = recompute_backward,
                            .ints = { n, g->draws.calls },
                            .ref = { m } };

    if (n > TAPE_MAX_IN)
        return graph_fail(g, A0605, op, "pass at most 8 tensors",
                          "module '%s' was given %d inputs", m->path, n);
    g->recording = false;
    e.out = module_forward(m, in, n);
    g->recording = true;
    if (!e.out || is_input(e.out, in, n))
        return e.out;
    e.out->needs_grad = true;
    for (int i = 0; i < n; i++)
        e.in[i] = e.saved[i] = in[i];
    return tape_record(g, &e) ? e.out : NULL;
}

/* A recomputed module runs as usual where nothing is recorded, and where an outer one
 * is being recomputed already. */
accel_tensor_t *accel_call(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    if (!m || m->g->error.code)
        return NULL;
    if (n < 0 || (n > 0 && !in))
        return graph_fail(m->g, A0605, NULL, "pass an array of n tensors",
                          "module '%s' was given %d inputs%s", m->path, n,
                          in ? "" : " at NULL");
    return m->recompute && m->g->recording && !m->g->recomputing
               ? recompute_call(m, in, n)
               : module_forward(m, in, n);
}

void accel_module_recompute(accel_module_t *m, int on)
{
    if (m)
        m->recompute = on != 0;
}

int nn_recompute_units(accel_module_t *root)
{
    int count = 0;

    for (accel_module_t *c = root->child; c; c = c->next) {
        if (c->wrapped) {
            c->recompute = true;
            count++;
        }
        count += nn_recompute_units(c);
    }
    return count;
}
