/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend provides to comm.c and what it gets. comm.c has checked the arguments
 * and the sequence is counted; a backend only moves bytes. An error a backend returns
 * fails the communicator for good.
 */
#ifndef ACCEL_COMM_COMM_IMPL_H
#define ACCEL_COMM_COMM_IMPL_H

#include "comm/comm.h"

enum comm_call {
    COMM_CALL_ALLOC = 1,
    COMM_CALL_ALL_GATHER,
    COMM_CALL_REDUCE_SCATTER,
    COMM_CALL_ALL_REDUCE,
    COMM_CALL_BROADCAST,
    COMM_CALL_BARRIER,
    COMM_CALL_GATHER,
    COMM_CALL_OPEN, /* of a backend that waits for peers while it is opened */
    COMM_CALL_SPLIT,
    COMM_CALL_COUNT
};

/* One call as every rank must agree on it; the element count of a gather is each rank's
 * own. `what` packs into 16 bits so that it also travels in message tags. */
struct comm_args {
    enum comm_call call;
    accel_dtype_t dtype;
    enum comm_op op;
    uint64_t elems;
    int root;
};

uint32_t comm_args_pack(const struct comm_args *a); /* call, dtype, op; < 2^16 */
void comm_args_unpack(struct comm_args *a, uint32_t packed);

struct comm_ops {
    const char *name;
    accel_status_t (*alloc)(struct comm *c, size_t bytes, void **out,
                            accel_error_t *err);
    /* NULL: sums need no scratch. */
    accel_status_t (*reserve)(struct comm *c, bool scatter, size_t elems,
                              accel_dtype_t t, accel_error_t *err);
    accel_status_t (*all_gather)(struct comm *c, void *buf, accel_error_t *err);
    accel_status_t (*reduce_scatter)(struct comm *c, const void *in, float *out,
                                     float scale, bool accumulate, accel_error_t *err);
    accel_status_t (*all_reduce)(struct comm *c, void *buf, accel_error_t *err);
    accel_status_t (*broadcast)(struct comm *c, void *buf, accel_error_t *err);
    accel_status_t (*barrier)(struct comm *c, accel_error_t *err);
    accel_status_t (*gather)(struct comm *c, const void *mine, void **all,
                             size_t *sizes, accel_error_t *err);
    /* *out is NULL before; and stays NULL with a negative color. */
    accel_status_t (*split)(struct comm *c, int color, int key, struct comm **out,
                            accel_error_t *err);
    void (*fail)(struct comm *c);  /* tell the peers that this rank gave up */
    void (*close)(struct comm *c); /* frees c->impl; at most 5 s */
};

struct comm {
    const struct comm_ops *ops;
    void *impl;
    int rank, size;
    int64_t timeout_ns;
    int64_t deadline_ns;      /* of the running call; 0 until a wait becomes long */
    int64_t asked_ns;         /* when comm_expired was asked last */
    uint64_t seq;             /* calls begun; the first one is number 1 */
    struct comm_args args;    /* of the running call */
    enum backend_memory kind; /* of the running comm_alloc */
    bool failed;
    accel_error_t failure;              /* what every later call returns */
    const void **src;                   /* [size] scratch for reductions */
    const struct comm_options *options; /* while the backend is opened */
    int *node_of;                       /* [size] */
    char *asked;                        /* the backend's name in the options, or NULL */
    char *net_devices;                  /* of the options, or NULL */
    struct backend *device;             /* of the options: nccl */
};

/* Backends: fill c->ops and c->impl. Collective. */
accel_status_t comm_self_open(struct comm *c, accel_error_t *err);
/* *fits_out = false (and ACCEL_OK) on all ranks alike when some rank cannot share memory;
 * `why` then says who and why. */
accel_status_t comm_shm_open(struct comm *c, struct boot *b, size_t window_bytes,
                             bool *fits_out, char why[128], accel_error_t *err);
accel_status_t comm_ucx_open(struct comm *c, struct boot *b, accel_error_t *err);
accel_status_t comm_nccl_open(struct comm *c, struct boot *b, accel_error_t *err);

/* An empty communicator for the ranks of b; comm_close frees it. */
accel_status_t comm_new(struct comm **out, const struct boot *b, int timeout_ms,
                        accel_error_t *err);
/* The split of a backend that has none of its own: opens the groups anew (comm_split.c). */
accel_status_t comm_split_by_rounds(struct comm *c, int color, int key,
                                    struct comm **out, accel_error_t *err);

/* A call with these arguments: counted, and refused when c has failed. */
accel_status_t comm_begin(struct comm *c, struct comm_args args, accel_error_t *err);
/* The end of a call with status s: keeps the first failure `own` and tells the peers, so that
 * they need not wait it out. Returns s, or the failure kept before. */
accel_status_t comm_end(struct comm *c, accel_status_t s, const accel_error_t *own,
                        accel_error_t *err);
const char *comm_call_name(enum comm_call call);

/* True once the running call has used up its time. Called from long waits only. Time in
 * which this process was stopped (a suspended job) does not count. */
bool comm_expired(struct comm *c);
/* The running call ends at `deadline_ns` whatever its own time. */
void comm_set_deadline(struct comm *c, int64_t deadline_ns);
/* "all_gather #7: ranks 1, 3 did not arrive within 600 s"; silent[size]. */
accel_status_t comm_fail_silent(struct comm *c, const bool *silent, accel_error_t *err);
/* "... rank 2 died" / "... rank 2 gave up: ..." */
accel_status_t comm_fail_peer(struct comm *c, int peer, const char *what,
                              accel_error_t *err);
/* "rank 1 called reduce_scatter of 40 float32, rank 0 all_gather of 32 float32" */
accel_status_t comm_fail_differs(struct comm *c, int peer,
                                 const struct comm_args *theirs, accel_error_t *err);
/* Anonymous zeroed memory for backends without windows; huge pages are asked for. */
accel_status_t comm_private_alloc(size_t bytes, void **out, accel_error_t *err);

#endif
