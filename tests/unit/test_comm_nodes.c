/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls over several nodes (node_calls.h): sums have the bits of rank order wherever the
 * ranks are; gathers and broadcasts bring all ranks the same; and how many bytes cross
 * from node to node beside a ring's. Sums of the nodes first: test_node_sums.c. With UCX
 * also: a rank that does not come, is lost, or makes another call.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/unit/node_calls.h"

#define PART ((size_t)131072)

/* With the sanitizer each rank takes its time, and more of them touch no other code. */
enum { MOST_RANKS = TAP_SANITIZED ? 4 : RANKS, EACH = 1 + TAP_SANITIZED };

/* Ranks, and the node of each. */
/* clang-format off */
#define TWO_BY_TWO   4, { 0, 0, 1, 1 }
#define TWO_BY_FOUR  8, { 0, 0, 0, 0, 1, 1, 1, 1 }
#define THREE_BY_TWO 6, { 0, 0, 1, 1, 2, 2 }
/* clang-format on */

static const struct layout layouts[] = {
    { "2 x 2", TWO_BY_TWO, ACCEL_F32, SCATTER, PART, 0, false, AS_A_RING },
    { "2 x 2, an odd length", TWO_BY_TWO, ACCEL_F32, SCATTER, 200003, 0, false,
      AS_A_RING },
    { "2 x 2, many pieces, the last of one element", TWO_BY_TWO, ACCEL_F32, SCATTER,
      42 * 1664 + 1, 65536, false, AS_A_RING },
    { "2 x 2", TWO_BY_TWO, ACCEL_F32, REDUCE, 4 * PART, 0, false, AS_A_RING },
    { "2 x 2, many pieces", TWO_BY_TWO, ACCEL_F32, REDUCE, 300007, 65536, false,
      AS_A_RING },
    { "2 x 2", TWO_BY_TWO, ACCEL_BF16, SCATTER, 2 * PART, 0, false, AS_DIRECT },
    { "2 x 2, as a group", TWO_BY_TWO, ACCEL_F32, SCATTER, PART, 0, true, AS_A_RING },
    { "2 x 2, a node's ranks apart",
      4,
      { 0, 1, 0, 1 },
      ACCEL_F32,
      SCATTER,
      PART,
      0,
      false,
      AS_DIRECT },
    { "3 and 1", 4, { 0, 0, 1, 0 }, ACCEL_F32, SCATTER, PART, 0, false, AS_DIRECT },
    { "2 x 2, short", TWO_BY_TWO, ACCEL_F32, SCATTER, 65535, 0, false, AS_DIRECT },
    { "2 x 4", TWO_BY_FOUR, ACCEL_F32, SCATTER, PART, 0, false, AS_A_RING },
    { "2 x 4", TWO_BY_FOUR, ACCEL_BF16, SCATTER, PART, 0, false, LESS },
    { "2 x 4, many pieces", TWO_BY_FOUR, ACCEL_BF16, REDUCE, 600011, 65536, false,
      LESS },
    { "2 x 4", TWO_BY_FOUR, ACCEL_F16, SCATTER, 70001, 65536, false, LESS },
    { "2 x 4", TWO_BY_FOUR, ACCEL_F8E4M3, SCATTER, 200001, 0, false, AS_DIRECT },
    { "3 x 2", THREE_BY_TWO, ACCEL_F32, SCATTER, 100001, 131072, false, AS_A_RING },
    { "3 x 2", THREE_BY_TWO, ACCEL_F32, REDUCE, 400009, 131072, false, AS_A_RING },
    { "4 x 2",
      8,
      { 0, 0, 1, 1, 2, 2, 3, 3 },
      ACCEL_F32,
      SCATTER,
      50003,
      131072,
      false,
      AS_A_RING },
    { "2 x 1", 2, { 0, 1 }, ACCEL_F32, SCATTER, 2 * PART, 0, false, AS_DIRECT },
    { "1 x 4", 4, { 0, 0, 0, 0 }, ACCEL_F32, SCATTER, PART, 0, false, AS_DIRECT },
    { "2 and 1", 3, { 0, 0, 1 }, ACCEL_F32, SCATTER, 2 * PART, 0, false, AS_DIRECT },
    { "1 and 2", 3, { 0, 1, 1 }, ACCEL_F32, REDUCE, 4 * PART, 0, false, AS_DIRECT },
};

#ifdef HAVE_UCX
/* Gathers of `elems` float32 per rank, and broadcasts of as many from all. */
static const struct place {
    const char *name;
    int size, node_of[RANKS];
    size_t elems;
    bool in_group;
    enum bytes gather, broadcast;
} places[] = {
    { "2 x 2", TWO_BY_TWO, PART, false, ONCE, ONCE },
    { "2 x 2, many pieces", TWO_BY_TWO, 800003, false, ONCE, ONCE },
    { "2 x 2, as a group", TWO_BY_TWO, PART, true, ONCE, ONCE },
    { "2 x 2, a node's ranks apart", 4, { 0, 1, 1, 0 }, PART, false, ONCE, ONCE },
    { "2 x 2, just long enough", TWO_BY_TWO, 32768, false, ONCE, ONCE },
    { "2 x 2, short", TWO_BY_TWO, 32767, false, AS_DIRECT, ONCE },
    { "2 x 2, shorter", TWO_BY_TWO, 16383, false, AS_DIRECT, AS_DIRECT },
    { "2 x 4", TWO_BY_FOUR, 50021, false, ONCE, ONCE },
    { "2 x 8",
      16,
      { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 },
      20011,
      false,
      ONCE,
      ONCE },
    { "3 x 2", THREE_BY_TWO, 200003, false, ONCE, ONCE },
    { "3 and 1", 4, { 0, 0, 1, 0 }, 200003, false, ONCE, ONCE },
    { "1 and 3", 4, { 0, 1, 1, 1 }, 200003, false, ONCE, ONCE },
    { "4, 2 and 1", 7, { 0, 1, 0, 2, 0, 1, 0 }, 300007, false, ONCE, ONCE },
    { "2 x 1", 2, { 0, 1 }, PART, false, AS_DIRECT, AS_DIRECT },
    { "1 x 4", 4, { 0, 0, 0, 0 }, PART, false, AS_DIRECT, AS_DIRECT },
};

static void test_place(const struct place *p)
{
    struct layout l = { .name = p->name,
                        .size = p->size,
                        .type = ACCEL_F32,
                        .call = GATHER,
                        .elems = p->elems,
                        .in_group = p->in_group,
                        .bytes = p->gather };

    memcpy(l.node_of, p->node_of, sizeof(l.node_of));
    test_layout("ucx", &l, false);
    l.call = BROADCAST;
    l.elems = p->elems * (size_t)p->size;
    l.bytes = p->broadcast;
    test_layout("ucx", &l, false);
}

/* ---- ranks that go wrong --------------------------------------------------------- */

enum { WRONG = 3, NODES_RANKS = 4 };

/* What a rank calls: all have room for the largest. */
struct wrong_call {
    const char *what;
    enum call call;
    size_t elems;
    int root;
};

/* Between the processes. */
struct shared {
    const struct wrong_call *expected, *other; /* of the ranks; of the wrong one */
    bool nodes_first;                          /* of the sums */
    _Atomic int gave_up;                       /* ranks */
    char text[RANKS][1024];                    /* their errors */
};

/* Opens ranks 0 and 1 on one node, 2 and 3 on another. */
static struct comm *open_two_nodes(struct boot *b, const struct shared *s,
                                   int timeout_ms)
{
    const struct comm_options o = { .backend = "ucx",
                                    .timeout_ms = timeout_ms,
                                    .nodes_first = s->nodes_first };
    accel_error_t err = { 0 };
    struct comm *c = NULL;

    for (int r = 0; r < b->size; r++)
        b->node_of[r] = r / 2;
    if (comm_open(&c, b, &o, &err) != ACCEL_OK)
        fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    return c;
}

static accel_status_t make_call(struct comm *c, const struct wrong_call *k,
                                accel_error_t *err)
{
    const size_t most = (size_t)NODES_RANKS * 2 * PART;
    float *in = calloc(most, sizeof(*in)), *out = calloc(most, sizeof(*out));
    accel_status_t st;

    if (k->call == SCATTER)
        st = comm_reduce_scatter(c, in, out, k->elems, ACCEL_F32, 1, false, err);
    else if (k->call == REDUCE)
        st = comm_all_reduce(c, in, k->elems, ACCEL_F32, COMM_SUM, err);
    else if (k->call == GATHER)
        st = comm_all_gather(c, in, k->elems, ACCEL_F32, err);
    else
        st = comm_broadcast(c, in, k->elems * sizeof(*in), k->root, err);
    free(in);
    free(out);
    return st;
}

static int silent_rank(struct boot *b, void *arg)
{
    struct shared *s = arg;
    struct comm *c = open_two_nodes(b, s, 700);
    accel_error_t err = { 0 };
    int bad = 0;

    if (!c)
        return 2;
    if (b->rank != WRONG) {
        bad = make_call(c, s->expected, &err) == ACCEL_OK;
        snprintf(s->text[b->rank], sizeof(s->text[0]), "%s", err.text);
        atomic_fetch_add(&s->gave_up, 1);
    }
    while (atomic_load(&s->gave_up) < b->size - 1)
        usleep(1000);
    comm_close(c);
    return bad;
}

/* Most ranks exchange nothing else with the silent one, and name it all the same. */
static void test_silent(struct shared *s)
{
    static const struct wrong_call calls[] = { { .call = SCATTER, .elems = PART },
                                               { .call = SCATTER, .elems = PART },
                                               { .call = GATHER, .elems = PART },
                                               { .call = BROADCAST, .elems = PART } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(calls); i++) {
        const char *name = call_names[calls[i].call];
        char want[128];

        s->expected = &calls[i];
        s->nodes_first = i == 0;
        atomic_store(&s->gave_up, 0);
        tap_is_int(fork_world(NODES_RANKS, silent_rank, s, HANG_S), 0,
                   "ucx, 2 x 2, %s: a rank that does not come", name);
        snprintf(want, sizeof(want), "%s #1: rank 3 did not arrive within 0.7 s", name);
        for (int r = 0; r < WRONG; r++)
            tap_is_str(s->text[r], want, "  rank %d names it", r);
    }
}

/* Far beyond the harness's patience. */
#define NEVER_MS 3600000

/* The first call is complete; then a rank dies, and the others are in the next one. */
static int lost_rank(struct boot *b, void *arg)
{
    struct shared *s = arg;
    struct comm *c = open_two_nodes(b, s, NEVER_MS);
    accel_error_t err = { 0 };
    accel_status_t st;

    if (!c || make_call(c, s->expected, &err) != ACCEL_OK)
        return 2;
    if (b->rank == WRONG)
        _exit(0);
    st = make_call(c, s->expected, &err);
    snprintf(s->text[b->rank], sizeof(s->text[0]), "%s", err.text);
    comm_close(c);
    return st == ACCEL_EPEER ? 0 : 3;
}

/* Who is told second may only see that another one gave up. */
static void test_lost(struct shared *s)
{
    static const struct wrong_call calls[] = {
        { .call = SCATTER, .elems = PART },
        { .call = REDUCE, .elems = 4 * PART },
    };

    s->nodes_first = true;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(calls); i++) {
        int named = 0;

        s->expected = &calls[i];
        memset(s->text, 0, sizeof(s->text));
        tap_is_int(fork_world(NODES_RANKS, lost_rank, s, HANG_S), 0,
                   "ucx, 2 x 2, %s, nodes first: a rank that is lost",
                   call_names[calls[i].call]);
        for (int r = 0; r < WRONG; r++)
            named += strstr(s->text[r], "rank 3") != NULL;
        tap_ok(named > 0, "  is named by %d", named);
    }
}

static int wrong_rank(struct boot *b, void *arg)
{
    struct shared *s = arg;
    struct comm *c = open_two_nodes(b, s, NEVER_MS);
    accel_error_t err = { 0 };
    accel_status_t st;

    if (!c)
        return 2;
    st = make_call(c, b->rank == WRONG ? s->other : s->expected, &err);
    snprintf(s->text[b->rank], sizeof(s->text[0]), "%s", err.text);
    comm_close(c);
    return st == ACCEL_EMISMATCH ? 100 : st == ACCEL_EPEER ? 0 : 3;
}

/* One rank makes another call: an error on all, and no result. Who is told second may
 * only see that another one gave up. */
static void test_wrong(struct shared *s)
{
    static const struct wrong_call gather = { .call = GATHER, .elems = PART },
                                   broadcast = { .call = BROADCAST, .elems = PART };
    static const struct wrong_call others[] = {
        { "a longer gather", GATHER, PART + 1, 0 },
        { "a short gather", GATHER, 8, 0 },
        { "a gather as short as a greeting", GATHER, 4, 0 },
        { "a gather shorter than a greeting", GATHER, 2, 0 },
        { "a gather of nothing", GATHER, 0, 0 },
        { "a sum", SCATTER, PART, 0 },
        { "another root", BROADCAST, PART, WRONG },
        { "another broadcast", BROADCAST, PART / 2, 0 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(others); i++) {
        int status[NODES_RANKS], saw = 0, bad = 0;

        s->nodes_first = false;
        s->other = &others[i];
        s->expected = others[i].call == BROADCAST ? &broadcast : &gather;
        memset(s->text, 0, sizeof(s->text));
        fork_world_nodes(NODES_RANKS, 1, wrong_rank, s, HANG_S, status);
        for (int r = 0; r < NODES_RANKS; r++) {
            saw += status[r] == 100 && strstr(s->text[r], "rank 3");
            bad += status[r] != 100 && status[r] != 0;
        }
        tap_ok(saw >= 1 && bad == 0, "ucx, 2 x 2: %s is noticed (%d %d %d %d)",
               others[i].what, status[0], status[1], status[2], status[3]);
        for (int r = 0; r < NODES_RANKS; r++)
            tap_diag("rank %d: %s", r, s->text[r]);
    }
}
#endif

static void test_layouts(const char *backend)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(layouts); i += EACH)
        if (layouts[i].size <= MOST_RANKS)
            test_layout(backend, &layouts[i], false);
}

int main(void)
{
#ifdef HAVE_UCX
    struct shared *s = fork_shared(sizeof(*s));

#endif
    test_layouts("nccl");
#ifdef HAVE_UCX
    test_layouts("ucx");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(places); i += EACH)
        if (places[i].size <= MOST_RANKS)
            test_place(&places[i]);
    test_silent(s);
    test_lost(s);
    test_wrong(s);
#endif
    return tap_done();
}
