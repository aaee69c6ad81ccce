/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/manifest/boxes.c: every range of small tensors against an element-by-element
 * oracle; runs of every intersection against direct indexing; overflow of volumes.
 */
#include <string.h>

#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"

static int64_t linear(int ndim, const int64_t *shape, const int64_t *index)
{
    int64_t at = 0;

    for (int d = 0; d < ndim; d++)
        at = at * shape[d] + index[d];
    return at;
}

/* Appends the linear indices of a box's elements, in the box's memory order. */
static int64_t walk(int ndim, const int64_t *shape, const accel_ckpt_box_t *box,
                    int64_t *at, int64_t n)
{
    int64_t volume = ckpt_volume(ndim, box->shape);

    for (int64_t i = 0; i < volume; i++) {
        int64_t index[ACCEL_CKPT_MAX_DIMS] = { 0 };
        int64_t rest = i;

        for (int d = ndim - 1; d >= 0; d--) {
            index[d] = box->offset[d] + rest % box->shape[d];
            rest /= box->shape[d];
        }
        at[n++] = linear(ndim, shape, index);
    }
    return n;
}

static void test_ranges(void)
{
    static const struct {
        int ndim;
        int64_t shape[4];
    } cases[] = {
        { 0, { 0 } },       { 1, { 1 } },          { 1, { 13 } },
        { 2, { 5, 7 } },    { 2, { 1, 9 } },       { 2, { 9, 1 } },
        { 3, { 3, 4, 5 } }, { 3, { 2, 1, 3 } },    { 3, { 1, 1, 1 } },
        { 3, { 4, 2, 2 } }, { 4, { 2, 3, 2, 3 } }, { 4, { 3, 1, 2, 2 } },
    };

    for (size_t c = 0; c < ACCEL_ARRAY_SIZE(cases); c++) {
        int ndim = cases[c].ndim;
        int64_t total = ckpt_volume(ndim, cases[c].shape);
        int most = 0, bad = 0;

        for (int64_t begin = 0; begin <= total; begin++) {
            for (int64_t end = begin; end <= total; end++) {
                accel_ckpt_box_t box[2 * ACCEL_CKPT_MAX_DIMS];
                int64_t at[128], n = 0;
                int k =
                    accel_ckpt_boxes_of_range(ndim, cases[c].shape, begin, end, box);

                most = k > most ? k : most;
                for (int i = 0; i < k; i++)
                    n = walk(ndim, cases[c].shape, &box[i], at, n);
                bad += n != end - begin;
                for (int64_t i = 0; i < n; i++)
                    bad += at[i] != begin + i;
            }
        }
        tap_ok(bad == 0, "case %zu: every range is its boxes in memory order", c);
        tap_ok(most <= (ndim > 0 ? 2 * ndim - 1 : 1),
               "case %zu: at most 2n-1 boxes (%d)", c, most);
    }
}

/* Copies the common part of two boxes by runs and compares with direct indexing. */
static int runs_wrong(int ndim, const int64_t *shape, const accel_ckpt_box_t *a,
                      const accel_ckpt_box_t *b)
{
    int64_t src[128], dst[128], want[128], off[4], part[4];
    int64_t na = walk(ndim, shape, a, src, 0), nb = walk(ndim, shape, b, want, 0);
    struct ckpt_runs r;
    int64_t last = -1, copied = 0, expect = 0;
    int bad = 0;

    for (int64_t i = 0; i < nb; i++) {
        bool both = false;

        for (int64_t j = 0; j < na; j++)
            both |= src[j] == want[i];
        want[i] = both ? want[i] : -1;
        dst[i] = -1;
        expect += both;
    }
    if (!ckpt_box_intersect(ndim, a->offset, a->shape, b->offset, b->shape, off, part))
        return expect != 0;
    ckpt_runs_start(&r, ndim, 8, a->offset, a->shape, b->offset, b->shape, off, part);
    for (; !r.done; ckpt_runs_next(&r)) {
        bad += r.src <= last;
        last = r.src;
        memcpy((char *)dst + r.dst, (char *)src + r.src, (size_t)r.run_bytes);
        copied += r.run_bytes / 8;
    }
    bad += copied != expect;
    for (int64_t i = 0; i < nb; i++)
        bad += dst[i] != want[i];
    return bad;
}

static void test_runs(void)
{
    static const int64_t shape[3] = { 3, 4, 3 };
    accel_ckpt_box_t all[600];
    int count = 0, bad = 0;

    for (int64_t code = 0; code < 6 * 10 * 6; code++) {
        static const int64_t pairs[10][2] = { { 0, 1 }, { 0, 2 }, { 0, 3 }, { 1, 2 },
                                              { 1, 3 }, { 2, 3 }, { 0, 4 }, { 1, 4 },
                                              { 2, 4 }, { 3, 4 } };
        int64_t pick[3] = { code % 6, code / 6 % 10, code / 60 };

        for (int d = 0; d < 3; d++) {
            all[count].offset[d] = pairs[pick[d]][0];
            all[count].shape[d] = pairs[pick[d]][1] - pairs[pick[d]][0];
        }
        count++;
    }
    /* 7 has no factor in common with the choices of a dimension: all of them come
     * up. */
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j += 7)
            bad += runs_wrong(3, shape, &all[i], &all[j]) != 0;
    tap_is_int(bad, 0, "runs of intersections of 3-D boxes, %d boxes", count);
}

static void test_overflow(void)
{
    int64_t big[3] = { INT64_C(1) << 31, INT64_C(1) << 31, 4 };
    int64_t zero[3] = { INT64_C(1) << 40, 0, 4 };
    int64_t negative[2] = { 3, -1 };
    int64_t global[1] = { 10 }, off[1] = { INT64_MAX - 1 }, shape[1] = { 5 };
    accel_ckpt_box_t box[8];

    tap_is_int(ckpt_volume(3, big), -1, "volume beyond int64 is refused");
    tap_is_int(ckpt_volume(3, zero), 0, "a zero extent gives volume 0");
    tap_is_int(ckpt_volume(2, negative), -1, "a negative extent is refused");
    tap_ok(!ckpt_box_inside(1, off, shape, global), "offset + shape does not wrap");
    tap_is_int(accel_ckpt_boxes_of_range(3, zero, 0, 5, box), 0,
               "empty tensor: no box");
    tap_is_int(accel_ckpt_boxes_of_range(9, big, 0, 5, box), 0, "too many dimensions");
}

int main(void)
{
    test_ranges();
    test_runs();
    test_overflow();
    return tap_done();
}
