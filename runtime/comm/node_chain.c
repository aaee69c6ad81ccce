/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule of sums over nodes (node_chain.h). Part r belongs to rank r, which is
 * the rank with number `place` on `node`: r = node * local + place. The rank with that
 * place on every node adds the node's numbers of all parts with that place, so what
 * crosses nodes always goes between ranks of one place. Time goes in ticks, one
 * exchange each. Of a running sum, at tick t node k
 *     brings its ranks' numbers of piece t - k together, receives the sum up to
 *     node k - 1, and adds;
 *     sends the sum of the piece before on to node k + 1;
 *     the last node returns the complete sums of piece t - nodes to their owners.
 * Of partial sums, at tick t every node
 *     brings its ranks' numbers of piece t together, and adds;
 *     sends its sums of piece t - 1 to their owners, who add.
 * With `spreads` owners send the piece whose sum they had a tick ago to the other
 * nodes, and every rank what it has of the piece before to those of its node. Both
 * ranks of a pair derive their messages from the same tick, so they agree on number,
 * order and length.
 */
#include "comm/node_chain.h"

/* ---- parts and pieces ------------------------------------------------------------ */

/* Elements of piece q of rank r's part; 0 beyond the end of a shorter part. */
static size_t piece_elems(const struct chain *w, int64_t q, int r)
{
    const size_t all = chain_part_elems(w, r), pos = (size_t)q * w->most;

    return all <= pos ? 0 : all - pos < w->most ? all - pos : w->most;
}

/* Where piece q of rank r's part begins in the array. Those of a reduce_scatter are
 * stored one after the other, each as on the wire. */
static char *piece_at(const struct chain *w, int64_t q, int r)
{
    const accel_dtype_t t = w->c->args.dtype;
    const size_t pos = (size_t)q * w->most;

    if (w->spreads)
        return w->in + wire_bytes(chain_part_begin(w, r) + pos, t);
    return w->in + (size_t)r * wire_bytes(w->c->args.elems, t) + wire_bytes(pos, t);
}

/* Elements between the parts' pieces in the buffers: the longest one, rounded up. What
 * is in between is added, too, and never read. */
static size_t stride_of(const struct chain *w, int64_t q)
{
    const size_t left = w->longest - (size_t)q * w->most;
    const size_t elems = left < w->most ? left : w->most;

    return (elems + CHAIN_STEP - 1) / CHAIN_STEP * CHAIN_STEP;
}

static int64_t count_pieces(const struct chain *w)
{
    return (int64_t)((w->longest + w->most - 1) / w->most);
}

static bool is_piece(const struct chain *w, int64_t q)
{
    return q >= 0 && q < count_pieces(w);
}

/* ---- what both have in common ---------------------------------------------------- */

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

/* ---- the running sum ------------------------------------------------------------- */

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

/* ---- partial sums ---------------------------------------------------------------- */

/* Where the partial sum of a node's part is: those of other nodes' parts leave, that of
 * the own one waits among those that arrive. */
static char *partial_at(const struct chain *w, int64_t q, int node)
{
    const size_t row = wire_bytes(stride_of(w, q), w->c->args.dtype);

    return (node == w->node ? w->arrived : w->leaving) + (size_t)node * row;
}

/* Between nodes: to each its part's sum over this node, from each its sum of mine. */
static void swap_partials(struct chain *w, int64_t q)
{
    const accel_dtype_t t = w->c->args.dtype;
    const size_t row = wire_bytes(stride_of(w, q), t);
    const size_t own = wire_bytes(piece_elems(w, q, w->c->rank), t);

    for (int node = 0; node < w->nodes; node++) {
        const int peer = rank_across(w, node);

        if (node == w->node)
            continue;
        send_piece(w, peer, partial_at(w, q, node),
                   wire_bytes(piece_elems(w, q, peer), t));
        recv_piece(w, peer, w->arrived + (size_t)node * row, own);
    }
}

/* Adds this node's numbers of piece q and rounds them. The last block of a shorter part
 * is rounded without what lies behind it, which would change its scale. */
static void add_node(struct chain *w, int64_t q)
{
    const size_t stride = stride_of(w, q);

    w->backend->add(w, w->sum, NULL, w->parts, w->local, (size_t)w->nodes * stride);
    for (int node = 0; node < w->nodes; node++) {
        const size_t elems = piece_elems(w, q, rank_across(w, node));
        const float *sum = w->sum + (size_t)node * stride;

        if (elems > 0 && w->c->args.dtype != ACCEL_F32)
            w->backend->narrow(w, partial_at(w, q, node), sum, elems);
        else if (elems > 0 && node == w->node)
            w->backend->copy(w, partial_at(w, q, node), sum, elems * sizeof(*sum));
    }
}

/* The sums that came first: the own one of the next piece takes the place of theirs. */
static void add_partials(struct chain *w, int64_t t)
{
    const int64_t q = t - w->lag;

    if (is_piece(w, q)) {
        w->backend->add(w, w->whole, NULL, w->arrived, w->nodes, stride_of(w, q));
        finish_piece(w, q, w->whole);
    }
    if (is_piece(w, t))
        add_node(w, t);
}

/* ---- ticks ----------------------------------------------------------------------- */

static accel_status_t chain_tick(struct chain *w, int64_t t, accel_error_t *err)
{
    const int64_t own = w->partial ? t : t - w->node;
    const int64_t across = t - w->lag - 1, inside = across - 1;
    accel_status_t st;

    w->backend->begin(w);
    if (is_piece(w, own))
        bring_parts(w, own);
    if (!w->partial)
        pass_sums(w, t);
    else if (is_piece(w, t - w->lag))
        swap_partials(w, t - w->lag);
    if (w->spreads && is_piece(w, across))
        spread_across(w, across);
    if (w->spreads && is_piece(w, inside))
        spread_inside(w, inside);
    ACCEL_CHECK(st, w->backend->end(w, err));
    if (w->partial)
        add_partials(w, t);
    else
        add_up(w, t);
    return ACCEL_OK;
}

/* Float32 first, so that all is aligned. Sums in float32 leave from where they are. */
static void chain_lay_out(struct chain *w, void *buffers)
{
    const accel_dtype_t t = w->c->args.dtype;
    const size_t sums = (size_t)w->nodes * w->most;
    const size_t rows = (size_t)w->nodes * wire_bytes(w->most, t);

    w->sum = buffers;
    w->whole = w->sum + sums;
    w->before = w->whole + w->most;
    w->parts = (char *)(w->before + sums);
    if (!w->partial)
        return;
    w->leaving = t == ACCEL_F32 ? (char *)w->sum : (char *)w->before;
    w->arrived = t == ACCEL_F32 ? (char *)w->before : w->leaving + rows;
    w->parts = w->arrived + rows;
}

accel_status_t chain_run(struct chain *w, void *buffers, accel_error_t *err)
{
    const int64_t ticks = count_pieces(w) + w->lag + (w->spreads ? 2 : 0);
    accel_status_t st = ACCEL_OK;

    chain_lay_out(w, buffers);
    for (int64_t t = 0; st == ACCEL_OK && t < ticks; t++)
        st = chain_tick(w, t, err);
    return st;
}
