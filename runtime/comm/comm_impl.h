/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend provides to comm.c and what it can rely on: comm.c has checked the
 * arguments and counted the call, so a backend only moves bytes. An error that a
 * backend returns fails the communicator for good.
 */
#ifndef ACCEL_COMM_COMM_IMPL_H
#define ACCEL_COMM_COMM_IMPL_H

#include "comm/comm.h"

/* The values travel in message tags and shared memory: they start at 1, so that zeroed
 * memory is no call, and stay below 16 (ucx_wire.c packs them into 4 bits). */
enum comm_call {
    COMM_CALL_ALLOC = 1,
    COMM_CALL_ALL_GATHER,
    COMM_CALL_REDUCE_SCATTER,
    COMM_CALL_ALL_REDUCE,
    COMM_CALL_BROADCAST,
    COMM_CALL_BARRIER,
    COMM_CALL_GATHER,
    COMM_CALL_OPEN, /* a backend that waits for peers while it is opened */
    COMM_CALL_SPLIT,
    COMM_CALL_COUNT
};

/* One call, as all ranks must agree on it. Only the element count of a gather differs
 * from rank to rank. */
struct comm_args {
    enum comm_call call;
    accel_dtype_t dtype;
    enum comm_op op;
    uint64_t elems;
    int root;
};

/* Call, dtype and operation in 16 bits, so that they fit into shared
 * memory and messages. */
uint32_t comm_args_pack(const struct comm_args *a);
/* Sets those three fields of *a and leaves the others alone. */
void comm_args_unpack(struct comm_args *a, uint32_t packed);

/* Why a rank gave up, as the others get it. Sent as bytes: all ranks of a run have the
 * same build. */
struct comm_reason {
    int32_t from; /* the rank of the root that failed first */
    accel_error_t error;
};

/* An allocation of comm_private_alloc: an anonymous mapping, unmapped at close. */
struct comm_block {
    struct comm_block *next;
    void *mem;
    size_t bytes;
};

/* The functions find the arguments that all ranks share in c->args. */
struct comm_ops {
    const char *name;
    accel_status_t (*alloc)(struct comm *c, size_t bytes, void **mem_out,
                            accel_error_t *err);
    /* NULL: sums need no workspace */
    accel_status_t (*reserve)(struct comm *c, bool scatter, size_t elems,
                              accel_dtype_t t, accel_error_t *err);
    accel_status_t (*all_gather)(struct comm *c, void *buf, accel_error_t *err);
    accel_status_t (*reduce_scatter)(struct comm *c, const void *in, float *out,
                                     float scale, bool accumulate, accel_error_t *err);
    accel_status_t (*all_reduce)(struct comm *c, void *buf, accel_error_t *err);
    accel_status_t (*broadcast)(struct comm *c, void *buf, accel_error_t *err);
    accel_status_t (*barrier)(struct comm *c, accel_error_t *err);
    accel_status_t (*gather)(struct comm *c, const void *mine, void **all_out,
                             size_t *sizes_out, accel_error_t *err);
    /* *comm_out is NULL before the call, and stays NULL with a negative color. NULL:
     * groups are opened from scratch, with c in place of the bootstrap (comm_split.c).
     */
    accel_status_t (*split)(struct comm *c, int color, int key, struct comm **comm_out,
                            accel_error_t *err);
    /* lets go of what is under way; NULL: never anything */
    void (*fail)(struct comm *c);
    /* Root: makes `why` reach all peers, also those that will not look for some time.
     * Takes at most half a second. NULL: there is nobody to tell, or no way to. */
    void (*tell)(struct comm *c, const struct comm_reason *why);
    /* Root: has a peer told? Never waits. NULL as `tell`. */
    bool (*hear)(struct comm *c, struct comm_reason *why_out);
    /* frees c->impl; takes at most 5 s. NULL: there is none */
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    void *impl;                /* the backend's own state */
    struct comm_block *blocks; /* of comm_private_alloc */
    int rank, size;
    int64_t timeout_ns;       /* per call */
    int64_t deadline_ns;      /* of the running call; 0 until a wait becomes long */
    int64_t asked_ns;         /* last call of comm_expired */
    uint64_t seq;             /* number of the running call; the first one is 1 */
    struct comm_args args;    /* of the running call */
    enum backend_memory kind; /* of the running comm_alloc */
    bool nodes_first;         /* options.nodes_first, for splits, too */
    bool failed;
    accel_error_t failure; /* once failed: what every call returns */
    /* Where failures are told: c itself, or what it was split from; NULL until the
     * first is open. The rest is the root's. */
    struct comm *root;
    bool told;                /* this rank has */
    int64_t heard_ns;         /* when a peer's reason came; 0: none */
    struct comm_reason heard; /* the first one */
    const void **src;         /* [size] scratch for reductions */
    /* the caller's, valid only while the backend is opened; NULL afterwards */
    const struct comm_options *options;
    int *node_of;           /* [size] */
    char *asked;            /* copy of options.backend, for splits; may be NULL */
    char *net_devices;      /* copy of options.net_devices; may be NULL */
    struct backend *device; /* nccl: options.device, not owned */
};

/* Backends: fill c->ops and c->impl. Collective. */
accel_status_t comm_self_open(struct comm *c, accel_error_t *err);
/* When some rank cannot share memory, returns ACCEL_OK with *fits_out = false on all
 * ranks alike; `why` then says which rank and the reason. */
accel_status_t comm_shm_open(struct comm *c, struct boot *b, size_t window_bytes,
                             bool *fits_out, char why[128], accel_error_t *err);
accel_status_t comm_ucx_open(struct comm *c, struct boot *b, accel_error_t *err);
accel_status_t comm_nccl_open(struct comm *c, struct boot *b, accel_error_t *err);

/* A communicator for the ranks of b that has no backend yet; comm_close frees it. */
accel_status_t comm_new(struct comm **comm_out, const struct boot *b, int timeout_ms,
                        accel_error_t *err);
/* Why no call is made any more; ACCEL_OK: calls are. */
accel_status_t comm_refuses(const struct comm *c, accel_error_t *err);

/* Starts a call: counts it and notes its arguments. A failed c refuses
 * with its failure. */
accel_status_t comm_begin(struct comm *c, struct comm_args args, accel_error_t *err);
/* Ends a call with status st. Keeps the first failure, whose text is in `own`, and
 * tells the peers so that they need not run into their deadline. Returns st, or the
 * failure that was kept before. */
accel_status_t comm_end(struct comm *c, accel_status_t st, const accel_error_t *own,
                        accel_error_t *err);
/* comm_tell.c. This rank gives up, with *why: fails the root of c and tells its ranks.
 * Does nothing a second time, and before the root is open. */
void comm_tell(struct comm *c, const accel_error_t *why);
/* Has another rank given up? Asked in long waits, after a look at the peers, which gave
 * `st`: a rank tells before it ends. Returns the status of that rank, with its error in
 * *err; or `st`, also for a moment in which what is waited for may still come. */
accel_status_t comm_hear(struct comm *c, accel_status_t st, accel_error_t *err);
/* "all_gather"; static. */
const char *comm_call_name(enum comm_call call);

/* True once the running call has used up its time; the first question of a call starts
 * its clock. Asked in long waits only. Time during which this process was stopped (a
 * suspended job) does not count. */
bool comm_expired(struct comm *c);
/* Ends the running call at `deadline_ns`, whatever its own timeout is. */
void comm_set_deadline(struct comm *c, int64_t deadline_ns);
/* "all_gather #7: ranks 1, 3 did not arrive within 600 s"; silent[size]. */
accel_status_t comm_fail_silent(struct comm *c, const bool *silent, accel_error_t *err);
/* "... rank 2 died" */
accel_status_t comm_fail_peer(struct comm *c, int peer, const char *what,
                              accel_error_t *err);
/* "rank 1 called reduce_scatter of 40 float32, rank 0 all_gather of 32 float32" */
accel_status_t comm_fail_differs(struct comm *c, int peer,
                                 const struct comm_args *theirs, accel_error_t *err);
/* The alloc of backends without windows, not collective in fact: anonymous zeroed
 * memory; huge pages are requested. */
accel_status_t comm_private_alloc(struct comm *c, size_t bytes, void **mem_out,
                                  accel_error_t *err);

#endif
