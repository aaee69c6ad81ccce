/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend as its own files see it: the state of one device, checked calls,
 * launches and memory. Two compilers build these files: nvcc, and g++ against the
 * stand-in toolkit of tests/cuda, which runs the kernels on the CPU. Of libaccel's
 * headers, only those of backend/ and common/ may be included here.
 */
#ifndef ACCEL_BACKEND_CUDA_CUDA_H
#define ACCEL_BACKEND_CUDA_CUDA_H

#include <cuda_runtime.h>

#include "backend/device.h"
#include "backend/cuda/kernel_base.h"
#include "backend/cuda/entries.h"
#include "common/common.h"

struct cuda_block;   /* memory.cu: one allocation and its kind */
struct cuda_range;   /* ranges.cu: one reserved range of addresses */
struct cuda_staging; /* copies.cu: page-locked buffers that copies go through */
struct cuda_blas;  /* gemm.cu: the cuBLASLt handle, its workspace and its algorithms */
struct cuda_graph; /* graph.cu: the recorded step */
struct cuda_marks; /* marks.cu: the ops of this micro-batch */
struct cuda_dnn;   /* attention_dnn.cu: cuDNN, when it could be loaded */

/* Rows whose ids are out of range. Kernels note them on the device; sync reads them. */
struct cuda_fault {
    cuda_bad_t embed, target;
};

/* dst[i] += the sum over `parts` of part[k * stride + i], for n elements: the end of a
 * sum, see sum_ends.cu. */
struct cuda_end {
    float *dst;
    const float *part;
    int64_t parts, stride, n;
};
/* as many fit a kernel's arguments */
enum { CUDA_ENDS = 64 };

/* All that is known about one opened device. Nothing in it is locked. */
struct cuda_state {
    struct backend be; /* its state points back here */
    int device;        /* number of the device among the visible ones */
    int compute;       /* capability: 90 for 9.0 */
    int sms;
    size_t shared_bytes; /* most dynamic shared memory of a block, in bytes */
    bool pool;           /* the driver has stream-ordered allocation */
    char name[96], isa[384];

    /* now: the stream of the queue in use */
    cudaStream_t stream[QUEUE_COUNT], now;

    /* The first failure. From then on every call does nothing. */
    bool failed;
    cudaError_t code;
    char call[96], why[160];
    /* the op that failed, or the first that may have; "": not known */
    char where[256];
    char last_op[160]; /* for a late failure: the last op put on the device */
    /* bytes of the request that failed, if it was one for memory */
    size_t asked;
    enum backend_memory asked_kind;

    struct cuda_block *blocks;
    struct cuda_range *ranges;
    /* bytes by kind, without those of the stream-ordered pool */
    size_t held[MEMORY_KINDS];
    /* scratch.cu: the stack that kernels of the compute queue take scratch from. base
     * NULL: not reserved; its size still limits what a kernel asks for. */
    struct {
        char *base;
        size_t bytes, top;
    } workspace;
    /* sum_ends.cu: ends that are due, and the bytes that their parts take at the end of
     * the workspace */
    struct {
        struct cuda_end end[CUDA_ENDS];
        int count;
        size_t bytes;
    } ends;
    struct cuda_staging *staging;
    struct cuda_fault *fault; /* device memory */

    /* Set while a step is recorded as a graph, else NULL. Ends the recording and
     * launches what it holds. Must be called before the CPU waits for the device or
     * memory outside the recording is used. */
    void (*end_recording)(struct cuda_state *s);
    /* Incremented where a recording begins and ends. All queues meet there, so an event
     * from another part needs no wait. */
    uint64_t part;
    struct backend_event *captured; /* events recorded in the recording under way */

    struct cuda_blas *blas;
    struct cuda_graph *graph;
    struct cuda_marks *marks;
    struct cuda_dnn *dnn;
    /* ATTN_OWN ...; isa has said how own attention and its gradient are made */
    unsigned attention;
    bool attention_told[2];

    /* the first failure came from the watch; it is kept in `peer` */
    bool peer_gone;
    accel_error_t peer;
    /* cuda_settled: when it first waited for a device that had failed; 0: never */
    int64_t failed_ns;
    char bus_id[32];
};

/* The device that this thread's CUDA calls go to, as far as the module has chosen it;
 * -1: not yet. CUDA keeps one per thread, and only the opener's is set at first. */
extern __thread int cuda_thread_device;
/* core.cu: makes it this device. */
void cuda_enter(struct cuda_state *s);

/* First in every function of the table, which any thread may call. */
static inline struct cuda_state *cuda_state_of(const struct backend *be)
{
    struct cuda_state *s = (struct cuda_state *)be->state;

    if (cuda_thread_device != s->device)
        cuda_enter(s);
    return s;
}

/* ---- checked calls --------------------------------------------------------------- */

/* Keeps the first failure with the name of the call (`call` up to its parenthesis).
 * False: this call failed. */
bool cuda_ok(struct cuda_state *s, cudaError_t code, const char *call);
/* The same for a library with error codes of its own; `why` is their text. Always
 * false. */
bool cuda_fails(struct cuda_state *s, const char *call, const char *why);
/* The same where the device failed, possibly in work queued earlier. */
bool cuda_breaks(struct cuda_state *s, const char *call, const char *why);
/* Keeps an out-of-memory of the device as the failure. Always false. */
bool cuda_lacks(struct cuda_state *s, enum backend_memory kind, size_t bytes);

/* core.cu: appends to isa, which `doctor` and the plan print, and the log when it has
 * grown. */
void cuda_say(struct cuda_state *s, const char *format, const char *what);

/* Makes the call unless something failed before; true if it was made and succeeded. */
#define CHECK(s, ...) (!(s)->failed && cuda_ok(s, (__VA_ARGS__), #__VA_ARGS__))

/* Appends a kernel to the queue in use, unless something failed before. A kernel's name
 * that contains a comma goes in parentheses: LAUNCH((add_kernel<float, 4>), ...).
 * `grid` and `block` are numbers or dim3; an empty grid is not launched. */
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

/* Required before a kernel may be launched with more than 48 KiB of dynamic shared
 * memory. */
#define ALLOW_SHARED(kernel, bytes, s)                                                 \
    CHECK(s, cudaFuncSetAttribute((const void *)(kernel),                              \
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,         \
                                  (int)(bytes)))

/* ---- memory ---------------------------------------------------------------------- */

/* cuda_alloc without the zeros. */
accel_status_t cuda_alloc_plain(const struct backend *be, enum backend_memory kind,
                                size_t bytes, void **memory_out, accel_error_t *err);
/* Scratch for the calling function, in the order of the queue in use. Free it in
 * reverse order: the workspace is a stack. NULL after a failure (which is kept) and for
 * 0 bytes. */
void *cuda_scratch(struct cuda_state *s, size_t bytes);
void cuda_scratch_free(struct cuda_state *s, void *p); /* NULL is fine */
/* sum_ends.cu. Room for n floats, parts of sums; once their kernel is launched, their
 * ends are added, and done follows. No scratch is taken between room and done. flush
 * launches what is due. */
float *cuda_ends_room(struct cuda_state *s, int64_t n);
void cuda_ends_add(struct cuda_state *s, const struct cuda_end *e);
void cuda_ends_done(struct cuda_state *s, float *room);
void cuda_ends_flush(struct cuda_state *s);
/* Bytes that the stream-ordered pool holds of the device now, and its peak. */
void cuda_pool_bytes(struct cuda_state *s, size_t *now, size_t *most);

/* Fills err for an out-of-memory: what was asked for, what is held by kind, what is
 * free, and which option helps. */
accel_status_t cuda_no_memory(struct cuda_state *s, enum backend_memory kind,
                              size_t bytes, accel_error_t *err);

/* Does [p, p + bytes) lie within memory of host_alloc? */
bool cuda_is_locked(struct cuda_state *s, const void *p, size_t bytes);

/* Waits that poll the watch meanwhile; false after a failure. */
bool cuda_await_queue(struct cuda_state *s, cudaStream_t queue);
bool cuda_await_event(struct cuda_state *s, cudaEvent_t event);
bool cuda_await_all(struct cuda_state *s);
/* Before memory is freed, which waits for the device without a watch: waits for all
 * queues, after a failure for 2 s at most in all. False: they are still busy, and what
 * they use must stay. */
bool cuda_settled(struct cuda_state *s);

/* Ends a recording, then waits for the queue in use; false after a failure. */
bool cuda_finish(struct cuda_state *s);
/* Copies to the host and waits; for small results, such as a sum. */
bool cuda_fetch(struct cuda_state *s, void *host, const void *src, size_t bytes);
/* The same without the wait: the bytes are at the address that is returned once the
 * queue has been waited for, until the next copy from or to the host. NULL after a
 * failure. */
const void *cuda_fetch_late(struct cuda_state *s, cudaStream_t queue, const void *src,
                            size_t bytes);

/* ranges.cu: a function of the driver; false, and a failure, where it has none of this
 * name. */
bool cuda_driver_function(struct cuda_state *s, const char *name, void **function_out);

/* Parts of the core, in the order in which open calls them; close goes the other
 * way. */
bool cuda_queues_open(struct cuda_state *s);
bool cuda_memory_open(struct cuda_state *s);
void cuda_memory_close(struct cuda_state *s);
bool cuda_staging_open(struct cuda_state *s);
void cuda_staging_close(struct cuda_state *s);
void cuda_ranges_close(struct cuda_state *s);

/* graph.cu. cuda_graph_never: no step is recorded from now on, because others put work
 * on the queues at any time. cuda_graph_share: collectives do, between segments, and
 * only the compute queue is recorded from now on. cuda_graph_holds: may what queue q
 * gets in a step be recorded? cuda_graph_pause launches the segment at hand, if there
 * is one; cuda_graph_resume begins the next; cuda_graph_op does both before an op where
 * the segment is long enough. */
void cuda_graph_never(struct cuda_state *s);
void cuda_graph_share(struct cuda_state *s);
bool cuda_graph_holds(const struct cuda_state *s, enum backend_queue q);
void cuda_graph_pause(struct cuda_state *s);
void cuda_graph_resume(struct cuda_state *s);
void cuda_graph_op(struct cuda_state *s);
/* graph.cu: drops what is recorded, and takes its scratch back. After a failure. */
void cuda_graph_abandon(struct cuda_state *s);
/* queues.cu: records the events of a recording that has been launched once more, for
 * those who wait outside of it. */
void cuda_events_settle(struct cuda_state *s);
/* graph.cu: scratch while a step is recorded; free returns false for memory that is not
 * graph.cu's. */
void *cuda_graph_scratch(struct cuda_state *s, size_t bytes);
bool cuda_graph_scratch_free(struct cuda_state *s, void *p);

/* marks.cu: writes the place of the first failure to where and last_op. late: any op
 * that is not known to be complete may have caused it. */
void cuda_marks_fail(struct cuda_state *s, bool late);
/* Notes that all ops but the last are complete. */
void cuda_marks_waited(struct cuda_state *s);
/* The number of the current op. */
int cuda_mark_now(const struct cuda_state *s);
/* An op that looks up ids, for the message when one of them is out of range. */
struct cuda_id_op {
    uint32_t mark;
    char where[160]; /* "": not known */
    int64_t limit;   /* ids must be below */
    int64_t time;    /* rows of a sequence; 0: there are none */
    int micro, micros;
};
/* Notes the current op as one. Returns its number for note_bad_row. */
uint32_t cuda_mark_ids(struct cuda_state *s, int64_t limit, int64_t time);
/* The op with that number; NULL: many others followed. */
const struct cuda_id_op *cuda_id_op(const struct cuda_state *s, uint32_t mark);

bool cuda_marks_open(struct cuda_state *s);
void cuda_marks_close(struct cuda_state *s);
bool cuda_graph_open(struct cuda_state *s);
void cuda_graph_close(struct cuda_state *s);
bool cuda_attention_open(struct cuda_state *s);
void cuda_attention_close(struct cuda_state *s);
bool cuda_gemm_open(struct cuda_state *s);
void cuda_gemm_close(struct cuda_state *s);

/* ---- entries --------------------------------------------------------------------- */

/* table.cu: fills in every function of the vtable; opens and closes the parts. */
void cuda_fill_table(struct backend *be);
bool cuda_open_parts(struct cuda_state *s);
void cuda_close_parts(struct cuda_state *s);

#endif
