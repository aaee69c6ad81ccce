/* SPDX-License-Identifier: Apache-2.0
 *
 * A load of several ranks. In: the boxes that each of them wants. Out: the same as if
 * each had read alone, but what most of them want leaves the storage once: its owner
 * reads and checks it, and broadcasts it. A rank never believes another one's failure:
 * it looks itself, so that trouble of one node is not taken for damage.
 */
#include <stdlib.h>
#include <string.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_commit.h"
#include "load/ckpt_load.h"
#include "load/ckpt_read.h"

/* What a rank tells rank 0, followed by a bit for each piece of the manifest. */
struct wish {
    uint64_t digest;
    unsigned char piece[];
};

/* One load on this rank. */
struct together {
    const accel_ckpt_coll_t *coll;
    struct ckpt_reader *r;
    /* what this rank wants; then what is shared */
    struct wish *wish;
    size_t bitmap_bytes;
    /* [size], of all wishes */
    size_t *sizes;
    /* for blocks whose owner has failed */
    struct ckpt_source source;
    /* this rank's first failure; it takes part until all have failed */
    accel_status_t failed;
    accel_error_t why;
};

static bool has_piece(const unsigned char *bitmap, size_t i)
{
    return bitmap[i / 8] >> i % 8 & 1;
}

/* Place in the manifest of a use's piece. */
static size_t piece_of(const struct ckpt_reader *r, const struct ckpt_use *u)
{
    return r->c->m.box[u->box].piece + u->piece;
}

/* ---- which pieces ---------------------------------------------------------------- */

static accel_status_t make_wish(struct together *t, accel_error_t *err)
{
    const struct ckpt_reader *r = t->r;
    size_t bytes;

    t->bitmap_bytes = (r->c->m.pieces + 7) / 8;
    bytes = sizeof(*t->wish) + t->bitmap_bytes;
    t->wish = calloc(1, bytes);
    t->sizes = calloc((size_t)t->coll->size, sizeof(*t->sizes));
    if (!t->wish || !t->sizes)
        return accel_fail_nomem(err, "the read plan", bytes);
    t->wish->digest = ckpt_manifest_digest(&r->c->m);
    for (size_t i = 0; i < r->uses; i++) {
        size_t k = piece_of(r, &r->use[i]);

        t->wish->piece[k / 8] |= (unsigned char)(1 << k % 8);
    }
    return ACCEL_OK;
}

/* Rank 0: leaves in its own wish what more than half of the ranks want. False: there is
 * none, or the ranks see different checkpoints. */
static bool count_wishes(struct together *t, const char *all)
{
    const size_t bytes = sizeof(*t->wish) + t->bitmap_bytes;
    const int size = t->coll->size;
    bool any = false;

    for (int rank = 0; rank < size; rank++)
        if (t->sizes[rank] != bytes ||
            memcmp(all + (size_t)rank * bytes, &t->wish->digest,
                   sizeof(t->wish->digest)) != 0)
            return false;
    for (size_t i = 0; i < t->bitmap_bytes * 8; i++) {
        int count = 0;

        for (int rank = 0; rank < size; rank++)
            count += has_piece((const unsigned char *)all + (size_t)rank * bytes +
                                   sizeof(*t->wish),
                               i);
        t->wish->piece[i / 8] &= (unsigned char)~(1 << i % 8);
        if (2 * count > size) {
            t->wish->piece[i / 8] |= (unsigned char)(1 << i % 8);
            any = true;
        }
    }
    return any;
}

/* Collective. The pieces that are shared, the same on all ranks. */
static accel_status_t agree_on_pieces(struct together *t, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = t->coll;
    void *all = NULL;
    int64_t any = 0;
    accel_status_t st = c->gather(c->user, t->wish, sizeof(*t->wish) + t->bitmap_bytes,
                                  0, &all, t->sizes, err);

    if (!st && c->rank == 0)
        any = count_wishes(t, all);
    free(all);
    ACCEL_TRY(st, c->broadcast(c->user, &any, sizeof(any), 0, err));
    if (!st && any)
        st = c->broadcast(c->user, t->wish->piece, t->bitmap_bytes, 0, err);
    else if (!st && t->bitmap_bytes)
        memset(t->wish->piece, 0, t->bitmap_bytes);
    return st;
}

/* Marks this rank's uses of shared pieces. Their copies get a second position: the
 * first `copies` are for the pieces that it reads alone. */
static accel_status_t mark_shared(struct together *t, accel_error_t *err)
{
    struct ckpt_reader *r = t->r;
    const size_t n = r->copies;
    struct ckpt_fill *twice;

    if (n == 0)
        return ACCEL_OK;
    twice = reallocarray(r->copy, n, 2 * sizeof(*twice));
    if (!twice)
        return accel_fail_nomem(err, "the read plan", 2 * n * sizeof(*twice));
    memcpy(twice + n, twice, n * sizeof(*twice));
    r->copy = twice;
    r->copies = r->copy_cap = 2 * n;
    for (size_t i = 0; i < r->uses; i++) {
        struct ckpt_use *u = &r->use[i];

        u->shared = has_piece(t->wish->piece, piece_of(r, u));
        u->copy += u->shared ? n : 0;
    }
    return ACCEL_OK;
}

/* Adds a use of each shared piece for the check, so that the shared part of the plan is
 * the same on all ranks. */
static accel_status_t add_shared(struct together *t, accel_error_t *err)
{
    struct ckpt_reader *r = t->r;
    const struct ckpt_manifest *m = &r->c->m;
    accel_status_t st = mark_shared(t, err);

    for (size_t i = 0; i < m->boxes && !st; i++) {
        const struct ckpt_mbox *b = &m->box[i];

        for (size_t k = 0; k < b->pieces && !st; k++)
            if (has_piece(t->wish->piece, b->piece + k))
                st = ckpt_plan_use(r, i, k, CKPT_NO_COPY, true, err);
    }
    return st;
}

/* Each span to the rank with the fewest bytes so far: equal shares, and neighbours in a
 * file are read at the same time. */
static accel_status_t choose_owners(struct together *t, accel_error_t *err)
{
    struct ckpt_reader *r = t->r;
    int64_t *bytes = calloc((size_t)t->coll->size, sizeof(*bytes));

    if (!bytes)
        return accel_fail_nomem(err, "the read plan", (size_t)t->coll->size);
    for (size_t i = 0; i < r->shared; i++) {
        int least = 0;

        for (int rank = 1; rank < t->coll->size; rank++)
            if (bytes[rank] < bytes[least])
                least = rank;
        r->span[i].owner = least;
        bytes[least] += r->span[i].bytes;
    }
    free(bytes);
    return ACCEL_OK;
}

/* Collective. The whole plan, and the threads that follow it. */
static accel_status_t plan_together(struct together *t, const accel_ckpt_box_t *boxes,
                                    size_t n, bool blobs, accel_error_t *err)
{
    struct ckpt_reader *r = t->r;
    accel_status_t st = ckpt_plan_boxes(r, boxes, n, blobs, err);

    ACCEL_TRY(st, make_wish(t, err));
    st = ckpt_agree(t->coll, st, err);
    ACCEL_TRY(st, agree_on_pieces(t, err));
    if (st)
        return st;
    st = add_shared(t, err);
    ACCEL_TRY(st, ckpt_plan_spans(r, err));
    ACCEL_TRY(st, choose_owners(t, err));
    if (!st && r->spans)
        st = ckpt_ring_open(r, err);
    return ckpt_agree(t->coll, st, err);
}

/* ---- reading --------------------------------------------------------------------- */

/* Collective. The owner of the span has failed with status `mine`, whose error is in
 * *why; all others look themselves. *end_out: nobody could read it. */
static accel_status_t read_apart(struct together *t, const struct ckpt_span *s,
                                 accel_status_t mine, accel_error_t *why, bool *end_out,
                                 accel_error_t *err)
{
    struct ckpt_reader *r = t->r;
    int64_t vote;
    accel_status_t st;

    if (s->owner != r->rank) {
        ckpt_source_read(&t->source, s, &r->inbox);
        ckpt_span_hash(r, s, &r->inbox);
        mine = ckpt_span_check(r, s, &r->inbox, why);
        if (!mine)
            ckpt_span_copy(r, s, &r->inbox);
    }
    if (mine && !t->failed) {
        t->failed = mine;
        t->why = *why;
    }
    vote = mine ? -1 : 0;
    st = t->coll->max_i64(t->coll->user, &vote, err);
    *end_out = vote != 0;
    return st;
}

/* Collective. One shared span: from its owner to all. */
static accel_status_t take_shared(struct together *t, const struct ckpt_span *s,
                                  bool *end_out, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = t->coll;
    struct ckpt_reader *r = t->r;
    const bool owns = s->owner == r->rank;
    struct ckpt_slot *slot = owns ? ckpt_ring_next(r) : &r->inbox;
    accel_error_t why = { 0 };
    accel_status_t mine = owns ? ckpt_span_check(r, s, slot, &why) : ACCEL_OK, st;
    int64_t good = !mine;

    st = c->broadcast(c->user, &good, sizeof(good), s->owner, err);
    if (!st && good) {
        r->inbox.data = r->inbox.memory;
        st = c->broadcast(c->user, slot->data, (size_t)s->bytes, s->owner, err);
        if (!st)
            ckpt_span_copy(r, s, slot);
    } else if (!st) {
        st = read_apart(t, s, mine, &why, end_out, err);
    }
    if (owns)
        ckpt_ring_done(r);
    return st;
}

static accel_status_t take_all(struct together *t, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    bool end = false;

    for (size_t i = 0; i < t->r->shared && !st && !end; i++)
        st = take_shared(t, &t->r->span[i], &end, err);
    if (st || !t->failed)
        return st ? st : ckpt_take_own(t->r, t->r->shared, err);
    *err = t->why;
    return t->failed;
}

accel_status_t ckpt_read_together(accel_ckpt_t *c, const accel_ckpt_box_t *boxes,
                                  size_t n, bool blobs, const accel_ckpt_coll_t *coll,
                                  accel_error_t *err)
{
    struct ckpt_reader r = { .c = c, .rank = coll ? coll->rank : 0 };
    struct together t = { .coll = coll, .r = &r, .source = ckpt_source_of(c) };
    accel_error_t e = { 0 };
    accel_status_t st;

    if (!coll || coll->size == 1)
        return ckpt_read_boxes(c, boxes, n, blobs, err);
    st = plan_together(&t, boxes, n, blobs, &e);
    ACCEL_TRY(st, take_all(&t, &e));
    ckpt_ring_close(&r);
    ckpt_source_leave(&t.source);
    ckpt_plan_free(&r);
    free(t.wish);
    free(t.sizes);
    if (st && err)
        *err = e;
    return st;
}

accel_status_t accel_ckpt_read_together(accel_ckpt_t *c, const accel_ckpt_box_t *boxes,
                                        size_t n, const accel_ckpt_coll_t *coll,
                                        accel_error_t *err)
{
    return ckpt_read_together(c, boxes, n, false, coll, err);
}
