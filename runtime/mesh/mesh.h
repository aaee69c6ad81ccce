/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh/: the ranks of a run as a grid. In: the plan's layout, the ranks and their
 * nodes. Out: this rank's coordinates, its part of the data, and the communicators of
 * its groups.
 */
#ifndef ACCEL_MESH_MESH_H
#define ACCEL_MESH_MESH_H

#include "comm/comm.h"
#include "plan/plan.h"

struct mesh {
    /* the sizes of the axes */
    struct plan_layout layout;
    /* this rank's coordinate on each */
    int at[AXIS_COUNT];
    /* This rank among those that take samples of their own. Ranks that differ in cp, sp
     * or tp alone take the same. */
    struct {
        int rank, size;
    } data;
    /* NULL: all ranks, or none. The ranks that the state is sharded over; those with
     * copies of this rank's shard; the first again, for the reduce queue. */
    struct comm *group, *copies, *reduce;
};

/* Of all ranks; they must outlive the mesh. */
struct mesh_comms {
    struct comm *host;
    /* for device memory; NULL: `host` does its work */
    struct comm *device;
    const struct backend *be;
    /* gradients are summed in host memory */
    bool offloads;
};

/* Sets the layout, the coordinates and the part of the data. Ranks are placed node by
 * node, the fastest axis first. Not collective. */
void mesh_place(struct mesh *m, const struct plan_layout *l, const struct boot *b);
/* The same number on all ranks of this rank's group along `axis`, and on no others. */
int mesh_color(const struct mesh *m, enum plan_axis axis);
/* Places the ranks as the config wants them and opens the communicators. Collective.
 * A0322: the strategy needs nodes of equally many ranks; errors of plan_layout_of. */
accel_status_t mesh_open(struct mesh *m, const struct config *config,
                         const struct boot *b, const struct mesh_comms *c,
                         accel_error_t *err);
/* Frees the communicators. NULL ones are fine. */
void mesh_close(struct mesh *m);

#endif
