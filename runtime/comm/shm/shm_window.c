/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: each rank makes a memfd and maps those of its peers through
 * /proc/PID/fd/N. In: the bootstrap exchange. Out: every rank's window mapped, or the
 * same refusal on all ranks. Leaves no name in any file system, so a rank that is
 * killed leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/shm/shm.h"

#define HUGE_PAGE ((size_t)2 * 1024 * 1024)

/* What a rank tells the others about its window. ok == 0: it could not make
 * one; why says so. Sent as bytes: all ranks run the same build, which the size
 * is a check for. */
struct ticket {
    uint64_t window_bytes;
    uint64_t dev, ino, nonce; /* to recognise the window, see attach */
    uint64_t nonce_address;   /* in the rank's own address space */
    int32_t pid, fd, ok;
    char why[100];
};

/* Checked beforehand, because ftruncate beyond RLIMIT_FSIZE raises
 * SIGXFSZ, which kills. */
static bool file_may_have(uint64_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

/* Symmetric allocations cannot exceed a rank's share of the node's memory; twice that
 * is reserved. All windows together take at most half of an address space limit (ulimit
 * -v): every rank maps all of them. */
static size_t default_window(int ranks)
{
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t window = memory / (size_t)ranks * 2;
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        window > limit.rlim_cur / 2 / (size_t)ranks)
        window = limit.rlim_cur / 2 / (size_t)ranks;
    return window;
}

/* MAP_NORESERVE: the window is address space, of which most is never touched. Huge
 * pages only for the heap. */
static void *map_window(int fd, size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (p == MAP_FAILED)
        return NULL;
    madvise((char *)p + SHM_HEAP_OFFSET, bytes - SHM_HEAP_OFFSET, MADV_HUGEPAGE);
    return p;
}

/* Makes the own window. Failing is no error here: the ticket carries the reason, and
 * all ranks decide together. */
static void create(struct comm *c, struct shm *m, size_t window_bytes,
                   struct ticket *ticket_out)
{
    struct shm_ctl *ctl = NULL;
    struct stat st;
    const char *step = "memfd_create";

    ticket_out->pid = getpid();
    ticket_out->window_bytes = window_bytes;
    m->fd = memfd_create("accel-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->fd < 0)
        goto fail;
    step = "ftruncate of the window (ulimit -f)";
    errno = EFBIG;
    if (!file_may_have(window_bytes))
        goto fail;
    step = "ftruncate of the window";
    if (ftruncate(m->fd, (off_t)window_bytes) != 0 || fstat(m->fd, &st) != 0)
        goto fail;
    /* Otherwise a shorter file would give peers SIGBUS. */
    fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    step = "mmap of the window";
    ctl = map_window(m->fd, window_bytes);
    if (!ctl || getrandom(&ctl->nonce, sizeof(ctl->nonce), 0) < 0)
        goto fail;
    m->ctl[c->rank] = ctl;
    ticket_out->fd = m->fd;
    ticket_out->dev = st.st_dev;
    ticket_out->ino = st.st_ino;
    ticket_out->nonce = ctl->nonce;
    ticket_out->nonce_address = (uintptr_t)&ctl->nonce;
    ticket_out->ok = 1;
    return;
fail:
    snprintf(ticket_out->why, sizeof(ticket_out->why), "%s: %s", step, strerror(errno));
    if (ctl)
        munmap(ctl, window_bytes);
}

/* Maps one peer's window. The pid may mean another process here (pid namespaces, a
 * recycled pid), so device, inode and nonce must be those that were announced. */
static bool attach(struct shm *m, int rank, const struct ticket *peer, char why[128])
{
    char path[64];
    struct shm_ctl *ctl;
    struct stat st;
    bool same;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)peer->pid, (int)peer->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        snprintf(why, 128, "window of rank %d: %s", rank, strerror(errno));
        return false;
    }
    same = fstat(fd, &st) == 0 && st.st_dev == peer->dev && st.st_ino == peer->ino;
    ctl = same ? map_window(fd, m->window_bytes) : NULL;
    if (!same)
        snprintf(why, 128, "rank %d is in another pid namespace", rank);
    else if (!ctl)
        snprintf(why, 128, "mmap of rank %d's window: %s", rank, strerror(errno));
    close(fd);
    if (ctl && ctl->nonce != peer->nonce) {
        snprintf(why, 128, "window of rank %d is not the announced one", rank);
        munmap(ctl, m->window_bytes);
        ctl = NULL;
    }
    if (!ctl)
        return false;
    m->ctl[rank] = ctl;
    m->pid[rank] = peer->pid;
#ifdef SYS_pidfd_open
    m->pidfd[rank] = (int)syscall(SYS_pidfd_open, peer->pid, 0);
    if (m->pidfd[rank] >= 0)
        fcntl(m->pidfd[rank], F_SETFD, FD_CLOEXEC);
#endif
    return true;
}

/* Maps all peers' windows by their tickets (the first exchange). All windows get the
 * size of the smallest one, so that an offset is valid in all of them. */
static bool attach_all(struct comm *c, struct shm *m, const struct boot_blobs *tickets,
                       char why[128])
{
    uint64_t smallest = UINT64_MAX;

    for (int r = 0; r < c->size; r++) {
        const struct ticket *t = tickets->data[r];

        if (tickets->bytes[r] != sizeof(*t)) {
            snprintf(why, 128, "rank %d runs another version of accel", r);
            return false;
        }
        if (!t->ok) {
            snprintf(why, 128, "rank %d: %s", r, t->why);
            return false;
        }
        if (t->window_bytes < smallest)
            smallest = t->window_bytes;
    }
    /* Only the mapping shrinks: the file is sealed, and its pages beyond
     * are never used. */
    if (smallest < m->window_bytes)
        munmap(shm_base(m, c->rank) + smallest, m->window_bytes - smallest);
    m->window_bytes = smallest;
    for (int i = 1; i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        struct ticket t;

        memcpy(&t, tickets->data[r], sizeof(t));
        if (!attach(m, r, &t, why))
            return false;
    }
    return true;
}

/* What a rank says after it tried to attach all windows. */
struct vote {
    int32_t attached;
    int32_t can_pull; /* it may read all peers' private memory */
    char why[128];
};

/* The second exchange: either all ranks attached all windows, or none uses
 * them. *all_out: the conjunction of all votes, with the reason of the first
 * rank that failed. */
static accel_status_t shm_agree_votes(struct boot *b, const struct vote *own,
                                      struct vote *all_out, accel_error_t *err)
{
    struct boot_blobs votes;
    accel_status_t st = boot_exchange(b, own, sizeof(*own), &votes, err);

    if (st != ACCEL_OK)
        return st;
    *all_out = (struct vote){ .attached = 1, .can_pull = 1 };
    for (int r = 0; r < votes.count && all_out->attached; r++) {
        struct vote v = { 0 };

        if (votes.bytes[r] == sizeof(v))
            memcpy(&v, votes.data[r], sizeof(v));
        all_out->attached = v.attached;
        all_out->can_pull &= v.can_pull;
        memcpy(all_out->why, v.why, sizeof(v.why));
    }
    boot_blobs_free(&votes);
    return ACCEL_OK;
}

/* Does the system let this rank read all its peers' memory (ptrace rules)? Tries it
 * with the nonce of each window. */
static bool can_pull_all(struct comm *c, const struct shm *m,
                         const struct boot_blobs *tickets)
{
    for (int r = 0; r < c->size; r++) {
        struct ticket t;

        memcpy(&t, tickets->data[r], sizeof(t));
        if (r != c->rank && !shm_probe_pull(m->pid[r], t.nonce_address, t.nonce))
            return false;
    }
    return true;
}

/* The own memfd stays open until all have attached, since peers open it through /proc;
 * the second exchange says when. The mappings keep the memory alive after that. */
accel_status_t shm_connect(struct comm *c, struct shm *m, struct boot *b,
                           size_t window_bytes, bool *fits_out, char why[128],
                           accel_error_t *err)
{
    struct ticket own = { 0 };
    struct boot_blobs tickets;
    struct vote mine = { 0 }, all;
    accel_status_t st;

    if (window_bytes == 0)
        window_bytes = default_window(c->size);
    window_bytes = SHM_HEAP_OFFSET + (window_bytes + HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
    m->window_bytes = window_bytes;
    create(c, m, window_bytes, &own);
    ACCEL_CHECK(st, boot_exchange(b, &own, sizeof(own), &tickets, err));
    mine.attached = attach_all(c, m, &tickets, mine.why);
    mine.can_pull = mine.attached && can_pull_all(c, m, &tickets);
    boot_blobs_free(&tickets);
    st = shm_agree_votes(b, &mine, &all, err);
    if (st == ACCEL_OK) {
        *fits_out = all.attached;
        m->can_pull = all.can_pull;
        memcpy(why, all.why, sizeof(all.why));
    }
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
    return st;
}

void shm_disconnect(struct comm *c, struct shm *m)
{
    for (int r = 0; r < c->size; r++) {
        if (m->ctl && m->ctl[r])
            munmap(m->ctl[r], m->window_bytes);
        if (m->pidfd && m->pidfd[r] >= 0)
            close(m->pidfd[r]);
    }
    if (m->fd >= 0)
        close(m->fd);
    free(m->ctl);
    free(m->pidfd);
    free(m->pid);
    free(m);
}
