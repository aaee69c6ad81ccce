/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared memory backend: one window (memfd) per rank, mapped by all ranks of the node.
 *
 * Protocol. Every rank has one counter, `phase`, that only grows and only its owner
 * writes. All ranks take the same phases in the same order. A rank that has written its
 * data arrives (phase + 1, release) and may read the peers' data once all their counters
 * got there (acquire). Two slots are used in turn for staged data and for the description
 * of the call: a slot is written again two phases later, and by then all ranks were seen
 * past the phase between, so all had finished reading.
 */
#ifndef ACCEL_COMM_SHM_H
#define ACCEL_COMM_SHM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "comm/comm_impl.h"

#define SHM_NO_OFFSET UINT64_MAX

enum shm_state { SHM_RUNNING, SHM_CLOSED, SHM_FAILED };

/* What a rank says about its running call. */
struct shm_call {
    uint64_t elems;
    uint64_t offset; /* of the data in its own window, or SHM_NO_OFFSET */
    uint32_t what;   /* comm_args_pack */
    int32_t root;
};

/* First line of every window: all that a waiting peer needs to read. */
struct shm_ctl {
    _Alignas(64) _Atomic uint32_t phase; /* futex word */
    _Atomic uint32_t sleepers;           /* peers in futex wait on `phase` */
    struct shm_call call[2];             /* by call number, in turn */
    _Atomic uint32_t state;
    _Alignas(64) uint64_t nonce; /* tells this window from a recycled pid's */
};
_Static_assert(offsetof(struct shm_ctl, nonce) == 64, "what peers poll is one line");

struct shm {
    struct shm_ctl **ctl; /* [size] base address of every rank's window */
    int *pidfd;           /* [size] -1: none */
    pid_t *pid;           /* [size] as seen from this process */
    int fd;               /* own memfd, closed once all have attached */
    size_t window_bytes;  /* the same on all ranks */
    size_t heap_used;     /* end of the last allocation, an offset */
    uint32_t phase;       /* own counter */
    uint64_t staged;      /* staged chunks so far: the next slot's parity */
    int spins;            /* busy polls before yielding */
};

/* One staging slot. Two of them follow the control page; the heap follows them. */
#define SHM_SLOT_BYTES  ((size_t)256 * 1024)
#define SHM_SLOT_OFFSET ((size_t)4096)
#define SHM_HEAP_OFFSET ((size_t)2 * 1024 * 1024)
_Static_assert(SHM_SLOT_OFFSET + 2 * SHM_SLOT_BYTES <= SHM_HEAP_OFFSET, "slots fit");

static inline char *shm_base(const struct shm *m, int rank)
{
    return (char *)m->ctl[rank];
}

/* shm_window.c: create, attach, detach. */
accel_status_t shm_connect(struct comm *c, struct shm *m, struct boot *b,
                           size_t window_bytes, bool *fits_out, char why[128],
                           accel_error_t *err);
void shm_disconnect(struct comm *c, struct shm *m);

/* shm_wait.c */
/* Next phase: publishes what this rank wrote and waits for all peers. */
accel_status_t shm_next(struct comm *c, accel_error_t *err);
/* As shm_next for the first phase of a call: describes the call and compares it with the
 * peers'. `offset` is where this rank's data is in its window. */
accel_status_t shm_arrive(struct comm *c, uint64_t offset, accel_error_t *err);
/* What `rank` said in the running call; valid after shm_arrive. */
const struct shm_call *shm_call_of(const struct comm *c, int rank);
/* Leaves running state and wakes whoever waits for this rank. */
void shm_set_state(struct comm *c, enum shm_state state);
/* Busy polls that pay off with this many ranks on this process's CPUs. */
int shm_choose_spins(int ranks);

#endif
