/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: causal multi-head attention on one fused qkv. Saves qkv, the output and one
 * log-sum-exp per query; never the scores.
 */
#include "ops/ops.h"

static const char op[] = "attention";

static struct attention describe(const struct graph *g, const accel_tensor_t *qkv,
                                 int heads)
{
    return (struct attention){ .type = g->compute,
                               .batch = qkv->dim[0],
                               .time = qkv->dim[1],
                               .heads = heads,
                               .head_width = qkv->dim[2] / 3 / heads };
}

static bool backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *qkv = e->in[0], *dqkv;
    const struct backend *be = g->backend;
    struct attention p = describe(g, qkv, (int)e->ints[0]);
    void *scratch;
    bool add;

    if (!qkv->needs_grad)
        return true;
    dqkv = grad_target(g, qkv, &add);
    scratch = dqkv ? graph_scratch(g, be->attention_scratch(be, &p, true)) : NULL;
    if (!scratch)
        return false;
    be->attention_grad(be, &p, dqkv->data, add, e->out->grad->data, e->saved[1]->data,
                       e->saved[2]->data, qkv->data, scratch);
    graph_scratch_free(g, scratch);
    return true;
}

accel_tensor_t *accel_attention(accel_tensor_t *qkv, int heads)
{
    struct graph *g = op_graph(op, &qkv, 1);
    accel_tensor_t *y, *lse;
    struct attention p;
    void *scratch;
    char shape[96];

    if (!g || !op_activation(g, op, qkv, "qkv"))
        return NULL;
    if (qkv->ndim != 3 || heads < 1 || qkv->dim[2] % 3 || qkv->dim[2] / 3 % heads)
        return graph_fail(g, A0602, op,
                          "qkv is [B, T, 3C] and C a multiple of the heads",
                          "qkv %s does not fit %d heads",
                          tensor_shape_text(qkv, shape, sizeof(shape)), heads);
    p = describe(g, qkv, heads);
    y = graph_tensor(g, g->compute, 3, (int64_t[]){ p.batch, p.time, qkv->dim[2] / 3 });
    lse = graph_tensor(g, ACCEL_F32, 3, (int64_t[]){ p.batch, p.heads, p.time });
    scratch =
        y && lse
            ? graph_scratch(g, g->backend->attention_scratch(g->backend, &p, false))
            : NULL;
    if (!scratch)
        return NULL;
    g->backend->attention(g->backend, &p, y->data, lse->data, qkv->data, scratch);
    graph_scratch_free(g, scratch);
    y->needs_grad = g->recording && qkv->needs_grad;
    if (y->needs_grad && !tape_record(g, &(struct tape_entry){ .op = op,
                                                               .backward = backward,
                                                               .out = y,
                                                               .in = { qkv },
                                                               .saved = { qkv, y, lse },
                                                               .ints = { heads } }))
        return NULL;
    return y;
}
