/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint/: the manifest in memory and the steps of save and load.
 * Everything here has the prefix ckpt_ and hidden visibility.
 */
#ifndef ACCEL_CKPT_INTERNAL_H
#define ACCEL_CKPT_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "accel_ckpt.h"
#include "common/common.h"

#define CKPT_FORMAT       1
#define CKPT_PIECE_BYTES  (1 << 20)  /* unit of hashing */
#define CKPT_IO_BYTES     (4 << 20)  /* unit of reading and writing */
#define CKPT_PAGE         4096       /* O_DIRECT: memory, offset and length */
#define CKPT_ALIGN_FROM   (64 << 10) /* datasets this large start on a page */
#define CKPT_MANIFEST_MAX (256 << 20)
#define CKPT_NAME_MAX     511
#define CKPT_RUN_ID_MAX   1024
#define CKPT_WORLD_MAX    99999
#define CKPT_STEP_MAX     INT64_C(999999999999)
#define CKPT_DIR_MAX      192 /* "step_...", ".tmp-step_....OWNER" */

/* ---- boxes.c ------------------------------------------------------------------------ */

/* Product of shape[ndim]; -1 for a negative extent or beyond INT64_MAX. */
int64_t ckpt_volume(int ndim, const int64_t *shape);
bool ckpt_box_inside(int ndim, const int64_t *offset, const int64_t *shape,
                     const int64_t *global);
/* Common part of boxes a and b in global coordinates; false: they do not meet. */
bool ckpt_box_intersect(int ndim, const int64_t *a_off, const int64_t *a_shape,
                        const int64_t *b_off, const int64_t *b_shape, int64_t *off_out,
                        int64_t *shape_out);

/* Walks the runs of a sub-box that are contiguous in both a source and a destination box,
 * in source memory order. All offsets in bytes from the start of either box's memory. */
struct ckpt_runs {
    int outer; /* dimensions that are looped over */
    int64_t count[ACCEL_CKPT_MAX_DIMS], index[ACCEL_CKPT_MAX_DIMS];
    int64_t src_stride[ACCEL_CKPT_MAX_DIMS], dst_stride[ACCEL_CKPT_MAX_DIMS];
    int64_t src, dst;  /* of the current run */
    int64_t run_bytes; /* length of every run */
    bool done;
};
void ckpt_runs_start(struct ckpt_runs *r, int ndim, size_t elem_bytes,
                     const int64_t *src_off, const int64_t *src_shape,
                     const int64_t *dst_off, const int64_t *dst_shape,
                     const int64_t *part_off, const int64_t *part_shape);
void ckpt_runs_next(struct ckpt_runs *r);

#endif
