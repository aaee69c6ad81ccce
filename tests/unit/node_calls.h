/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of forked ranks on pretended nodes: its result against plain C, and how many
 * bytes cross from node to node. With the stand-in for NCCL, which counts what each rank
 * sends to each other, and with UCX, whose sends are counted on their way.
 */
#ifndef ACCEL_TESTS_NODE_CALLS_H
#define ACCEL_TESTS_NODE_CALLS_H

#include "common/common.h"

#define RANKS 16

/* What the bytes between nodes are compared with. */
enum bytes {
    AS_A_RING, /* at most 1.1 times a ring's, which carries each sum as on the wire */
    ONCE,      /* each slice to each other node once, and the greetings */
    LESS,      /* fewer than in the direct form */
    AS_DIRECT, /* those of the direct form */
};

enum call { SCATTER, REDUCE, GATHER, BROADCAST };

/* "reduce_scatter" */
extern const char *const call_names[];

/* One call on ranks with these nodes. */
struct layout {
    const char *name;
    int size, node_of[RANKS];
    accel_dtype_t type;
    enum call call;
    size_t elems; /* of a part; of the array of all_reduce and broadcast */
    size_t scratch;
    bool in_group; /* on a group of all ranks, in reverse order */
    enum bytes bytes;
};

/* Two TAP lines: the bits of the result on all ranks, and the bytes between nodes. With
 * nodes_first, sums are those of the nodes first, but of AS_DIRECT in rank order.
 * Chooses the stand-in for NCCL and one thread when it is first called. */
void test_layout(const char *backend, const struct layout *l, bool nodes_first);

#endif
