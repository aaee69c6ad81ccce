/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding: rows of a table by token id, plus learned positions (optional). ids [B,
 * T], table [V, C], positions [P, C], result [B, T, C]. Saves the ids. ints: the first
 * position. Gradients of equal ids are added in a fixed order, so two runs have equal
 * bits.
 */
#include "ops/ops.h"

#include "backend/id_place.h"

static const char op[] = "embedding";

/* Adds rows of dy into the gradients of table and positions. */
static bool embedding_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *ids = e->saved[0], *table = e->in[1], *positions = e->in[2];
    const struct backend *be = g->backend;
    struct op_units u;
    float *dtable = NULL, *dpositions = NULL;
    int64_t cols = table->dim[1];
    /* rotary models have no positions, and frozen ones need no gradient */
    bool trained = positions && positions->needs_grad;

    /* the values are not read, but a gradient may be asked for only while its unit is
     * held */
    if (!op_want(g, op, &u, e->in + 1, 2))
        return false;
    /* One call per parameter: they may live in different units, and asking for one
     * unit's gradient gives the other's up to be reduced. */
    if (table->needs_grad)
        dtable = op_grad(g, op, table);
    if (dtable)
        be->embed_grad(be, dtable, NULL, ids->data, e->out->grad->data, g->compute,
                       ids->elems, ids->dim[1], cols);
    if (trained && !g->error.code)
        dpositions = op_grad(g, op, positions);
    if (dpositions)
        be->embed_grad(be, NULL, dpositions + e->ints[0] * cols, ids->data,
                       e->out->grad->data, g->compute, ids->elems, ids->dim[1], cols);
    op_done(g, &u);
    /* a gradient that was not asked for is no failure */
    return (dtable || !table->needs_grad) && (dpositions || !trained);
}

/* `first` + T positions must exist. */
static bool embedding_shapes_fit(struct graph *g, accel_tensor_t *ids,
                                 accel_tensor_t *table, accel_tensor_t *positions,
                                 int64_t first)
{
    if (!op_int32(g, op, ids, "ids") || !op_parameter(g, op, table, "table", 2))
        return false;
    if (ids->ndim != 2)
        return op_misfit(g, op, ids, "ids", table, "table", "ids must be [B, T]");
    if (!positions)
        return true;
    if (!op_parameter(g, op, positions, "positions", 2))
        return false;
    if (positions->dim[1] != table->dim[1])
        return op_misfit(g, op, table, "table", positions, "positions",
                         "both must have the same width");
    /* ids are checked by the kernel; positions only here */
    if (positions->dim[0] - first < ids->dim[1])
        return op_misfit(g, op, ids, "ids", positions, "positions",
                         "the sequence is longer than the positions");
    return true;
}

accel_tensor_t *accel_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                                accel_tensor_t *positions)
{
    return op_embedding(ids, table, positions, 0);
}

accel_tensor_t *op_embedding(accel_tensor_t *ids, accel_tensor_t *table,
                             accel_tensor_t *positions, int64_t first)
{
    accel_tensor_t *need[] = { ids, table }, *params[] = { table, positions }, *y;
    struct graph *g = op_graph(op, need, 2);
    struct op_units u;
    const char *from;
    char place[96];
    int64_t bad;

    if (!g || !embedding_shapes_fit(g, ids, table, positions, first))
        return NULL;
    y = graph_tensor(g, g->compute, 3,
                     (int64_t[]){ ids->dim[0], ids->dim[1], table->dim[1] });
    if (!y || !op_want(g, op, &u, params, 2))
        return NULL;
    /* the kernel counts positions from 0: with a cache, move the start */
    from = op_values(g, &u, positions);
    if (from)
        from += (size_t)(first * table->dim[1]) * accel_dtype_bytes(g->compute);
    bad = g->backend->embed(g->backend, y->data, ids->data, op_values(g, &u, table),
                            from, g->compute, ids->elems, ids->dim[1], table->dim[0],
                            table->dim[1]);
    op_done(g, &u);
    /* -1 on a device, which reports a bad id at the next sync */
    if (bad >= 0)
        return graph_fail(
            g, A0615, op, "check the vocabulary size",
            "id %lld of the batch is not in [0, %lld)%s", (long long)bad,
            (long long)table->dim[0],
            id_place(place, sizeof(place), bad, ids->dim[1], g->micro, g->micros));
    return op_record(g, params, 2,
                     &(struct tape_entry){ .op = op,
                                           .backward = embedding_backward,
                                           .out = y,
                                           .in = { ids, table, positions },
                                           .saved = { ids },
                                           .ints = { first } });
}
