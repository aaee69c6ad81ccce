/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL as a table of function pointers: loaded at run time, so that nodes without
 * GPUs need no NCCL and no build needs its header. The declarations are our own and
 * contain only what is used; tests/unit/test_comm_nccl.c compares them with nccl.h
 * where there is one.
 */
#ifndef ACCEL_COMM_NCCL_H
#define ACCEL_COMM_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "backend/device.h"
#include "comm/comm_impl.h"

#define NCCL_LIBRARY "libnccl.so.2"

/* As ncclGetVersion counts since 2.9. */
#define NCCL_VERSION_OF(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/* Communicators that can be aborted while they are being set up came with 2.14 and work
 * as documented since 2.18. */
#define NCCL_OLDEST  NCCL_VERSION_OF(2, 18, 0)
#define NCCL_BUFFERS NCCL_VERSION_OF(2, 19, 0) /* ncclMemAlloc, ncclCommRegister */

/* ncclResult_t, ncclDataType_t and ncclRedOp_t: only the values used here. */
enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};
enum nccl_type {
    NCCL_UINT8 = 1,
    NCCL_INT64 = 4,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};
enum nccl_op { NCCL_SUM = 0, NCCL_MAX = 2, NCCL_MIN = 3 };

/* ncclUniqueId: passed by value, so the size is part of the ABI. */
struct nccl_id {
    char bytes[128];
};
/* ncclConfig_t as of 2.14. A newer library reads `size` bytes and uses its own defaults
 * for the fields added since. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0: calls return NCCL_IN_PROGRESS, so that no call can hang */
};
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION NCCL_VERSION_OF(2, 14, 0)

typedef struct nccl_comm nccl_comm_t; /* opaque, owned by the library */
typedef void nccl_stream_t;           /* what a cudaStream_t points to */

/* NCCL's functions, named as there without "nccl" and "Comm". */
struct nccl {
    void *library; /* of dlopen; NULL: not loaded */
    int version;
    int (*get_version)(int *version_out);
    int (*unique_id)(struct nccl_id *id_out);
    int (*init)(nccl_comm_t **comm_out, int size, struct nccl_id id, int rank,
                struct nccl_config *config);
    int (*split)(nccl_comm_t *c, int color, int key, nccl_comm_t **comm_out,
                 struct nccl_config *config);
    int (*count)(nccl_comm_t *c, int *count_out);
    int (*user_rank)(nccl_comm_t *c, int *rank_out);
    int (*finalize)(nccl_comm_t *c);
    int (*destroy)(nccl_comm_t *c);
    int (*abort)(nccl_comm_t *c);
    int (*async_error)(nccl_comm_t *c, int *result_out);
    const char *(*error_string)(int rc);
    const char *(*last_error)(nccl_comm_t *c);
    int (*all_gather)(const void *in, void *out, size_t elems, int type, nccl_comm_t *c,
                      nccl_stream_t *stream);
    int (*reduce_scatter)(const void *in, void *out, size_t elems, int type, int op,
                          nccl_comm_t *c, nccl_stream_t *stream);
    int (*all_reduce)(const void *in, void *out, size_t elems, int type, int op,
                      nccl_comm_t *c, nccl_stream_t *stream);
    int (*broadcast)(const void *in, void *out, size_t elems, int type, int root,
                     nccl_comm_t *c, nccl_stream_t *stream);
    int (*send)(const void *in, size_t elems, int type, int peer, nccl_comm_t *c,
                nccl_stream_t *stream);
    int (*recv)(void *out, size_t elems, int type, int peer, nccl_comm_t *c,
                nccl_stream_t *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    /* NULL before NCCL_BUFFERS */
    int (*mem_alloc)(void **mem_out, size_t bytes);
    int (*mem_free)(void *p);
    int (*reg)(nccl_comm_t *c, void *p, size_t bytes, void **handle_out);
    int (*dereg)(nccl_comm_t *c, void *handle);
};

/* Loads the library and finds its functions. Nothing to close after a failure.
 * ACCEL_EUNAVAIL with the cure: no library, too old, or a function is missing. */
accel_status_t nccl_open(struct nccl *n, accel_error_t *err);
void nccl_close(struct nccl *n);
/* "2.28.9" into buf; returns buf. */
const char *nccl_version_text(int version, char buf[16]);

/* ---- the backend (comm_nccl.c) --------------------------------------------------- */

#define NCCL_WORDS    2    /* that a barrier exchanges */
#define NCCL_NO_COLOR (-1) /* NCCL_SPLIT_NOCOLOR */
#define NCCL_RECENT   256  /* calls whose names are kept; a power of two */

/* A call that was queued, kept to name it when it turns out to be stuck. */
struct nccl_call {
    uint64_t seq;
    enum comm_call call;
    enum backend_queue queue;
};

/* Device memory that is freed when the communicator is closed. */
struct nccl_block {
    struct nccl_block *next;
    void *mem, *handle;       /* handle: of ncclCommRegister; NULL: not registered */
    size_t of_library;        /* bytes from ncclMemAlloc; 0: from the device's alloc */
    enum backend_memory kind; /* of_library: as what they are counted */
};

struct nccl_state {
    struct nccl api;
    const struct backend *be;
    struct backend_watch watch; /* in the device's list: its waits call nccl_poll */
    nccl_comm_t *comm;          /* NULL: not set up, or aborted */
    bool library_sums;   /* NCCL sums reduce_scatter and all_reduce, in its own order */
    uint64_t agreed;     /* hash of all calls so far, compared at barriers */
    size_t scratch_most; /* limit in bytes: longer arrays are summed piece by piece */
    void *scratch;       /* workspace for sums; owned by blocks */
    size_t scratch_bytes;
    struct backend_event *scratch_free; /* recorded after its last use */
    enum backend_queue scratch_queue;   /* the queue of that use */
    int64_t *words; /* device, [max(NCCL_WORDS, size)]: for barrier and gather */
    struct nccl_block *blocks;
    /* Host memory, [QUEUE_COUNT]: the device writes a call's number, modulo 2^24 (exact
     * in a float32), when its queue has passed that call. */
    volatile float *reached;
    float seen[QUEUE_COUNT];              /* reached at the last poll */
    struct nccl_call recent[NCCL_RECENT]; /* [seq % NCCL_RECENT] */
};

/* Has a call started without error? It may not be queued yet. */
static inline bool nccl_going(int rc)
{
    return rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS;
}

/* The queue in use, as NCCL knows it, for the call that follows. */
static inline nccl_stream_t *nccl_stream(const struct nccl_state *n)
{
    return n->be->lend(n->be, n->be->queue(n->be));
}

/* comm_nccl.c */

const struct comm_ops *nccl_operations(void);
/* Takes `mem`, which the device's alloc returned: it is freed when the communicator is
 * closed, or at once if this fails. */
accel_status_t nccl_keep_block(struct nccl_state *n, void *mem, accel_error_t *err);

/* A part of the running call: words_out[size], host memory, gets every rank's `own`.
 * Waits for the device. */
accel_status_t nccl_gather_words(struct comm *c, int64_t own, int64_t *words_out,
                                 accel_error_t *err);

/* From now on the device's waits also report c's errors. */
void nccl_watch(struct comm *c);

/* nccl_connect.c */

accel_status_t nccl_split(struct comm *c, int color, int key, struct comm **comm_out,
                          accel_error_t *err);

/* nccl_wait.c */

/* Takes the result of an NCCL call and waits until the call is on its queue. `what`:
 * name of NCCL's function, for the error. */
accel_status_t nccl_settle(struct comm *c, int rc, const char *what,
                           accel_error_t *err);
/* The running call is on `queue` completely: the device will report when
 * it has passed. */
void nccl_issued(struct comm *c, enum backend_queue queue);
/* Called by the device's waits. Returns an error of NCCL's, or of a call that has not
 * made progress for the length of the timeout. `first`: a new wait begins, so the clock
 * starts again. A failure is kept and aborts the communicator. */
accel_status_t nccl_poll(void *user, bool first, accel_error_t *err);
/* Aborts the communicator, which ends all that NCCL has in flight. No
 * call may follow. */
void nccl_give_up(struct nccl_state *n);
/* Finalizes and destroys the communicator, or aborts it after 5 s. */
void nccl_leave(struct comm *c);

/* nccl_sum.c: sums in rank order, which NCCL itself does not promise */

/* Sends and receives that NCCL runs as one kernel and that cannot block each other. *rc
 * is what nccl_group_start returned; after an error the rest of the group is left out.
 * Messages of 0 bytes are left out, too. nccl_group_end must always follow. */
int nccl_group_start(struct comm *c);
void nccl_group_send(struct comm *c, int *rc, int peer, const void *buf, size_t bytes);
void nccl_group_recv(struct comm *c, int *rc, int peer, void *buf, size_t bytes);
accel_status_t nccl_group_end(struct comm *c, int rc, accel_error_t *err);

/* reduce_scatter and all_reduce, queued; arguments as in comm.h. */
accel_status_t nccl_direct_scatter(struct comm *c, const void *in, float *out,
                                   float scale, bool accumulate, accel_error_t *err);
accel_status_t nccl_direct_reduce(struct comm *c, void *buf, accel_error_t *err);
/* *mem_out: the workspace, at least `bytes`. The queue in use waits for its last use on
 * any queue. nccl_scratch_done ends the use. */
accel_status_t nccl_scratch(struct comm *c, size_t bytes, void **mem_out,
                            accel_error_t *err);
void nccl_scratch_done(struct comm *c);
/* The backend's reserve (comm_impl.h). */
accel_status_t nccl_reserve(struct comm *c, bool scatter, size_t elems, accel_dtype_t t,
                            accel_error_t *err);

/* nccl_chain.c: the same sums with fewer bytes between nodes (node_chain.h). False: the
 * direct form is to be used, and nothing has been done. */
bool nccl_chain_scatter(struct comm *c, const void *in, float *out, float scale,
                        bool accumulate, accel_status_t *st_out, accel_error_t *err);
bool nccl_chain_reduce(struct comm *c, void *buf, accel_status_t *st_out,
                       accel_error_t *err);

#endif
