/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared memory backend: one window (memfd) per rank, mapped by all ranks
 * of the node.
 *
 * Protocol. Every rank has one counter, `phase`, that only grows and that only its
 * owner writes. All ranks go through the same phases in the same order. A rank that has
 * written its data arrives (phase + 1, release); it may read the peers' data once all
 * their counters have arrived too (acquire). Staged data and the description of the
 * call alternate between two slots. A slot is written again two phases later; by then
 * every rank has been seen past the phase in between, so nobody is still reading it.
 */
#ifndef ACCEL_COMM_SHM_H
#define ACCEL_COMM_SHM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "comm/comm_impl.h"

/* Where a rank's data of the running call is (shm_call.place): SHM_IN_SLOT, or an
 * offset in its window with bit SHM_IN_WINDOW set, or else an address in its private
 * memory. Compare with SHM_IN_SLOT first: it has the window bit, too. */
#define SHM_IN_SLOT   UINT64_MAX
#define SHM_IN_WINDOW (UINT64_C(1) << 63)

/* SHM_TOLD: gave up, and `reason` says why. */
enum shm_state { SHM_RUNNING, SHM_CLOSED, SHM_TOLD };

/* What a rank publishes about its running call. Written before the first phase of the
 * call, read by peers after it. */
struct shm_call {
    uint64_t elems;
    uint64_t place; /* of its data, see above */
    uint32_t what;  /* comm_args_pack */
    int32_t root;
};

/* The start of every window. All that a waiting peer polls is in the
 * first cache line. */
struct shm_ctl {
    _Alignas(64) _Atomic uint32_t phase; /* futex word */
    _Atomic uint32_t sleepers;           /* peers in futex wait on `phase` */
    struct shm_call call[2];             /* [seq & 1] */
    _Atomic uint32_t state;              /* enum shm_state */
    /* random: tells this window from that of another process with the same pid */
    _Alignas(64) uint64_t nonce;
    struct comm_reason reason; /* written once, before SHM_TOLD */
};
_Static_assert(offsetof(struct shm_ctl, nonce) == 64, "what peers poll is one line");

/* A rank's own state; nothing of it is shared. */
struct shm {
    struct shm_ctl **ctl; /* [size] base address of every rank's window */
    int *pidfd;           /* [size] -1: none */
    pid_t *pid;           /* [size] as seen from this process */
    int fd;               /* own memfd; closed once all have attached it */
    size_t window_bytes;  /* of each window, the same on all ranks */
    size_t heap_used;     /* end of the last allocation, as an offset */
    uint32_t phase;       /* own counter, as last published */
    uint64_t staged;      /* chunks so far; its parity is the next slot */
    int spins;            /* busy polls before yielding */
    bool slots_only;      /* the running call reads slots only, no windows */
    bool can_pull;        /* every rank may read every rank's private memory */
};

/* Layout of a window: the control page, two staging slots, then from SHM_HEAP_OFFSET on
 * (a huge page's boundary) the heap of comm_alloc. */
#define SHM_SLOT_BYTES  ((size_t)256 * 1024)
#define SHM_SLOT_OFFSET ((size_t)4096)
#define SHM_HEAP_OFFSET ((size_t)2 * 1024 * 1024)
_Static_assert(sizeof(struct shm_ctl) <= SHM_SLOT_OFFSET, "the control page holds it");
_Static_assert(SHM_SLOT_OFFSET + 2 * SHM_SLOT_BYTES <= SHM_HEAP_OFFSET, "slots fit");

/* Where rank's window begins in this process. */
static inline char *shm_base(const struct shm *m, int rank)
{
    return (char *)m->ctl[rank];
}

/* ---- shm_data.c: where data is, and how to get at it ----------------------------- */

/* The place of this rank's [p, p + bytes), for shm_arrive. */
uint64_t shm_place_of(const struct comm *c, const void *p, size_t bytes);
/* Slot of `rank` for the current chunk. All ranks call shm_next_slot
 * after each chunk. */
char *shm_slot_of(const struct comm *c, int rank);
void shm_next_slot(struct comm *c);
/* After shm_arrive: is the data of this rank (of any rank, of all ranks) in its window?
 * Always false while slots_only is set. */
bool shm_in_window(const struct comm *c, int rank);
bool shm_any_in_window(const struct comm *c);
bool shm_all_in_windows(const struct comm *c);
/* Address of a rank's data, which must be in its window or its slot. */
char *shm_data_of(const struct comm *c, int rank);
/* Copies bytes [at, at + bytes) of a rank's data, which is in its window or its private
 * memory, to dst. ACCEL_EPEER when the memory cannot be read. */
accel_status_t shm_fetch(struct comm *c, int rank, size_t at, size_t bytes, void *dst,
                         accel_error_t *err);
/* Does the system let this process read that one's memory? Reads 8 bytes at `address`
 * there and compares them with `want`. */
bool shm_probe_pull(pid_t pid, uint64_t address, uint64_t want);

/* ---- shm_window.c: create, attach, detach ---------------------------------------- */

/* Collective. Makes this rank's window and maps those of all others.
 * *fits_out is the same on all ranks; if false, `why` says which rank could
 * not, and the caller disconnects. */
accel_status_t shm_connect(struct comm *c, struct shm *m, struct boot *b,
                           size_t window_bytes, bool *fits_out, char why[128],
                           accel_error_t *err);
/* Unmaps everything and frees m. Never waits. */
void shm_disconnect(struct comm *c, struct shm *m);

/* ---- shm_wait.c ------------------------------------------------------------------ */

/* Next phase: publishes what this rank wrote and waits for all peers. ACCEL_EPEER when
 * one of them died, gave up or missed the deadline. */
accel_status_t shm_next(struct comm *c, accel_error_t *err);
/* shm_next for the first phase of a call: also publishes the call with `place`, where
 * this rank's data is, and compares it with the peers' calls. */
accel_status_t shm_arrive(struct comm *c, uint64_t place, accel_error_t *err);
/* What `rank` published about the running call; valid after shm_arrive. */
const struct shm_call *shm_call_of(const struct comm *c, int rank);
/* Tells the peers that this rank closed or gave up, and wakes those that wait for it.
 * What was told stays. */
void shm_set_state(struct comm *c, enum shm_state state);
/* The backend's tell and hear (comm_impl.h). */
void shm_tell(struct comm *c, const struct comm_reason *why);
bool shm_hear(struct comm *c, struct comm_reason *why_out);
/* How many busy polls pay off when this many ranks share this process's CPUs. */
int shm_choose_spins(int ranks);

#endif
