/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule of sums over nodes (node_chain.h). Part r belongs to rank r, which is
 * the rank with number `place` on `node`: r = node * local + place. The rank with that
 * place on every node adds the node's numbers of all parts with that place, so what
 * crosses nodes always goes between ranks of one place. Time goes in ticks, one
 * exchange each. At tick t node k
 *     brings its ranks' numbers of piece t - k together, receives the sum up to
 *     node k - 1, and adds;
 *     sends the sum of the piece before on to node k + 1;
 *     the last node returns the complete sums of piece t - nodes to their owners.
 * With `spreads` owners send piece t - nodes - 1 to the other nodes, and every rank
 * what it has of piece t - nodes - 2 to those of its node. Both ranks of a pair derive
 * their messages from the same tick, so they agree on number, order and length.
 */
#include "comm/node_chain.h"
#include "comm/reduce.h"
#include "common/wire.h"

/* Bytes of an array below which one exchange is faster than a chain of them. */
#define CHAIN_LEAST ((size_t)1 << 20)
/* Pieces that a part is cut into, so that nodes work at the same time; but no sum that
 * crosses nodes is shorter than this many bytes: each tick has a cost of its own. */
#define PIECES    ((size_t)16)
#define SUM_LEAST ((size_t)1 << 20)
/* Elements that pieces are multiples of: whole blocks of the wire, aligned for device
 * kernels. */
#define PIECE_STEP ((size_t)WIRE_BLOCK)

/* ---- parts and pieces ------------------------------------------------------------ */

/* First element of rank r's part, where parts are cut from one array. */
static size_t part_begin(const struct chain *w, int r)
{
    return reduce_slice_begin(w->c->args.elems, w->c->size, r);
}

static size_t part_elems(const struct chain *w, int r)
{
    return w->spreads ? part_begin(w, r + 1) - part_begin(w, r) : w->c->args.elems;
}

/* Elements of piece q of rank r's part; 0 beyond the end of a shorter part. */
static size_t piece_elems(const struct chain *w, int64_t q, int r)
{
    const size_t all = part_elems(w, r), pos = (size_t)q * w->most;

    return all <= pos ? 0 : all - pos < w->most ? all - pos : w->most;
}

/* Where piece q of rank r's part begins in the array. Those of a reduce_scatter are
 * stored one after the other, each as on the wire. */
static char *piece_at(const struct chain *w, int64_t q, int r)
{
    const accel_dtype_t t = w->c->args.dtype;
    const size_t pos = (size_t)q * w->most;

    if (w->spreads)
        return w->in + wire_bytes(part_begin(w, r) + pos, t);
    return w->in + (size_t)r * wire_bytes(w->c->args.elems, t) + wire_bytes(pos, t);
}

/* Elements between the parts' pieces in the buffers: the longest one, rounded up. What
 * is in between is added, too, and never read. */
static size_t stride_of(const struct chain *w, int64_t q)
{
    const size_t left = w->longest - (size_t)q * w->most;
    const size_t elems = left < w->most ? left : w->most;

    return (elems + PIECE_STEP - 1) / PIECE_STEP * PIECE_STEP;
}

static int64_t count_pieces(const struct chain *w)
{
    return (int64_t)((w->longest + w->most - 1) / w->most);
}

static bool is_piece(const struct chain *w, int64_t q)
{
    return q >= 0 && q < count_pieces(w);
}

/* ---- the choice ------------------------------------------------------------------ */

/* Are the ranks in blocks of one length per node, in the order of the nodes? Fills
 * `nodes` and what follows from it. */
static bool find_blocks(struct chain *w)
{
    const struct comm *c = w->c;

    while (w->local < c->size && c->node_of[w->local] == c->node_of[0])
        w->local++;
    if (c->size % w->local != 0)
        return false;
    w->nodes = c->size / w->local;
    for (int r = 0; r < c->size; r++) {
        const int first = r / w->local * w->local;

        if (c->node_of[r] != c->node_of[first] ||
            (r == first && r > 0 && c->node_of[r] == c->node_of[r - 1]))
            return false;
    }
    w->node = c->rank / w->local;
    w->place = c->rank % w->local;
    return true;
}

/* Does the chain send fewer bytes between nodes? Per block of numbers of all parts: the
 * direct form sends local * (nodes - 1) blocks as on the wire; the chain nodes - 1 sums
 * in float32 and then all parts but those of the last node. Spreading costs the direct
 * form as much again, the chain one block per node. */
static bool saves_bytes(const struct chain *w)
{
    const size_t block = wire_bytes(WIRE_BLOCK, w->c->args.dtype);
    const size_t sum = WIRE_BLOCK * sizeof(float);
    const size_t nodes = (size_t)w->nodes, local = (size_t)w->local;
    const size_t direct = local * nodes * block, chain = (nodes + 1) * sum;

    return w->spreads ? chain + nodes * block < 2 * direct : chain < direct;
}

/* Bytes of the buffers for pieces of `elems` elements. */
static size_t buffer_bytes(const struct chain *w, size_t elems)
{
    return (size_t)w->c->size * wire_bytes(elems, w->c->args.dtype) +
           (2 * (size_t)w->nodes + 1) * elems * sizeof(float);
}

/* Elements of a piece; 0: not even the shortest fits. */
static size_t choose_piece(const struct chain *w, size_t room)
{
    const size_t fit = room / buffer_bytes(w, PIECE_STEP) * PIECE_STEP;
    const size_t least = SUM_LEAST / ((size_t)w->nodes * sizeof(float));
    size_t elems = (w->longest + PIECES - 1) / PIECES;

    elems = elems < least ? least : elems;
    elems = elems < w->longest ? elems : w->longest;
    elems = (elems + PIECE_STEP - 1) / PIECE_STEP * PIECE_STEP;
    return elems < fit ? elems : fit;
}

bool chain_fits(struct chain *w, struct comm *c, void *in, bool spreads, size_t room)
{
    const size_t parts = spreads ? 1 : (size_t)c->size;

    *w = (struct chain){ .c = c, .in = in, .spreads = spreads };
    if (parts * wire_bytes(c->args.elems, c->args.dtype) < CHAIN_LEAST ||
        !find_blocks(w) || w->nodes < 2 || w->local < 2 || !saves_bytes(w))
        return false;
    for (int r = 0; r < c->size; r++)
        if (part_elems(w, r) > w->longest)
            w->longest = part_elems(w, r);
    w->most = choose_piece(w, room);
    return w->most > 0;
}

size_t chain_bytes(const struct chain *w)
{
    return buffer_bytes(w, w->most);
}

/* ---- one tick -------------------------------------------------------------------- */

/* The rank with this one's place on another node, and another rank of this node. */
static int rank_across(const struct chain *w, int node)
{
    return node * w->local + w->place;
}

static int rank_beside(const struct chain *w, int place)
{
    return w->node * w->local + place;
}

/* A message of the piece's elements, unless there are none. */
static void send_piece(struct chain *w, int peer, const void *buf, size_t bytes)
{
    if (bytes > 0)
        w->backend->send(w, peer, buf, bytes);
}

static void recv_piece(struct chain *w, int peer, void *buf, size_t bytes)
{
    if (bytes > 0)
        w->backend->recv(w, peer, buf, bytes);
}

/* Inside the node: to each rank what it adds of this rank's array, from each what this
 * rank adds. */
static void bring_parts(struct chain *w, int64_t q)
{
    const accel_dtype_t t = w->c->args.dtype;
    const size_t row = wire_bytes(stride_of(w, q), t);

    for (int place = 0; place < w->local; place++) {
        const int peer = rank_beside(w, place);

        for (int node = 0; node < w->nodes; node++) {
            const int theirs = node * w->local + place, own = rank_across(w, node);
            const size_t to_bytes = wire_bytes(piece_elems(w, q, theirs), t);
            const size_t bytes = wire_bytes(piece_elems(w, q, own), t);
            char *to = w->parts + (size_t)(place * w->nodes + node) * row;

            if (place == w->place) {
                w->backend->copy(w, to, piece_at(w, q, own), bytes);
                continue;
            }
            send_piece(w, peer, piece_at(w, q, theirs), to_bytes);
            recv_piece(w, peer, to, bytes);
        }
    }
}

/* Between nodes: the sums up to here go on, or home from the last node. */
static void pass_sums(struct chain *w, int64_t t)
{
    const int last = w->nodes - 1;
    const int64_t arriving = t - w->node, leaving = arriving - 1, home = t - w->nodes;
    const size_t all = (size_t)w->nodes * sizeof(float);

    if (w->node > 0 && is_piece(w, arriving))
        w->backend->recv(w, rank_across(w, w->node - 1), w->before,
                         all * stride_of(w, arriving));
    if (w->node < last && is_piece(w, leaving))
        w->backend->send(w, rank_across(w, w->node + 1), w->sum,
                         all * stride_of(w, leaving));
    if (!is_piece(w, home))
        return;
    for (int node = 0; w->node == last && node < last; node++) {
        const int owner = rank_across(w, node);

        send_piece(w, owner, w->sum + (size_t)node * stride_of(w, home),
                   piece_elems(w, home, owner) * sizeof(float));
    }
    if (w->node < last)
        recv_piece(w, rank_across(w, last), w->whole,
                   piece_elems(w, home, w->c->rank) * sizeof(float));
}

/* Piece q of rank `to_owner`'s part goes to the peer, that of `from_owner`'s comes. */
static void swap_sums(struct chain *w, int64_t q, int peer, int to_owner,
                      int from_owner)
{
    const accel_dtype_t t = w->c->args.dtype;

    send_piece(w, peer, piece_at(w, q, to_owner),
               wire_bytes(piece_elems(w, q, to_owner), t));
    recv_piece(w, peer, piece_at(w, q, from_owner),
               wire_bytes(piece_elems(w, q, from_owner), t));
}

/* The owners' sums cross each pair of nodes once, between ranks of one place. */
static void spread_across(struct chain *w, int64_t q)
{
    for (int node = 0; node < w->nodes; node++)
        if (node != w->node)
            swap_sums(w, q, rank_across(w, node), w->c->rank, rank_across(w, node));
}

static void spread_inside(struct chain *w, int64_t q)
{
    for (int place = 0; place < w->local; place++)
        for (int node = 0; place != w->place && node < w->nodes; node++)
            swap_sums(w, q, rank_beside(w, place), rank_across(w, node),
                      node * w->local + place);
}

static void finish_piece(struct chain *w, int64_t q, const float *sum)
{
    const size_t elems = piece_elems(w, q, w->c->rank);

    if (elems > 0)
        w->backend->finish(w, sum, (size_t)q * w->most, elems);
}

/* The last node has its own parts' sums as soon as it has added. */
static void add_up(struct chain *w, int64_t t)
{
    const int last = w->nodes - 1;
    const int64_t own = t - w->node, home = t - w->nodes;

    if (is_piece(w, own))
        w->backend->add(w, w->sum, w->node > 0 ? w->before : NULL, w->parts, w->local,
                        (size_t)w->nodes * stride_of(w, own));
    if (w->node == last && is_piece(w, own))
        finish_piece(w, own, w->sum + (size_t)last * stride_of(w, own));
    if (w->node < last && is_piece(w, home))
        finish_piece(w, home, w->whole);
}

static accel_status_t chain_tick(struct chain *w, int64_t t, accel_error_t *err)
{
    const int64_t across = t - w->nodes - 1, inside = across - 1;
    accel_status_t st;

    w->backend->begin(w);
    if (is_piece(w, t - w->node))
        bring_parts(w, t - w->node);
    pass_sums(w, t);
    if (w->spreads && is_piece(w, across))
        spread_across(w, across);
    if (w->spreads && is_piece(w, inside))
        spread_inside(w, inside);
    st = w->backend->end(w, err);
    if (st == ACCEL_OK)
        add_up(w, t);
    return st;
}

accel_status_t chain_run(struct chain *w, void *buffers, accel_error_t *err)
{
    const int64_t ticks = count_pieces(w) + w->nodes + (w->spreads ? 2 : 0);
    const size_t sums = (size_t)w->nodes * w->most;
    accel_status_t st = ACCEL_OK;

    w->before = buffers;
    w->sum = w->before + sums;
    w->whole = w->sum + sums;
    w->parts = (char *)(w->whole + w->most);
    for (int64_t t = 0; st == ACCEL_OK && t < ticks; t++)
        st = chain_tick(w, t, err);
    return st;
}
