/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of the ranks of each node first, then of the nodes (accel.precision.sums: nodes):
 * the bits of plain C with these additions and roundings in this order, and at most 1.1
 * times the bytes of a ring between nodes, which carries sums as the arrays travel.
 */
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/node_calls.h"

/* Bytes of an array that is long enough. */
#define LONG_ENOUGH ((size_t)1 << 20)

static const struct nodes {
    const char *name;
    const char *of; /* of each rank, a digit */
    bool in_group;
} nodes[] = {
    { "2 x 2", "0011", false },     { "2 x 2, as a group", "0011", true },
    { "2 x 4", "00001111", false }, { "2 x 8", "0000000011111111", false },
    { "3 x 2", "001122", false },
};

static const accel_dtype_t types[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F8E4M3 };

static void put_nodes(struct layout *l, const char *of)
{
    l->size = (int)strlen(of);
    for (int r = 0; r < l->size; r++)
        l->node_of[r] = of[r] - '0';
}

static void test_nodes(const char *backend, const struct nodes *n, accel_dtype_t type)
{
    struct layout l = { .name = n->name,
                        .type = type,
                        .call = SCATTER,
                        .in_group = n->in_group,
                        .bytes = AS_A_RING };

    put_nodes(&l, n->of);
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
static const struct other {
    const char *name, *of;
    accel_dtype_t type;
    enum call call;
    size_t elems, scratch;
    enum bytes bytes;
} others[] = {
    { "3 and 1", "0001", ACCEL_BF16, SCATTER, LONG_ENOUGH, 0, AS_DIRECT },
    { "2 x 2, a node's ranks apart", "0101", ACCEL_BF16, SCATTER, LONG_ENOUGH, 0,
      AS_DIRECT },
    { "2 x 2, short", "0011", ACCEL_BF16, SCATTER, LONG_ENOUGH / 8 - 1, 0, AS_DIRECT },
    { "1 x 4", "0000", ACCEL_BF16, SCATTER, LONG_ENOUGH, 0, AS_DIRECT },
    { "2 x 1", "01", ACCEL_BF16, REDUCE, 2 * LONG_ENOUGH, 0, AS_DIRECT },
    { "3 x 2, many pieces", "001122", ACCEL_F8E4M3, SCATTER, 200001, 65536, AS_A_RING },
    { "2 x 4, many pieces", "00001111", ACCEL_F16, SCATTER, 70001, 65536, AS_A_RING },
};

static void test_other(const char *backend, const struct other *o)
{
    struct layout l = { .name = o->name,
                        .type = o->type,
                        .call = o->call,
                        .elems = o->elems,
                        .scratch = o->scratch,
                        .bytes = o->bytes };

    put_nodes(&l, o->of);
    test_layout(backend, &l, true);
}

/* With the sanitizer each world takes its time: those that differ in what memory they
 * touch. */
enum { MOST_RANKS = TAP_SANITIZED ? 4 : 16, EACH_TYPE = !TAP_SANITIZED };

/* One type for a group and, with the sanitizer, for every world. */
static bool is_tried(const struct nodes *n, accel_dtype_t type)
{
    if (strlen(n->of) > MOST_RANKS)
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
        test_other(backend, &others[i]);
}

int main(void)
{
    test_backend("nccl");
#ifdef HAVE_UCX
    test_backend("ucx");
#endif
    return tap_done();
}
