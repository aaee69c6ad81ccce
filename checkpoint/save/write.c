/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of a shard file: threads over a ring of staging buffers. The caller's copies
 * and hashes; two writers do O_DIRECT pwrite, so that the disk always has the next one.
 * Tails, and file systems without O_DIRECT, go through the page cache. Ends with fsync.
 * Never calls libhdf5. What is written lies in memory as a whole, or comes box by box.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_commit.h"
#include "ckpt_internal.h"
#include "common/plain_file.h"
#include "common/thread.h"

/* slots of the ring: 32 MiB of staging */
#define SLOTS 8
/* threads that write; one does for smaller files than that */
#define WRITERS 2
#define SMALL   (16 << 20)
/* how soon a spread write sees that somebody waits */
#define NAP_NS 10000000

/* Up to CKPT_IO_BYTES that are contiguous in the file. */
struct slot {
    /* its part of the ring's staging */
    char *stage;
    /* `stage`, or the caller's memory where that is aligned: no copy then */
    const char *data;
    /* place in the file */
    int64_t at;
    size_t bytes;
    /* a later slot may be written before an earlier one */
    bool written;
};

/* The caller's thread fills slots and counts them in put. A writer takes the next one,
 * and counts those in got before which all are written. `lock` guards the counters,
 * written, closed and error. */
struct ring {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct slot slot[SLOTS];
    /* slot = counter % SLOTS; put - got slots are in flight */
    size_t put, taken, got;
    /* nothing more will be put */
    bool closed;
    /* errno of the first failed write; later slots are passed over */
    int error;
    /* the file twice; direct: -1 when O_DIRECT was refused */
    int fd, direct;
    /* it was refused later, or wrote less than a page */
    atomic_bool refused;
    /* memory of all slots */
    char *staging;
    /* the caller's */
    struct ckpt_pace *pace;
    /* clock_ns of the begin; where the data lies in the file */
    int64_t begun, from, to;
};

/* Writes whole pages with O_DIRECT. Returns the bytes written, a multiple of a page;
 * the rest, after a refusal or an odd short write, is for the page cache. -1: error. */
static ssize_t write_direct(struct ring *r, const struct slot *s)
{
    size_t whole = s->bytes / CKPT_PAGE * CKPT_PAGE, done = 0;

    if (r->direct < 0 || atomic_load(&r->refused) || s->at % CKPT_PAGE != 0)
        return 0;
    while (done < whole) {
        ssize_t n =
            pwrite(r->direct, s->data + done, whole - done, s->at + (int64_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EINVAL)
            return -1;
        if (n < CKPT_PAGE) { /* refused, or not even a page: no more O_DIRECT */
            atomic_store(&r->refused, true);
            break;
        }
        done += (size_t)n / CKPT_PAGE * CKPT_PAGE;
    }
    return (ssize_t)done;
}

/* Waits until the time is there for this slot, which training then has for itself: disk
 * and memory are shared. In naps, since no one may have to wait for this thread. */
static void await_turn(const struct ring *r, const struct slot *s)
{
    struct ckpt_pace *p = r->pace;
    const double part = (double)(s->at - r->from) / (double)(r->to - r->from);
    const int64_t due = r->begun + (int64_t)(part * (double)p->spread);
    const int64_t came = clock_ns();
    int64_t now = came;

    while (now < due && !atomic_load(&p->hurried) && !atomic_load(&p->cancelled) &&
           (!p->has_time || p->has_time())) {
        const int64_t left = due - now;

        nanosleep(&(struct timespec){ .tv_nsec = left < NAP_NS ? left : NAP_NS }, NULL);
        now = clock_ns();
    }
    p->waited += now - came;
}

/* A slot that does not start on a page goes through the page cache as a whole.
 * ECANCELED: the save was given up. */
static int write_slot(struct ring *r, const struct slot *s)
{
    ssize_t done;

    await_turn(r, s);
    if (atomic_load(&r->pace->cancelled)) {
        errno = ECANCELED;
        return -1;
    }
    done = write_direct(r, s);
    if (done < 0)
        return -1;
    return pwrite_all(r->fd, s->data + done, s->bytes - (size_t)done, s->at + done);
}

/* Has the lock. The slot is written: it, and those after it that were ready before it,
 * are free. */
static void give_back(struct ring *r, struct slot *s, int error)
{
    if (!r->error)
        r->error = error;
    s->written = true;
    while (r->got < r->taken && r->slot[r->got % SLOTS].written)
        r->got++;
    pthread_cond_broadcast(&r->moved);
}

/* A writer thread. After an error it keeps taking slots without writing, so that the
 * caller's is never stuck. */
static void *writer(void *arg)
{
    struct ring *r = arg;

    pthread_mutex_lock(&r->lock);
    for (;;) {
        struct slot *s;
        bool writes;
        int error = 0;

        while (r->taken == r->put && !r->closed)
            pthread_cond_wait(&r->moved, &r->lock);
        if (r->taken == r->put)
            break;
        s = &r->slot[r->taken++ % SLOTS];
        writes = r->error == 0;
        pthread_mutex_unlock(&r->lock);
        /* The producer does not touch a slot between put and got. */
        if (writes && write_slot(r, s))
            error = errno;
        pthread_mutex_lock(&r->lock);
        give_back(r, s, error);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Waits for a free slot. NULL after a write error: hashing on would be in vain. */
static struct slot *free_slot(struct ring *r)
{
    int error;

    pthread_mutex_lock(&r->lock);
    while (r->put - r->got == SLOTS)
        pthread_cond_wait(&r->moved, &r->lock);
    error = r->error;
    pthread_mutex_unlock(&r->lock);
    return error ? NULL : &r->slot[r->put % SLOTS];
}

/* The slot now belongs to the writer. */
static void hand_over(struct ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->put++;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

/* ---- a file that is being written ------------------------------------------------ */

struct ckpt_writer {
    struct ring ring;
    struct ckpt_manifest *m;
    const struct ckpt_file *file;
    /* the boxes by place */
    size_t *order;
    /* being filled; NULL: none */
    struct slot *slot;
    pthread_t thread[WRITERS];
    int running;
};

/* Puts bytes [from, from+n) of a box, which lie at src, into a slot and hashes them,
 * piece by piece, so that a piece is still in the cache when it is hashed. `from` is a
 * multiple of a piece. */
static void fill_slot(struct ckpt_manifest *m, const struct ckpt_mbox *b, uint64_t seed,
                      const char *src, int64_t from, size_t n, struct slot *s,
                      bool in_place)
{
    size_t k = (size_t)(from / CKPT_PIECE_BYTES);

    for (size_t done = 0; done < n; k++) {
        size_t bytes = (size_t)ckpt_piece_bytes(b, k);

        if (!in_place)
            memcpy(s->stage + s->bytes, src + done, bytes);
        m->piece[b->piece + k] = ckpt_piece_hash(seed, k, s->data + s->bytes, bytes);
        s->bytes += bytes;
        done += bytes;
    }
}

static void end_slot(struct ckpt_writer *w)
{
    if (w->slot)
        hand_over(&w->ring);
    w->slot = NULL;
}

/* Neighbours in the file share a slot, so that many small tensors are one write; large
 * aligned blocks are written from the caller's memory, if that stays. */
bool ckpt_writer_put(struct ckpt_writer *w, size_t box, const void *data, bool stays)
{
    const struct ckpt_mbox *b = &w->m->box[box];
    uint64_t seed = ckpt_box_seed(w->m, b);

    for (int64_t from = 0; from < b->bytes;) {
        const char *src = (const char *)data + from;
        int64_t at = b->at + from, rest = b->bytes - from;
        size_t n = rest < CKPT_IO_BYTES ? (size_t)rest : CKPT_IO_BYTES;
        bool in_place = stays && (uintptr_t)src % CKPT_PAGE == 0 &&
                        at % CKPT_PAGE == 0 && n == CKPT_IO_BYTES;

        if (w->slot && (in_place || at != w->slot->at + (int64_t)w->slot->bytes ||
                        w->slot->bytes + n > CKPT_IO_BYTES))
            end_slot(w);
        if (!w->slot) {
            w->slot = free_slot(&w->ring);
            if (!w->slot)
                return false;
            *w->slot = (struct slot){ .stage = w->slot->stage,
                                      .data = in_place ? src : w->slot->stage,
                                      .at = at };
        }
        fill_slot(w->m, b, seed, src, from, n, w->slot, in_place);
        from += (int64_t)n;
        if (in_place || w->slot->bytes == CKPT_IO_BYTES)
            end_slot(w);
    }
    return true;
}

/* Opens the laid out file for both ways of writing. */
static accel_status_t open_files(struct ring *r, int dirfd, const struct ckpt_file *f,
                                 accel_error_t *err)
{
    r->fd = plain_open(dirfd, f->name, O_RDWR);
    if (r->fd < 0)
        return accel_fail_at(
            err, A0801, f->name,
            "check the disk and the permissions of the checkpoint directory",
            "cannot open: %m");
    r->direct = plain_open(dirfd, f->name, O_WRONLY | O_DIRECT);
    /* Allocating all blocks at once finds a full disk early and keeps extents long. */
    while (fallocate(r->fd, 0, 0, f->bytes)) {
        if (errno == EINTR)
            continue;
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
            return accel_fail_at(err,
                                 errno == ENOSPC || errno == EDQUOT ? A0802 : A0801,
                                 f->name, "free space, or lower accel.checkpoint.keep",
                                 "cannot reserve %lld bytes: %m", (long long)f->bytes);
        break; /* a file system without it */
    }
    return ACCEL_OK;
}

/* Time that is left to others is counted by one thread. One writer is enough where
 * there are no threads left. */
static int start_writers(struct ckpt_writer *w)
{
    const int wanted = w->file->bytes < SMALL || w->ring.pace->spread > 0 ? 1 : WRITERS;
    int e = 0;

    pthread_mutex_init(&w->ring.lock, NULL);
    pthread_cond_init(&w->ring.moved, NULL);
    while (!e && w->running < wanted) {
        e = thread_start(&w->thread[w->running], NULL, writer, &w->ring);
        w->running += e == 0;
    }
    if (w->running > 0)
        return 0;
    pthread_cond_destroy(&w->ring.moved);
    pthread_mutex_destroy(&w->ring.lock);
    return e;
}

static accel_status_t fail_write(const struct ckpt_writer *w, int e, accel_error_t *err)
{
    const bool full = e == ENOSPC || e == EDQUOT;

    return accel_fail_at(err, full ? A0802 : A0801, w->file->name,
                         full ? "free space, or lower accel.checkpoint.keep"
                              : "check the disk",
                         "write: %s", strerror(e));
}

static accel_status_t open_ring(struct ckpt_writer *w, int dirfd, accel_error_t *err)
{
    struct ring *r = &w->ring;
    accel_status_t st = open_files(r, dirfd, w->file, err);

    if (st)
        return st;
    r->staging = ckpt_stage_map(SLOTS * CKPT_IO_BYTES);
    if (!r->staging)
        return accel_fail_nomem(err, "checkpoint staging", SLOTS * CKPT_IO_BYTES);
    for (size_t i = 0; i < SLOTS; i++)
        r->slot[i].stage = r->staging + i * CKPT_IO_BYTES;
    return ACCEL_OK;
}

/* The meta hash is read back from the file, before the data is written: those bytes are
 * libhdf5's and are in no box. */
accel_status_t ckpt_writer_open(struct ckpt_writer **writer_out, int dirfd,
                                struct ckpt_manifest *m, int rank,
                                struct ckpt_pace *pace, accel_error_t *err)
{
    struct ckpt_writer *w = calloc(1, sizeof(*w));
    accel_status_t st;
    int e;

    if (!w)
        return accel_fail_nomem(err, "a writer", sizeof(*w));
    w->m = m;
    w->file = &m->file[rank];
    w->ring = (struct ring){
        .fd = -1, .direct = -1, .pace = pace, .begun = clock_ns(), .to = w->file->bytes
    };
    st = ckpt_boxes_by_place(m, &w->order, err);
    if (!st && m->boxes)
        w->ring.from = m->box[w->order[0]].at;
    ACCEL_TRY(st, open_ring(w, dirfd, err));
    ACCEL_TRY(st, ckpt_meta_hash(m, rank, w->ring.fd, w->order, m->boxes,
                                 &m->file[rank].meta, err));
    if (!st && (e = start_writers(w)) != 0)
        st = fail_write(w, e, err);
    if (st)
        (void)ckpt_writer_close(w, false, NULL, NULL);
    else
        *writer_out = w;
    return st;
}

/* Waits for the threads. The errno of a failed write, or 0. */
static int end_writers(struct ckpt_writer *w)
{
    struct ring *r = &w->ring;

    if (!w->running)
        return 0;
    end_slot(w);
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < w->running; i++)
        pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&r->moved);
    pthread_mutex_destroy(&r->lock);
    return r->error;
}

/* close is checked too, since some network file systems report a failed write only
 * there. */
accel_status_t ckpt_writer_close(struct ckpt_writer *w, bool complete, int *direct_out,
                                 accel_error_t *err)
{
    struct ring *r = &w->ring;
    const int e = end_writers(w);
    accel_status_t st = e ? fail_write(w, e, err) : ACCEL_OK;

    if (!st && complete)
        st = ckpt_fsync(r->fd, w->file->name, err);
    if (complete)
        *direct_out = r->direct >= 0 && !atomic_load(&r->refused);
    if (r->direct >= 0 && close(r->direct) && !st)
        st = accel_fail_at(err, A0801, w->file->name, "check the disk", "close: %m");
    if (r->fd >= 0 && close(r->fd) && !st)
        st = accel_fail_at(err, A0801, w->file->name, "check the disk", "close: %m");
    ckpt_stage_unmap(r->staging, SLOTS * CKPT_IO_BYTES);
    free(w->order);
    free(w);
    return st;
}

/* All boxes, in file order. */
accel_status_t ckpt_write_shard(int dirfd, struct ckpt_manifest *m, int rank,
                                struct ckpt_pace *pace, int *direct_out,
                                accel_error_t *err)
{
    struct ckpt_writer *w;
    accel_status_t st = ckpt_writer_open(&w, dirfd, m, rank, pace, err);

    if (st)
        return st;
    for (size_t i = 0; i < m->boxes; i++)
        if (!ckpt_writer_put(w, w->order[i], m->box[w->order[i]].data, true))
            break;
    return ckpt_writer_close(w, true, direct_out, err);
}
