/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL as a table of function pointers: found at run time, so that a node without GPUs
 * needs nothing and no build needs its header. The declarations are our own and hold only
 * what is used; tests/unit/test_comm_nccl.c compares them with nccl.h where there is one.
 */
#ifndef ACCEL_COMM_NCCL_H
#define ACCEL_COMM_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "backend/backend.h"
#include "comm/comm_impl.h"

#define NCCL_LIBRARY     "libnccl.so.2"
#define ENV_NCCL_LIBRARY "ACCEL_NCCL_LIBRARY" /* a path to use instead */

/* As ncclGetVersion counts, from 2.9 on. */
#define NCCL_VERSION_OF(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/* Communicators that can be given up while they are set up came with 2.14 and work as
 * described since 2.18. */
#define NCCL_OLDEST  NCCL_VERSION_OF(2, 18, 0)
#define NCCL_BUFFERS NCCL_VERSION_OF(2, 19, 0) /* ncclMemAlloc, ncclCommRegister */

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

struct nccl_id {
    char bytes[128];
};
/* The layout of 2.14: a newer library reads `size` bytes and takes its own defaults for
 * all that was added since. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION NCCL_VERSION_OF(2, 14, 0)

typedef struct nccl_comm nccl_comm_t; /* opaque, owned by the library */
typedef void nccl_stream_t;           /* what a cudaStream_t points to */

struct nccl {
    void *library;
    int version;
    int (*get_version)(int *version_out);
    int (*unique_id)(struct nccl_id *out);
    int (*init)(nccl_comm_t **out, int size, struct nccl_id id, int rank,
                struct nccl_config *config);
    int (*split)(nccl_comm_t *c, int color, int key, nccl_comm_t **out,
                 struct nccl_config *config);
    int (*count)(nccl_comm_t *c, int *out);
    int (*user_rank)(nccl_comm_t *c, int *out);
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
    /* NULL before NCCL_BUFFERS. */
    int (*mem_alloc)(void **out, size_t bytes);
    int (*mem_free)(void *p);
    int (*reg)(nccl_comm_t *c, void *p, size_t bytes, void **handle_out);
    int (*dereg)(nccl_comm_t *c, void *handle);
};

/* Finds the library and its functions. Nothing to close after a failure. */
accel_status_t nccl_open(struct nccl *n, accel_error_t *err);
void nccl_close(struct nccl *n);
/* The functions of a library of this version: those it must have and those it may have. Name
 * of the first that is needed and not there, or NULL. */
const char *nccl_find(struct nccl *n);
/* "2.28.9" into buf; returns buf. */
const char *nccl_version_text(int version, char buf[16]);

/* ---- the backend (comm_nccl.c) ---------------------------------------------------------- */

#define NCCL_WORDS    2
#define NCCL_NO_COLOR (-1)
#define NCCL_RECENT   256 /* calls whose names are kept; a power of two */

struct nccl_call {
    uint64_t seq;
    enum comm_call call;
    enum backend_queue queue;
};

struct nccl_block {
    struct nccl_block *next;
    void *mem, *handle;
    size_t of_library; /* bytes; 0: of the device's alloc */
    enum backend_memory kind;
};

struct nccl_state {
    struct nccl api;
    const struct backend *be;
    struct backend_watch watch; /* nccl_poll */
    nccl_comm_t *comm;          /* NULL: not set up, or given up */
    bool library_sums;   /* reduce_scatter and all_reduce by NCCL, in its order */
    uint64_t agreed;     /* hash of all calls so far, compared at barriers */
    size_t scratch_most; /* bytes; longer data goes through it piece by piece */
    void *scratch;
    size_t scratch_bytes;
    struct backend_event *scratch_free; /* after the last use, on scratch_queue */
    enum backend_queue scratch_queue;
    int64_t *words; /* device, [NCCL_WORDS] or [size] if that is more */
    struct nccl_block *blocks;
    /* Numbers of calls, modulo 2^24: a float32 holds them. The device writes reached[queue]
     * (host memory) when the queue has passed that call. */
    volatile float *reached;
    float seen[QUEUE_COUNT];
    struct nccl_call recent[NCCL_RECENT]; /* by number */
};

/* Did a call begin well? It may still be on its way to the queue. */
static inline bool nccl_going(int rc)
{
    return rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS;
}

/* The queue in use, as NCCL knows it. */
static inline nccl_stream_t *nccl_stream(const struct nccl_state *n)
{
    return n->be->native(n->be, n->be->queue(n->be));
}

/* comm_nccl.c */
const struct comm_ops *nccl_operations(void);
/* `mem` of the device's alloc is freed when the communicator is closed; at once
 * after a failure. */
accel_status_t nccl_keep_block(struct nccl_state *n, void *mem, accel_error_t *err);

/* From now on the device's waits ask for c's errors. */
void nccl_watch(struct comm *c);
/* nccl_connect.c */
accel_status_t nccl_split(struct comm *c, int color, int key, struct comm **out,
                          accel_error_t *err);

/* nccl_wait.c */
/* What an NCCL call returned, waited for until it is under way on the queue. */
accel_status_t nccl_settle(struct comm *c, int rc, const char *what,
                           accel_error_t *err);
/* The running call has been put on `queue` whole. */
void nccl_issued(struct comm *c, enum backend_queue queue);
/* Looks for errors of NCCL and, while calls are under way, at the clock: the device's waits
 * ask this. A failure gives the communicator up and is kept. */
accel_status_t nccl_poll(void *user, bool first, accel_error_t *err);
/* Ends whatever NCCL has under way; nothing more can be called. */
void nccl_give_up(struct nccl_state *n);
/* Leaves in good order, or gives up after 5 s. */
void nccl_leave(struct comm *c);

/* nccl_sum.c: sums in rank order, which NCCL itself does not promise. */
accel_status_t nccl_direct_scatter(struct comm *c, const void *in, float *out,
                                   float scale, bool accumulate, accel_error_t *err);
accel_status_t nccl_direct_reduce(struct comm *c, void *buf, accel_error_t *err);
/* `bytes` of scratch for the queue in use, after its last use on any queue. */
accel_status_t nccl_scratch(struct comm *c, size_t bytes, void **out,
                            accel_error_t *err);
void nccl_scratch_done(struct comm *c);
/* Scratch for such a reduce-scatter or all-reduce, now. */
accel_status_t nccl_reserve(struct comm *c, bool scatter, size_t elems, accel_dtype_t t,
                            accel_error_t *err);

#endif
