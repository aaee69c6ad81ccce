/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over several nodes of several ranks each, in rank order. In: every rank's array,
 * cut into one part per rank. Out: the sum of the own part, and with `spreads` those of
 * all parts. The ranks of a node first bring their numbers together; then the running
 * sum of each piece goes from node to node, and each adds its ranks' numbers in turn.
 * So the order of the additions is that of the direct form, and a node sends a sum
 * instead of every rank's numbers. Pieces follow each other like in a pipeline. The
 * schedule is here; a backend brings the messages and the additions.
 */
#ifndef ACCEL_COMM_NODE_CHAIN_H
#define ACCEL_COMM_NODE_CHAIN_H

#include "comm/comm_impl.h"

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
    size_t most;      /* elements of a part that travel at a time */
    size_t longest;   /* elements of the longest part */
    char *parts;      /* [local][nodes][most] as on the wire */
    float *before;    /* [nodes][most] the sum up to the node before */
    float *sum;       /* [nodes][most] up to this node */
    float *whole;     /* [most] of the own part, from the last node */
};

/* Fills all but `backend` and the buffers. False: the direct form is to be used,
 * because the ranks are not in blocks of one length per node, it would send fewer bytes
 * between nodes, the array is short, or not even one piece fits into `room` bytes.
 * Answers alike on all ranks. */
bool chain_fits(struct chain *w, struct comm *c, void *in, bool spreads, size_t room);
/* Bytes of the buffers; at most `room`. */
size_t chain_bytes(const struct chain *w);
/* Runs the call. `buffers`: of chain_bytes. */
accel_status_t chain_run(struct chain *w, void *buffers, accel_error_t *err);

#endif
