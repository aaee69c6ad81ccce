/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a checkpoint.
 */
#ifndef ACCEL_STATE_RUN_BOXES_H
#define ACCEL_STATE_RUN_BOXES_H

#include "accel_ckpt.h"
#include "handle/run.h"

/* The tensors of a checkpoint as boxes in host memory. */
struct run_boxes {
    /* from run_boxes_saved: memory for state in another format than the run's */
    struct shard_saved saved;
    /* `all` has `count` boxes; it equals `shards` if there are no buffers */
    accel_ckpt_box_t *all, *shards;
    /* the shards' boxes come first; buffers and scales, in host memory, follow */
    size_t count, shard_count, scale_count;
    /* With a device: the host memory that boxes point to. */
    char *image;
    /* [count]: the device memory that each box is a copy of; NULL: it has none */
    void **device;
};

/* The boxes that this rank stores in a checkpoint: in the run's own memory, or in a
 * host copy of the device's, which is complete when the call returns. Not collective.
 * The caller frees the boxes with run_boxes_free, even after an error. */
accel_status_t run_boxes(accel_t *run, struct run_boxes *boxes_out, accel_error_t *err);
/* The boxes that this rank reads from a checkpoint whose masters have dtype `masters`
 * and whose optimizer state has the formats `moments`, [ACCEL_MAX_OPTIMS] as in struct
 * shard_saved. local: the checkpoint has the flat shards of this run. */
accel_status_t run_boxes_saved(accel_t *run, bool local, accel_dtype_t masters,
                               const accel_moments_t *moments,
                               struct run_boxes *boxes_out, accel_error_t *err);
/* Fills the boxes from checkpoint `c`. Collective: all ranks have opened the same one;
 * an error may be this rank's alone (accel_ckpt_read_together). */
accel_status_t run_boxes_read(accel_t *run, accel_ckpt_t *c, const struct run_boxes *b,
                              accel_error_t *err);
/* Call this after a load. Copies what was read to the device's memory, and drops
 * gathered copies of the old values. */
void run_boxes_store(accel_t *run, const struct run_boxes *boxes);
/* Frees the boxes and the copy, not the run's memory. */
void run_boxes_free(struct run_boxes *boxes);

/* The boxes of a save that point to the run's own memory, on whatever device it is. */
accel_status_t run_boxes_list(accel_t *run, struct run_boxes *boxes_out,
                              accel_error_t *err);
/* Bytes of a box in memory. */
size_t run_box_bytes(const accel_ckpt_box_t *box);
/* Is box i in device memory? */
bool run_box_on_device(const accel_t *run, const struct run_boxes *boxes, size_t i);

#endif
