/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh/: where each rank of a grid is, who is in its groups, and whose samples it takes.
 */
#include <stdio.h>

#include "mesh/mesh.h"
#include "tests/tap.h"

enum { RANKS = 16 };

static const struct grid {
    /* of the axes, the slowest first */
    int size[AXIS_COUNT];
    /* cyclic: ranks go around the nodes */
    int nodes, cyclic;
    /* of one rank: its coordinates, its group along `axis`, and its part of the data */
    int rank;
    enum plan_axis axis;
    const char *want;
} grids[] = {
    { { 1, 1, 1, 1, 1 }, 1, 0, 0, AXIS_SHARD, "0 0 0 0 0: 0, data 0 of 1" },
    { { 4, 1, 1, 1, 1 }, 2, 0, 2, AXIS_REPLICATE, "2 0 0 0 0: 0 1 2 3, data 2 of 4" },
    { { 1, 4, 1, 1, 1 }, 2, 1, 1, AXIS_SHARD, "0 2 0 0 0: 0 1 2 3, data 1 of 4" },
    { { 2, 4, 1, 1, 1 }, 2, 0, 6, AXIS_SHARD, "1 2 0 0 0: 4 5 6 7, data 6 of 8" },
    { { 2, 4, 1, 1, 1 }, 2, 0, 6, AXIS_REPLICATE, "1 2 0 0 0: 2 6, data 6 of 8" },
    { { 2, 4, 1, 1, 1 }, 2, 1, 5, AXIS_SHARD, "1 2 0 0 0: 1 3 5 7, data 5 of 8" },
    { { 2, 4, 1, 1, 1 }, 2, 1, 5, AXIS_REPLICATE, "1 2 0 0 0: 4 5, data 5 of 8" },
    { { 1, 4, 1, 1, 2 }, 1, 0, 1, AXIS_TP, "0 0 0 0 1: 0 1, data 0 of 4" },
    { { 1, 4, 1, 1, 2 }, 1, 0, 5, AXIS_SHARD, "0 2 0 0 1: 1 3 5 7, data 2 of 4" },
    { { 2, 2, 2, 1, 1 }, 1, 0, 6, AXIS_CP, "1 1 0 0 0: 6 7, data 3 of 4" },
    { { 1, 2, 1, 4, 1 }, 2, 0, 5, AXIS_SP, "0 1 0 1 0: 4 5 6 7, data 1 of 2" },
    { { 2, 2, 2, 1, 2 }, 4, 0, 13, AXIS_CP, "1 1 0 0 1: 13 15, data 3 of 4" },
};

/* Returns the number of ranks. */
static int place(struct mesh *m, const struct grid *g, int rank)
{
    const struct plan_layout l = { .replicate = g->size[0],
                                   .shard = g->size[1],
                                   .cp = g->size[2],
                                   .sp = g->size[3],
                                   .tp = g->size[4] };
    const int world = l.replicate * l.shard * l.cp * l.sp * l.tp;
    int node_of[RANKS], local_rank_of[RANKS];

    for (int r = 0; r < world; r++) {
        node_of[r] = g->cyclic ? r % g->nodes : r * g->nodes / world;
        local_rank_of[r] = g->cyclic ? r / g->nodes : r % (world / g->nodes);
    }
    mesh_place(m, &l,
               &(struct boot){ .rank = rank,
                               .size = world,
                               .local_rank = local_rank_of[rank],
                               .node = node_of[rank],
                               .node_of = node_of,
                               .local_rank_of = local_rank_of });
    return world;
}

int main(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(grids); i++) {
        const struct grid *g = &grids[i];
        struct mesh own = { 0 }, other = { 0 };
        const int world = place(&own, g, g->rank), *at = own.at;
        char got[128];
        size_t n = (size_t)snprintf(got, sizeof(got), "%d %d %d %d %d:", at[0], at[1],
                                    at[2], at[3], at[4]);

        for (int r = 0; r < world; r++) {
            place(&other, g, r);
            if (mesh_color(&other, g->axis) == mesh_color(&own, g->axis))
                n += (size_t)snprintf(got + n, sizeof(got) - n, " %d", r);
        }
        snprintf(got + n, sizeof(got) - n, ", data %d of %d", own.data.rank,
                 own.data.size);
        tap_is_str(got, g->want, "rank %d of %d on %s", g->rank, world,
                   plan_axis_name(g->axis));
    }
    return tap_done();
}
