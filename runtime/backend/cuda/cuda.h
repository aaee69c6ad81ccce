/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend as its own files see it: the state of one device, checked calls, launches
 * and memory. Two compilers build these files: nvcc, and g++ against the stand-in toolkit of
 * tests/cuda, which runs the kernels on the CPU. Nothing here includes a header of libaccel
 * but backend.h, maths.h and common/.
 */
#ifndef ACCEL_BACKEND_CUDA_CUDA_H
#define ACCEL_BACKEND_CUDA_CUDA_H

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/entries.h"
#include "common/common.h"

struct cuda_block;   /* memory.cu: one allocation and its kind */
struct cuda_range;   /* ranges.cu: one reserved range of addresses */
struct cuda_staging; /* copies.cu: page-locked buffers that copies go through */
struct cuda_blas;  /* gemm.cu: the cuBLASLt handle, its workspace and its algorithms */
struct cuda_graph; /* graph.cu: the recorded step */
struct cuda_marks; /* marks.cu: the ops of this micro-batch */
struct cuda_dnn;   /* attention_dnn.cu: cuDNN, when it could be loaded */

/* Rows whose ids are out of range, noted by kernels and read at sync. */
struct cuda_fault {
    struct cuda_bad embed, target;
};

struct cuda_state {
    struct backend be; /* its state points back here */
    int device;        /* number of the device among the visible ones */
    int compute;       /* capability: 90 for 9.0 */
    int sms;
    size_t shared_bytes; /* dynamic shared memory that one block can have at most */
    bool pool;           /* the driver has stream-ordered allocation */
    char name[96], isa[192];

    cudaStream_t stream[QUEUE_COUNT], now; /* now: the one in use */

    /* The first failure; after it every call does nothing. */
    bool failed;
    cudaError_t code;
    char call[96], why[160];
    char where[256];   /* its op, or the first that it may have been; "" is not known */
    char last_op[160]; /* of one that came late: the last op on the device */
    size_t asked;      /* by the request that failed, if it was one for memory */
    enum backend_memory asked_kind;

    struct cuda_block *blocks;
    struct cuda_range *ranges;
    size_t held[MEMORY_KINDS]; /* bytes by kind, without the pool's */
    struct {
        char *base;
        size_t bytes, top;
    } room; /* scratch.cu: kernels of the compute queue take from it */
    struct cuda_staging *staging;
    struct cuda_fault *fault; /* device memory */

    /* Set by whoever records the step as a graph, else NULL: ends the recording and runs
     * what was recorded, before the CPU waits for the device or uses other memory. */
    void (*end_recording)(struct cuda_state *s);
    /* Grows where a recording begins and ends. All queues meet there: an event of another
     * part needs no wait. */
    uint64_t part;

    struct cuda_blas *blas;
    struct cuda_graph *graph;
    struct cuda_marks *marks;
    struct cuda_dnn *dnn;

    bool peer_gone; /* the first failure is the watch's: */
    accel_error_t peer;
    char bus_id[32];
};

static inline struct cuda_state *cuda_state_of(const struct backend *be)
{
    return (struct cuda_state *)be->state;
}

/* ---- checked calls ------------------------------------------------------------------- */

/* Keeps the first failure with the name of the call (`call` up to its parenthesis). False
 * when this call failed. */
bool cuda_ok(struct cuda_state *s, cudaError_t code, const char *call);
/* The same for a library that has codes of its own: `why` is its text. Always false. */
bool cuda_fails(struct cuda_state *s, const char *call, const char *why);
/* The same where the device failed, maybe at what was put on it before. */
bool cuda_breaks(struct cuda_state *s, const char *call, const char *why);
/* Keeps a lack of memory of the device as the failure. Always false. */
bool cuda_lacks(struct cuda_state *s, enum backend_memory kind, size_t bytes);

/* Calls unless something failed before: true when it was called and succeeded. */
#define CHECK(s, ...) (!(s)->failed && cuda_ok(s, (__VA_ARGS__), #__VA_ARGS__))

/* Puts a kernel at the end of the queue in use, unless something failed before. A kernel's
 * name with a comma goes in parentheses: LAUNCH((add_kernel<float, 4>), ...). `grid` and
 * `block` are numbers or dim3; a grid of nothing is not launched. */
#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, shared_bytes, s, ...)                              \
    do {                                                                               \
        const dim3 launch_grid(grid);                                                  \
        auto launch_kernel = kernel;                                                   \
                                                                                       \
        if ((s)->failed || !launch_grid.x || !launch_grid.y || !launch_grid.z)         \
            break;                                                                     \
        launch_kernel<<<launch_grid, block, shared_bytes, (s)->now>>>(__VA_ARGS__);    \
        cuda_ok(s, cudaGetLastError(), #kernel);                                       \
    } while (0)
#else
#define LAUNCH(kernel, grid, block, shared_bytes, s, ...)                              \
    do {                                                                               \
        const dim3 launch_grid(grid);                                                  \
                                                                                       \
        if ((s)->failed || !launch_grid.x || !launch_grid.y || !launch_grid.z)         \
            break;                                                                     \
        cuda_ok(s,                                                                     \
                fakecuda_launch(#kernel, kernel, launch_grid, dim3(block),             \
                                shared_bytes, (s)->now, __VA_ARGS__),                  \
                #kernel);                                                              \
    } while (0)
#endif

/* Before a kernel may be launched with more than 48 KiB of dynamic shared memory. */
#define ALLOW_SHARED(kernel, bytes, s)                                                 \
    CHECK(s, cudaFuncSetAttribute((const void *)(kernel),                              \
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,         \
                                  (int)(bytes)))

/* ---- memory -------------------------------------------------------------------------- */

/* Scratch of the call that asks for it, for the queue in use; given back in the opposite
 * order. NULL after a failure (which is kept) and for 0 bytes. */
void *cuda_scratch(struct cuda_state *s, size_t bytes);
void cuda_scratch_free(struct cuda_state *s, void *p); /* NULL is fine */
/* What the stream-ordered pool has of the device, and the most it had. */
void cuda_pool_bytes(struct cuda_state *s, size_t *now, size_t *most);

/* The sentence, code and cure of memory that was not there: what was asked for, what is
 * held by kind and what is free. */
accel_status_t cuda_no_memory(struct cuda_state *s, enum backend_memory kind,
                              size_t bytes, accel_error_t *err);

/* Is it within memory of host_alloc? */
bool cuda_is_locked(struct cuda_state *s, const void *p, size_t bytes);

/* Waits that ask the watch meanwhile; false after a failure. */
bool cuda_await_queue(struct cuda_state *s, cudaStream_t queue);
bool cuda_await_event(struct cuda_state *s, cudaEvent_t event);
bool cuda_await_all(struct cuda_state *s);

/* Waits for the queue in use and ends a recording first; false after a failure. */
bool cuda_finish(struct cuda_state *s);
/* Copies to the host and waits: small results, such as a sum. */
bool cuda_fetch(struct cuda_state *s, void *host, const void *src, size_t bytes);

/* Parts of the core, in the order in which open calls them (close: the other way round). */
bool cuda_memory_open(struct cuda_state *s);
void cuda_memory_close(struct cuda_state *s);
bool cuda_staging_open(struct cuda_state *s);
void cuda_staging_close(struct cuda_state *s);
void cuda_ranges_close(struct cuda_state *s);

/* Parts that belong to graph.cu: no step is recorded from now on (somebody else puts work
 * on the queues), and scratch while a step is recorded. free: false when it is not its. */
void cuda_graph_never(struct cuda_state *s);
void *cuda_graph_scratch(struct cuda_state *s, size_t bytes);
bool cuda_graph_scratch_free(struct cuda_state *s, void *p);

/* marks.cu: where the first failure is, into where and last_op; late: it may be that of any
 * op which is not known to be over. */
void cuda_marks_fail(struct cuda_state *s, bool late);
/* All ops but the last are over. */
void cuda_marks_waited(struct cuda_state *s);
/* The number of the op at work, for kernels that note something; its name, or "". */
int cuda_mark_now(const struct cuda_state *s);
void cuda_mark_name(const struct cuda_state *s, int mark, char *out, size_t len);

bool cuda_marks_open(struct cuda_state *s);
void cuda_marks_close(struct cuda_state *s);
bool cuda_graph_open(struct cuda_state *s);
void cuda_graph_close(struct cuda_state *s);
bool cuda_attention_open(struct cuda_state *s);
void cuda_attention_close(struct cuda_state *s);
bool cuda_gemm_open(struct cuda_state *s);
void cuda_gemm_close(struct cuda_state *s);

/* ---- entries ------------------------------------------------------------------------- */

/* table.cu: every function of the vtable, and what the parts open and close. */
void cuda_fill_table(struct backend *be);
bool cuda_open_parts(struct cuda_state *s);
void cuda_close_parts(struct cuda_state *s);

#endif
