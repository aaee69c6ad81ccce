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

/* Where a rank's data of the running call is: in its slot, in its window (offset and this
 * bit), else at that address of its own memory. */
#define SHM_IN_SLOT   UINT64_MAX
#define SHM_IN_WINDOW (UINT64_C(1) << 63)

enum shm_state { SHM_RUNNING, SHM_CLOSED, SHM_FAILED };

/* What a rank says about its running call. */
struct shm_call {
    uint64_t elems;
    uint64_t place;
    uint32_t what; /* comm_args_pack */
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
    bool slots_only;      /* of the running call: the windows are not read */
    bool can_pull;        /* all ranks may read all ranks' private memory */
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

/* shm_data.c: where data is, and how to get at it. */
uint64_t shm_place_of(const struct comm *c, const void *p, size_t bytes);
/* Slot of `rank` for the chunk being staged; shm_next_slot ends the chunk. */
char *shm_slot_of(const struct comm *c, int rank);
void shm_next_slot(struct comm *c);
/* After shm_arrive: is the data of this rank in its window; of any, of all ranks? */
bool shm_in_window(const struct comm *c, int rank);
bool shm_any_in_window(const struct comm *c);
bool shm_all_in_windows(const struct comm *c);
/* The data of a rank whose data is in its window or its slot, where it lies. */
char *shm_data_of(const struct comm *c, int rank);
/* [at, at + bytes) of the data of a rank, wherever it is but in a slot, copied to dst. */
accel_status_t shm_fetch(struct comm *c, int rank, size_t at, size_t bytes, void *dst,
                         accel_error_t *err);
/* Does the system let this process read that one's memory? */
bool shm_probe_pull(pid_t pid, uint64_t address, uint64_t want);

/* shm_window.c: create, attach, detach. */
accel_status_t shm_connect(struct comm *c, struct shm *m, struct boot *b,
                           size_t window_bytes, bool *fits_out, char why[128],
                           accel_error_t *err);
void shm_disconnect(struct comm *c, struct shm *m);

/* shm_wait.c */
/* Next phase: publishes what this rank wrote and waits for all peers. */
accel_status_t shm_next(struct comm *c, accel_error_t *err);
/* As shm_next for the first phase of a call: describes the call and compares it with the
 * peers'. `place` is where this rank's data is. */
accel_status_t shm_arrive(struct comm *c, uint64_t place, accel_error_t *err);
/* What `rank` said in the running call; valid after shm_arrive. */
const struct shm_call *shm_call_of(const struct comm *c, int rank);
/* Leaves running state and wakes whoever waits for this rank. */
void shm_set_state(struct comm *c, enum shm_state state);
/* Busy polls that pay off with this many ranks on this process's CPUs. */
int shm_choose_spins(int ranks);

#endif
