/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls over several nodes: sums have the bits of rank order wherever the ranks are;
 * gathers and broadcasts bring all ranks the same; and how many bytes cross from node
 * to node beside a ring's. Forked ranks with the stand-in for NCCL, which counts what
 * each rank sends to each other, and with UCX, whose sends are counted on their way;
 * nodes are pretended. With UCX also: a rank that does not come, or makes another call.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/nccl.h"
#include "comm/reduce.h"
#ifdef HAVE_UCX
#include "comm/ucx.h"
#endif
#include "common/bf16.h"
#include "common/env_names.h"
#include "common/wire.h"
#include "tests/tap.h"
#include "tests/unit/fork_world.h"

#define RANKS 16

/* What the bytes between nodes are compared with. */
enum bytes {
    AS_A_RING, /* at most 1.1 times a ring's, which carries each sum as on the wire */
    ONCE,      /* each slice to each other node once, and the greetings */
    LESS,      /* fewer than in the direct form */
    AS_DIRECT, /* those of the direct form */
};

enum call { SCATTER, REDUCE, GATHER, BROADCAST };

static const char *const call_names[] = { "reduce_scatter", "all_reduce", "all_gather",
                                          "broadcast" };

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

#define PART ((size_t)131072)

static const struct layout layouts[] = {
    { "2 x 2", 4, { 0, 0, 1, 1 }, ACCEL_F32, SCATTER, PART, 0, false, AS_A_RING },
    { "2 x 2, an odd length",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      SCATTER,
      200003,
      0,
      false,
      AS_A_RING },
    { "2 x 2, many pieces",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      SCATTER,
      70001,
      65536,
      false,
      AS_A_RING },
    { "2 x 2", 4, { 0, 0, 1, 1 }, ACCEL_F32, REDUCE, 4 * PART, 0, false, AS_A_RING },
    { "2 x 2, many pieces",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      REDUCE,
      300007,
      65536,
      false,
      AS_A_RING },
    { "2 x 2", 4, { 0, 0, 1, 1 }, ACCEL_BF16, SCATTER, 2 * PART, 0, false, AS_DIRECT },
    { "2 x 2, as a group",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      SCATTER,
      PART,
      0,
      true,
      AS_A_RING },
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
    { "2 x 2, short",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      SCATTER,
      65535,
      0,
      false,
      AS_DIRECT },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_F32,
      SCATTER,
      PART,
      0,
      false,
      AS_A_RING },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_BF16,
      SCATTER,
      PART,
      0,
      false,
      LESS },
    { "2 x 4, many pieces",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_BF16,
      REDUCE,
      600011,
      65536,
      false,
      LESS },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_F16,
      SCATTER,
      70001,
      65536,
      false,
      LESS },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_F8E4M3,
      SCATTER,
      200001,
      0,
      false,
      AS_DIRECT },
    { "3 x 2",
      6,
      { 0, 0, 1, 1, 2, 2 },
      ACCEL_F32,
      SCATTER,
      100001,
      131072,
      false,
      AS_A_RING },
    { "3 x 2",
      6,
      { 0, 0, 1, 1, 2, 2 },
      ACCEL_F32,
      REDUCE,
      400009,
      131072,
      false,
      AS_A_RING },
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
    { "2 x 2", 4, { 0, 0, 1, 1 }, PART, false, ONCE, ONCE },
    { "2 x 2, many pieces", 4, { 0, 0, 1, 1 }, 800003, false, ONCE, ONCE },
    { "2 x 2, as a group", 4, { 0, 0, 1, 1 }, PART, true, ONCE, ONCE },
    { "2 x 2, a node's ranks apart", 4, { 0, 1, 1, 0 }, PART, false, ONCE, ONCE },
    { "2 x 2, just long enough", 4, { 0, 0, 1, 1 }, 32768, false, ONCE, ONCE },
    { "2 x 2, short", 4, { 0, 0, 1, 1 }, 32767, false, AS_DIRECT, ONCE },
    { "2 x 2, shorter", 4, { 0, 0, 1, 1 }, 16383, false, AS_DIRECT, AS_DIRECT },
    { "2 x 4", 8, { 0, 0, 0, 0, 1, 1, 1, 1 }, 50021, false, ONCE, ONCE },
    { "2 x 8",
      16,
      { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 },
      20011,
      false,
      ONCE,
      ONCE },
    { "3 x 2", 6, { 0, 0, 1, 1, 2, 2 }, 200003, false, ONCE, ONCE },
    { "3 and 1", 4, { 0, 0, 1, 0 }, 200003, false, ONCE, ONCE },
    { "1 and 3", 4, { 0, 1, 1, 1 }, 200003, false, ONCE, ONCE },
    { "4, 2 and 1", 7, { 0, 1, 0, 2, 0, 1, 0 }, 300007, false, ONCE, ONCE },
    { "2 x 1", 2, { 0, 1 }, PART, false, AS_DIRECT, AS_DIRECT },
    { "1 x 4", 4, { 0, 0, 0, 0 }, PART, false, AS_DIRECT, AS_DIRECT },
};

#endif
/* Between the processes of one call. */
struct shared {
    const struct layout *l;
    const char *backend;
    const struct wrong_call *expected, *other; /* of the ranks; of the wrong one */
    _Atomic uint64_t across;                   /* bytes that left a node */
    _Atomic int gave_up;                       /* ranks */
    char text[RANKS][1024];                    /* their errors */
};

/* ---- arrays ---------------------------------------------------------------------- */

/* Of mixed size and sign: the sum depends on the order. */
static float number(int rank, size_t i)
{
    uint64_t x = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;

    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 32;
    return ((float)(x & 0xffff) - 32768.0f) / (float)(1u << (x >> 40 & 15));
}

/* Elements [first, first + elems) of a rank's array, as on the wire. */
static void make_part(void *to, int rank, size_t first, size_t elems, accel_dtype_t t)
{
    float *wide = malloc(elems * sizeof(*wide));

    for (size_t i = 0; i < elems; i++)
        wide[i] = number(rank, first + i);
    if (wire_is_scaled(t))
        wire_narrow(to, wide, elems, t);
    else if (t == ACCEL_BF16)
        bf16_narrow(to, wide, elems);
    else
        memcpy(to, wide, elems * sizeof(*wide));
    free(wide);
}

/* Part r of every rank's array, one after the other; src[] points at them. */
static char *make_all(const struct layout *l, int part, const void *src[RANKS])
{
    const size_t bytes = wire_bytes(l->elems, l->type);
    char *all = malloc((size_t)l->size * bytes);

    for (int r = 0; r < l->size; r++) {
        make_part(all + (size_t)r * bytes, r, (size_t)part * l->elems, l->elems,
                  l->type);
        src[r] = all + (size_t)r * bytes;
    }
    return all;
}

/* ---- calls ----------------------------------------------------------------------- */

/* out = 1 + 0.5 * sum. */
static int scatter_parts(struct comm *c, const struct layout *l, accel_error_t *err)
{
    const size_t bytes = wire_bytes(l->elems, l->type);
    const int me = comm_rank(c);
    char *in = malloc((size_t)l->size * bytes), *all;
    float *out = malloc(l->elems * sizeof(*out)), *want = malloc(l->elems * 4);
    const void *src[RANKS];
    int bad = 0;

    all = make_all(l, me, src);
    for (int r = 0; r < l->size; r++)
        make_part(in + (size_t)r * bytes, me, (size_t)r * l->elems, l->elems, l->type);
    for (size_t i = 0; i < l->elems; i++)
        out[i] = want[i] = 1.0f;
    reduce_scaled_sum(want, src, l->size, l->elems, l->type, 0.5f, true);
    if (comm_reduce_scatter(c, in, out, l->elems, l->type, 0.5f, true, err))
        bad = 3;
    else if (memcmp(out, want, l->elems * sizeof(*out)) != 0)
        bad = 4;
    free(in);
    free(all);
    free(out);
    free(want);
    return bad;
}

static int reduce_array(struct comm *c, const struct layout *l, accel_error_t *err)
{
    const size_t bytes = wire_bytes(l->elems, l->type);
    char *buf = malloc(bytes), *want = malloc(bytes), *all;
    const void *src[RANKS];
    int bad = 0;

    all = make_all(l, 0, src);
    memcpy(buf, src[comm_rank(c)], bytes);
    reduce_op(want, src, l->size, l->elems, l->type, COMM_SUM);
    if (comm_all_reduce(c, buf, l->elems, l->type, COMM_SUM, err))
        bad = 3;
    else if (memcmp(buf, want, bytes) != 0)
        bad = 4;
    free(buf);
    free(all);
    free(want);
    return bad;
}

/* Slice r of a gather holds rank r's numbers; a broadcast, the root's. */
static int spread_array(struct comm *c, const struct layout *l, accel_error_t *err)
{
    const bool gathers = l->call == GATHER;
    const int slices = gathers ? l->size : 1, me = comm_rank(c), root = l->size / 2;
    float *buf = calloc((size_t)slices * l->elems, sizeof(*buf));
    accel_status_t st;
    int bad = 0;

    if (gathers || me == root)
        make_part(buf + (gathers ? (size_t)me * l->elems : 0), me, 0, l->elems,
                  ACCEL_F32);
    st = gathers ? comm_all_gather(c, buf, l->elems, ACCEL_F32, err)
                 : comm_broadcast(c, buf, l->elems * sizeof(*buf), root, err);
    if (st != ACCEL_OK)
        bad = 3;
    for (int r = 0; st == ACCEL_OK && r < slices; r++)
        for (size_t i = 0; i < l->elems; i++)
            if (buf[(size_t)r * l->elems + i] != number(gathers ? r : root, i))
                bad = 4;
    free(buf);
    return bad;
}

#ifdef HAVE_UCX
static struct comm *counted; /* the one whose sends are counted */
static uint64_t ucx_sent[RANKS];

/* In place of UCX's own, which it calls. */
ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                                  ucp_tag_t tag, const ucp_request_param_t *param)
{
    static __typeof__(&ucp_tag_send_nbx) real;
    const struct ucx *u = counted ? counted->impl : NULL;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "ucp_tag_send_nbx");
    for (int r = 0; u && r < counted->size; r++)
        if (u->ep[r] == ep)
            ucx_sent[r] += count;
    return real(ep, buffer, count, tag, param);
}

static uint64_t sent_by_ucx(struct comm *c, int to)
{
    counted = c;
    return ucx_sent[to];
}
#endif

static uint64_t sent_by_nccl(struct comm *c, int to)
{
    const struct nccl_state *n = c->impl;
    uint64_t (*sent)(const nccl_comm_t *c, int to);

    *(void **)&sent = dlsym(n->api.library, "fake_nccl_sent");
    return sent(n->comm, to);
}

/* Bytes that this rank has sent to other nodes. With UCX, since the first question. */
static uint64_t sent_away(struct comm *c, const int *node_of)
{
    uint64_t (*sent)(struct comm * c, int to) = sent_by_nccl;
    uint64_t bytes = 0;

#ifdef HAVE_UCX
    if (strcmp(comm_backend(c), "ucx") == 0)
        sent = sent_by_ucx;
#endif
    for (int r = 0; r < c->size; r++)
        if (node_of[r] != node_of[c->rank])
            bytes += sent(c, r);
    return bytes;
}

static int call_once(struct comm *c, const struct layout *l, struct shared *s)
{
    accel_error_t err = { 0 };
    int node_of[RANKS], bad;
    uint64_t before;

    for (int r = 0; r < l->size; r++)
        node_of[r] = l->node_of[l->in_group ? l->size - 1 - r : r];
    before = sent_away(c, node_of);
    bad = l->call == SCATTER  ? scatter_parts(c, l, &err)
          : l->call == REDUCE ? reduce_array(c, l, &err)
                              : spread_array(c, l, &err);
    atomic_fetch_add(&s->across, sent_away(c, node_of) - before);
    if (bad)
        fprintf(stderr, "# rank %d: %d %s\n", comm_rank(c), bad, err.text);
    return bad;
}

static int run_layout(struct boot *b, void *arg)
{
    struct shared *s = arg;
    const struct layout *l = s->l;
    struct comm_options o = { .backend = s->backend, .scratch_bytes = l->scratch };
    struct comm *c, *group = NULL;
    accel_error_t err = { 0 };
    struct backend *be;
    int bad;

    memcpy(b->node_of, l->node_of, (size_t)b->size * sizeof(*b->node_of));
    if (backend_cpu_open(&be, 1, &err) != ACCEL_OK)
        return 1;
    o.device = be;
    if (comm_open(&c, b, &o, &err) != ACCEL_OK)
        return 2;
    if (l->in_group && comm_split(c, 5, -b->rank, &group, &err) != ACCEL_OK)
        return 2;
    bad = call_once(group ? group : c, l, s);
#ifdef HAVE_UCX
    counted = NULL; /* closing the world sends, too, when the group is gone */
#endif
    comm_close(group);
    comm_close(c);
    backend_close(be);
    return bad;
}

/* ---- bytes ----------------------------------------------------------------------- */

static int count_nodes(const struct layout *l)
{
    int most = 0;

    for (int r = 0; r < l->size; r++)
        most = l->node_of[r] > most ? l->node_of[r] : most;
    return most + 1;
}

/* What a ring sends between nodes, each of which one edge leaves: all parts but one,
 * and sums of all_reduce back. A broadcast goes around until the last node has it. */
static double ring_bytes(const struct layout *l)
{
    const double bytes = (double)wire_bytes(l->elems, l->type);
    const int parts = l->size - 1, nodes = count_nodes(l);

    if (nodes == 1)
        return 0;
    if (l->call == BROADCAST)
        return (nodes - 1) * bytes;
    return l->call == REDUCE ? 2.0 * nodes * parts * bytes / l->size
                             : (double)nodes * parts * bytes;
}

/* What gathers and broadcasts send at most when each slice goes to each other node
 * once. */
static double once_bytes(const struct layout *l)
{
    const double slices = l->call == GATHER ? l->size : 1;

    return slices * (count_nodes(l) - 1) * (double)wire_bytes(l->elems, l->type) +
           16.0 * l->size * l->size;
}

/* What all ranks send to those on other nodes when each sends each its part. */
static double direct_bytes(const struct layout *l)
{
    double bytes = 0;

    for (int a = 0; a < l->size; a++)
        for (int z = 0; z < l->size; z++) {
            const size_t from = reduce_slice_begin(l->elems, l->size, z);
            const size_t slice = reduce_slice_begin(l->elems, l->size, z + 1) - from;

            if (l->node_of[a] == l->node_of[z] ||
                (l->call == BROADCAST && a != l->size / 2))
                continue;
            /* a slice of all_reduce comes to its owner and goes back as a sum */
            bytes += l->call == REDUCE ? 2.0 * (double)wire_bytes(slice, l->type)
                                       : (double)wire_bytes(l->elems, l->type);
        }
    return bytes;
}

static void test_layout(const char *backend, const struct layout *l, struct shared *s)
{
    const double ring = ring_bytes(l), direct = direct_bytes(l);
    double across, most = 1.1 * ring;
    int rc;

    s->l = l;
    s->backend = backend;
    atomic_store(&s->across, 0);
    rc = fork_world(l->size, run_layout, s, 60);
    tap_is_int(rc, 0, "%s, %s, %s of %zu %s: the right bits", backend, l->name,
               call_names[l->call], l->elems, accel_dtype_name(l->type));
    across = (double)atomic_load(&s->across);
    if (l->bytes == ONCE && once_bytes(l) < most)
        most = once_bytes(l);
    tap_ok(l->bytes == LESS        ? across < 0.9 * direct
           : l->bytes == AS_DIRECT ? across == direct
                                   : across <= most,
           "  %.0f bytes between nodes; a ring: %.0f, directly: %.0f", across, ring,
           direct);
}

#ifdef HAVE_UCX
static void test_place(const struct place *p, struct shared *s)
{
    struct layout l = { .name = p->name,
                        .size = p->size,
                        .type = ACCEL_F32,
                        .call = GATHER,
                        .elems = p->elems,
                        .in_group = p->in_group,
                        .bytes = p->gather };

    memcpy(l.node_of, p->node_of, sizeof(l.node_of));
    test_layout("ucx", &l, s);
    l.call = BROADCAST;
    l.elems = p->elems * (size_t)p->size;
    l.bytes = p->broadcast;
    test_layout("ucx", &l, s);
}

/* ---- ranks that go wrong --------------------------------------------------------- */

enum { WRONG = 3, NODES_RANKS = 4 };

/* Opens ranks 0 and 1 on one node, 2 and 3 on another. */
static struct comm *open_two_nodes(struct boot *b, int timeout_ms)
{
    const struct comm_options o = { .backend = "ucx", .timeout_ms = timeout_ms };
    accel_error_t err = { 0 };
    struct comm *c = NULL;

    for (int r = 0; r < b->size; r++)
        b->node_of[r] = r / 2;
    if (comm_open(&c, b, &o, &err) != ACCEL_OK)
        fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    return c;
}

/* What a rank calls: all have room for the largest. */
struct wrong_call {
    const char *what;
    enum call call;
    size_t elems;
    int root;
};

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
    struct comm *c = open_two_nodes(b, 700);
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
                                               { .call = GATHER, .elems = PART },
                                               { .call = BROADCAST, .elems = PART } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(calls); i++) {
        const char *name = call_names[calls[i].call];
        char want[128];

        s->expected = &calls[i];
        atomic_store(&s->gave_up, 0);
        tap_is_int(fork_world(NODES_RANKS, silent_rank, s, 60), 0,
                   "ucx, 2 x 2, %s: a rank that does not come", name);
        snprintf(want, sizeof(want), "%s #1: rank 3 did not arrive within 0.7 s", name);
        for (int r = 0; r < WRONG; r++)
            tap_is_str(s->text[r], want, "  rank %d names it", r);
    }
}

/* Far beyond the harness's patience. */
#define NEVER_MS 3600000

static int wrong_rank(struct boot *b, void *arg)
{
    struct shared *s = arg;
    struct comm *c = open_two_nodes(b, NEVER_MS);
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

        s->other = &others[i];
        s->expected = others[i].call == BROADCAST ? &broadcast : &gather;
        memset(s->text, 0, sizeof(s->text));
        fork_world_nodes(NODES_RANKS, 1, wrong_rank, s, 30, status);
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

int main(void)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        return 1;
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
    unsetenv("FAKE_NCCL");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(layouts); i++)
        test_layout("nccl", &layouts[i], s);
#ifdef HAVE_UCX
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(layouts); i++)
        test_layout("ucx", &layouts[i], s);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(places); i++)
        test_place(&places[i], s);
    test_silent(s);
    test_wrong(s);
#endif
    munmap(s, sizeof(*s));
    return tap_done();
}
