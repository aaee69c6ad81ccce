/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/: collectives behind one table. Backends of host memory: self (one rank), shm (all
 * ranks on one node: symmetric windows in memfd), ucx (UCP tagged, any nodes). Of a device's
 * memory: nccl.
 * All sums of floats but float64 are taken in float32 in rank order: same world size, same
 * bits, whatever the backend (but for library_sums). Every call is collective and blocking,
 * and carries a sequence number; a wait that exceeds the deadline fails with ACCEL_EPEER
 * naming the operation, its number and the silent ranks. Waits spin, then yield, then sleep.
 *
 * With nccl all data is in the device's memory, and calls but barrier and gather return when
 * their work is at the end of the queue in use. A failure that shows later comes from
 * whatever waits for the device (backend.h, watch) and from every later call.
 */
#ifndef ACCEL_COMM_COMM_H
#define ACCEL_COMM_COMM_H

#include "backend/backend.h"
#include "bootstrap/boot.h"
#include "common/common.h"

enum comm_op { COMM_SUM, COMM_MAX, COMM_MIN };

struct comm;
struct comm_ops; /* the backend table: comm_impl.h */

struct comm_options {
    const char *backend;     /* NULL: self, shm or ucx as fits; nccl: only by name */
    int timeout_ms;          /* per operation; 0: 600 000 */
    size_t window_bytes;     /* address space for comm_alloc; 0: a default that
                                        is only reserved, not touched */
    const char *net_devices; /* ucx: the interfaces it may use, comma separated, as its
                                own UCX_NET_DEVICES; NULL: as that variable says */
    struct backend
        *device;          /* nccl: whose memory and queues; outlives the communicator */
    bool library_sums;    /* nccl: NCCL's own sums, in an order of its own; not of the
                             types with a scale for each block */
    size_t scratch_bytes; /* nccl: at most for sums in rank order; 0: 64 MiB */
};

/* Collective. Uses boot_exchange; the caller calls boot_leave afterwards. */
accel_status_t comm_open(struct comm **out, struct boot *b,
                         const struct comm_options *o, accel_error_t *err);
void comm_close(struct comm *c); /* collective when healthy; never blocks > 5 s */

/* Collective. The ranks that pass the same color >= 0 get a communicator of their own, ranked
 * by key and then by rank; *out is NULL where the color is negative. Device, sums and deadline
 * are those of c; the backend is the one that fits the group, or the one c was asked to be.
 * Closed before c; with nccl, one that fails takes the others of its device along. An error
 * fails c. */
accel_status_t comm_split(struct comm *c, int color, int key, struct comm **out,
                          accel_error_t *err);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_backend(const struct comm *c);

/* Collective. Zeroed memory at the same offset of every rank's window, 4 KiB aligned (huge
 * pages asked for): buffers from here are read by peers directly (one copy fewer). Never
 * needed for correctness: the collectives take any memory. A device's is in its books as of
 * that kind. Freed by comm_close. */
accel_status_t comm_alloc(struct comm *c, enum backend_memory kind, size_t bytes,
                          void **out, accel_error_t *err);
/* Not collective. Room for the sums of a reduce_scatter (or all_reduce) of so many elements,
 * so that a lack of memory shows here and no such call takes more. Memory of the host needs
 * none. */
accel_status_t comm_reserve(struct comm *c, bool scatter, size_t elems, accel_dtype_t t,
                            accel_error_t *err);

/* In place: buf[size][elems], this rank's part at index rank is the input. dtype any, its
 * elements side by side. */
accel_status_t comm_all_gather(struct comm *c, void *buf, size_t elems, accel_dtype_t t,
                               accel_error_t *err);
/* in[size] arrays of elems numbers, as t (float32, bfloat16, float16, e4m3 or e5m2) lies on
 * the wire (common/wire.h), one behind the other, left unchanged; out[elems] float32:
 * out = (accumulate ? out : 0) + scale * (in_0 + in_1 + ... in rank order). */
accel_status_t comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                   size_t elems, accel_dtype_t t, float scale,
                                   bool accumulate, accel_error_t *err);
/* In place, float32, bfloat16 (summed in float32), float64 or int64. All ranks get the
 * same bits. */
accel_status_t comm_all_reduce(struct comm *c, void *buf, size_t elems, accel_dtype_t t,
                               enum comm_op op, accel_error_t *err);
accel_status_t comm_broadcast(struct comm *c, void *buf, size_t bytes, int root,
                              accel_error_t *err);
accel_status_t comm_barrier(struct comm *c, accel_error_t *err);
/* Variable-size bytes of every rank to `root`. On root: *all (malloc, caller frees)
 * holds them one after the other in rank order and sizes[size] is filled; elsewhere *all
 * is NULL and sizes may be NULL. *all is the host's memory with nccl, too. */
accel_status_t comm_gather(struct comm *c, const void *mine, size_t bytes, int root,
                           void **all, size_t *sizes, accel_error_t *err);

#endif
