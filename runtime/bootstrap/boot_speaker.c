/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a start that failed on all ranks: those without a message end after those
 * that print one.
 */
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bootstrap/boot.h"

#define SPEAKER_MS 3000

/* Waits until that process of this node has ended, at most SPEAKER_MS. */
static void wait_for_end(pid_t pid)
{
    struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

    /* a process that has ended already, or a kernel before 5.3 */
    if (p.fd < 0)
        return;
    poll(&p, 1, SPEAKER_MS);
    close(p.fd);
}

/* boot_leave comes before the wait: a speaker may wait there for the others. */
void boot_end_after_speaker(struct boot *b, bool speaks)
{
    struct boot_blobs all = { 0 };
    pid_t speaker, mine = speaks ? getpid() : 0;
    accel_error_t ignored;

    if (b->size < 2 ||
        boot_exchange(b, &mine, sizeof(mine), &all, &ignored) != ACCEL_OK)
        return;
    boot_leave(b, &ignored);
    for (int r = 0; r < b->size && !speaks; r++) {
        if (b->node_of[r] != b->node_of[b->rank] || all.bytes[r] != sizeof(speaker))
            continue;
        memcpy(&speaker, all.data[r], sizeof(speaker));
        if (speaker > 0)
            wait_for_end(speaker);
    }
    boot_blobs_free(&all);
}
