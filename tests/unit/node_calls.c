/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls on pretended nodes (node_calls.h). The references are plain C in the order of
 * the additions and roundings that comm.h promises.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/node_calls.h"

#include "comm/nccl/nccl.h"
#include "comm/reduce.h"
#ifdef HAVE_UCX
#include "comm/ucx/ucx.h"
#endif
#include "numbers/bf16.h"
#include "common/env_names.h"
#include "numbers/wire.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

const char *const call_names[] = { "reduce_scatter", "all_reduce", "all_gather",
                                   "broadcast" };

/* Between the processes of one call. */
struct node_run {
    const struct layout *l;
    const char *backend;
    bool nodes_first;
    _Atomic uint64_t across; /* bytes that left a node */
};

/* Made once; the processes share it. */
static struct node_run *node_run(void)
{
    static struct node_run *s;

    if (s)
        return s;
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
    unsetenv("FAKE_NCCL");
    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
             0);
    if (s == MAP_FAILED)
        abort();
    return s;
}

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

/* Laid out as on the wire. */
static void narrow_part(void *to, const float *wide, size_t elems, accel_dtype_t t)
{
    if (wire_is_scaled(t))
        wire_narrow(to, wide, elems, t);
    else if (t == ACCEL_BF16)
        bf16_narrow(to, wide, elems);
    else
        memcpy(to, wide, elems * sizeof(*wide));
}

/* Elements [first, first + elems) of a rank's array, as on the wire. */
static void make_part(void *to, int rank, size_t first, size_t elems, accel_dtype_t t)
{
    float *wide = malloc(elems * sizeof(*wide));

    for (size_t i = 0; i < elems; i++)
        wide[i] = number(rank, first + i);
    narrow_part(to, wide, elems, t);
    free(wide);
}

static void widen_part(float *wide, const void *from, size_t elems, accel_dtype_t t)
{
    if (wire_is_scaled(t))
        wire_widen(wide, from, elems, t);
    else if (t == ACCEL_BF16)
        bf16_widen(wide, from, elems);
    else
        memcpy(wide, from, elems * sizeof(*wide));
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

/* The sum of src[size], as it is to be: in rank order; or of each node's ranks, rounded
 * to what travels, in the order of the nodes. */
static void sum_all(const struct layout *l, bool nodes_first, float *sum,
                    const void *const *src)
{
    const bool by_node = nodes_first && l->bytes != AS_DIRECT;
    const size_t n = l->elems;
    float *wide = malloc(n * sizeof(*wide)), *node = malloc(n * sizeof(*node));
    char *sent = malloc(wire_bytes(n, l->type));

    for (int r = 0, first = 0; r < l->size; r++) {
        const bool ends =
            !by_node || r + 1 == l->size || l->node_of[r + 1] != l->node_of[r];

        widen_part(wide, src[r], n, l->type);
        for (size_t i = 0; i < n; i++)
            node[i] = r == first ? wide[i] : node[i] + wide[i];
        if (!ends)
            continue;
        narrow_part(sent, node, n, l->type);
        if (by_node)
            widen_part(node, sent, n, l->type);
        for (size_t i = 0; i < n; i++)
            sum[i] = first == 0 ? node[i] : sum[i] + node[i];
        first = r + 1;
    }
    free(sent);
    free(node);
    free(wide);
}

/* ---- calls ----------------------------------------------------------------------- */

/* out = 1 + 0.5 * sum. */
static int scatter_parts(struct comm *c, const struct layout *l, bool nodes_first,
                         accel_error_t *err)
{
    const size_t bytes = wire_bytes(l->elems, l->type);
    const int me = comm_rank(c);
    char *in = malloc((size_t)l->size * bytes), *all;
    float *out = malloc(l->elems * sizeof(*out)), *want = malloc(l->elems * 4);
    float *sum = malloc(l->elems * sizeof(*sum));
    const void *src[RANKS];
    int bad = 0;

    all = make_all(l, me, src);
    for (int r = 0; r < l->size; r++)
        make_part(in + (size_t)r * bytes, me, (size_t)r * l->elems, l->elems, l->type);
    sum_all(l, nodes_first, sum, src);
    for (size_t i = 0; i < l->elems; i++) {
        out[i] = 1.0f;
        want[i] = 1.0f + 0.5f * sum[i];
    }
    if (comm_reduce_scatter(c, in, out, l->elems, l->type, 0.5f, true, err))
        bad = 3;
    else if (memcmp(out, want, l->elems * sizeof(*out)) != 0)
        bad = 4;
    free(in);
    free(all);
    free(out);
    free(want);
    free(sum);
    return bad;
}

static int reduce_array(struct comm *c, const struct layout *l, bool nodes_first,
                        accel_error_t *err)
{
    const size_t bytes = wire_bytes(l->elems, l->type);
    char *buf = malloc(bytes), *want = malloc(bytes), *all;
    float *sum = malloc(l->elems * sizeof(*sum));
    const void *src[RANKS];
    int bad = 0;

    all = make_all(l, 0, src);
    memcpy(buf, src[comm_rank(c)], bytes);
    sum_all(l, nodes_first, sum, src);
    narrow_part(want, sum, l->elems, l->type);
    if (comm_all_reduce(c, buf, l->elems, l->type, COMM_SUM, err))
        bad = 3;
    else if (memcmp(buf, want, bytes) != 0)
        bad = 4;
    free(buf);
    free(all);
    free(want);
    free(sum);
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

static int call_once(struct comm *c, const struct layout *l, struct node_run *s)
{
    accel_error_t err = { 0 };
    int node_of[RANKS], bad;
    uint64_t before;

    for (int r = 0; r < l->size; r++)
        node_of[r] = l->node_of[l->in_group ? l->size - 1 - r : r];
    before = sent_away(c, node_of);
    bad = l->call == SCATTER  ? scatter_parts(c, l, s->nodes_first, &err)
          : l->call == REDUCE ? reduce_array(c, l, s->nodes_first, &err)
                              : spread_array(c, l, &err);
    atomic_fetch_add(&s->across, sent_away(c, node_of) - before);
    if (bad)
        fprintf(stderr, "# rank %d: %d %s\n", comm_rank(c), bad, err.text);
    return bad;
}

static int run_layout(struct boot *b, void *arg)
{
    struct node_run *s = arg;
    const struct layout *l = s->l;
    struct comm_options o = { .backend = s->backend,
                              .scratch_bytes = l->scratch,
                              .nodes_first = s->nodes_first };
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

void test_layout(const char *backend, const struct layout *l, bool nodes_first)
{
    struct node_run *s = node_run();
    const double ring = ring_bytes(l), direct = direct_bytes(l);
    double across, most = 1.1 * ring;
    int rc;

    s->l = l;
    s->backend = backend;
    s->nodes_first = nodes_first;
    atomic_store(&s->across, 0);
    rc = fork_world(l->size, run_layout, s, HANG_S);
    tap_is_int(rc, 0, "%s, %s, %s of %zu %s%s: the right bits", backend, l->name,
               call_names[l->call], l->elems, accel_dtype_name(l->type),
               nodes_first ? ", nodes first" : "");
    across = (double)atomic_load(&s->across);
    if (l->bytes == ONCE && once_bytes(l) < most)
        most = once_bytes(l);
    tap_ok(l->bytes == LESS        ? across < 0.9 * direct
           : l->bytes == AS_DIRECT ? across == direct
                                   : across <= most,
           "  %.0f bytes between nodes; a ring: %.0f, directly: %.0f", across, ring,
           direct);
}
