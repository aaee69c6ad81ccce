/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over several nodes of several ranks each. In: every rank's array, cut into one
 * part per rank. Out: the sum of the own part, and with `spreads` those of all parts.
 * The ranks of a node first bring their numbers together; a node then sends a sum
 * instead of every rank's numbers, in one of two ways:
 *
 * - The running sum goes from node to node, in float32, and each adds its ranks'
 *   numbers in turn: the order of the additions is that of the direct form.
 * - Partial sums (`nodes_first`): each node adds its ranks' numbers in rank order, in
 *   float32, and rounds once to what travels on the wire; the owner of a part adds what
 *   the nodes send in the order of their first ranks, its own node's sum rounded, too.
 *   So the bits depend on which ranks share a node, but not on who owns a part.
 *
 * Pieces follow each other like in a pipeline. The schedule is in node_chain.c, the
 * choice in node_choice.c; a backend brings the messages and the additions.
 */
#ifndef ACCEL_COMM_NODE_CHAIN_H
#define ACCEL_COMM_NODE_CHAIN_H

#include "comm/comm_impl.h"
#include "numbers/wire.h"

/* Elements that pieces are multiples of: whole blocks of the wire, aligned for device
 * kernels. */
#define CHAIN_STEP ((size_t)WIRE_BLOCK)

struct chain;

/* What a backend does. Messages between begin and end travel at the same time; those
 * between two ranks keep their order. */
struct chain_backend {
    void (*begin)(struct chain *w);
    void (*send)(struct chain *w, int peer, const void *buf, size_t bytes);
    void (*recv)(struct chain *w, int peer, void *buf, size_t bytes);
    accel_status_t (*end)(struct chain *w, accel_error_t *err);
    void (*copy)(struct chain *w, void *dst, const void *src, size_t bytes);
    /* out = (first +) parts[0] + parts[1] + ... in float32; first may be NULL.
     * parts[count][elems] are laid out as on the wire. */
    void (*add)(struct chain *w, float *out, const float *first, const void *parts,
                int count, size_t elems);
    /* dst = elems numbers as on the wire, from its first block on; not for float32 */
    void (*narrow)(struct chain *w, void *dst, const float *src, size_t elems);
    /* The sum of elements [pos, pos + elems) of the own part is complete. */
    void (*finish)(struct chain *w, const float *sum, size_t pos, size_t elems);
};

/* Embedded in what a backend keeps of the call. */
struct chain {
    struct comm *c;
    const struct chain_backend *backend;
    int nodes, local; /* ranks per node */
    int node, place;  /* of this rank; place: among its node's ranks */
    char *in;         /* this rank's array */
    bool spreads;     /* all_reduce: the sums of all parts replace the array */
    bool partial;     /* partial sums travel; else the running sum */
    int lag;          /* ticks from a piece's numbers to its sum */
    size_t most;      /* elements of a part that travel at a time */
    size_t longest;   /* elements of the longest part */
    char *parts;      /* [local][nodes][most] as on the wire */
    float *sum;       /* [nodes][most] up to this node; partial: of its ranks */
    float *whole;     /* [most] of the own part: from the last node; partial: added */
    float *before;    /* [nodes][most] the sum up to the node before; not if partial */
    char *leaving;    /* [nodes][most] as on the wire: partial sums for other nodes */
    char *arrived;    /* [nodes][most] as on the wire: partial sums of the own part */
};

/* node_choice.c */

/* Fills all but `backend` and the buffers. False: the direct form is to be used,
 * because the ranks are not in blocks of one length per node, it would send fewer bytes
 * between nodes, the array is short, or not even one piece fits into `room` bytes.
 * Answers alike on all ranks. */
bool chain_fits(struct chain *w, struct comm *c, void *in, bool spreads, size_t room);
/* First element of rank r's part, where parts are cut from one array. */
size_t chain_part_begin(const struct chain *w, int r);
size_t chain_part_elems(const struct chain *w, int r);
/* Bytes of the buffers for pieces of `elems` elements; of w->most: at most `room`. */
size_t chain_bytes(const struct chain *w, size_t elems);

/* node_chain.c */

/* Runs the call. `buffers`: chain_bytes of w->most. */
accel_status_t chain_run(struct chain *w, void *buffers, accel_error_t *err);

#endif
