/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks the tape backwards from a loss. Gradients and saved activations are freed as
 * soon as the entry that needed them is done. Parameter gradients go to the residency,
 * which reduces a unit once the walk has left it. In: the tape and the loss. Out:
 * gradients of parameters. An entry whose result has no gradient is skipped, or kept
 * for another loss.
 */
#include "ops/ops.h"

/* A0610 for anything that is not this micro-batch's loss. */
static accel_status_t backward_refuse(accel_error_t *err, const char *text)
{
    return accel_fail(err, A0610,
                      "pass the loss that the forward of this micro-batch returned",
                      "backward: %s", text);
}

/* Checked before the walk starts, so that a wrong loss changes nothing. A loss may be a
 * sum. */
accel_status_t graph_check_loss(struct graph *g, const accel_tensor_t *loss,
                                accel_error_t *err)
{
    char shape[96];

    if (g->error.code) {
        if (err)
            *err = g->error;
        return g->error.code;
    }
    if (!loss)
        return backward_refuse(err, "the loss is NULL");
    if (loss->name)
        return accel_fail(err, A0610, "compute a loss from it and pass that",
                          "backward: the loss is parameter %s itself", loss->name);
    if (loss->g != g || !loss->data)
        return backward_refuse(err, "the loss does not belong to this micro-batch");
    /* the walk starts from one number: d(loss)/d(loss) = seed */
    if (loss->elems != 1 || loss->dtype != ACCEL_F32)
        return accel_fail(err, A0610,
                          "end the forward with accel_cross_entropy, accel_mse, "
                          "accel_mean(x, -1) or accel_sum(x, -1)",
                          "backward: the loss must be one float32, not %s %s",
                          accel_dtype_name(loss->dtype),
                          tensor_shape_text(loss, shape, sizeof(shape)));
    if (loss->spent)
        return backward_refuse(err, "another backward has been through this loss, and "
                                    "its graph is freed");
    if (!loss->needs_grad)
        return backward_refuse(
            err, "the loss depends on no parameter, or nothing was recorded");
    graph_queue_waiting(g);
    if (g->error.code && err)
        *err = g->error;
    return g->error.code;
}

bool graph_backward_to(struct graph *g, int base)
{
    const accel_dtype_t compute = g->compute;

    while (!g->error.code && tape_length(g) > base) {
        /* a copy: recomputing a module records entries, which may move the tape */
        const struct tape_entry e = *tape_at(g, tape_length(g) - 1);

        /* of another loss, whose backward may come later */
        if (g->many_losses && !base && !e.out->grad) {
            tape_put_aside(g);
            continue;
        }
        g->module_path = e.path;
        g->compute = e.compute;
        graph_mark(g, e.op, true);
        /* without a gradient the result did not contribute to the loss */
        if (e.out->grad && !e.backward(g, &e))
            graph_fail(g, A0003, e.op,
                       "report this with the model and the output of `accel env`",
                       "backward failed");
        /* a device may have failed by now: name this op and not the last */
        graph_check(g, e.op);
        /* complete for every reader: those stand later on the tape, and are done */
        tensor_release(e.out->grad);
        e.out->grad = NULL;
        e.out->spent = true;
        tape_pop(g);
    }
    g->compute = compute;
    return !g->error.code;
}

/* `seed` is d(loss)/d(loss): 1, or a share of it with several micro-batches per
 * step. */
accel_status_t graph_backward(struct graph *g, accel_tensor_t *loss, float seed,
                              accel_error_t *err)
{
    const int64_t one = 1;
    accel_status_t st;

    ACCEL_CHECK(st, graph_check_loss(g, loss, err));
    /* held by the loss alone, not by the scope of a module */
    loss->grad = graph_tensor(g, ACCEL_F32, 1, &one);
    if (loss->grad) {
        loss->grad->scoped = false;
        g->backend->fill(g->backend, loss->grad->data, ACCEL_F32, 1, seed);
    }
    graph_backward_to(g, 0);
    tape_put_back(g);
    /* errors from here on belong to no module */
    g->module_path = "";
    if (g->error.code && err)
        *err = g->error;
    return g->error.code;
}
