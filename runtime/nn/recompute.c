/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation checkpointing: the forward of a module runs without a tape, its inputs are
 * kept, and backward runs it again to get what it needs. In: modules marked
 * `recompute`. Out: the same bits as without recomputation, because random draws are
 * counted and the count is restored.
 */
#include "nn/nn.h"
#include "ops/ops.h"

static const char op[] = "recompute";

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
    out = nn_forward(m, e->in, (int)e->ints[0]);
    g->recomputing = false;
    g->draws.calls = calls;
    if (!out)
        return false;
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
accel_tensor_t *nn_recompute_call(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct graph *g = m->g;
    struct tape_entry e = { .op = op,
                            .backward = recompute_backward,
                            .ints = { n, g->draws.calls },
                            .ref = { m } };

    if (n < 0 || n > TAPE_MAX_IN)
        return graph_fail(g, A0605, op, "pass at most 8 tensors",
                          "module '%s' was given %d inputs", m->path, n);
    g->recording = false;
    e.out = nn_forward(m, in, n);
    g->recording = true;
    if (!e.out || is_input(e.out, in, n))
        return e.out;
    e.out->needs_grad = true;
    for (int i = 0; i < n; i++)
        e.in[i] = e.saved[i] = in[i];
    return tape_record(g, &e) ? e.out : NULL;
}

void accel_module_recompute(accel_module_t *m, int on)
{
    if (m)
        m->recompute = on != 0;
}

/* The roots of units: modules whose unit differs from that of their parent. */
int nn_recompute_units(accel_module_t *root)
{
    int count = 0;

    for (accel_module_t *c = root->child; c; c = c->next) {
        if (c->unit > 0 && c->unit != root->unit) {
            c->recompute = true;
            count++;
        }
        count += nn_recompute_units(c);
    }
    return count;
}
