/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to read.c, read_ring.c and read_together.c: the plan of a load (wanted boxes
 * x stored boxes -> pieces -> spans of the files), and the ring of spans in memory that
 * two threads fill.
 */
#ifndef ACCEL_CKPT_READ_H
#define ACCEL_CKPT_READ_H

#include <pthread.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"

/* Reading threads. A second request waits in the device while the first one is served:
 * with one, the disk idles until the thread has its processor again. */
#define CKPT_READERS 2
/* of a use: the piece is read and checked, but nothing is copied */
#define CKPT_NO_COPY SIZE_MAX

/* One wanted box x one stored box: how far copying has come. Pieces of a stored box
 * arrive in ascending order, so one position is enough; shared ones come before all
 * others and have a position of their own. */
struct ckpt_fill {
    struct ckpt_runs runs;
    /* bytes of the current run already copied */
    int64_t used;
    /* the wanted box's memory */
    char *dst;
};

/* One piece that one copy needs. A piece that several copies need has several uses,
 * which are neighbours after sorting. */
struct ckpt_use {
    size_t box, piece, copy;
    int file;
    /* of the piece, in the file */
    int64_t at, bytes;
    /* one rank reads it for all: see read_together.c */
    bool shared;
    /* of the first use of a piece, once it is hashed: it is damaged */
    bool bad;
};

/* A contiguous read: pieces that lie close together in one file. */
struct ckpt_span {
    int file;
    int64_t at, bytes;
    /* its uses: use[first .. first+count) */
    size_t first, count;
    /* the rank that reads it */
    int owner;
};

struct ckpt_slot {
    /* CKPT_SLOT_BYTES, page aligned */
    char *memory;
    /* where in it the span begins */
    char *data;
    /* of the read; `why` says more */
    accel_status_t status;
    accel_error_t why;
    /* it is read, and not yet taken */
    bool ready;
};

/* Reads spans, one after the other; holds the file of the last one open. */
struct ckpt_source {
    const accel_ckpt_t *c;
    /* -1: none */
    int file, fd, direct;
    void *map;
    size_t map_bytes;
    struct ckpt_tries tries;
};

/* A thread that reads. */
struct ckpt_reading {
    struct ckpt_reader *r;
    struct ckpt_source source;
    pthread_t thread;
};

/* One load or one file's verification. The threads share the slots: the reading threads
 * claim spans in their order and fill the slots, the hashing thread checks them, the
 * caller takes them. claimed, hashed and taken count this rank's spans that are past
 * each, slot = count % CKPT_SLOTS, and `lock` guards the counters, `next`, `ready` and
 * `stop`. */
struct ckpt_reader {
    accel_ckpt_t *c;
    struct ckpt_fill *copy;
    struct ckpt_use *use;
    struct ckpt_span *span;
    size_t copies, uses, spans, copy_cap, use_cap;
    /* this many spans, the first, are shared by several ranks */
    size_t shared;
    /* spans of other owners are passed over */
    int rank;
    /* verify: damage is reported and passed over, and nothing is copied */
    ckpt_finding_fn *finding;
    bool (*advance)(void *user, int64_t bytes);
    void *user;
    /* the box of the last finding: one finding per box */
    size_t told;
    /* the ring; staging holds all slots, and `inbox` for what no thread reads */
    struct ckpt_slot slot[CKPT_SLOTS], inbox;
    char *staging;
    struct ckpt_reading reading[CKPT_READERS];
    int readings;
    pthread_t hashing;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    /* the span to look at for the next claim */
    size_t next;
    size_t claimed, hashed, taken;
    bool stop;
};

/* ---- read.c: the plan, and what becomes of a span -------------------------------- */

/* Copies and uses of boxes[n], all of one rank; call ckpt_plan_spans next. */
accel_status_t ckpt_plan_boxes(struct ckpt_reader *r, const accel_ckpt_box_t *boxes,
                               size_t n, bool blobs, accel_error_t *err);
/* Appends a use of a piece of a stored box; see struct ckpt_use. */
accel_status_t ckpt_plan_use(struct ckpt_reader *r, size_t box, size_t piece,
                             size_t copy, bool shared, accel_error_t *err);
/* Sorts the uses, the shared ones first, and joins them to spans of owner r->rank. Two
 * ranks with the same shared pieces get the same shared spans. */
accel_status_t ckpt_plan_spans(struct ckpt_reader *r, accel_error_t *err);
/* Frees the plan. */
void ckpt_plan_free(struct ckpt_reader *r);
/* Whether all pieces of a hashed span are whole: ACCEL_OK, or the error of the first
 * that is not. */
accel_status_t ckpt_span_check(const struct ckpt_reader *r, const struct ckpt_span *s,
                               const struct ckpt_slot *slot, accel_error_t *err);
/* Copies what is wanted of a span that is whole. */
void ckpt_span_copy(struct ckpt_reader *r, const struct ckpt_span *s,
                    const struct ckpt_slot *slot);
/* Takes the spans from number `first` on that no other rank shares. A load ends with
 * the first bad piece; a verification reports it and continues. */
accel_status_t ckpt_take_own(struct ckpt_reader *r, size_t first, accel_error_t *err);

/* ---- read_ring.c ----------------------------------------------------------------- */

/* Is use i the first one of its piece? */
static inline bool ckpt_use_first(const struct ckpt_reader *r,
                                  const struct ckpt_span *s, size_t i)
{
    return i == s->first || r->use[i].at != r->use[i - 1].at;
}
/* Nothing is open yet. */
struct ckpt_source ckpt_source_of(const accel_ckpt_t *c);
/* Reads a span into the slot. Every try reopens the file: on a network file system
 * the old descriptor may be what fails. A failure stays in the slot. */
void ckpt_source_read(struct ckpt_source *from, const struct ckpt_span *s,
                      struct ckpt_slot *slot);
/* Closes the file that is open, if any. */
void ckpt_source_leave(struct ckpt_source *from);
/* Sets `bad` of the uses of a span that was read. */
void ckpt_span_hash(struct ckpt_reader *r, const struct ckpt_span *s,
                    const struct ckpt_slot *slot);
/* Starts the threads. On failure nothing is to be closed. */
accel_status_t ckpt_ring_open(struct ckpt_reader *r, accel_error_t *err);
/* Waits until the next span of this rank is hashed. The slot is the caller's until
 * ckpt_ring_done. */
struct ckpt_slot *ckpt_ring_next(struct ckpt_reader *r);
void ckpt_ring_done(struct ckpt_reader *r);
/* Ends the threads, whatever is left to read. */
void ckpt_ring_close(struct ckpt_reader *r);

#endif
