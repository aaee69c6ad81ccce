/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/: collectives behind one table. Backends for host memory: self (one rank), shm
 * (all ranks on one node: symmetric windows in memfd), ucx (UCP tagged messages, any
 * nodes). For device memory: nccl.
 * Every backend sums floats (except float64) in float32 and in rank order: the same
 * world size gives the same bits with any of them, unless library_sums or nodes_first
 * is set. Every call is collective and blocking, and carries a sequence number; a wait
 * that exceeds the deadline fails with ACCEL_EPEER and names the operation, its number
 * and the silent ranks. Waits spin, then yield, then sleep. A rank that fails tells the
 * others, whose waits then end with its status and its text, "rank 2: " before it.
 *
 * With nccl all data is in device memory, and every call except barrier and gather
 * returns once its work is queued. A failure that shows later is returned by whatever
 * waits for the device (device.h, watch) and by every later call.
 */
#ifndef ACCEL_COMM_COMM_H
#define ACCEL_COMM_COMM_H

#include "backend/device.h"
#include "bootstrap/boot.h"
#include "common/common.h"

enum comm_op { COMM_SUM, COMM_MAX, COMM_MIN };

struct comm;
struct comm_ops; /* the backend table: comm_impl.h */

struct comm_options {
    /* NULL: self, shm or ucx, whichever fits; nccl must be asked for by name */
    const char *backend;
    /* deadline of one operation; 0: 600 000 */
    int timeout_ms;
    /* shm: address space for comm_alloc, reserved but not touched; 0: a default */
    size_t window_bytes;
    /* ucx: interfaces it may use, comma separated as in UCX_NET_DEVICES; NULL: what
     * that variable says */
    const char *net_devices;
    /* The communicator of all ranks in which failures are told; must outlive this one.
     * NULL: this one. nccl has no way of its own to tell: without a root its ranks
     * learn only that another one has ended. */
    struct comm *root;
    /* nccl: whose memory and queues are used; must outlive the communicator */
    struct backend *device;
    /* nccl: let NCCL sum, in its own order. Never applies to types with a scale per
     * block, which NCCL cannot add. */
    bool library_sums;
    /* ucx and nccl: sum the ranks of each node first, then the nodes' sums, which
     * travel in the arrays' own type (node_chain.h). For arrays of 1 MiB and more whose
     * ranks are in blocks of one length per node, in the nodes' order; all others are
     * summed in rank order. */
    bool nodes_first;
    /* nccl: upper limit of the workspace for sums in rank order; 0: 64 MiB */
    size_t scratch_bytes;
};

/* Collective. Connects the ranks of b by boot_exchange; the caller calls boot_leave
 * afterwards. `o` may be NULL. */
accel_status_t comm_open(struct comm **comm_out, struct boot *b,
                         const struct comm_options *o, accel_error_t *err);
/* Collective while c is healthy. Never blocks for more than 5 s. NULL is allowed. */
void comm_close(struct comm *c);

/* Collective. Ranks that pass the same color >= 0 get a communicator of their own,
 * ordered by key and then by rank; *comm_out is NULL where the color is negative. The
 * group inherits device, sums and deadline from c; its backend is the one c was asked
 * to use, or else the one that fits the group. Close it before c. With nccl, a group
 * that fails takes all other communicators of its device with it. An error fails c. */
accel_status_t comm_split(struct comm *c, int color, int key, struct comm **comm_out,
                          accel_error_t *err);

/* Not collective. This rank gives up: its later calls on c and all that were split from
 * it return *why, and the other ranks end with it where they wait in any of them, now
 * or later. Takes at most half a second. Does nothing after a failure. NULL is
 * allowed. */
void comm_abandon(struct comm *c, const accel_error_t *why);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
/* "self", "shm", "ucx" or "nccl"; static. */
const char *comm_backend(const struct comm *c);

/* Collective. Zeroed memory at the same offset of every rank's window, 4 KiB aligned
 * (huge pages are requested). Peers read such buffers directly, which saves a copy;
 * they are never needed for correctness, because the collectives take any memory.
 * Device memory is counted under `kind`. Freed by comm_close. */
accel_status_t comm_alloc(struct comm *c, enum backend_memory kind, size_t bytes,
                          void **mem_out, accel_error_t *err);
/* Not collective. Allocates the workspace for a reduce_scatter (or all_reduce) of this
 * many elements now, so that a lack of memory shows here and no such call allocates
 * later. Host memory needs none. */
accel_status_t comm_reserve(struct comm *c, bool scatter, size_t elems, accel_dtype_t t,
                            accel_error_t *err);

/* Collective, in place: buf[size][elems]; the part at index rank is this rank's input.
 * Any dtype, stored densely. */
accel_status_t comm_all_gather(struct comm *c, void *buf, size_t elems, accel_dtype_t t,
                               accel_error_t *err);
/* Collective. `in`: [size] arrays of elems numbers each, one after the other, laid out
 * as t (float32, bfloat16, float16, e4m3 or e5m2) is on the wire (numbers/wire.h); not
 * modified. out[elems] float32:
 * out = (accumulate ? out : 0) + scale * (in_0 + in_1 + ... in rank order). */
accel_status_t comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                   size_t elems, accel_dtype_t t, float scale,
                                   bool accumulate, accel_error_t *err);
/* Collective, in place: buf[elems] of float32, bfloat16 (summed in float32), float64 or
 * int64. All ranks get the same bits. */
accel_status_t comm_all_reduce(struct comm *c, void *buf, size_t elems, accel_dtype_t t,
                               enum comm_op op, accel_error_t *err);
/* Collective: buf[bytes] of `root` is copied to all other ranks. */
accel_status_t comm_broadcast(struct comm *c, void *buf, size_t bytes, int root,
                              accel_error_t *err);
/* Collective. No rank returns before all have called it; with nccl, not before the
 * device has finished all earlier work either. */
accel_status_t comm_barrier(struct comm *c, accel_error_t *err);
/* Collective. Each rank sends `bytes` of its own choice to `root`. There *all_out (host
 * memory, also with nccl; the caller frees it) holds them in rank order without gaps,
 * and sizes_out[size] is filled. Elsewhere *all_out is NULL and both may be NULL. */
accel_status_t comm_gather(struct comm *c, const void *mine, size_t bytes, int root,
                           void **all_out, size_t *sizes_out, accel_error_t *err);

#endif
