/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading: wanted boxes x stored boxes -> pieces -> spans of the files. One thread
 * reads ahead (O_DIRECT when the page cache does not hold the span), the caller's
 * thread hashes and scatters. Every piece touched is hashed whole, once. Never calls
 * libhdf5.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ckpt_internal.h"

/* spans in memory: one being hashed, one ready, one being read */
#define SLOTS 3
/* O_DIRECT reads whole pages: a span may begin and end inside one. */
#define SLOT_BYTES (CKPT_IO_BYTES + 2 * CKPT_PAGE)
/* gaps up to this many bytes between two pieces are read along */
#define GAP_BYTES (64 << 10)

/* One wanted box x one stored box: how far copying has come. Pieces of a stored box
 * arrive in ascending order, so one position is enough. */
struct copy {
    struct ckpt_runs runs;
    /* bytes of the current run already copied */
    int64_t used;
    /* the wanted box's memory */
    char *dst;
};

/* One piece that one copy needs. A piece that several copies need has several uses,
 * which are neighbours after sorting. */
struct use {
    size_t box, piece, copy;
    int file;
    /* of the piece, in the file */
    int64_t at, bytes;
};

/* A contiguous read: pieces that lie close together in one file. */
struct span {
    int file;
    int64_t at, bytes;
    /* its uses: use[first .. first+count) */
    size_t first, count;
};

struct read_slot {
    /* SLOT_BYTES, page aligned */
    char *memory;
    /* where in it the span begins */
    const char *data;
    /* of the read; `why` says more */
    accel_status_t status;
    accel_error_t why;
};

/* One load or one file's verification. The two threads share the slots: filled and
 * taken count spans, slot = count % SLOTS, and `lock` guards both counters and `stop`.
 * A slot belongs to the reading thread until its span is counted in filled, then to the
 * caller's until it is counted in taken. */
struct reader {
    accel_ckpt_t *c;
    struct copy *copy;
    struct use *use;
    struct span *span;
    size_t copies, uses, spans, copy_cap, use_cap;
    struct read_slot slot[SLOTS];
    /* memory of all slots */
    char *staging;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t filled, taken;
    bool stop;
    /* verify: damage is reported and passed over, and nothing is copied */
    ckpt_finding_fn *finding;
    void *user;
    /* the box of the last finding: one finding per box */
    size_t told;
    /* the file being read; the reading thread's own. -1: none */
    int file;
    int fd, direct;
    void *map;
    size_t map_bytes;
    struct ckpt_tries tries;
};

accel_status_t ckpt_fail_damaged(const accel_ckpt_t *c, const struct ckpt_mbox *b,
                                 accel_error_t *err)
{
    const struct ckpt_tensor *t = &c->m.tensor[b->tensor];
    char where[256];

    snprintf(where, sizeof(where), "%.180s/%s", c->dir, c->m.file[b->file].name);
    return accel_fail_at(err, A0809, where,
                         "resume from an older checkpoint, and check the storage",
                         "%s %s: the stored bytes do not match their hash",
                         t->blob ? "blob" : "tensor", t->name);
}

/* ---- plan ------------------------------------------------------------------------ */

/* Room for one more entry of `entry` bytes. */
static accel_status_t grow_plan(void **array, size_t *cap, size_t used, size_t entry,
                                accel_error_t *err)
{
    size_t want = *cap ? *cap * 2 : 64;
    void *grown;

    if (used < *cap)
        return ACCEL_OK;
    grown = realloc(*array, want * entry);
    if (!grown)
        return accel_fail_nomem(err, "the read plan", want * entry);
    *array = grown;
    *cap = want;
    return ACCEL_OK;
}

/* Byte behind the last element of `part` (off, shape) in the memory of box b. */
static int64_t last_byte(const struct ckpt_tensor *t, const struct ckpt_mbox *b,
                         const int64_t *off, const int64_t *shape)
{
    int64_t at = 0;

    for (int d = 0; d < t->ndim; d++)
        at = at * b->shape[d] + off[d] + shape[d] - 1 - b->offset[d];
    return (at + 1) * (int64_t)accel_dtype_bytes(t->dtype);
}

/* If the wanted box meets stored box `index`: one copy, and a use for each
 * piece that it touches. */
static accel_status_t plan_pair(struct reader *r, const struct ckpt_tensor *t,
                                size_t index, const accel_ckpt_box_t *want,
                                accel_error_t *err)
{
    const struct ckpt_mbox *b = &r->c->m.box[index];
    int64_t off[ACCEL_CKPT_MAX_DIMS], shape[ACCEL_CKPT_MAX_DIMS], end;
    accel_status_t st;
    struct copy *copy;

    if (!ckpt_box_intersect(t->ndim, b->offset, b->shape, want->offset, want->shape,
                            off, shape))
        return ACCEL_OK;
    st = grow_plan((void **)&r->copy, &r->copy_cap, r->copies, sizeof(*r->copy), err);
    if (st)
        return st;
    copy = &r->copy[r->copies++];
    *copy = (struct copy){ .dst = want->data };
    ckpt_runs_start(&copy->runs, t->ndim, accel_dtype_bytes(t->dtype), b->offset,
                    b->shape, want->offset, want->shape, off, shape);
    end = last_byte(t, b, off, shape);
    for (int64_t at = copy->runs.src / CKPT_PIECE_BYTES * CKPT_PIECE_BYTES; at < end;
         at += CKPT_PIECE_BYTES) {
        size_t k = (size_t)(at / CKPT_PIECE_BYTES);

        st = grow_plan((void **)&r->use, &r->use_cap, r->uses, sizeof(*r->use), err);
        if (st)
            return st;
        r->use[r->uses++] = (struct use){ index,   k,          r->copies - 1,
                                          b->file, b->at + at, ckpt_piece_bytes(b, k) };
    }
    return ACCEL_OK;
}

/* All stored boxes that a wanted box meets. The stored boxes tile the tensor, so that
 * the whole wanted box is filled. */
static accel_status_t plan_box(struct reader *r, const accel_ckpt_box_t *want,
                               bool blob, accel_error_t *err)
{
    const struct ckpt_tensor *t = ckpt_manifest_find(&r->c->m, blob, want->name);
    accel_status_t st = ACCEL_OK;

    if (!t)
        return accel_fail_at(err, A0814, want->name,
                             "resume with the model that wrote the checkpoint",
                             "%.200s has no such tensor", r->c->dir);
    if (t->dtype != want->dtype || t->ndim != want->ndim ||
        memcmp(t->shape, want->global_shape, (size_t)t->ndim * sizeof(int64_t)) != 0)
        return accel_fail_at(err, A0814, want->name,
                             "resume with the model that wrote the checkpoint",
                             "shape or dtype differs in %.200s (%s, %d dimensions)",
                             r->c->dir, accel_dtype_name(t->dtype), t->ndim);
    if (!ckpt_box_inside(t->ndim, want->offset, want->shape, t->shape))
        return accel_fail_at(err, A0815, want->name,
                             "request a box inside the tensor's shape",
                             "the requested box lies outside the tensor");
    for (size_t i = t->box; i < t->box + t->boxes && !st; i++)
        st = plan_pair(r, t, i, want, err);
    return st;
}

/* By place, so that files are read front to back, each once. */
static int compare_uses(const void *pa, const void *pb)
{
    const struct use *a = pa, *b = pb;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->copy > b->copy) - (a->copy < b->copy);
}

/* Joins pieces to spans of at most CKPT_IO_BYTES: reading through a small gap is
 * cheaper than another request. */
static accel_status_t plan_spans(struct reader *r, accel_error_t *err)
{
    struct span *last = NULL;

    if (r->uses)
        qsort(r->use, r->uses, sizeof(*r->use), compare_uses);
    r->span = calloc(r->uses + 1, sizeof(*r->span));
    if (!r->span)
        return accel_fail_nomem(err, "the read plan", r->uses * sizeof(*r->span));
    for (size_t i = 0; i < r->uses; i++) {
        const struct use *u = &r->use[i];
        int64_t end = u->at + u->bytes;

        if (!last || last->file != u->file ||
            u->at > last->at + last->bytes + GAP_BYTES ||
            end - last->at > CKPT_IO_BYTES) {
            last = &r->span[r->spans++];
            *last = (struct span){ u->file, u->at, 0, i, 0 };
        }
        last->bytes = end - last->at;
        last->count++;
    }
    return ACCEL_OK;
}

/* ---- reading thread -------------------------------------------------------------- */

/* Closes the file being read, if any. */
static void leave_file(struct reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    if (r->direct >= 0)
        close(r->direct);
    if (r->map)
        munmap(r->map, r->map_bytes);
    r->file = r->fd = r->direct = -1;
    r->map = NULL;
}

/* Opens the file twice, for the page cache and for O_DIRECT. The mapping is never
 * touched: mincore asks the page cache about it. */
static accel_status_t enter_file(struct reader *r, int file, accel_error_t *err)
{
    const struct ckpt_file *f = &r->c->m.file[file];
    accel_status_t st;
    void *map;

    leave_file(r);
    st = ckpt_open_shard(r->c, file, &r->fd, err);
    if (st)
        return st;
    r->file = file;
    map = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_SHARED, r->fd, 0);
    r->direct = TEMP_FAILURE_RETRY(
        openat(r->c->dirfd, f->name, O_RDONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC));
    r->map = map == MAP_FAILED ? NULL : map;
    r->map_bytes = (size_t)f->bytes;
    return ACCEL_OK;
}

/* Does the page cache hold all of [begin, end)? Then reading past it would only be
 * slower. Where mincore cannot tell, yes: the page cache is always right. */
static bool is_cached(const struct reader *r, int64_t begin, int64_t end)
{
    unsigned char present[CKPT_IO_BYTES / CKPT_PAGE + 2];
    size_t pages = (size_t)(end - begin) / CKPT_PAGE;

    if (!r->map || mincore((char *)r->map + begin, (size_t)(end - begin), present))
        return true; /* cannot tell: the page cache is always right */
    for (size_t i = 0; i < pages; i++)
        if (!(present[i] & 1))
            return false;
    return true;
}

/* Reads span s into the slot. begin and end are rounded to pages for
 * O_DIRECT; a read that ends short of the span at the end of the file goes
 * through the page cache again. */
static accel_status_t read_once(struct reader *r, const struct span *s,
                                struct read_slot *slot, accel_error_t *err)
{
    int64_t begin = s->at / CKPT_PAGE * CKPT_PAGE;
    int64_t end = (s->at + s->bytes + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
    accel_status_t st = r->file == s->file ? ACCEL_OK : enter_file(r, s->file, err);
    ssize_t got = -1;
    char where[300];

    if (st)
        return st;
    slot->data = slot->memory + (s->at - begin);
    if (r->direct >= 0 && !is_cached(r, begin, end)) {
        do
            got = pread(r->direct, slot->memory, (size_t)(end - begin), begin);
        while (got < 0 && errno == EINTR);
        if (got >= s->at + s->bytes - begin)
            return ACCEL_OK;
    }
    /* Cached, refused or short: the page cache has the last word. */
    got = ckpt_pread_all(r->fd, (char *)slot->data, (size_t)s->bytes, s->at);
    if (got == s->bytes)
        return ACCEL_OK;
    snprintf(where, sizeof(where), "%.200s/%s", r->c->dir, r->c->m.file[s->file].name);
    return ckpt_fail_access(err, where, "cannot read", got < 0 ? errno : ENODATA);
}

/* Every try opens the file anew: on a network file system the old descriptor may be
 * what fails. A failure stays in the slot; the caller's thread reports it. */
static void read_span(struct reader *r, const struct span *s, struct read_slot *slot)
{
    while ((slot->status = read_once(r, s, slot, &slot->why)) != ACCEL_OK) {
        leave_file(r);
        if (!ckpt_may_pass(slot->status) || !ckpt_try_again(&r->tries))
            return;
    }
}

/* The reading thread: fills slots in the order of the spans, at most SLOTS ahead of
 * the caller's thread. */
static void *read_ahead(void *arg)
{
    struct reader *r = arg;

    for (size_t i = 0; i < r->spans; i++) {
        pthread_mutex_lock(&r->lock);
        while (r->filled - r->taken == SLOTS && !r->stop)
            pthread_cond_wait(&r->moved, &r->lock);
        if (r->stop)
            i = r->spans;
        pthread_mutex_unlock(&r->lock);
        if (i == r->spans)
            break;
        read_span(r, &r->span[i], &r->slot[i % SLOTS]);
        pthread_mutex_lock(&r->lock);
        r->filled++;
        pthread_cond_signal(&r->moved);
        pthread_mutex_unlock(&r->lock);
    }
    leave_file(r);
    return NULL;
}

/* ---- caller's thread ------------------------------------------------------------- */

/* Copies the wanted parts of piece bytes [begin, begin+n) of the stored box. Stops at
 * the end of the piece in the middle of a run if need be; `used` remembers how far. */
static void scatter(struct copy *c, int64_t begin, int64_t n, const char *data)
{
    while (!c->runs.done) {
        int64_t src = c->runs.src + c->used, bytes = c->runs.run_bytes - c->used;

        if (src >= begin + n)
            return;
        if (bytes > begin + n - src)
            bytes = begin + n - src;
        memcpy(c->dst + c->runs.dst + c->used, data + (src - begin), (size_t)bytes);
        c->used += bytes;
        if (c->used == c->runs.run_bytes) {
            c->used = 0;
            ckpt_runs_next(&c->runs);
        }
    }
}

/* Names the tensor in an error of the reading thread. */
static accel_status_t fail_read(const struct reader *r, const struct ckpt_mbox *b,
                                const accel_error_t *why, accel_error_t *err)
{
    const struct ckpt_tensor *t = &r->c->m.tensor[b->tensor];

    return accel_fail_from(err, why, "%s %s: %.200s", t->blob ? "blob" : "tensor",
                           t->name, why->text);
}

/* Whether a piece is whole: an error when it could not be read, or
 * does not match its hash. */
static accel_status_t check_piece(const struct reader *r, const struct use *u,
                                  const struct read_slot *slot, const char *data,
                                  accel_error_t *err)
{
    const struct ckpt_manifest *m = &r->c->m;
    const struct ckpt_mbox *b = &m->box[u->box];
    struct ckpt_hash h;

    if (slot->status)
        return fail_read(r, b, &slot->why, err);
    h = ckpt_piece_hash(ckpt_box_seed(m, b), u->piece, data, (size_t)u->bytes);
    if (!ckpt_hash_equal(h, m->piece[b->piece + u->piece]))
        return ckpt_fail_damaged(r->c, b, err);
    return ACCEL_OK;
}

/* Hashes and scatters the pieces of one span. A load ends with the first bad piece; a
 * verification reports it and goes on. */
static accel_status_t take_span(struct reader *r, const struct span *s,
                                const struct read_slot *slot, accel_error_t *err)
{
    for (size_t i = s->first; i < s->first + s->count; i++) {
        const struct use *u = &r->use[i];
        const char *data = slot->data + (u->at - s->at);
        accel_status_t st = ACCEL_OK;

        /* Uses of one piece are neighbours: hash it for the first. */
        if (i == s->first || u->at != r->use[i - 1].at)
            st = check_piece(r, u, slot, data, err);
        if (st && !r->finding)
            return st;
        if (st && r->told != u->box) {
            r->finding(r->user, err);
            r->told = u->box;
        }
        if (!r->finding)
            scatter(&r->copy[u->copy], (int64_t)u->piece * CKPT_PIECE_BYTES, u->bytes,
                    data);
    }
    return ACCEL_OK;
}

/* The caller's side of the ring. After an error `stop` ends the reading thread. */
static accel_status_t take_all(struct reader *r, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < r->spans && !st; i++) {
        pthread_mutex_lock(&r->lock);
        while (r->filled == i)
            pthread_cond_wait(&r->moved, &r->lock);
        pthread_mutex_unlock(&r->lock);
        st = take_span(r, &r->span[i], &r->slot[i % SLOTS], err);
        pthread_mutex_lock(&r->lock);
        r->taken++;
        r->stop = st != ACCEL_OK;
        pthread_cond_signal(&r->moved);
        pthread_mutex_unlock(&r->lock);
    }
    return st;
}

/* Runs both threads to the end. */
static accel_status_t run_reader(struct reader *r, accel_error_t *err)
{
    sigset_t all, before;
    accel_status_t st;
    pthread_t thread;
    int e;

    r->staging = ckpt_stage_map(SLOTS * SLOT_BYTES);
    if (!r->staging)
        return accel_fail_nomem(err, "read buffers", SLOTS * SLOT_BYTES);
    for (size_t i = 0; i < SLOTS; i++)
        r->slot[i].memory = r->staging + i * SLOT_BYTES;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    /* Signals go to the caller's threads, where its handlers expect them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&thread, NULL, read_ahead, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e) {
        st = accel_fail(err, A0002, "raise the process limit (ulimit -u)",
                        "cannot start the reader thread: %s", strerror(e));
    } else {
        st = take_all(r, err);
        pthread_join(thread, NULL);
    }
    pthread_cond_destroy(&r->moved);
    pthread_mutex_destroy(&r->lock);
    return st;
}

accel_status_t ckpt_read_boxes(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               bool blobs, accel_error_t *err)
{
    struct reader r = {
        .c = c, .file = -1, .fd = -1, .direct = -1, .tries = { .left = CKPT_TRIES }
    };
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < n && !st; i++)
        st = plan_box(&r, &boxes[i], blobs, err);
    if (!st)
        st = plan_spans(&r, err);
    if (!st && r.spans)
        st = run_reader(&r, err);
    ckpt_stage_unmap(r.staging, SLOTS * SLOT_BYTES);
    free(r.copy);
    free(r.use);
    free(r.span);
    return st;
}

accel_status_t ckpt_verify_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                                void *user, accel_error_t *err)
{
    struct reader r = { .c = c,
                        .file = -1,
                        .fd = -1,
                        .direct = -1,
                        .tries = { .left = CKPT_TRIES },
                        .finding = finding,
                        .user = user,
                        .told = SIZE_MAX };
    accel_status_t st = ACCEL_OK;

    for (size_t i = c->file_first[file]; i < c->file_first[file + 1]; i++) {
        const struct ckpt_mbox *b = &c->m.box[c->by_place[i]];

        for (size_t k = 0; k < b->pieces && !st; k++) {
            st = grow_plan((void **)&r.use, &r.use_cap, r.uses, sizeof(*r.use), err);
            if (!st)
                r.use[r.uses++] = (struct use){ c->by_place[i],
                                                k,
                                                0,
                                                file,
                                                b->at + (int64_t)k * CKPT_PIECE_BYTES,
                                                ckpt_piece_bytes(b, k) };
        }
    }
    if (!st)
        st = plan_spans(&r, err);
    if (!st && r.spans)
        st = run_reader(&r, err);
    ckpt_stage_unmap(r.staging, SLOTS * SLOT_BYTES);
    free(r.use);
    free(r.span);
    return st;
}

accel_status_t accel_ckpt_read(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               accel_error_t *err)
{
    return ckpt_read_boxes(c, boxes, n, false, err);
}
