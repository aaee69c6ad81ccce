/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether sums go over nodes (node_chain.h), and in pieces of which length. In: the
 * ranks' nodes, the array's length and type, the workspace. Out: the same answer on all
 * ranks. Sends nothing.
 */
#include "comm/node_chain.h"
#include "comm/reduce.h"

/* Bytes of an array below which one exchange is faster than a chain of them. */
#define CHAIN_LEAST ((size_t)1 << 20)
/* Pieces that a part is cut into, so that nodes work at the same time; but no sum that
 * crosses nodes is shorter than this many bytes: each tick has a cost of its own. */
#define PIECES    ((size_t)16)
#define SUM_LEAST ((size_t)1 << 20)

size_t chain_part_begin(const struct chain *w, int r)
{
    return reduce_slice_begin(w->c->args.elems, w->c->size, r);
}

size_t chain_part_elems(const struct chain *w, int r)
{
    return w->spreads ? chain_part_begin(w, r + 1) - chain_part_begin(w, r)
                      : w->c->args.elems;
}

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

/* Does the running sum send fewer bytes between nodes? Per block of numbers of all
 * parts: the direct form sends local * (nodes - 1) blocks as on the wire; the chain
 * nodes - 1 sums in float32 and then all parts but those of the last node. Spreading
 * costs the direct form as much again, the chain one block per node. Partial sums,
 * which take nodes - 1 blocks, always send fewer. */
static bool saves_bytes(const struct chain *w)
{
    const size_t block = wire_bytes(WIRE_BLOCK, w->c->args.dtype);
    const size_t sum = WIRE_BLOCK * sizeof(float);
    const size_t nodes = (size_t)w->nodes, local = (size_t)w->local;
    const size_t direct = local * nodes * block, chain = (nodes + 1) * sum;

    return w->spreads ? chain + nodes * block < 2 * direct : chain < direct;
}

/* The order in which chain_run lays the buffers out does not matter here. */
size_t chain_bytes(const struct chain *w, size_t elems)
{
    const accel_dtype_t t = w->c->args.dtype;
    const size_t sums = elems * sizeof(float), row = wire_bytes(elems, t);
    const size_t between = !w->partial || t == ACCEL_F32 ? sums : 2 * row;

    return (size_t)w->c->size * row + (size_t)w->nodes * (sums + between) + sums;
}

/* Elements of a piece; 0: not even the shortest fits. */
static size_t choose_piece(const struct chain *w, size_t room)
{
    const size_t fit = room / chain_bytes(w, CHAIN_STEP) * CHAIN_STEP;
    const size_t least = SUM_LEAST / ((size_t)w->nodes * sizeof(float));
    size_t elems = (w->longest + PIECES - 1) / PIECES;

    elems = elems < least ? least : elems;
    elems = elems < w->longest ? elems : w->longest;
    elems = (elems + CHAIN_STEP - 1) / CHAIN_STEP * CHAIN_STEP;
    return elems < fit ? elems : fit;
}

bool chain_fits(struct chain *w, struct comm *c, void *in, bool spreads, size_t room)
{
    const size_t parts = spreads ? 1 : (size_t)c->size;

    *w = (struct chain){
        .c = c, .in = in, .spreads = spreads, .partial = c->nodes_first
    };
    if (parts * wire_bytes(c->args.elems, c->args.dtype) < CHAIN_LEAST ||
        !find_blocks(w) || w->nodes < 2 || w->local < 2 ||
        !(w->partial || saves_bytes(w)))
        return false;
    w->lag = w->partial ? 1 : w->nodes;
    for (int r = 0; r < c->size; r++)
        if (chain_part_elems(w, r) > w->longest)
            w->longest = chain_part_elems(w, r);
    w->most = choose_piece(w, room);
    return w->most > 0;
}
