/* SPDX-License-Identifier: Apache-2.0
 *
 * The UCX backend: one worker per communicator, one endpoint per peer, tagged messages.
 *
 * Tag: call number (24 bits) | sender (16) | call, dtype and operation (12) | step
 * (12). A receive masks out the third field. A peer that is in another collective then
 * matches and is recognised by its tag, one with another element count by the length of
 * its message; otherwise both would only show as silence at the deadline. Calls in
 * which not every rank sends to every other one begin with greetings: messages that say
 * the call's arguments, marked in the third field. The last step is no message of a
 * call: a rank that gives up says why with it (comm_tell.c).
 */
#ifndef ACCEL_COMM_UCX_H
#define ACCEL_COMM_UCX_H

#include <ucp/api/ucp.h>

#include "comm/comm_impl.h"

#define UCX_STEPS 4095  /* messages from one rank to another in one call */
#define UCX_RANKS 65536 /* ranks at most: the sender's field of the tag */

/* A message in flight. */
struct ucx_op {
    void *request; /* UCX's handle; NULL: finished, or never needed one */
    struct ucx *owner;
    int peer;
    bool is_recv;
    bool greeting;        /* of ucx_greet */
    const void *buf;      /* of a receive */
    size_t bytes;         /* as posted */
    ucp_tag_t sender_tag; /* of a finished receive */
    size_t received;      /* bytes of a finished receive */
    ucs_status_t status;
    bool finished;
    bool judged; /* its result has been looked at */
};

/* What a rank says of the running call before it sends data. */
struct ucx_greeting {
    uint64_t elems;
    int64_t root;
};

/* Which ranks share a node. */
struct ucx_nodes {
    int count;
    int *begin; /* [size + 1] where a node's ranks begin in `rank` */
    int *rank;  /* [size] node by node, ascending in each */
    int place;  /* of this rank among its node's */
};

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h *ep;       /* [size] */
    bool *lost;         /* [size] the endpoint reported an error */
    struct ucx_op *ops; /* of the running call, in posting order */
    int op_count, op_capacity;
    bool post_failed; /* a message could not be posted: ucx_wait returns post_error */
    accel_error_t post_error;
    size_t *begin; /* [size + 1] scratch: where the ranks' slices begin */
    char *room;    /* workspace for data that arrives to be reduced */
    size_t room_bytes;
    struct ucx_greeting *greetings; /* [size] of the running call */
    struct ucx_nodes nodes;
    struct comm_reason said;   /* what this rank has told, until it is sent */
    struct comm_reason reason; /* what a peer tells, */
    struct ucx_op hearing;     /* and its message, once one has come */
};

/* ---- ucx_wire.c ------------------------------------------------------------------ */

/* Post a message of the running call to (from) `peer`. `step` tells the messages
 * between two ranks apart, 0 <= step < UCX_STEPS. The buffer must stay valid until
 * ucx_wait, which also returns the errors. */
void ucx_send(struct comm *c, int peer, int step, const void *buf, size_t bytes);
void ucx_recv(struct comm *c, int peer, int step, void *buf, size_t bytes);
/* Posts a greeting to every other rank and the receipt of theirs, as step 0. A rank
 * that does not come, or calls something else, is then recognised by every rank, also
 * by those that exchange nothing else with it. Comes before all other messages of the
 * call. */
void ucx_greet(struct comm *c);
/* Waits until all posted messages are complete. An error says which rank is to blame;
 * the messages are then cancelled and all endpoints closed. */
accel_status_t ucx_wait(struct comm *c, accel_error_t *err);
/* Makes the workspace at least `bytes` large. The contents are lost, so nothing may be
 * in flight. It only grows and is freed at close. */
accel_status_t ucx_room(struct comm *c, size_t bytes, accel_error_t *err);
/* Collective. Exchanges the workers' addresses and makes first contact
 * with every rank. */
accel_status_t ucx_connect(struct comm *c, struct boot *b, accel_error_t *err);
/* The backend's fail, tell, hear and close (comm_impl.h). */
void ucx_fail(struct comm *c);
void ucx_tell(struct comm *c, const struct comm_reason *why);
bool ucx_hear(struct comm *c, struct comm_reason *why_out);
void ucx_close(struct comm *c);

/* ---- ucx_chain.c ----------------------------------------------------------------- */

/* Sums with fewer bytes between nodes than in the direct form (node_chain.h). False:
 * the direct form is to be used, and nothing has been done. */
bool ucx_chain_scatter(struct comm *c, const void *in, float *out, float scale,
                       bool accumulate, accel_status_t *st_out, accel_error_t *err);
bool ucx_chain_reduce(struct comm *c, void *buf, accel_status_t *st_out,
                      accel_error_t *err);

/* ---- ucx_spread.c ---------------------------------------------------------------- */

/* Fills u->nodes, whose arrays are allocated, from c->node_of. */
void ucx_find_nodes(struct comm *c);
/* all_gather and broadcast in which every byte goes to another node once. False: the
 * direct form is to be used, and nothing has been done. Answer alike on all ranks. */
bool ucx_spread_gather(struct comm *c, void *buf, accel_status_t *st_out,
                       accel_error_t *err);
bool ucx_spread_broadcast(struct comm *c, void *buf, accel_status_t *st_out,
                          accel_error_t *err);

#endif
