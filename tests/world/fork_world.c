/* SPDX-License-Identifier: Apache-2.0
 *
 * The forked world: blobs go through one shared mapping, two slots per rank used in
 * turn. A slot is written again two exchanges later, when every rank has been seen past
 * the exchange between, hence has copied it out.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bootstrap/boot_impl.h"
#include "tests/world/fork_world.h"

struct slot {
    size_t bytes;
    char data[BOOT_BLOB_MAX];
};

struct member {
    _Atomic uint32_t entered; /* exchanges entered so far */
    struct slot slot[2];
};

struct fork_impl {
    struct boot_impl base;
    struct member *members; /* [size] shared */
    uint32_t done;
};

/* Until another rank's count is no longer `seen`; wakes up for nothing, too. */
static void wait_for_change(_Atomic uint32_t *entered, uint32_t seen, int64_t ns)
{
    const struct timespec most = { ns / 1000000000, ns % 1000000000 };

    syscall(SYS_futex, entered, FUTEX_WAIT, seen, &most, NULL, 0);
}

static accel_status_t fork_exchange(struct boot *b, const void *mine, size_t bytes,
                                    struct boot_blobs *all_out, accel_error_t *err)
{
    struct fork_impl *w = (struct fork_impl *)b->impl;
    struct member *me = &w->members[b->rank];
    size_t parity = w->done & 1, total = 0;
    accel_status_t s;
    char *p;

    me->slot[parity].bytes = bytes;
    if (bytes > 0)
        memcpy(me->slot[parity].data, mine, bytes);
    atomic_store(&me->entered, ++w->done);
    syscall(SYS_futex, &me->entered, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    for (int r = 0; r < b->size; r++) {
        _Atomic uint32_t *entered = &w->members[r].entered;
        uint32_t seen;

        while ((seen = atomic_load(entered)) < w->done) {
            int64_t left = b->deadline_ns - clock_ns();

            if (left < 0)
                return accel_fail(err, A0502, NULL, "rank %d did not reach exchange %u",
                                  r, w->done);
            wait_for_change(entered, seen, left);
        }
        total += w->members[r].slot[parity].bytes;
    }
    s = boot_blobs_alloc(all_out, b->size, total, err);
    if (s != ACCEL_OK)
        return s;
    p = all_out->data[0];
    for (int r = 0; r < b->size; r++) {
        const struct slot *from = &w->members[r].slot[parity];

        all_out->data[r] = p;
        all_out->bytes[r] = from->bytes;
        memcpy(p, from->data, from->bytes);
        p += from->bytes;
    }
    return ACCEL_OK;
}

static accel_status_t fork_leave(struct boot *b, accel_error_t *err)
{
    (void)b;
    (void)err;
    return ACCEL_OK;
}

static void fork_free(struct boot *b)
{
    (void)b;
}

static int child(struct member *members, int rank, int n, int nodes, int timeout_s,
                 int (*fn)(struct boot *b, void *arg), void *arg)
{
    struct fork_impl impl = { .base = { fork_exchange, fork_leave, fork_free },
                              .members = members };
    struct boot b = { .rank = rank, .size = n, .method = "fork", .impl = &impl.base };
    int rc;

    /* Left to itself UCX may choose an interface that another test's cluster takes
     * away: connections then hang, and what UCX opened before such an interface
     * leaks. */
    setenv("UCX_NET_DEVICES", "lo", 0);
    b.deadline_ns = clock_ns() + (int64_t)timeout_s * 1000000000;
    snprintf(b.job, sizeof(b.job), "fork-%ld", (long)getppid());
    gethostname(b.host, sizeof(b.host) - 1);
    if (boot_alloc_ranks(&b, NULL) != ACCEL_OK)
        return 71;
    for (int r = 0; r < n; r++)
        b.node_of[r] = (int)((long)r * nodes / n);
    if (boot_number_nodes(&b, NULL) != ACCEL_OK)
        return 71;
    rc = fn(&b, arg);
    boot_leave(&b, NULL);
    boot_free(&b);
    return rc;
}

/* Waits until the process of this descriptor has ended; false: not by the deadline. */
static bool ends_by(int pidfd, int64_t deadline)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    int64_t left;

    while ((left = deadline - clock_ns()) > 0)
        if (poll(&p, 1, (int)(left / 1000000) + 1) > 0)
            return true;
    return false;
}

/* Reaps all children; kills the rest at the deadline. */
static int reap(const pid_t *pid, int n, int timeout_s, int *status)
{
    int64_t deadline = clock_ns() + (int64_t)timeout_s * 1000000000;
    bool killed = false;
    int first = 0;

    for (int r = 0; r < n; r++) {
        int pidfd = killed ? -1 : (int)syscall(SYS_pidfd_open, pid[r], 0), ws = 0;

        if (!killed && pidfd >= 0 && !ends_by(pidfd, deadline)) {
            for (int k = r; k < n; k++)
                kill(pid[k], SIGKILL);
            killed = true;
        }
        if (pidfd >= 0)
            close(pidfd);
        while (waitpid(pid[r], &ws, 0) < 0 && errno == EINTR)
            continue;
        status[r] = WIFEXITED(ws) ? WEXITSTATUS(ws) : 128 + WTERMSIG(ws);
    }
    for (int r = 0; r < n && first == 0; r++)
        first = status[r];
    return first;
}

int fork_world_nodes(int n, int nodes, int (*fn)(struct boot *b, void *arg), void *arg,
                     int timeout_s, int *status)
{
    size_t bytes = (size_t)n * sizeof(struct member);
    struct member *members = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pid_t *pid = calloc((size_t)n, sizeof(*pid));
    int *own = calloc((size_t)n, sizeof(*own));
    pid_t parent = getpid();
    int rc = 71, started = 0;

    if (members == MAP_FAILED || !pid || !own)
        goto out;
    fflush(stdout);
    for (; started < n; started++) {
        pid[started] = fork();
        if (pid[started] < 0)
            break;
        if (pid[started] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            free(own);
            free(pid);
            rc = child(members, started, n, nodes, timeout_s, fn, arg);
            munmap(members, bytes);
            exit(rc);
        }
    }
    rc = reap(pid, started, started == n ? timeout_s : 0, status ? status : own);
    if (started < n)
        rc = 71;
out:
    if (members != MAP_FAILED)
        munmap(members, bytes);
    free(pid);
    free(own);
    return rc;
}

int fork_world(int n, int (*fn)(struct boot *b, void *arg), void *arg, int timeout_s)
{
    return fork_world_nodes(n, 1, fn, arg, timeout_s, NULL);
}

void *fork_shared(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        exit(1);
    return p;
}
