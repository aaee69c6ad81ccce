/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a run as a grid, and the communicators of their groups: see mesh.h.
 */
#include "mesh/mesh.h"

void mesh_place(struct mesh *m, const struct plan_layout *l, const struct boot *b)
{
    const int others = l->cp * l->sp * l->tp;
    int position = 0;

    for (int r = 0; r < b->size; r++)
        position += b->node_of[r] < b->node ||
                    (b->node_of[r] == b->node && b->local_rank_of[r] < b->local_rank);
    m->layout = *l;
    for (int a = 0; a < AXIS_COUNT; a++) {
        const struct plan_group g = plan_group_of(l, (enum plan_axis)a);

        m->at[a] = position / g.stride % g.size;
    }
    m->data.rank = b->rank / others;
    m->data.size = b->size / others;
}

int mesh_color(const struct mesh *m, enum plan_axis axis)
{
    int color = 0;

    for (int a = 0; a < AXIS_COUNT; a++)
        if (a != (int)axis)
            color += m->at[a] * plan_group_of(&m->layout, (enum plan_axis)a).stride;
    return color;
}

/* HYBRID: rank k of a node works with rank k of the others, so every node must have
 * equally many. */
static accel_status_t check_nodes(const struct boot *b, accel_error_t *err)
{
    /* local ranks count from 0, so one of `each` or more means another node
     * lacks some */
    int each = b->size / b->nodes;
    bool even = b->size % b->nodes == 0;

    for (int r = 0; r < b->size; r++)
        even = even && b->local_rank_of[r] < each;
    return even ? ACCEL_OK
                : accel_fail(err, A0322, "use --ntasks-per-node=N, or FULL_SHARD",
                             "%d ranks are not spread evenly over %d nodes", b->size,
                             b->nodes);
}

/* NCCL connects the ranks and allocates its buffers on the device when they first
 * exchange something. That must happen before the memory is measured. */
static accel_status_t warm_up(const struct backend *be, struct comm *c, bool gathers,
                              bool sums, accel_error_t *err)
{
    enum { ELEMS = 64 };
    size_t bytes = (size_t)comm_size(c) * ELEMS * sizeof(float);
    void *all = NULL, *part = NULL;
    accel_status_t st = be->alloc(be, MEMORY_WORK, bytes, &all, err);

    ACCEL_TRY(st, be->alloc(be, MEMORY_WORK, ELEMS * sizeof(float), &part, err));
    /* what is exchanged does not matter */
    if (st == ACCEL_OK && gathers)
        st = comm_all_gather(c, all, ELEMS, ACCEL_F32, err);
    if (st == ACCEL_OK && sums)
        st = comm_reduce_scatter(c, all, part, ELEMS, ACCEL_F32, 1.0f, false, err);
    ACCEL_TRY(st, be->sync(be, err));
    be->free(be, part);
    be->free(be, all);
    return st;
}

/* Each communicator is warmed up with the collectives that it will have. */
static accel_status_t warm_up_all(const struct mesh *m, const struct mesh_comms *c,
                                  accel_error_t *err)
{
    struct comm *main = m->group ? m->group : c->device;
    accel_status_t st = warm_up(c->be, main, true, !m->reduce, err);

    if (st == ACCEL_OK && m->reduce)
        st = warm_up(c->be, m->reduce, false, true, err);
    if (st == ACCEL_OK && m->copies && !c->offloads)
        st = warm_up(c->be, m->copies, false, true, err);
    return st;
}

/* Gradients that live on the host are summed there. */
static accel_status_t open_groups(struct mesh *m, const struct boot *b,
                                  const struct mesh_comms *c, accel_error_t *err)
{
    struct comm *all = c->device ? c->device : c->host;
    struct comm *grads = c->offloads ? c->host : all;
    const bool cut = m->layout.cut_optimizer;
    accel_status_t st = ACCEL_OK;

    if (cut && m->layout.replicate > 1) {
        ACCEL_CHECK(
            st, comm_split(all, mesh_color(m, AXIS_SHARD), b->rank, &m->group, err));
        ACCEL_CHECK(st, comm_split(grads, mesh_color(m, AXIS_REPLICATE), b->rank,
                                   &m->copies, err));
    }
    /* A communicator keeps the order of its calls whatever their queues. With one
     * communicator for both, a gather would wait for the reduction before it. */
    if (c->device && cut)
        st = comm_split(m->group ? m->group : all, 0, b->rank, &m->reduce, err);
    return st;
}

/* A single rank has no groups. */
accel_status_t mesh_open(struct mesh *m, const struct config *config,
                         const struct boot *b, const struct mesh_comms *c,
                         accel_error_t *err)
{
    const enum sharding_strategy strategy = config_strategy(config);
    struct plan_layout layout;
    accel_status_t st = ACCEL_OK;

    if (strategy == SHARD_HYBRID || strategy == SHARD_HYBRID_ZERO2)
        ACCEL_CHECK(st, check_nodes(b, err));
    ACCEL_CHECK(st, plan_layout_of(config, b->size, b->local_size, &layout, err));
    mesh_place(m, &layout, b);
    if (b->size == 1)
        return ACCEL_OK;
    ACCEL_CHECK(st, open_groups(m, b, c, err));
    return c->device ? warm_up_all(m, c, err) : ACCEL_OK;
}

/* Before the communicators that they were split from. */
void mesh_close(struct mesh *m)
{
    comm_close(m->reduce);
    comm_close(m->copies);
    comm_close(m->group);
}
