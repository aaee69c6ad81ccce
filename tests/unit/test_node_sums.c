/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of the ranks of each node first, then of the nodes (accel.precision.sums: nodes):
 * the bits of plain C with these additions and roundings in this order, and at most 1.1
 * times the bytes of a ring between nodes, which carries sums as the arrays travel.
 */
#include "tests/tap.h"
#include "tests/unit/node_calls.h"

/* Bytes of an array that is long enough. */
#define LONG_ENOUGH ((size_t)1 << 20)

static const struct nodes {
    const char *name;
    int nodes, ranks; /* of each */
    bool in_group;
} nodes[] = {
    { "2 x 2", 2, 2, false }, { "2 x 2, as a group", 2, 2, true },
    { "2 x 4", 2, 4, false }, { "2 x 8", 2, 8, false },
    { "3 x 2", 3, 2, false },
};

static const accel_dtype_t types[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F8E4M3 };

static void test_nodes(const char *backend, const struct nodes *n, accel_dtype_t type)
{
    struct layout l = { .name = n->name,
                        .size = n->nodes * n->ranks,
                        .type = type,
                        .call = SCATTER,
                        .in_group = n->in_group,
                        .bytes = AS_A_RING };

    for (int r = 0; r < l.size; r++)
        l.node_of[r] = r / n->ranks;
    /* the last block of a part is short */
    l.elems = LONG_ENOUGH / (size_t)l.size / accel_dtype_bytes(type) + 77;
    test_layout(backend, &l, true);
    if (type == ACCEL_F8E4M3) /* does not go into an all_reduce */
        return;
    l.call = REDUCE;
    l.elems = LONG_ENOUGH / accel_dtype_bytes(type) + 77;
    l.scratch = 65536; /* many pieces */
    test_layout(backend, &l, true);
}

/* What stays in rank order, directly; pieces of scaled blocks. */
static const struct layout others[] = {
    { .name = "3 and 1",
      .size = 4,
      .node_of = { 0, 0, 0, 1 },
      .type = ACCEL_BF16,
      .call = SCATTER,
      .elems = LONG_ENOUGH,
      .bytes = AS_DIRECT },
    { .name = "2 x 2, a node's ranks apart",
      .size = 4,
      .node_of = { 0, 1, 0, 1 },
      .type = ACCEL_BF16,
      .call = SCATTER,
      .elems = LONG_ENOUGH,
      .bytes = AS_DIRECT },
    { .name = "2 x 2, short",
      .size = 4,
      .node_of = { 0, 0, 1, 1 },
      .type = ACCEL_BF16,
      .call = SCATTER,
      .elems = LONG_ENOUGH / 8 - 1,
      .bytes = AS_DIRECT },
    { .name = "1 x 4",
      .size = 4,
      .node_of = { 0, 0, 0, 0 },
      .type = ACCEL_BF16,
      .call = SCATTER,
      .elems = LONG_ENOUGH,
      .bytes = AS_DIRECT },
    { .name = "2 x 1",
      .size = 2,
      .node_of = { 0, 1 },
      .type = ACCEL_BF16,
      .call = REDUCE,
      .elems = 2 * LONG_ENOUGH,
      .bytes = AS_DIRECT },
    { .name = "3 x 2, many pieces",
      .size = 6,
      .node_of = { 0, 0, 1, 1, 2, 2 },
      .type = ACCEL_F8E4M3,
      .call = SCATTER,
      .elems = 200001,
      .scratch = 65536,
      .bytes = AS_A_RING },
    { .name = "2 x 4, many pieces",
      .size = 8,
      .node_of = { 0, 0, 0, 0, 1, 1, 1, 1 },
      .type = ACCEL_F16,
      .call = SCATTER,
      .elems = 70001,
      .scratch = 65536,
      .bytes = AS_A_RING },
};

/* With the sanitizer each world takes its time: those that differ in what memory they
 * touch. */
enum { MOST_RANKS = TAP_SANITIZED ? 4 : 16, EACH_TYPE = !TAP_SANITIZED };

/* One type for a group and, with the sanitizer, for every world. */
static bool is_tried(const struct nodes *n, accel_dtype_t type)
{
    if (n->nodes * n->ranks > MOST_RANKS)
        return false;
    return type == ACCEL_BF16 || (!n->in_group && EACH_TYPE);
}

static void test_backend(const char *backend)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(nodes); i++)
        for (size_t k = 0; k < ACCEL_ARRAY_SIZE(types); k++)
            if (is_tried(&nodes[i], types[k]))
                test_nodes(backend, &nodes[i], types[k]);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(others); i += 1 + TAP_SANITIZED)
        test_layout(backend, &others[i], true);
}

int main(void)
{
    test_backend("nccl");
#ifdef HAVE_UCX
    test_backend("ucx");
#endif
    return tap_done();
}
