/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers and broadcasts over nodes of several ranks. In: slices of an array, each with
 * the rank that has it. Out: the whole array on all ranks. Each slice goes to every
 * other node once, to one rank there, which hands it on to those beside it. Ranks of
 * one place send to each other, so the slices of a node use all its adapters. Adds
 * nothing: sums are in ucx_chain.c.
 *
 * A broadcast's array is cut into a slice for each rank of the root's node; the root
 * hands them out first. Slices travel in pieces that follow each other. Time goes in
 * ticks, one exchange each: in a gather piece t crosses nodes at tick t and is handed
 * on at tick t + 1; in a broadcast the root hands it out at t, and these follow.
 */
#include <string.h>

#include "comm/reduce.h"
#include "comm/ucx/ucx.h"

/* Bytes that a node must save, because greetings and handing on take time, too. */
#define SPREAD_LEAST ((size_t)256 * 1024)
/* Pieces that a slice is cut into at most; but a node sends no fewer bytes per tick to
 * others, and no message that crosses nodes is shorter. Each has a cost of its own. */
#define SPREAD_PIECES ((size_t)16)
#define TICK_LEAST    ((size_t)1 << 20)
#define MESSAGE_LEAST ((size_t)64 * 1024)

/* A call under way. */
struct spread {
    struct comm *c;
    const struct ucx_nodes *nodes;
    char *buf;
    const size_t *begin; /* [size + 1] slice r is [begin[r], begin[r + 1]) in bytes */
    size_t longest;      /* bytes of the longest slice */
    size_t most;         /* bytes of a slice that travel at a time */
    int root;            /* of a broadcast; else -1 */
    int node, root_node; /* this rank's; the root's, else -1 */
};

/* ---- nodes ----------------------------------------------------------------------- */

void ucx_find_nodes(struct comm *c)
{
    struct ucx_nodes *m = &((struct ucx *)c->impl)->nodes;

    for (int r = 0; r < c->size; r++) {
        m->begin[c->node_of[r] + 1]++;
        if (c->node_of[r] >= m->count)
            m->count = c->node_of[r] + 1;
    }
    for (int k = 0; k < m->count; k++)
        m->begin[k + 1] += m->begin[k];
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            m->place = m->begin[c->node_of[r]];
        m->rank[m->begin[c->node_of[r]]++] = r;
    }
    /* begin[k] is where node k ends now */
    memmove(m->begin + 1, m->begin, (size_t)m->count * sizeof(*m->begin));
    m->begin[0] = 0;
    m->place -= m->begin[c->node_of[c->rank]];
}

static int ranks_on(const struct ucx_nodes *m, int node)
{
    return m->begin[node + 1] - m->begin[node];
}

/* Who sends to and receives from others for the ranks of `place`: nodes may have
 * different numbers of ranks. */
static int rank_for_place(const struct ucx_nodes *m, int node, int place)
{
    return m->rank[m->begin[node] + place % ranks_on(m, node)];
}

/* ---- one tick -------------------------------------------------------------------- */

static size_t bytes_of_piece(const struct spread *w, int64_t q, int r)
{
    const size_t all = w->begin[r + 1] - w->begin[r], pos = (size_t)q * w->most;

    return all <= pos ? 0 : all - pos < w->most ? all - pos : w->most;
}

/* Piece q of slice r to a rank, or from it, unless there is none. All ranks go through
 * the slices in one order, so messages of one tick between two ranks need no number. */
static void put_piece(const struct spread *w, int64_t q, int r, int peer, int64_t tick)
{
    const size_t bytes = bytes_of_piece(w, q, r);

    if (bytes > 0)
        ucx_send(w->c, peer, (int)tick, w->buf + w->begin[r] + (size_t)q * w->most,
                 bytes);
}

static void take_piece(const struct spread *w, int64_t q, int r, int peer, int64_t tick)
{
    const size_t bytes = bytes_of_piece(w, q, r);

    if (bytes > 0)
        ucx_recv(w->c, peer, (int)tick, w->buf + w->begin[r] + (size_t)q * w->most,
                 bytes);
}

/* The own slice goes to one rank of each other node. From there come the slices that
 * this rank hands on. */
static void cross_nodes(const struct spread *w, int64_t q, int64_t tick)
{
    const struct ucx_nodes *m = w->nodes;

    for (int i = 1; i < m->count; i++) {
        const int to = (w->node + i) % m->count;
        const int from = (w->node - i + m->count) % m->count;

        for (int k = m->place; k < ranks_on(m, from); k += ranks_on(m, w->node)) {
            const int r = m->rank[m->begin[from] + k];

            take_piece(w, q, r, r, tick);
        }
        put_piece(w, q, w->c->rank, rank_for_place(m, to, m->place), tick);
    }
}

/* The rank of this node that has the slice of that place on any node: its owner, the
 * one it was sent to, or the root. */
static int holder_of(const struct spread *w, int place)
{
    return w->node == w->root_node ? w->root : rank_for_place(w->nodes, w->node, place);
}

/* Inside the node every rank sends the slices that it has to all others. */
static void share_inside(const struct spread *w, int64_t q, int64_t tick)
{
    const struct ucx_nodes *m = w->nodes;
    const int local = ranks_on(m, w->node), me = w->c->rank;

    for (int i = 0; i < w->c->size; i++) {
        const int r = m->rank[i];
        const int holder = holder_of(w, i - m->begin[w->c->node_of[r]]);

        if (holder != me)
            take_piece(w, q, r, holder, tick);
        for (int k = 1; holder == me && k < local; k++)
            put_piece(w, q, r, rank_for_place(m, w->node, m->place + k), tick);
    }
}

/* ---- calls ----------------------------------------------------------------------- */

/* Bytes per piece; `senders`: ranks of a node that send to each other node. */
static size_t choose_piece_bytes(const struct spread *w, int senders)
{
    const size_t away = (size_t)senders * (size_t)(w->nodes->count - 1);
    size_t bytes = (w->longest + SPREAD_PIECES - 1) / SPREAD_PIECES;

    bytes = bytes < TICK_LEAST / away ? TICK_LEAST / away : bytes;
    bytes = bytes < MESSAGE_LEAST ? MESSAGE_LEAST : bytes;
    return (bytes + 63) / 64 * 64;
}

static accel_status_t spread_run(struct spread *w, int senders, accel_error_t *err)
{
    const bool is_broadcast = w->root >= 0;
    int64_t pieces, ticks;
    accel_status_t st = ACCEL_OK;

    w->most = choose_piece_bytes(w, senders);
    pieces = (int64_t)((w->longest + w->most - 1) / w->most);
    ticks = pieces + 1 + is_broadcast;
    ucx_greet(w->c);
    for (int64_t t = 0; st == ACCEL_OK && t < ticks; t++) {
        const int64_t across = t - is_broadcast;
        const int64_t inside = w->node == w->root_node ? t : across - 1;

        if (across >= 0 && across < pieces)
            cross_nodes(w, across, t);
        if (inside >= 0 && inside < pieces)
            share_inside(w, inside, t);
        st = ucx_wait(w->c, err);
    }
    return st;
}

/* Is a call worth it in which a node sends `saved` slices of these bytes fewer to other
 * nodes than directly? */
static bool is_worth_it(int64_t saved, uint64_t nodes, size_t bytes)
{
    return saved > 0 && bytes >= SPREAD_LEAST * nodes / (size_t)saved;
}

/* Directly a node sends its slices to all ranks of the others. Nodes may differ: the
 * mean counts. */
bool ucx_spread_gather(struct comm *c, void *buf, accel_status_t *st_out,
                       accel_error_t *err)
{
    struct ucx *u = c->impl;
    const struct ucx_nodes *m = &u->nodes;
    const size_t bytes = c->args.elems * accel_dtype_bytes(c->args.dtype);
    struct spread w = { .c = c,
                        .nodes = m,
                        .buf = buf,
                        .begin = u->begin,
                        .longest = bytes,
                        .root = -1,
                        .node = c->node_of[c->rank],
                        .root_node = -1 };
    int64_t saved = -(int64_t)c->size * (m->count - 1);

    for (int k = 0; k < m->count; k++)
        saved += (int64_t)ranks_on(m, k) * (c->size - ranks_on(m, k));
    if (!is_worth_it(saved, (uint64_t)m->count, bytes))
        return false;
    for (int r = 0; r <= c->size; r++)
        u->begin[r] = (size_t)r * bytes;
    *st_out = spread_run(&w, c->size / m->count, err);
    return true;
}

/* Directly the root sends the array to all ranks of the other nodes. */
bool ucx_spread_broadcast(struct comm *c, void *buf, accel_status_t *st_out,
                          accel_error_t *err)
{
    struct ucx *u = c->impl;
    const struct ucx_nodes *m = &u->nodes;
    const int root_node = c->node_of[c->args.root], senders = ranks_on(m, root_node);
    const size_t bytes = c->args.elems;
    struct spread w = { .c = c,
                        .nodes = m,
                        .buf = buf,
                        .begin = u->begin,
                        .root = c->args.root,
                        .node = c->node_of[c->rank],
                        .root_node = root_node };
    int place = 0;

    if (!is_worth_it(c->size - senders - (m->count - 1), 1, bytes))
        return false;
    for (int r = 0; r <= c->size; r++) {
        u->begin[r] = reduce_slice_begin(bytes, senders, place);
        if (r > 0 && u->begin[r] - u->begin[r - 1] > w.longest)
            w.longest = u->begin[r] - u->begin[r - 1];
        place += r < c->size && c->node_of[r] == root_node;
    }
    *st_out = spread_run(&w, senders, err);
    return true;
}
