/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes (n-dimensional sub-arrays): from a flat range to boxes, intersection,
 * contiguous runs. Pure arithmetic on shapes; sizes from outside are checked for
 * overflow.
 */
#include "manifest/ckpt_manifest.h"
#include "ckpt_internal.h"

/* A zero extent makes the volume 0, but the extents after it must still be valid. */
int64_t ckpt_volume(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    bool zero = false;

    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            return -1;
        if (shape[d] == 0)
            zero = true;
        else if (__builtin_mul_overflow(n, shape[d], &n))
            return -1;
    }
    return zero ? 0 : n;
}

/* Compares with a subtraction, because offset + shape of a hostile
 * manifest could overflow. */
bool ckpt_box_inside(int ndim, const int64_t *offset, const int64_t *shape,
                     const int64_t *global)
{
    for (int d = 0; d < ndim; d++) {
        if (offset[d] < 0 || shape[d] < 0 || shape[d] > global[d] ||
            offset[d] > global[d] - shape[d])
            return false;
    }
    return true;
}

/* Per dimension: the larger begin, the smaller end. */
bool ckpt_box_intersect(int ndim, const int64_t *a_off, const int64_t *a_shape,
                        const int64_t *b_off, const int64_t *b_shape, int64_t *off_out,
                        int64_t *shape_out)
{
    for (int d = 0; d < ndim; d++) {
        int64_t a_end = a_off[d] + a_shape[d], b_end = b_off[d] + b_shape[d];
        int64_t begin = a_off[d] > b_off[d] ? a_off[d] : b_off[d];
        int64_t end = a_end < b_end ? a_end : b_end;

        if (begin >= end)
            return false;
        off_out[d] = begin;
        shape_out[d] = end - begin;
    }
    return true;
}

/* The box of `rows` rows from `row` on in dimension `dim`; dimensions above it are
 * fixed at prefix[], those below are whole. */
static void put_box(accel_ckpt_box_t *box_out, int ndim, const int64_t *shape,
                    const int64_t *prefix, int dim, int64_t row, int64_t rows)
{
    for (int d = 0; d < ndim; d++) {
        box_out->offset[d] = d < dim ? prefix[d] : d == dim ? row : 0;
        box_out->shape[d] = d < dim ? 1 : d == dim ? rows : shape[d];
    }
}

/* [begin, end) counts elements inside the sub-array that prefix[0..dim) selects. At
 * each depth the range is: a rest of a row, whole rows, the start of a row. The outer
 * parts go one dimension deeper, so that a depth adds at most two boxes. */
static int cut(int ndim, const int64_t *shape, int64_t *prefix, int dim, int64_t begin,
               int64_t end, accel_ckpt_box_t *boxes_out)
{
    int64_t row_elems = ckpt_volume(ndim - dim - 1, shape + dim + 1);
    int64_t first = begin / row_elems, last = end / row_elems;
    int64_t head = begin % row_elems, tail = end % row_elems;
    int n = 0;

    if (head != 0) {
        prefix[dim] = first;
        if (first == last)
            return cut(ndim, shape, prefix, dim + 1, head, tail, boxes_out);
        n += cut(ndim, shape, prefix, dim + 1, head, row_elems, boxes_out);
        first++;
    }
    if (last > first)
        put_box(&boxes_out[n++], ndim, shape, prefix, dim, first, last - first);
    if (tail != 0) {
        prefix[dim] = last;
        n += cut(ndim, shape, prefix, dim + 1, 0, tail, boxes_out + n);
    }
    return n;
}

int accel_ckpt_boxes_of_range(int ndim, const int64_t *shape, int64_t begin,
                              int64_t end, accel_ckpt_box_t *boxes_out)
{
    int64_t prefix[ACCEL_CKPT_MAX_DIMS] = { 0 };
    int64_t total;

    if (ndim < 0 || ndim > ACCEL_CKPT_MAX_DIMS)
        return 0;
    total = ckpt_volume(ndim, shape);
    if (begin < 0)
        begin = 0;
    if (end > total)
        end = total;
    if (begin >= end)
        return 0;
    if (ndim == 0)
        return 1;
    return cut(ndim, shape, prefix, 0, begin, end, boxes_out);
}

void ckpt_runs_start(struct ckpt_runs *r, int ndim, size_t elem_bytes,
                     const int64_t *src_off, const int64_t *src_shape,
                     const int64_t *dst_off, const int64_t *dst_shape,
                     const int64_t *part_off, const int64_t *part_shape)
{
    int64_t src_stride = (int64_t)elem_bytes, dst_stride = (int64_t)elem_bytes;
    int d;

    *r = (struct ckpt_runs){ .run_bytes = (int64_t)elem_bytes };
    /* Trailing dimensions merge into the run for as long as the part spans both boxes;
     * the first one that does not still belongs to it. */
    for (d = ndim - 1; d >= 0; d--) {
        r->src += (part_off[d] - src_off[d]) * src_stride;
        r->dst += (part_off[d] - dst_off[d]) * dst_stride;
        if (r->run_bytes == src_stride && r->run_bytes == dst_stride) {
            r->run_bytes *= part_shape[d];
        } else {
            r->count[d] = part_shape[d];
            r->src_stride[d] = src_stride;
            r->dst_stride[d] = dst_stride;
            if (d + 1 > r->outer)
                r->outer = d + 1;
        }
        src_stride *= src_shape[d];
        dst_stride *= dst_shape[d];
    }
}

void ckpt_runs_next(struct ckpt_runs *r)
{
    for (int d = r->outer - 1; d >= 0; d--) {
        r->src += r->src_stride[d];
        r->dst += r->dst_stride[d];
        if (++r->index[d] < r->count[d])
            return;
        r->src -= r->src_stride[d] * r->count[d];
        r->dst -= r->dst_stride[d] * r->count[d];
        r->index[d] = 0;
    }
    r->done = true;
}
