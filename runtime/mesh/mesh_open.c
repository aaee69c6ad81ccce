/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of ranks that the sharding strategy works in. In: the communicators of all
 * ranks, the strategy and the nodes. Out: a communicator of the ranks that share the
 * state, one of those that hold copies of it, and one that only the reduce queue uses.
 */
#include "mesh/mesh_open.h"
#include "handle/run.h"

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

/* A group is a node. Gradients that live on the host are summed there. */
static accel_status_t open_hybrid(accel_t *run, struct comm *all, accel_error_t *err)
{
    const struct boot *b = &run->boot;
    struct comm *grads = run_offloads(run) ? run->comm : all;
    accel_status_t st = check_nodes(b, err);

    ACCEL_TRY(st, comm_split(all, b->node, b->rank, &run->group, err));
    ACCEL_TRY(st, comm_split(grads, b->local_rank, b->rank, &run->copies, err));
    return st;
}

/* NCCL connects the ranks and allocates its buffers on the device when they first
 * exchange something. That must happen before the memory is measured. */
static accel_status_t warm_up(accel_t *run, struct comm *c, bool gathers, bool sums,
                              accel_error_t *err)
{
    enum { ELEMS = 64 };
    const struct backend *be = run->backend;
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
static accel_status_t warm_up_all(accel_t *run, accel_error_t *err)
{
    struct comm *main = run->group ? run->group : run->data;
    accel_status_t st = warm_up(run, main, true, !run->reduce, err);

    if (st == ACCEL_OK && run->reduce)
        st = warm_up(run, run->reduce, false, true, err);
    if (st == ACCEL_OK && run->copies && !run_offloads(run))
        st = warm_up(run, run->copies, false, true, err);
    return st;
}

/* A single rank needs none. */
accel_status_t meshes_open(accel_t *run, accel_error_t *err)
{
    enum sharding_strategy strategy = config_strategy(&run->config);
    struct comm *all = run->data ? run->data : run->comm;
    accel_status_t st = ACCEL_OK;

    if (run->boot.size == 1)
        return ACCEL_OK;
    if (strategy == SHARD_HYBRID || strategy == SHARD_HYBRID_ZERO2)
        st = open_hybrid(run, all, err);
    /* A communicator keeps the order of its calls whatever their queues. With one
     * communicator for both, a gather would wait for the reduction before it. */
    if (st == ACCEL_OK && run->data && strategy != SHARD_NONE)
        st = comm_split(run->group ? run->group : all, 0, run->boot.rank, &run->reduce,
                        err);
    return st == ACCEL_OK && run->data ? warm_up_all(run, err) : st;
}

/* Before the communicators that they were split from. */
void meshes_close(accel_t *run)
{
    comm_close(run->reduce);
    comm_close(run->copies);
    comm_close(run->group);
}
