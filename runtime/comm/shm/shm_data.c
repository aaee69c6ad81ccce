/* SPDX-License-Identifier: Apache-2.0
 *
 * Where each rank's data is in the running call, and how its peers get at it: slots and
 * windows are read in place, private memory is fetched by process_vm_readv. In: the
 * places that the ranks announced. Out: pointers or copies. Never waits.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "comm/shm/shm.h"

/* The heap of the own window only: other memory of the window (slots) is
 * never a caller's. A window's address differs from rank to rank, so peers
 * are told the offset. */
uint64_t shm_place_of(const struct comm *c, const void *p, size_t bytes)
{
    const struct shm *m = c->impl;
    uintptr_t base = (uintptr_t)shm_base(m, c->rank), at = (uintptr_t)p;

    if (at >= base + SHM_HEAP_OFFSET && at + bytes <= base + m->heap_used)
        return (at - base) | SHM_IN_WINDOW;
    return m->can_pull ? at : SHM_IN_SLOT;
}

char *shm_slot_of(const struct comm *c, int rank)
{
    const struct shm *m = c->impl;

    return shm_base(m, rank) + SHM_SLOT_OFFSET + (m->staged & 1) * SHM_SLOT_BYTES;
}

void shm_next_slot(struct comm *c)
{
    ((struct shm *)c->impl)->staged++;
}

bool shm_in_window(const struct comm *c, int rank)
{
    const struct shm *m = c->impl;
    uint64_t place = m->slots_only ? SHM_IN_SLOT : shm_call_of(c, rank)->place;

    return place != SHM_IN_SLOT && (place & SHM_IN_WINDOW);
}

bool shm_any_in_window(const struct comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (shm_in_window(c, r))
            return true;
    return false;
}

bool shm_all_in_windows(const struct comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (!shm_in_window(c, r))
            return false;
    return true;
}

char *shm_data_of(const struct comm *c, int rank)
{
    if (!shm_in_window(c, rank))
        return shm_slot_of(c, rank);
    return shm_base(c->impl, rank) + (shm_call_of(c, rank)->place & ~SHM_IN_WINDOW);
}

/* ---- private memory of peers ----------------------------------------------------- */

/* One system call, one copy, no help from the peer. The kernel applies the rules of
 * ptrace (same user, kernel.yama.ptrace_scope), so it may be refused. */
static ssize_t pull(pid_t pid, void *dst, uint64_t address, size_t bytes)
{
    struct iovec to = { dst, bytes };
    struct iovec from = { (void *)(uintptr_t)address, bytes };

    return process_vm_readv(pid, &to, 1, &from, 1, 0);
}

/* Trying is the only way to know: the rules depend on security modules and namespaces.
 * The value proves that the pid means the expected process. */
bool shm_probe_pull(pid_t pid, uint64_t address, uint64_t want)
{
    uint64_t got = ~want;

    return pull(pid, &got, address, sizeof(got)) == (ssize_t)sizeof(got) && got == want;
}

/* The kernel may copy less than was asked for, hence the loop. */
accel_status_t shm_fetch(struct comm *c, int rank, size_t at, size_t bytes, void *dst,
                         accel_error_t *err)
{
    const struct shm *m = c->impl;
    char text[128];

    if (shm_in_window(c, rank)) {
        if (bytes > 0)
            memcpy(dst, shm_data_of(c, rank) + at, bytes);
        return ACCEL_OK;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pull(m->pid[rank], (char *)dst + done,
                         shm_call_of(c, rank)->place + at + done, bytes - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == ESRCH)
            return comm_fail_peer(c, rank, "died", err);
        if (n <= 0) {
            snprintf(text, sizeof(text), "has unreadable memory: %s",
                     n < 0 ? strerror(errno) : "no data");
            return comm_fail_peer(c, rank, text, err);
        }
        done += (size_t)n;
    }
    return ACCEL_OK;
}
