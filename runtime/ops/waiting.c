/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that are queued only when their reader is known. In: a sum, which a norm may
 * make on the way (add.c); the result of a norm, an activation or a gated product,
 * whose kernel may make the 8-bit copies of a linear (linear_fp8.c). Out: one kernel in
 * place of two, with the same bits. What waits holds its tensors: the scope that made
 * them may end first.
 */
#include "ops/ops.h"

void op_sum_waits(struct graph *g, accel_tensor_t *sum, accel_tensor_t *x,
                  accel_tensor_t *y)
{
    g->waiting = (struct waiting_sum){ sum, x, y };
    tensor_retain(sum);
    tensor_retain(x);
    tensor_retain(y);
}

void op_sum_taken(struct graph *g)
{
    const struct waiting_sum w = g->waiting;

    g->waiting = (struct waiting_sum){ NULL };
    tensor_release(w.sum);
    tensor_release(w.x);
    tensor_release(w.y);
}

/* The tensors of a result whose memory its kernel needs. Parameters have none of their
 * own. */
static int held_tensors(const struct waiting_result *w, accel_tensor_t *held[5])
{
    int n = 0;

    held[n++] = w->out;
    if (w->stats)
        held[n++] = w->stats;
    for (int i = 0; i < 3; i++)
        if (w->in[i] && !w->in[i]->name)
            held[n++] = w->in[i];
    return n;
}

bool op_result_waits(struct graph *g, const struct waiting_result *w)
{
    accel_tensor_t *held[5];
    int n;

    if (!g->narrows)
        return w->queue(g, w, NULL);
    g->result = *w;
    g->result.path = g->module_path;
    n = held_tensors(w, held);
    for (int i = 0; i < n; i++)
        tensor_retain(held[i]);
    return true;
}

bool op_result_taken(struct graph *g, const struct narrow_copy *to)
{
    const struct waiting_result w = g->result;
    const char *path = g->module_path;
    accel_tensor_t *held[5];
    const int n = held_tensors(&w, held);
    bool good;

    g->result = (struct waiting_result){ NULL };
    g->module_path = w.path;
    good = w.queue(g, &w, to);
    g->module_path = path;
    for (int i = 0; i < n; i++)
        tensor_release(held[i]);
    return good;
}

/* A norm that waits makes the sum that waits for it. */
bool graph_queue_waiting(struct graph *g)
{
    const bool good = !g->result.out || op_result_taken(g, NULL);
    const struct waiting_sum w = g->waiting;

    if (w.sum) {
        g->backend->add(g->backend, w.sum->data, w.x->data, w.y->data, w.sum->dtype,
                        w.sum->elems);
        op_sum_taken(g);
    }
    return good;
}
