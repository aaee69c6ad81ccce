/* SPDX-License-Identifier: Apache-2.0
 *
 * One opened device: its memory, its queues and events, copies to and from the host,
 * and who opens it. Callers hold a `struct backend`: be->alloc(be, ...). Its kernels
 * are rows of kernels.h, its sizes rows of sizes.h; both become members here.
 *
 * Pointers to arrays belong to the device; only a backend dereferences them. A device
 * works asynchronously: each call appends a kernel or a copy to the queue in use. A
 * queue runs in order; queues run side by side unless a wait orders them. The device
 * keeps its first failure, which check and sync report; from then on every call does
 * nothing. The CPU has finished when a call returns, so nothing needs ordering there.
 */
#ifndef ACCEL_BACKEND_DEVICE_H
#define ACCEL_BACKEND_DEVICE_H

#include "backend/operands.h"
#include "common/common.h"

struct backend;
struct mask; /* backend/maths.h */

/* The queues of a device. Compute: kernels of the tape and the optimizer. Gather and
 * reduce: parameters and gradients in flight between ranks. Copy: batches on their way
 * from the host. Save: what a checkpoint copies to the host; many gigabytes, behind
 * which nothing else has to wait. */
enum backend_queue {
    QUEUE_COMPUTE,
    QUEUE_GATHER,
    QUEUE_REDUCE,
    QUEUE_COPY,
    QUEUE_SAVE,
    QUEUE_COUNT
};

/* The arena of activations grows in steps of this many bytes: a multiple of the huge
 * page and of the granularity at which devices map memory. */
#define BACKEND_STEP ((size_t)32 << 20)

/* opaque; each device defines its own */
struct backend_event;

/* What memory is used for. An out-of-memory message lists how much each kind holds. */
enum backend_memory {
    MEMORY_PARAMETERS,
    MEMORY_MOMENTS,
    MEMORY_GRADIENTS,
    MEMORY_GATHERED,
    MEMORY_REDUCE,
    MEMORY_ACTIVATIONS,
    MEMORY_BUFFERS,
    MEMORY_WORK,
    MEMORY_KINDS
};

static inline const char *backend_memory_name(enum backend_memory kind)
{
    static const char *const name[MEMORY_KINDS] = {
        "parameters",    "moments",     "gradients", "gathered parameters",
        "reduce buffer", "activations", "buffers",   "working memory"
    };

    return name[kind];
}

/* Which products of 8-bit floats a backend has (gemm). */
enum backend_fp8 {
    BACKEND_FP8_NONE,
    BACKEND_FP8_ANY,
    /* sizes that are multiples of NARROW_MULTIPLE, but for m; addresses of 16 bytes */
    BACKEND_FP8_WHOLE,
    /* the same, and only a as [m, k] with b as [n, k] */
    BACKEND_FP8_TURNED
};

/* Blocks that have a scale each, in products of 8-bit floats: flags. */
enum backend_blocks {
    BACKEND_BLOCKS_32 = 1,
    BACKEND_BLOCKS_128 = 2,
};

/* Memory use of a device, in bytes. */
struct backend_usage {
    /* of all processes, as the driver counts */
    size_t total, used;
    /* highest `used` that this process has seen */
    size_t peak;
    /* what this process holds of `used`, by kind */
    size_t held[MEMORY_KINDS];
};

/* Names the op whose work follows, for failures that a device reports late. Both texts
 * must stay valid as long as work of theirs may be in flight. path NULL: the op belongs
 * to no module. micro and micros are those of the graph. */
struct backend_mark {
    const char *op, *path;
    bool backward;
    int micro, micros;
};

/* A callback polled while the calling thread waits for the device; `first` is true on
 * the first poll of a wait. Any result but ACCEL_OK means that the wait will never end
 * (a peer of a collective is gone); the device then keeps that failure as its own and
 * does nothing from then on. */
struct backend_watch {
    /* polled as well; NULL: last of the list */
    struct backend_watch *next;
    accel_status_t (*poll)(void *user, bool first, accel_error_t *err);
    void *user;
};

/* Functions that are NULL do not exist on that backend; where this is allowed, their
 * comment says so. */
struct backend {
    const char *name; /* "cpu", "cuda", "meta" */
    /* CPU: the vector instructions chosen at run time */
    const char *isa;
    /* What makes the work so far slower than need be, and the cure; NULL: nothing
     * known. May be set whenever a kernel is queued. */
    const char *advice;
    int threads;
    /* nothing is computed: memory must not be touched */
    bool shapes_only;
    enum backend_fp8 fp8;
    unsigned fp8_blocks; /* enum backend_blocks */
    /* gemm takes int8 beside floats of any type */
    bool int8_operands;
    /* its memory is not the host's: only to_host and from_host cross */
    bool device;
    /* workspace of kernels outside the arena, in bytes; see reserve_workspace */
    size_t fixed_bytes;
    /* total memory of the device or node; 0: not known */
    size_t memory_bytes;
    /* PCI address, such as "0000:17:00.0"; NULL: none */
    const char *bus_id;
    /* polled during waits; NULL: none. Callers own the list */
    struct backend_watch *watch;
    /* the backend's own state, freed by close */
    void *state;
    void (*close)(struct backend *be);

    /* Kernels and copies go to q from now on; QUEUE_COMPUTE at first. */
    void (*use)(const struct backend *be, enum backend_queue q);
    /* the queue in use */
    enum backend_queue (*queue)(const struct backend *be);
    /* Events mark a place in a queue. NULL is an event that is never recorded: valid
     * everywhere, and the only one the CPU has. */
    struct backend_event *(*event_new)(const struct backend *be);
    void (*event_free)(const struct backend *be, struct backend_event *e);
    void (*record)(const struct backend *be, struct backend_event *e,
                   enum backend_queue q);
    /* Work queued on q after this call starts when the work queued before e's last
     * recording is complete; no wait when e was never recorded. The calling thread does
     * not block. */
    void (*wait)(const struct backend *be, enum backend_queue q,
                 struct backend_event *e);
    /* The native handle of a queue (cudaStream_t); NULL: there is none. Its holder may
     * use it at any time, so no step is recorded any more. */
    void *(*native)(const struct backend *be, enum backend_queue q);
    /* The same for one collective, which the caller queues before its next call: what
     * was recorded before is launched, and the recording continues after it. */
    void *(*lend)(const struct backend *be, enum backend_queue q);
    /* Returns the first failure known so far; cheap, never waits for the device. */
    accel_status_t (*check)(const struct backend *be, accel_error_t *err);
    /* Waits for all queues and returns the first failure, ids and targets out of range
     * included. */
    accel_status_t (*sync)(const struct backend *be, accel_error_t *err);
    /* After a failure for lack of memory: waits for all queues, takes back what the
     * kernels that were not queued held, and forgets the failure. Any other failure
     * stays and is returned. Nothing that was computed since is to be used. */
    accel_status_t (*recover)(const struct backend *be, accel_error_t *err);
    /* Completes, in the compute queue, what kernels have begun to add to gradients of
     * parameters (row_sums of gemm, column_sum, norm_grad). Until then only they may
     * touch those gradients; copies to the host settle by themselves. */
    void (*settle)(const struct backend *be);
    /* Bracket the forward and backward of one micro-batch: a device may record what
     * lies between and launch it as graphs. */
    void (*step_begin)(const struct backend *be);
    void (*step_end)(const struct backend *be);
    /* Shows profilers a named range of the calling thread's time, until the end that
     * belongs to it; ranges nest. */
    void (*region_begin)(const struct backend *be, const char *name);
    void (*region_end)(const struct backend *be);
    /* Sets the op of the kernels that follow. NULL: a new micro-batch, no op yet. */
    void (*mark)(const struct backend *be, const struct backend_mark *mark);

    /* Memory that outlives a step, zeroed. It is mapped at once, so that a shortage
     * shows here and not in a step: ACCEL_ENOMEM then names the request and what is
     * held. free takes what alloc returned; NULL is fine. */
    accel_status_t (*alloc)(const struct backend *be, enum backend_memory kind,
                            size_t bytes, void **memory_out, accel_error_t *err);
    void (*free)(const struct backend *be, void *p);
    /* Adds `bytes` (negative: subtracts) to the books of that kind: device memory that
     * a library allocated by itself. */
    void (*count)(const struct backend *be, enum backend_memory kind, int64_t bytes);
    /* Reserves the internal workspace of the compute queue's kernels, whose size
     * depends on the device alone and is part of fixed_bytes; a run does so when it
     * opens the device. Without it, and for a request that exceeds it, a kernel
     * allocates for itself. NULL where memory is the host's. */
    accel_status_t (*reserve_workspace)(const struct backend *be, accel_error_t *err);
    /* NULL where memory is the host's. Zeros when the device cannot tell. */
    void (*usage)(const struct backend *be, struct backend_usage *usage_out);
    /* A range of addresses for activations that is backed by memory from its start on,
     * as needed: commit maps [from, to), both multiples of BACKEND_STEP. NULL or false:
     * refused. */
    void *(*reserve)(const struct backend *be, size_t bytes);
    bool (*commit)(const struct backend *be, void *base, size_t from, size_t to);
    /* Returns all memory of the range to the system; commit maps it again, at
     * the same addresses. Waits for the device. False: it failed, nothing was taken. */
    bool (*uncommit)(const struct backend *be, void *base, size_t committed);
    void (*release)(const struct backend *be, void *base, size_t reserved,
                    size_t committed);
    /* Host memory, zeroed, that a device copies from and to at full speed
     * (page-locked). */
    void *(*host_alloc)(const struct backend *be, size_t bytes);
    void (*host_free)(const struct backend *be, void *p, size_t bytes);

    /* Either side may be memory of host_alloc. The host must not touch it until the
     * copy, which takes its turn in the queue, is complete. */
    void (*copy)(const struct backend *be, void *dst, const void *src, size_t bytes);
    /* Values as float32, or bytes unchanged; complete when the call returns. */
    void (*to_host)(const struct backend *be, float *host, const void *src,
                    accel_dtype_t type, int64_t n);
    void (*to_host_bytes)(const struct backend *be, void *host, const void *src,
                          size_t bytes);
    /* The caller may change `host` as soon as the call returns. */
    void (*from_host)(const struct backend *be, void *dst, const void *host,
                      size_t bytes);

    /* The kernels: kernels.h. The meta backend's do nothing. */
#define KERNEL(type, name, ...) type (*name)(const struct backend *be, __VA_ARGS__);
#include "backend/kernels.h"

    /* What a planner asks: sizes.h. */
#define SCRATCH(name, ...) size_t (*name)(const struct backend *be, __VA_ARGS__);
#include "backend/sizes.h"
};

/* Opens the CPU backend: OpenMP with `threads` threads (0: as many as OpenMP would
 * use). The caller closes it with
 * backend_close, as with all opens below. */
accel_status_t backend_cpu_open(struct backend **backend_out, int threads,
                                accel_error_t *err);
/* Opens a backend whose kernels do nothing, with the scratch sizes of `like`. The same
 * forward and backward on a counting arena gives the peak. `like` must outlive it. */
accel_status_t backend_meta_open(struct backend **backend_out,
                                 const struct backend *like, accel_error_t *err);
/* Opens a backend without kernels, only with the scratch sizes of the CPU backend with
 * `threads` >= 1 threads: the `like` of a meta backend where nothing is computed. */
accel_status_t backend_cpu_sizes_open(struct backend **backend_out, int threads,
                                      accel_error_t *err);
/* The same for the CUDA backend. */
accel_status_t backend_cuda_sizes_open(struct backend **backend_out,
                                       accel_error_t *err);
/* Fills in queues, events and late errors for a backend that has none. */
void backend_no_queues(struct backend *be);
void backend_close(struct backend *be); /* NULL is fine */

#endif
