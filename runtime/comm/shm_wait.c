/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for peers in shared memory: spin, yield, then sleep on the peer's counter.
 * In: the phase all ranks must reach. Out: reached, or who is to blame. Never waits past
 * the deadline of the call, nor for a process that has ended.
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

#include "comm/shm.h"

#define SLICE_NS     50000000 /* one sleep; health of all peers is looked at after each */
#define YIELD_NS     1000000 /* waking a sleeper takes some 50 us: yield for longer */
#define SPINS_QUIET  2000    /* about 50 us */
#define SPINS_SHARED 20      /* more ranks than CPUs: the peer needs this CPU */

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

static inline bool reached(struct shm_ctl *ctl, uint32_t target)
{
    uint32_t at = atomic_load_explicit(&ctl->phase, memory_order_acquire);

    return (int32_t)(at - target) >= 0;
}

static void wake_all(struct shm_ctl *ctl)
{
    syscall(SYS_futex, &ctl->phase, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The sleeper counts itself, then reads the phase; the owner writes the phase, then reads
 * the count: with both orders sequentially consistent no wake-up is lost. */
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

static bool process_ended(const struct shm *m, int rank)
{
    struct pollfd p = { .fd = m->pidfd[rank], .events = POLLIN };

    if (p.fd >= 0)
        return poll(&p, 1, 0) == 1;
    return kill(m->pid[rank], 0) != 0 && errno == ESRCH;
}

/* Looks at every rank that has not reached the target: ended, failed or closed ones end
 * the wait at once. A rank's phase is read again after its end was seen. */
static accel_status_t check_peers(struct comm *c, struct shm *m, uint32_t target,
                                  accel_error_t *err)
{
    for (int r = 0; r < c->size; r++) {
        struct shm_ctl *ctl = m->ctl[r];
        const char *what = NULL;

        if (r == c->rank || reached(ctl, target))
            continue;
        if (atomic_load(&ctl->state) == SHM_FAILED)
            what = "gave up after an error of its own";
        else if (atomic_load(&ctl->state) == SHM_CLOSED)
            what = "has closed the communicator already";
        else if (process_ended(m, r))
            what = "died";
        if (what && !reached(ctl, target))
            return comm_fail_peer(c, r, what, err);
    }
    return ACCEL_OK;
}

static accel_status_t fail_late(struct comm *c, struct shm *m, uint32_t target,
                                accel_error_t *err)
{
    bool silent[c->size];

    for (int r = 0; r < c->size; r++)
        silent[r] = r != c->rank && !reached(m->ctl[r], target);
    return comm_fail_silent(c, silent, err);
}

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
    comm_expired(c); /* the clock of this call starts */
    while (!reached(ctl, target)) {
        accel_status_t st;

        sleep_on(ctl, target);
        if (reached(ctl, target))
            break;
        st = check_peers(c, m, target, err);
        if (st != ACCEL_OK)
            return st;
        if (comm_expired(c) && !reached(ctl, target))
            return fail_late(c, m, target, err);
    }
    return ACCEL_OK;
}

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

    atomic_store(&own->state, (uint32_t)state);
    wake_all(own);
}
