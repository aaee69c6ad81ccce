/* SPDX-License-Identifier: Apache-2.0
 *
 * Geometry of a manifest: do the boxes tile every tensor exactly, and do their byte
 * ranges lie inside their file without overlap? Asked before a save is published and
 * after a manifest is parsed.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "manifest/ckpt_manifest.h"
#include "ckpt_internal.h"

/* Pairs of boxes compared per manifest. Far above any real one (10^5 boxes of a tensor
 * cut along one dimension need 10^5); keeps a hostile one from stalling the reader. */
#define PAIRS_MAX INT64_C(200000000)

/* A box as an interval along the dimension that is swept. */
struct sweep {
    int64_t begin, end;
    const struct ckpt_mbox *box;
};

static int compare_sweep(const void *pa, const void *pb)
{
    const struct sweep *a = pa, *b = pb;

    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The dimension along which the boxes meet least often. The sum of their extents,
 * relative to the tensor's, is how many of them a cut across it goes through. */
static int cut_dimension(const struct ckpt_manifest *m, const struct ckpt_tensor *t)
{
    double best_depth = 0;
    int best = 0;

    for (int d = 0; d < t->ndim; d++) {
        double depth = 0;

        for (size_t i = t->box; i < t->box + t->boxes; i++)
            depth += (double)m->box[i].shape[d];
        depth /= (double)t->shape[d];
        if (d == 0 || depth < best_depth) {
            best_depth = depth;
            best = d;
        }
    }
    return best;
}

/* Sweeps along one dimension: only boxes whose intervals meet there are
 * compared. Together with the covered volume, which check_tensor adds up, no
 * overlap means an exact tiling. */
static accel_status_t check_overlap(const struct ckpt_manifest *m,
                                    const struct ckpt_tensor *t, int64_t *pairs,
                                    enum message code, accel_error_t *err)
{
    int64_t off[ACCEL_CKPT_MAX_DIMS], shape[ACCEL_CKPT_MAX_DIMS];
    struct sweep *s;
    int d;

    if (t->boxes < 2)
        return ACCEL_OK;
    if (t->ndim == 0)
        return accel_fail_at(err, code, t->name, "store a scalar once",
                             "a scalar has %zu boxes", t->boxes);
    d = cut_dimension(m, t);
    s = calloc(t->boxes, sizeof(*s));
    if (!s)
        return accel_fail_nomem(err, "the tiling check", t->boxes * sizeof(*s));
    for (size_t i = 0; i < t->boxes; i++) {
        const struct ckpt_mbox *b = &m->box[t->box + i];

        s[i] = (struct sweep){ b->offset[d], b->offset[d] + b->shape[d], b };
    }
    qsort(s, t->boxes, sizeof(*s), compare_sweep);
    for (size_t i = 0; i < t->boxes; i++) {
        for (size_t j = i + 1; j < t->boxes && s[j].begin < s[i].end; j++) {
            const struct ckpt_mbox *a = s[i].box, *b = s[j].box;
            bool hit = ckpt_box_intersect(t->ndim, a->offset, a->shape, b->offset,
                                          b->shape, off, shape);

            if (!hit && ++*pairs <= PAIRS_MAX)
                continue;
            free(s);
            return accel_fail_at(err, code, t->name, "store every element exactly once",
                                 hit ? "boxes of files %d and %d overlap"
                                     : "too many boxes to check (files %d, %d)",
                                 a->file, b->file);
        }
    }
    free(s);
    return ACCEL_OK;
}

/* Each box by itself, then their total volume, then overlaps. */
static accel_status_t check_tensor(const struct ckpt_manifest *m,
                                   const struct ckpt_tensor *t, int64_t *pairs,
                                   enum message code, accel_error_t *err)
{
    int64_t volume = ckpt_volume(t->ndim, t->shape), covered = 0, total;
    int64_t elem = (int64_t)accel_dtype_bytes(t->dtype);

    if (volume < 0 || __builtin_mul_overflow(volume, elem, &total))
        return accel_fail_at(err, code, t->name, "use sizes of less than 2^63 bytes",
                             "the tensor's size overflows");
    for (size_t i = t->box; i < t->box + t->boxes; i++) {
        const struct ckpt_mbox *b = &m->box[i];
        int64_t v = ckpt_volume(t->ndim, b->shape);

        if (v <= 0 || !ckpt_box_inside(t->ndim, b->offset, b->shape, t->shape))
            return accel_fail_at(err, code, t->name, "keep every box inside its tensor",
                                 "a box of %s lies outside the tensor",
                                 m->file[b->file].name);
        if (b->bytes != v * elem)
            return accel_fail_at(err, code, t->name,
                                 "pass the box's volume times the size of an element",
                                 "a box of %s has the wrong number of bytes",
                                 m->file[b->file].name);
        /* beyond the volume the sum says enough: boxes are there twice */
        if (__builtin_add_overflow(covered, v, &covered))
            covered = -1;
        if (covered < 0 || covered > volume)
            break;
    }
    if (covered != volume)
        return accel_fail_at(
            err, code, t->name, "make the boxes of all ranks tile the tensor exactly",
            "the boxes hold %" PRId64 " of %" PRId64 " elements%s", covered, volume,
            covered < volume ? ": some are missing" : ": some are stored twice");
    return check_overlap(m, t, pairs, code, err);
}

/* by (file, at), for qsort_r */
static int compare_place(const void *pa, const void *pb, void *arg)
{
    const struct ckpt_manifest *m = arg;
    const struct ckpt_mbox *a = &m->box[*(const size_t *)pa];
    const struct ckpt_mbox *b = &m->box[*(const size_t *)pb];

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

accel_status_t ckpt_boxes_by_place(const struct ckpt_manifest *m, size_t **order_out,
                                   accel_error_t *err)
{
    size_t *order = calloc(m->boxes + 1, sizeof(*order));

    if (!order)
        return accel_fail_nomem(err, "the box order", (m->boxes + 1) * sizeof(*order));
    for (size_t i = 0; i < m->boxes; i++)
        order[i] = i;
    if (m->boxes)
        qsort_r(order, m->boxes, sizeof(*order), compare_place, (void *)m);
    *order_out = order;
    return ACCEL_OK;
}

accel_status_t ckpt_manifest_check(const struct ckpt_manifest *m, enum message code,
                                   accel_error_t *err)
{
    accel_status_t st;
    int64_t pairs = 0, blobs = CKPT_BLOBS_MAX; /* what is left of the allowance */
    size_t *order;

    for (size_t i = 0; i < m->tensors; i++) {
        const struct ckpt_tensor *t = &m->tensor[i];

        ACCEL_CHECK(st, check_tensor(m, t, &pairs, code, err));
        if (t->blob && (blobs -= t->shape[0]) < 0)
            return accel_fail_at(err, code, t->name, "store large data as tensors",
                                 "the blobs have more than %d bytes", CKPT_BLOBS_MAX);
    }
    ACCEL_CHECK(st, ckpt_boxes_by_place(m, &order, err));
    for (size_t i = 0; i < m->boxes && !st; i++) {
        const struct ckpt_mbox *b = &m->box[order[i]],
                               *last = i ? &m->box[order[i - 1]] : b;
        const struct ckpt_file *f = &m->file[b->file];

        if (b->at < 0 || b->bytes > f->bytes || b->at > f->bytes - b->bytes)
            st = accel_fail_at(err, code, f->name,
                               "use another checkpoint: the file was truncated, or the "
                               "manifest belongs to another file",
                               "tensor %s reaches beyond the end of the file",
                               m->tensor[b->tensor].name);
        else if (i && last->file == b->file && last->at + last->bytes > b->at)
            st = accel_fail_at(
                err, code, f->name,
                "use another checkpoint: every tensor must have its own bytes",
                "tensors %s and %s share bytes of the file",
                m->tensor[last->tensor].name, m->tensor[b->tensor].name);
    }
    free(order);
    return st;
}
