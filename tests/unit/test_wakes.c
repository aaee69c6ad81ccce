/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits that look again by themselves after a while: with a wake that is lost they only
 * take longer, and no other test would know. Here no such wait looks again: each row
 * lets one thread or rank sleep, and what is to wake it must do so, or the test never
 * ends. Waits without a time of their own hang in the tests of their rooms.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bootstrap/helper.h"
#include "comm/comm.h"
#include "loader/prefetch.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

/* ---- waits without a time -------------------------------------------------------- */

/* Sleeps so far, with and without a time, counted under the lock of what is waited for:
 * whoever gets the lock after that finds a sleeper. */
static _Atomic int timed, untimed;
/* The process that sleeps on a word of shared memory; shared by the ranks. */
static _Atomic pid_t *sleeper;

__typeof__(pthread_cond_wait) __real_pthread_cond_wait, __wrap_pthread_cond_wait;
__typeof__(pthread_cond_timedwait) __wrap_pthread_cond_timedwait;
__typeof__(syscall) __real_syscall, __wrap_syscall;

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    atomic_fetch_add(&untimed, 1);
    return __real_pthread_cond_wait(c, m);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until)
{
    (void)until;
    atomic_fetch_add(&timed, 1);
    return __real_pthread_cond_wait(c, m);
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_futex && a[1] == FUTEX_WAIT && sleeper) {
        a[3] = 0;
        atomic_store(sleeper, getpid());
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void await(_Atomic int *count, int least)
{
    while (atomic_load(count) < least)
        usleep(200);
}

/* ---- a ring of slots ------------------------------------------------------------- */

/* A fill waits until whoever needs it has gone to sleep this often. */
static _Atomic int fill_after, fills;

static bool plan(void *user, int slot, int64_t number)
{
    (void)user, (void)slot, (void)number;
    return true;
}

static bool fill(void *user, int slot, int64_t number)
{
    (void)user, (void)slot, (void)number;
    atomic_fetch_add(&fills, 1);
    await(&timed, atomic_load(&fill_after));
    return true;
}

static void test_ring(void)
{
    static const struct prefetch_ops ops = { plan, fill };
    struct prefetch p;
    accel_error_t err = { 0 };

    timed = untimed = 0;
    tap_ok(!prefetch_open(&p, 2, 1, &ops, NULL, &err), "a ring: %s", err.text);
    await(&untimed, 1);
    fill_after = 1;
    prefetch_begin(&p);
    tap_is_int(prefetch_take(&p, 0), 0,
               "its reader is woken when it begins, its user when a slot is filled");
    await(&untimed, 2); /* both slots are full */
    fill_after = 0;
    prefetch_release(&p, 1);
    tap_is_int(prefetch_take(&p, 2), 0, "its reader is woken when a slot is free");
    await(&untimed, 3);
    fill_after = atomic_load(&timed) + 1;
    prefetch_release(&p, 2);
    await(&fills, 4);
    prefetch_stop(&p);
    tap_ok(true, "who stops it is woken when the last fill is done");
    await(&untimed, 4);
    prefetch_close(&p);
    tap_ok(true, "its reader is woken when it is closed");
}

/* ---- the helper thread ----------------------------------------------------------- */

#ifdef HAVE_PMIX
static void make(struct helper_call *call)
{
    (void)call;
    await(&timed, 1);
    timed = 0;
}

static void test_helper_thread(void)
{
    struct helper h = { 0 };
    struct helper_call call = { make, make };

    timed = untimed = 0;
    for (int i = 1; i <= 2; i++) {
        tap_is_int(helper_run(&h, &call, clock_ns() + INT64_C(60000000000)), 0,
                   "call %d: its caller is woken when it is made", i);
        await(&untimed, i); /* the next call, and the end, find the thread asleep */
    }
    helper_stop(&h);
    tap_ok(true, "the thread is woken for a call, and to end");
}
#else
static void test_helper_thread(void)
{
    tap_skip(3, "no PMIx: there is no helper thread");
}
#endif

/* ---- ranks of a node ------------------------------------------------------------- */

/* Shared by the ranks: who sleeps, and 1 once rank 0 has gone on. */
static _Atomic pid_t *shared;

/* Is that process asleep in the kernel? */
static bool is_asleep(pid_t pid)
{
    char path[64], text[256] = "";
    const char *state;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (!f || !fgets(text, sizeof(text), f))
        text[0] = '\0';
    if (f)
        fclose(f);
    state = strrchr(text, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}

enum waking { ARRIVES, GIVES_UP, CLOSES };

/* Of these two, rank 0 sleeps until rank 1 does its part. */
static int wake_rank(struct boot *b, void *arg)
{
    const enum waking how = *(enum waking *)arg;
    const struct comm_options o = { .backend = "shm", .timeout_ms = 1000 * HANG_S };
    accel_error_t err = { 0 }, why = { 0 };
    struct comm *c;
    bool bad = false;

    alarm(HANG_S);
    if (comm_open(&c, b, &o, &err) || comm_barrier(c, &err))
        return 1;
    sleeper = shared;
    while (b->rank == 1 && !(*sleeper && is_asleep(*sleeper)))
        usleep(200);
    if (b->rank == 0 || how == ARRIVES)
        bad = (comm_barrier(c, &err) == ACCEL_OK) != (how == ARRIVES);
    if (b->rank == 0)
        shared[1] = 1;
    while (how == ARRIVES && !shared[1]) /* its end would wake, too */
        usleep(200);
    if (b->rank == 1 && how == GIVES_UP) {
        accel_fail(&why, A0003, "none", "given up");
        comm_abandon(c, &why);
    }
    comm_close(c);
    return bad;
}

static void test_ranks(void)
{
    static const char *const what[] = { "arrives", "gives up", "closes" };

    shared = fork_shared(2 * sizeof(*shared));
    for (enum waking how = ARRIVES; how <= CLOSES; how++) {
        shared[0] = shared[1] = 0;
        tap_is_int(fork_world(2, wake_rank, &how, HANG_S), 0,
                   "a rank is woken when another one %s", what[how]);
    }
}

int main(void)
{
    alarm(4 * HANG_S);
    test_ring();
    test_helper_thread();
    test_ranks();
    return tap_done();
}
