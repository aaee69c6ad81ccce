/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for peers in shared memory: spin, yield, then sleep on the peer's counter.
 * In: the phase that all ranks must reach. Out: reached, or who is to blame. Never
 * waits past the deadline of the call, nor for a process that has ended.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/shm/shm.h"

/* One sleep in the kernel; the peers' health is checked after each. */
#define SLICE_NS 50000000
/* Waking a sleeper takes some 50 us, so a waiting rank yields for longer
 * than that first. */
#define YIELD_NS 1000000
/* Busy polls: about 50 us; few where ranks outnumber CPUs, since the peer
 * needs this one. */
#define SPINS_QUIET  2000
#define SPINS_SHARED 20

/* Tells the core that this is a busy wait: saves power and helps its sibling thread. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

int shm_choose_spins(int ranks)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < ranks)
        return SPINS_SHARED;
    return SPINS_QUIET;
}

/* Acquire: pairs with the store in shm_next, so the peer's data is visible after it.
 * The difference is signed because the counter wraps around. */
static inline bool reached(struct shm_ctl *ctl, uint32_t target)
{
    uint32_t at = atomic_load_explicit(&ctl->phase, memory_order_acquire);

    return (int32_t)(at - target) >= 0;
}

/* Wakes all peers that sleep on this rank's counter. */
static void wake_all(struct shm_ctl *ctl)
{
    syscall(SYS_futex, &ctl->phase, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* No wake-up is lost: the sleeper counts itself and then reads the phase, the owner
 * writes the phase and then reads the count, and both orders are sequentially
 * consistent. FUTEX_WAIT returns at once if the phase has moved on. The futex is not a
 * private one, because the word is shared between processes. */
static void sleep_on(struct shm_ctl *ctl, uint32_t target)
{
    const struct timespec slice = { 0, SLICE_NS };
    uint32_t at;

    atomic_fetch_add(&ctl->sleepers, 1);
    at = atomic_load(&ctl->phase);
    if ((int32_t)(at - target) < 0 && atomic_load(&ctl->state) == SHM_RUNNING)
        syscall(SYS_futex, &ctl->phase, FUTEX_WAIT, at, &slice, NULL, 0);
    atomic_fetch_sub(&ctl->sleepers, 1);
}

/* By pidfd, which becomes readable when the process ends and cannot mean another one.
 * Without it (old kernels) by pid: a recycled one looks alive until the deadline. */
static bool process_ended(const struct shm *m, int rank)
{
    struct pollfd p = { .fd = m->pidfd[rank], .events = POLLIN };

    if (p.fd >= 0)
        return poll(&p, 1, 0) == 1;
    return kill(m->pid[rank], 0) != 0 && errno == ESRCH;
}

/* Looks at all ranks that have not reached the target, not only the one waited for: if
 * any of them ended or closed, the wait is over. The phase is read again after that,
 * because the rank may have arrived just before it ended. */
static accel_status_t check_peers(struct comm *c, struct shm *m, uint32_t target,
                                  accel_error_t *err)
{
    for (int r = 0; r < c->size; r++) {
        struct shm_ctl *ctl = m->ctl[r];
        const char *what = NULL;

        if (r == c->rank || reached(ctl, target))
            continue;
        if (atomic_load(&ctl->state) != SHM_RUNNING)
            what = "has already closed the communicator";
        else if (process_ended(m, r))
            what = "died";
        if (what && !reached(ctl, target))
            return comm_fail_peer(c, r, what, err);
    }
    return ACCEL_OK;
}

/* Names all ranks that are missing, not only the one that was waited for. */
static accel_status_t fail_late(struct comm *c, struct shm *m, uint32_t target,
                                accel_error_t *err)
{
    bool silent[c->size];

    for (int r = 0; r < c->size; r++)
        silent[r] = r != c->rank && !reached(m->ctl[r], target);
    return comm_fail_silent(c, silent, err);
}

/* Waits until `peer` has reached the target. The clock starts only when spinning and
 * yielding did not help: calls that go well read no clock for their deadline. */
static accel_status_t wait_long(struct comm *c, struct shm *m, int peer,
                                uint32_t target, accel_error_t *err)
{
    struct shm_ctl *ctl = m->ctl[peer];

    for (int i = 0; i < m->spins; i++) {
        if (reached(ctl, target))
            return ACCEL_OK;
        cpu_relax();
    }
    for (int64_t until = clock_ns() + YIELD_NS; clock_ns() < until;) {
        if (reached(ctl, target))
            return ACCEL_OK;
        sched_yield();
    }
    comm_expired(c); /* starts the clock of this call */
    while (!reached(ctl, target)) {
        accel_status_t st;

        sleep_on(ctl, target);
        if (reached(ctl, target))
            break;
        ACCEL_CHECK(st, comm_hear(c, check_peers(c, m, target, err), err));
        if (comm_expired(c) && !reached(ctl, target))
            return fail_late(c, m, target, err);
    }
    return ACCEL_OK;
}

/* Peers are waited for one after the other, starting with the next rank. The order does
 * not matter: the phase is over when the last one has arrived. */
accel_status_t shm_next(struct comm *c, accel_error_t *err)
{
    struct shm *m = c->impl;
    struct shm_ctl *own = m->ctl[c->rank];
    uint32_t target = ++m->phase;

    atomic_store(&own->phase, target);
    if (atomic_load(&own->sleepers) != 0)
        wake_all(own);
    for (int i = 1; i < c->size; i++) {
        int peer = (c->rank + i) % c->size;

        if (!reached(m->ctl[peer], target)) {
            accel_status_t st = wait_long(c, m, peer, target, err);

            if (st != ACCEL_OK)
                return st;
        }
    }
    return ACCEL_OK;
}

const struct shm_call *shm_call_of(const struct comm *c, int rank)
{
    const struct shm *m = c->impl;

    return &m->ctl[rank]->call[c->seq & 1];
}

/* The descriptions alternate like the slots: a rank can be one call ahead of a peer
 * that still reads the last one, but not two. */
accel_status_t shm_arrive(struct comm *c, uint64_t place, accel_error_t *err)
{
    struct shm *m = c->impl;
    struct shm_call own = { .elems = c->args.elems,
                            .place = place,
                            .what = comm_args_pack(&c->args),
                            .root = c->args.root };
    bool same_elems = c->args.call != COMM_CALL_GATHER;
    accel_status_t st;

    m->slots_only = false;
    m->ctl[c->rank]->call[c->seq & 1] = own;
    st = shm_next(c, err);
    for (int r = 0; st == ACCEL_OK && r < c->size; r++) {
        const struct shm_call *peer = shm_call_of(c, r);
        struct comm_args theirs = { .elems = peer->elems, .root = peer->root };

        if (peer->what == own.what && peer->root == own.root &&
            (!same_elems || peer->elems == own.elems))
            continue;
        comm_args_unpack(&theirs, peer->what);
        st = comm_fail_differs(c, r, &theirs, err);
    }
    return st;
}

void shm_set_state(struct comm *c, enum shm_state state)
{
    struct shm *m = c->impl;
    struct shm_ctl *own = m->ctl[c->rank];

    if (atomic_load(&own->state) != SHM_TOLD)
        atomic_store(&own->state, (uint32_t)state);
    wake_all(own);
}

/* Whoever sleeps on another counter looks within SLICE_NS. */
void shm_tell(struct comm *c, const struct comm_reason *why)
{
    struct shm *m = c->impl;

    m->ctl[c->rank]->reason = *why;
    shm_set_state(c, SHM_TOLD);
}

bool shm_hear(struct comm *c, struct comm_reason *why_out)
{
    const struct shm *m = c->impl;

    for (int r = 0; r < c->size; r++) {
        struct shm_ctl *ctl = m->ctl[r];

        if (r == c->rank || atomic_load(&ctl->state) != SHM_TOLD)
            continue;
        *why_out = ctl->reason;
        return true;
    }
    return false;
}
