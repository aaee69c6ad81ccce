/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over several nodes: the bits of rank order wherever the ranks are, and how many
 * bytes cross from node to node beside a ring's. Forked ranks with the stand-in for
 * NCCL, which counts what each rank sends to each other, and with UCX, whose sends are
 * counted on their way; nodes are pretended.
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

#define RANKS 8

/* What the bytes between nodes are compared with. */
enum bytes {
    AS_A_RING, /* at most 1.1 times a ring's, which carries each sum as on the wire */
    LESS,      /* fewer than in the direct form */
    AS_DIRECT, /* those of the direct form */
};

/* One call on ranks with these nodes. */
struct layout {
    const char *name;
    int size, node_of[RANKS];
    accel_dtype_t type;
    bool reduce;  /* all_reduce */
    size_t elems; /* of a part; of all_reduce's array */
    size_t scratch;
    bool in_group; /* on a group of all ranks, in reverse order */
    enum bytes bytes;
};

#define PART ((size_t)131072)

static const struct layout layouts[] = {
    { "2 x 2", 4, { 0, 0, 1, 1 }, ACCEL_F32, false, PART, 0, false, AS_A_RING },
    { "2 x 2, an odd length",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      false,
      200003,
      0,
      false,
      AS_A_RING },
    { "2 x 2, many pieces",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      false,
      70001,
      65536,
      false,
      AS_A_RING },
    { "2 x 2", 4, { 0, 0, 1, 1 }, ACCEL_F32, true, 4 * PART, 0, false, AS_A_RING },
    { "2 x 2, many pieces",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      true,
      300007,
      65536,
      false,
      AS_A_RING },
    { "2 x 2", 4, { 0, 0, 1, 1 }, ACCEL_BF16, false, 2 * PART, 0, false, AS_DIRECT },
    { "2 x 2, as a group",
      4,
      { 0, 0, 1, 1 },
      ACCEL_F32,
      false,
      PART,
      0,
      true,
      AS_A_RING },
    { "2 x 2, a node's ranks apart",
      4,
      { 0, 1, 0, 1 },
      ACCEL_F32,
      false,
      PART,
      0,
      false,
      AS_DIRECT },
    { "3 and 1", 4, { 0, 0, 1, 0 }, ACCEL_F32, false, PART, 0, false, AS_DIRECT },
    { "2 x 2, short", 4, { 0, 0, 1, 1 }, ACCEL_F32, false, 65535, 0, false, AS_DIRECT },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_F32,
      false,
      PART,
      0,
      false,
      AS_A_RING },
    { "2 x 4", 8, { 0, 0, 0, 0, 1, 1, 1, 1 }, ACCEL_BF16, false, PART, 0, false, LESS },
    { "2 x 4, many pieces",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_BF16,
      true,
      600011,
      65536,
      false,
      LESS },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_F16,
      false,
      70001,
      65536,
      false,
      LESS },
    { "2 x 4",
      8,
      { 0, 0, 0, 0, 1, 1, 1, 1 },
      ACCEL_F8E4M3,
      false,
      200001,
      0,
      false,
      AS_DIRECT },
    { "3 x 2",
      6,
      { 0, 0, 1, 1, 2, 2 },
      ACCEL_F32,
      false,
      100001,
      131072,
      false,
      AS_A_RING },
    { "3 x 2",
      6,
      { 0, 0, 1, 1, 2, 2 },
      ACCEL_F32,
      true,
      400009,
      131072,
      false,
      AS_A_RING },
    { "4 x 2",
      8,
      { 0, 0, 1, 1, 2, 2, 3, 3 },
      ACCEL_F32,
      false,
      50003,
      131072,
      false,
      AS_A_RING },
    { "2 x 1", 2, { 0, 1 }, ACCEL_F32, false, 2 * PART, 0, false, AS_DIRECT },
    { "1 x 4", 4, { 0, 0, 0, 0 }, ACCEL_F32, false, PART, 0, false, AS_DIRECT },
    { "2 and 1", 3, { 0, 0, 1 }, ACCEL_F32, false, 2 * PART, 0, false, AS_DIRECT },
    { "1 and 2", 3, { 0, 1, 1 }, ACCEL_F32, true, 4 * PART, 0, false, AS_DIRECT },
};

/* Between the processes of one call. */
struct shared {
    const struct layout *l;
    const char *backend;
    _Atomic uint64_t across; /* bytes that left a node */
    _Atomic int gave_up;     /* ranks */
    char text[RANKS][1024];  /* their errors */
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
    bad = l->reduce ? reduce_array(c, l, &err) : scatter_parts(c, l, &err);
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

/* What a ring sends between nodes, each of which one edge leaves: all parts but
 * one, and back. */
static double ring_bytes(const struct layout *l)
{
    const int parts = l->size - 1, nodes = count_nodes(l);

    if (nodes == 1)
        return 0;
    if (l->reduce)
        return 2.0 * nodes * parts * (double)wire_bytes(l->elems, l->type) / l->size;
    return (double)nodes * parts * (double)wire_bytes(l->elems, l->type);
}

/* What all ranks send to those on other nodes when each sends each its part. */
static double direct_bytes(const struct layout *l)
{
    double bytes = 0;

    for (int a = 0; a < l->size; a++)
        for (int z = 0; z < l->size; z++) {
            const size_t from = reduce_slice_begin(l->elems, l->size, z);
            const size_t slice = reduce_slice_begin(l->elems, l->size, z + 1) - from;

            if (l->node_of[a] == l->node_of[z])
                continue;
            /* a slice of all_reduce comes to its owner and goes back as a sum */
            bytes += l->reduce ? 2.0 * (double)wire_bytes(slice, l->type)
                               : (double)wire_bytes(l->elems, l->type);
        }
    return bytes;
}

static void test_layout(const char *backend, const struct layout *l, struct shared *s)
{
    const double ring = ring_bytes(l), direct = direct_bytes(l);
    double across;
    int rc;

    s->l = l;
    s->backend = backend;
    atomic_store(&s->across, 0);
    rc = fork_world(l->size, run_layout, s, 60);
    tap_is_int(rc, 0, "%s, %s, %s of %zu %s: the bits of rank order", backend, l->name,
               l->reduce ? "all_reduce" : "reduce_scatter", l->elems,
               accel_dtype_name(l->type));
    across = (double)atomic_load(&s->across);
    tap_ok(l->bytes == AS_A_RING ? across <= 1.1 * ring
           : l->bytes == LESS    ? across < 0.9 * direct
                                 : across == direct,
           "  %.0f bytes between nodes; a ring: %.0f, directly: %.0f", across, ring,
           direct);
}

#ifdef HAVE_UCX
/* ---- a rank that does not come --------------------------------------------------- */

#define SILENT 3

static int silent_rank(struct boot *b, void *arg)
{
    struct shared *s = arg;
    const struct comm_options o = { .backend = "ucx", .timeout_ms = 700 };
    accel_error_t err = { 0 };
    struct comm *c;
    int bad = 0;

    memcpy(b->node_of, s->l->node_of, (size_t)b->size * sizeof(*b->node_of));
    if (comm_open(&c, b, &o, &err) != ACCEL_OK)
        return 2;
    if (b->rank != SILENT) {
        bad = scatter_parts(c, s->l, &err) != 3;
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
    s->l = &layouts[0];
    atomic_store(&s->gave_up, 0);
    tap_is_int(fork_world(s->l->size, silent_rank, s, 60), 0,
               "ucx, %s: a rank that does not come", s->l->name);
    for (int r = 0; r < SILENT; r++)
        tap_is_str(s->text[r], "reduce_scatter #1: rank 3 did not arrive within 0.7 s",
                   "  rank %d names it", r);
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
    test_silent(s);
#endif
    munmap(s, sizeof(*s));
    return tap_done();
}
