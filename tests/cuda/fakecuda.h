/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the stand-in toolkit: the devices, the queues of work and the graphs. One
 * lock is held by whoever is in a call; kernels run on the caller's thread, under it.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "include/cuda_runtime.h"

enum { DEVICES_MAX = 16 };

/* One thing to do in a stream. */
struct work {
    enum cudaGraphNodeType kind;
    std::function<bool()> run; /* false: not yet, ask again */
    CUstream_st *stream;
    std::vector<std::shared_ptr<work>> after; /* of other streams */
    bool done;
    double when; /* seconds, at the end */
};
typedef std::shared_ptr<work> work_ref;

/* A node's `after` are indices of nodes before it. */
struct node {
    enum cudaGraphNodeType kind;
    std::function<bool()> run;
    std::vector<size_t> after;
};

struct CUgraph_st {
    std::vector<node> nodes;
};

struct CUgraphExec_st {
    std::shared_ptr<const std::vector<node>> nodes;
};

struct capture {
    CUgraph_st *graph;
    CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    bool invalid;
    std::vector<CUstream_st *> streams;
};

struct CUstream_st {
    int device;
    int priority;
    bool blocking; /* orders itself with the default stream */
    std::deque<work_ref> queue;
    work_ref last;
    capture *into;                /* being captured */
    std::vector<size_t> frontier; /* nodes that the next one follows */
};

struct CUevent_st {
    bool timing;
    work_ref recorded;
    const capture *captured; /* where it was last recorded while capturing */
    std::vector<size_t> frontier;
};

enum memory_kind { MEMORY_DEVICE, MEMORY_PINNED, MEMORY_MAPPED };

struct block {
    size_t bytes;
    char *map; /* of pages of its own, where the host's touch is watched */
    size_t map_bytes;
    enum memory_kind kind;
    int device;
};

struct CUmemPoolHandle_st {
    int device;
    uint64_t threshold, used, high;
};

enum order { ORDER_LAZY, ORDER_EAGER, ORDER_RANDOM };

struct fakecuda {
    std::recursive_mutex lock;
    bool ready;                      /* the environment was read */
    cudaError_t open;                /* what there is instead of devices */
    int devices, driver, capability; /* 90: 9.0 */
    uint64_t memory;                 /* bytes of each device */
    uint64_t taken; /* of them others take, before allocation taken_after + 1 */
    long taken_after;
    bool watch; /* the host may not touch the devices' memory */
    uint64_t used[DEVICES_MAX];
    CUmemPoolHandle_st pool[DEVICES_MAX];
    enum order order;
    uint64_t seed;
    long lose_after; /* launches; < 0: never */
    cudaError_t lost_as;
    cudaError_t sticky, last;
    bool running; /* work is being done: no call may be made from it */
    struct fakecuda_counts counts;
    std::map<std::string, fakecuda_kernel> kernels; /* by name; `name` is not set */
    std::map<uintptr_t, block> blocks;
    std::vector<CUstream_st *> streams; /* [0]: the default stream */
    std::vector<capture *> captures;

    /* Others that are left are the program's to destroy, and a leak. */
    ~fakecuda()
    {
        if (!streams.empty())
            delete streams[0];
    }
};

extern struct fakecuda fake;
extern thread_local int fake_device;

typedef std::lock_guard<std::recursive_mutex> fake_lock;

/* fake_device.cc */
/* First in every call: reads the environment once; the sticky error, or `open`. */
cudaError_t fake_begin(void);
/* Last in a call: keeps what cudaGetLastError tells. */
cudaError_t fake_end(cudaError_t error);
void fake_stick(cudaError_t error); /* the first stays */
void fake_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t fake_random(void);
/* Counts a kernel that begins; false: the device is lost. */
bool fake_kernel_begins(void);
/* Counts what is put on a stream, for fakecuda_kernels_get. */
void fake_count(const std::string &name, const CUstream_st *stream);

/* fake_queue.cc */
CUstream_st *fake_stream(cudaStream_t stream); /* NULL is the default stream */
cudaError_t fake_put(CUstream_st *stream, enum cudaGraphNodeType kind,
                     std::function<bool()> run);
void fake_append(CUstream_st *stream, const work_ref &w);
/* The work that ends what the stream holds now, or null. */
work_ref fake_last(CUstream_st *stream);
/* Until it is done, or an error sticks. */
void fake_finish(const work_ref &until);
void fake_finish_all(void);
void fake_step(const work_ref &until); /* a little */
/* A blocking call is refused while any stream is captured into a graph. */
cudaError_t fake_may_block(void);

/* fake_graph.cc */
cudaError_t fake_capture(CUstream_st *stream, enum cudaGraphNodeType kind,
                         std::function<bool()> run);
cudaError_t fake_capture_wait(CUstream_st *stream, const CUevent_st *event);

/* fake_watch.cc */
/* Around whatever may touch the devices' memory; may be nested. */
void fake_memory_open(void);
void fake_memory_close(void);
/* Pages for a block that is watched; bytes from the end of them. */
char *fake_watch_take(size_t bytes, struct block *b);
void fake_watch_drop(const struct block *b);
void fake_watch_protect(const struct block *b);

/* fake_memory.cc */
/* [p, p + bytes) lies in memory that kernels may use. */
bool fake_on_device(const void *p, size_t bytes);
bool fake_is_pinned(const void *p, size_t bytes);
/* Bytes around what was allocated are as they were; else an error sticks. */
void fake_check_guards(void);
void fake_free_all(void);
cudaError_t fake_allocate(void **out, size_t bytes); /* on the thread's device */
void fake_drop(void *p);
cudaError_t fake_account(int device,
                         size_t bytes); /* out of memory, or it is counted */

void fake_virtual_forget(
    void); /* fake_virtual.cc: every range and what is mapped to it */

/* fake_block.cc */
/* Ends the kernel that runs; for its threads only. */
[[noreturn]] void fake_give_up(const std::string &why);
unsigned fake_thread(void); /* number of the running thread in its block */
/* Waits for all lanes of the warp at the same instruction. The last one that comes does
 * the work for all, on what each brought. */
typedef void fake_together(uint64_t *const lanes[]);
void fake_warp_together(fake_together *together, uint64_t *mine);
/* Lets others run; goes on after the next call of wake. Who is not woken waits for
 * nothing. */
void fake_sleep(void);
void fake_wake_all(void);
/* Runs all threads of one block; "" or what went wrong. */
std::string fake_run_block(const std::function<void()> &thread, dim3 block,
                           size_t shared, void *shared_memory, bool backwards);

/* fake_async.cc */
/* Forgets all copies; late: they happen when they are waited for. */
void fake_copies_begin(unsigned threads, bool late);
bool fake_copies_left(unsigned thread); /* some were not waited for */

/* fake_barrier.cc: complete: bytes have come that the barrier at the address was to
 * expect. fenced: false where a copy could not see it yet. */
void fake_barriers_begin(void);
bool fake_barrier_fenced(uint64_t address);
void fake_barrier_complete(uint64_t address, size_t bytes);

/* fake_bulk.cc: late: copies come only when nobody can go on without them. come: one
 * does; false: there is none. */
void fake_bulk_begin(bool late);
bool fake_bulk_comes(void);
bool fake_bulk_left(void);

/* fake_wgmma.cc: late: products are made when they are waited for. */
void fake_wgmma_begin(unsigned warps, bool late);
bool fake_wgmma_left(unsigned warp);

#endif
