/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a load. In: spans of the files. Out: their bytes in memory, each piece
 * hashed. Up to two threads read ahead (O_DIRECT when the page cache does not hold the
 * span) and another one hashes, so that the caller only copies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_commit.h"
#include "load/ckpt_load.h"
#include "load/ckpt_read.h"
#include "common/plain_file.h"
#include "common/thread.h"

/* a rank with fewer spans reads them with one thread */
#define SPANS_TO_SHARE 8

/* ---- files ----------------------------------------------------------------------- */

struct ckpt_source ckpt_source_of(const accel_ckpt_t *c)
{
    return (struct ckpt_source){
        .c = c, .file = -1, .fd = -1, .direct = -1, .tries = { .left = CKPT_TRIES }
    };
}

void ckpt_source_leave(struct ckpt_source *from)
{
    if (from->fd >= 0)
        close(from->fd);
    if (from->direct >= 0)
        close(from->direct);
    if (from->map)
        munmap(from->map, from->map_bytes);
    from->file = from->fd = from->direct = -1;
    from->map = NULL;
}

/* Opens the file twice, for the page cache and for O_DIRECT. The mapping is never
 * touched: mincore asks the page cache about it. */
static accel_status_t enter_file(struct ckpt_source *from, int file, accel_error_t *err)
{
    const struct ckpt_file *f = &from->c->m.file[file];
    accel_status_t st;
    void *map;

    ckpt_source_leave(from);
    ACCEL_CHECK(st, ckpt_open_shard(from->c, file, &from->fd, err));
    from->file = file;
    map = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_SHARED, from->fd, 0);
    from->direct = plain_open(from->c->dirfd, f->name, O_RDONLY | O_DIRECT);
    from->map = map == MAP_FAILED ? NULL : map;
    from->map_bytes = (size_t)f->bytes;
    return ACCEL_OK;
}

/* Does the page cache hold all of [begin, end)? Then reading past it would only be
 * slower. Where mincore cannot tell, yes: the page cache is always right. */
static bool is_cached(const struct ckpt_source *from, int64_t begin, int64_t end)
{
    unsigned char present[CKPT_IO_BYTES / CKPT_PAGE + 2];
    size_t pages = (size_t)(end - begin) / CKPT_PAGE;

    if (!from->map ||
        mincore((char *)from->map + begin, (size_t)(end - begin), present))
        return true;
    for (size_t i = 0; i < pages; i++)
        if (!(present[i] & 1))
            return false;
    return true;
}

/* begin and end are rounded to pages for O_DIRECT; a read that ends short of the span
 * at the end of the file goes through the page cache again. */
static accel_status_t read_once(struct ckpt_source *from, const struct ckpt_span *s,
                                struct ckpt_slot *slot, accel_error_t *err)
{
    int64_t begin = s->at / CKPT_PAGE * CKPT_PAGE;
    int64_t end = (s->at + s->bytes + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
    accel_status_t st =
        from->file == s->file ? ACCEL_OK : enter_file(from, s->file, err);
    ssize_t got = -1;
    char where[300];

    if (st)
        return st;
    slot->data = slot->memory + (s->at - begin);
    if (from->direct >= 0 && !is_cached(from, begin, end)) {
        do
            got = pread(from->direct, slot->memory, (size_t)(end - begin), begin);
        while (got < 0 && errno == EINTR);
        if (got >= s->at + s->bytes - begin)
            return ACCEL_OK;
    }
    /* Cached, refused or short: the page cache has the last word. */
    got = pread_all(from->fd, slot->data, (size_t)s->bytes, s->at);
    if (got == s->bytes)
        return ACCEL_OK;
    snprintf(where, sizeof(where), "%.200s/%s", from->c->dir,
             from->c->m.file[s->file].name);
    return ckpt_fail_access(err, where, "cannot read", got < 0 ? errno : ENODATA);
}

void ckpt_source_read(struct ckpt_source *from, const struct ckpt_span *s,
                      struct ckpt_slot *slot)
{
    while ((slot->status = read_once(from, s, slot, &slot->why)) != ACCEL_OK) {
        ckpt_source_leave(from);
        if (!ckpt_may_pass(slot->status) || !ckpt_try_again(&from->tries))
            return;
    }
}

/* ---- hashing --------------------------------------------------------------------- */

void ckpt_span_hash(struct ckpt_reader *r, const struct ckpt_span *s,
                    const struct ckpt_slot *slot)
{
    const struct ckpt_manifest *m = &r->c->m;

    for (size_t i = s->first; i < s->first + s->count && !slot->status; i++) {
        struct ckpt_use *u = &r->use[i];
        const struct ckpt_mbox *b = &m->box[u->box];
        const char *data = slot->data + (u->at - s->at);

        if (ckpt_use_first(r, s, i))
            u->bad = !ckpt_hash_equal(
                ckpt_piece_hash(ckpt_box_seed(m, b), u->piece, data, (size_t)u->bytes),
                m->piece[b->piece + u->piece]);
    }
}

/* ---- the ring -------------------------------------------------------------------- */

/* The next span of this rank and its slot, at most CKPT_SLOTS ahead of the caller.
 * False: there is none. */
static bool ring_claim(struct ckpt_reader *r, const struct ckpt_span **span_out,
                       struct ckpt_slot **slot_out)
{
    bool got = false;

    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->next < r->spans && r->span[r->next].owner != r->rank)
            r->next++;
        if (r->stop || r->next == r->spans)
            break;
        got = r->claimed - r->taken < CKPT_SLOTS;
        if (got) {
            *span_out = &r->span[r->next++];
            *slot_out = &r->slot[r->claimed++ % CKPT_SLOTS];
            break;
        }
        pthread_cond_wait(&r->moved, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return got;
}

static void *ring_read(void *arg)
{
    struct ckpt_reading *me = arg;
    struct ckpt_reader *r = me->r;
    const struct ckpt_span *span;
    struct ckpt_slot *slot;

    while (ring_claim(r, &span, &slot)) {
        ckpt_source_read(&me->source, span, slot);
        pthread_mutex_lock(&r->lock);
        slot->ready = true;
        pthread_cond_broadcast(&r->moved);
        pthread_mutex_unlock(&r->lock);
    }
    ckpt_source_leave(&me->source);
    return NULL;
}

/* Waits until the slot that is to be hashed next is read. False: stop. */
static bool ring_wait_read(struct ckpt_reader *r)
{
    bool stop;

    pthread_mutex_lock(&r->lock);
    /* a slot that is hashed stays ready until it is taken */
    while ((r->hashed == r->claimed || !r->slot[r->hashed % CKPT_SLOTS].ready) &&
           !r->stop)
        pthread_cond_wait(&r->moved, &r->lock);
    stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    return !stop;
}

static void *ring_hash(void *arg)
{
    struct ckpt_reader *r = arg;

    for (size_t i = 0; i < r->spans; i++) {
        if (r->span[i].owner != r->rank)
            continue;
        if (!ring_wait_read(r))
            break;
        ckpt_span_hash(r, &r->span[i], &r->slot[r->hashed % CKPT_SLOTS]);
        pthread_mutex_lock(&r->lock);
        r->hashed++;
        pthread_cond_broadcast(&r->moved);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

struct ckpt_slot *ckpt_ring_next(struct ckpt_reader *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->taken == r->hashed)
        pthread_cond_wait(&r->moved, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return &r->slot[r->taken % CKPT_SLOTS];
}

void ckpt_ring_done(struct ckpt_reader *r)
{
    pthread_mutex_lock(&r->lock);
    r->slot[r->taken++ % CKPT_SLOTS].ready = false;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

/* Frees what ring_open made but the threads. */
static void ring_free(struct ckpt_reader *r)
{
    pthread_cond_destroy(&r->moved);
    pthread_mutex_destroy(&r->lock);
    ckpt_stage_unmap(r->staging, (CKPT_SLOTS + 1) * CKPT_SLOT_BYTES);
    r->staging = NULL;
}

static void ring_stop(struct ckpt_reader *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

/* Joins the reading threads. */
static void ring_join(struct ckpt_reader *r)
{
    while (r->readings > 0)
        pthread_join(r->reading[--r->readings].thread, NULL);
}

/* Threads for as many spans as this rank has. */
static int ring_start(struct ckpt_reader *r, size_t spans)
{
    const int readers = spans < SPANS_TO_SHARE ? 1 : CKPT_READERS;
    int e = 0;

    while (!e && r->readings < readers) {
        struct ckpt_reading *x = &r->reading[r->readings];

        *x = (struct ckpt_reading){ .r = r, .source = ckpt_source_of(r->c) };
        e = thread_start(&x->thread, NULL, ring_read, x);
        r->readings += !e;
    }
    if (!e)
        e = thread_start(&r->hashing, NULL, ring_hash, r);
    if (e) {
        ring_stop(r);
        ring_join(r);
    }
    return e;
}

accel_status_t ckpt_ring_open(struct ckpt_reader *r, accel_error_t *err)
{
    const size_t bytes = (CKPT_SLOTS + 1) * CKPT_SLOT_BYTES;
    size_t spans = 0;
    int e;

    r->staging = ckpt_stage_map(bytes);
    if (!r->staging)
        return accel_fail_nomem(err, "read buffers", bytes);
    for (size_t i = 0; i < CKPT_SLOTS; i++)
        r->slot[i].memory = r->staging + i * CKPT_SLOT_BYTES;
    r->inbox.memory = r->inbox.data = r->staging + CKPT_SLOTS * CKPT_SLOT_BYTES;
    for (size_t i = 0; i < r->spans; i++)
        spans += r->span[i].owner == r->rank;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    e = ring_start(r, spans);
    if (!e)
        return ACCEL_OK;
    ring_free(r);
    return accel_fail(err, A0002, "raise the process limit (ulimit -u)",
                      "cannot start the reader thread: %s", strerror(e));
}

void ckpt_ring_close(struct ckpt_reader *r)
{
    if (!r->staging)
        return;
    ring_stop(r);
    ring_join(r);
    pthread_join(r->hashing, NULL);
    ring_free(r);
}
