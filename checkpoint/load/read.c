/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading: wanted boxes x stored boxes -> pieces -> spans of the files, and from those
 * to the wanted memory. Every piece touched is hashed whole, once. Never calls libhdf5.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "load/ckpt_read.h"

/* gaps up to this many bytes between two pieces are read along */
#define GAP_BYTES (64 << 10)

/* The error for a box whose bytes do not match their hash. */
static accel_status_t fail_damaged(const accel_ckpt_t *c, const struct ckpt_mbox *b,
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

accel_status_t ckpt_plan_use(struct ckpt_reader *r, size_t box, size_t piece,
                             size_t copy, bool shared, accel_error_t *err)
{
    const struct ckpt_mbox *b = &r->c->m.box[box];
    accel_status_t st =
        grow_plan((void **)&r->use, &r->use_cap, r->uses, sizeof(*r->use), err);

    if (!st)
        r->use[r->uses++] =
            (struct ckpt_use){ .box = box,
                               .piece = piece,
                               .copy = copy,
                               .file = b->file,
                               .at = b->at + (int64_t)piece * CKPT_PIECE_BYTES,
                               .bytes = ckpt_piece_bytes(b, piece),
                               .shared = shared };
    return st;
}

/* Byte after the last element of `part` (off, shape) in the memory of box b. */
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
static accel_status_t plan_pair(struct ckpt_reader *r, const struct ckpt_tensor *t,
                                size_t index, const accel_ckpt_box_t *want,
                                accel_error_t *err)
{
    const struct ckpt_mbox *b = &r->c->m.box[index];
    int64_t off[ACCEL_CKPT_MAX_DIMS], shape[ACCEL_CKPT_MAX_DIMS], end;
    accel_status_t st;
    struct ckpt_fill *copy;

    if (!ckpt_box_intersect(t->ndim, b->offset, b->shape, want->offset, want->shape,
                            off, shape))
        return ACCEL_OK;
    ACCEL_CHECK(st, grow_plan((void **)&r->copy, &r->copy_cap, r->copies,
                              sizeof(*r->copy), err));
    copy = &r->copy[r->copies++];
    *copy = (struct ckpt_fill){ .dst = want->data };
    ckpt_runs_start(&copy->runs, t->ndim, accel_dtype_bytes(t->dtype), b->offset,
                    b->shape, want->offset, want->shape, off, shape);
    end = last_byte(t, b, off, shape);
    for (int64_t k = copy->runs.src / CKPT_PIECE_BYTES; k * CKPT_PIECE_BYTES < end; k++)
        ACCEL_CHECK(st, ckpt_plan_use(r, index, (size_t)k, r->copies - 1, false, err));
    return ACCEL_OK;
}

/* All stored boxes that a wanted box meets. The stored boxes tile the tensor, so that
 * the whole wanted box is filled. */
static accel_status_t plan_box(struct ckpt_reader *r, const accel_ckpt_box_t *want,
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

accel_status_t ckpt_plan_boxes(struct ckpt_reader *r, const accel_ckpt_box_t *boxes,
                               size_t n, bool blobs, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < n && !st; i++)
        st = plan_box(r, &boxes[i], blobs, err);
    return st;
}

/* By place, so that files are read front to back, each once. */
static int compare_uses(const void *pa, const void *pb)
{
    const struct ckpt_use *a = pa, *b = pb;

    if (a->shared != b->shared)
        return a->shared ? -1 : 1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->copy > b->copy) - (a->copy < b->copy);
}

/* Joins pieces to spans of at most CKPT_IO_BYTES: reading through a small gap is
 * cheaper than another request. */
accel_status_t ckpt_plan_spans(struct ckpt_reader *r, accel_error_t *err)
{
    struct ckpt_span *last = NULL;

    if (r->uses)
        qsort(r->use, r->uses, sizeof(*r->use), compare_uses);
    r->span = calloc(r->uses + 1, sizeof(*r->span));
    if (!r->span)
        return accel_fail_nomem(err, "the read plan", r->uses * sizeof(*r->span));
    for (size_t i = 0; i < r->uses; i++) {
        const struct ckpt_use *u = &r->use[i];
        int64_t end = u->at + u->bytes;

        if (!last || last->file != u->file || r->use[last->first].shared != u->shared ||
            u->at > last->at + last->bytes + GAP_BYTES ||
            end - last->at > CKPT_IO_BYTES) {
            last = &r->span[r->spans++];
            *last = (struct ckpt_span){ u->file, u->at, .first = i, .owner = r->rank };
            r->shared += u->shared;
        }
        last->bytes = end - last->at;
        last->count++;
    }
    return ACCEL_OK;
}

void ckpt_plan_free(struct ckpt_reader *r)
{
    free(r->copy);
    free(r->use);
    free(r->span);
}

/* ---- what becomes of a span ------------------------------------------------------ */

/* Copies the wanted parts of piece bytes [begin, begin+n) of the stored box. Stops at
 * the end of the piece in the middle of a run if need be; `used` remembers how far.
 * Runs before the piece belong to pieces that another position has. */
static void scatter(struct ckpt_fill *c, int64_t begin, int64_t n, const char *data)
{
    while (!c->runs.done) {
        int64_t src = c->runs.src + c->used, bytes = c->runs.run_bytes - c->used;
        int64_t skip = begin - src < bytes ? begin - src : bytes;

        if (src >= begin + n)
            return;
        if (skip > 0) {
            c->used += skip;
        } else {
            if (bytes > begin + n - src)
                bytes = begin + n - src;
            memcpy(c->dst + c->runs.dst + c->used, data + (src - begin), (size_t)bytes);
            c->used += bytes;
        }
        if (c->used == c->runs.run_bytes) {
            c->used = 0;
            ckpt_runs_next(&c->runs);
        }
    }
}

/* Names the tensor in an error of the reading thread. */
static accel_status_t fail_read(const struct ckpt_reader *r, const struct ckpt_mbox *b,
                                const accel_error_t *why, accel_error_t *err)
{
    const struct ckpt_tensor *t = &r->c->m.tensor[b->tensor];

    return accel_fail_from(err, why, "%s %s: %.200s", t->blob ? "blob" : "tensor",
                           t->name, why->text);
}

/* Whether a piece is whole: an error when it could not be read, or does not match its
 * hash. `u` is its first use. */
static accel_status_t check_piece(const struct ckpt_reader *r, const struct ckpt_use *u,
                                  const struct ckpt_slot *slot, accel_error_t *err)
{
    const struct ckpt_mbox *b = &r->c->m.box[u->box];

    if (slot->status)
        return fail_read(r, b, &slot->why, err);
    return u->bad ? fail_damaged(r->c, b, err) : ACCEL_OK;
}

accel_status_t ckpt_span_check(const struct ckpt_reader *r, const struct ckpt_span *s,
                               const struct ckpt_slot *slot, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = s->first; i < s->first + s->count && !st; i++)
        if (ckpt_use_first(r, s, i))
            st = check_piece(r, &r->use[i], slot, err);
    return st;
}

void ckpt_span_copy(struct ckpt_reader *r, const struct ckpt_span *s,
                    const struct ckpt_slot *slot)
{
    for (size_t i = s->first; i < s->first + s->count; i++) {
        const struct ckpt_use *u = &r->use[i];

        if (u->copy != CKPT_NO_COPY)
            scatter(&r->copy[u->copy], (int64_t)u->piece * CKPT_PIECE_BYTES, u->bytes,
                    slot->data + (u->at - s->at));
    }
}

/* Reports the boxes of a span that have a damaged piece. */
static void report_span(struct ckpt_reader *r, const struct ckpt_span *s,
                        const struct ckpt_slot *slot, accel_error_t *err)
{
    for (size_t i = s->first; i < s->first + s->count; i++)
        if (r->told != r->use[i].box && check_piece(r, &r->use[i], slot, err)) {
            r->finding(r->user, err);
            r->told = r->use[i].box;
        }
}

accel_status_t ckpt_take_own(struct ckpt_reader *r, size_t first, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = first; i < r->spans && !st; i++) {
        const struct ckpt_slot *slot = ckpt_ring_next(r);

        if (r->finding)
            report_span(r, &r->span[i], slot, err);
        else
            st = ckpt_span_check(r, &r->span[i], slot, err);
        if (!r->finding && !st)
            ckpt_span_copy(r, &r->span[i], slot);
        ckpt_ring_done(r);
        if (r->advance && !r->advance(r->user, r->span[i].bytes))
            break;
    }
    return st;
}

/* Reads what is planned, without other ranks, and frees the plan. */
static accel_status_t read_planned(struct ckpt_reader *r, accel_status_t st,
                                   accel_error_t *err)
{
    ACCEL_TRY(st, ckpt_plan_spans(r, err));
    if (!st && r->spans)
        st = ckpt_ring_open(r, err);
    ACCEL_TRY(st, ckpt_take_own(r, 0, err));
    ckpt_ring_close(r);
    ckpt_plan_free(r);
    return st;
}

accel_status_t ckpt_read_boxes(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               bool blobs, accel_error_t *err)
{
    struct ckpt_reader r = { .c = c };

    return read_planned(&r, ckpt_plan_boxes(&r, boxes, n, blobs, err), err);
}

accel_status_t ckpt_verify_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                                bool (*advance)(void *user, int64_t bytes), void *user,
                                accel_error_t *err)
{
    struct ckpt_reader r = {
        .c = c, .finding = finding, .advance = advance, .user = user, .told = SIZE_MAX
    };
    accel_status_t st = ACCEL_OK;

    for (size_t i = c->file_first[file]; i < c->file_first[file + 1]; i++) {
        const size_t box = c->by_place[i];

        for (size_t k = 0; k < c->m.box[box].pieces && !st; k++)
            st = ckpt_plan_use(&r, box, k, CKPT_NO_COPY, false, err);
    }
    return read_planned(&r, st, err);
}

accel_status_t accel_ckpt_read(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               accel_error_t *err)
{
    return ckpt_read_boxes(c, boxes, n, false, err);
}
