/* SPDX-License-Identifier: Apache-2.0
 *
 * The UCX backend: one worker per communicator, one endpoint per peer, tagged messages.
 *
 * Tag: call number (24 bits) | sender (16) | call, dtype and operation (12) | step (12).
 * A receive leaves the third field open: a peer in another collective is then seen at
 * once by what its message says, and a peer with another element count by its length.
 */
#ifndef ACCEL_COMM_UCX_H
#define ACCEL_COMM_UCX_H

#include <ucp/api/ucp.h>

#include "comm/comm_impl.h"

#define UCX_STEPS 4096 /* messages between two ranks in one call, one way */
#define UCX_RANKS 65536

struct ucx_block {
    struct ucx_block *next;
    void *mem;
    size_t bytes;
};

/* A message under way. */
struct ucx_op {
    void *request; /* NULL: free */
    struct ucx *owner;
    int peer;
    bool is_recv;
    size_t bytes;
    ucp_tag_t sender_tag; /* of a finished receive */
    size_t received;
    ucs_status_t status;
    bool finished;
};

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h *ep; /* [size] */
    bool *lost;   /* [size] the endpoint reported an error */
    struct ucx_op *ops;
    int op_count, op_capacity; /* of the running call, in posting order */
    bool post_failed;          /* kept until ucx_wait */
    accel_error_t post_error;
    size_t *begin; /* [size + 1] scratch */
    char *room;    /* scratch for what arrives */
    size_t room_bytes;
    struct ucx_block *blocks; /* of comm_alloc */
};

/* ucx_wire.c: post messages of the running call; errors show in ucx_wait. */
void ucx_send(struct comm *c, int peer, int step, const void *buf, size_t bytes);
void ucx_recv(struct comm *c, int peer, int step, void *buf, size_t bytes);
/* Until all posted messages are done, or somebody is to blame. */
accel_status_t ucx_wait(struct comm *c, accel_error_t *err);
accel_status_t ucx_connect(struct comm *c, struct boot *b, accel_error_t *err);
void ucx_fail(struct comm *c);
void ucx_close(struct comm *c);

#endif
