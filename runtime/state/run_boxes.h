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
    /* of run_boxes_saved: room for state in another form than the run's */
    struct shard_saved saved;
    /* `all` has `count` boxes; it is `shards` where there are no buffers */
    accel_ckpt_box_t *all, *shards;
    /* the boxes of the shards come first; buffers and scales, the host's, follow */
    size_t count, shard_count, scale_count;
    /* With a device: the host memory that boxes point to. */
    char *image;
    /* [count]: the device memory that each box is a copy of; NULL: it has none */
    void **device;
};

/* What this rank stores in a checkpoint: the run's own memory, or a host copy of the
 * device's, which is complete when the call returns. Not collective. Free it in either
 * case, also after an error. */
accel_status_t run_boxes(accel_t *run, struct run_boxes *boxes_out, accel_error_t *err);
/* What it reads from a checkpoint, whose masters have that type, and its
 * optimizers' state those forms: [ACCEL_MAX_OPTIMS] as in struct shard_saved. local:
 * it has the flat shards of this run. */
accel_status_t run_boxes_saved(accel_t *run, bool local, accel_dtype_t masters,
                               const accel_moments_t *moments,
                               struct run_boxes *boxes_out, accel_error_t *err);
/* Fills the boxes from checkpoint `c`. Collective: all ranks have opened the same one;
 * an error may be of this rank alone (accel_ckpt_read_together). */
accel_status_t run_boxes_read(accel_t *run, accel_ckpt_t *c, const struct run_boxes *b,
                              accel_error_t *err);
/* After a load: copies what was read into the device's memory, and drops gathered
 * copies of the old values. */
void run_boxes_store(accel_t *run, const struct run_boxes *boxes);
/* Frees the boxes and the copy, not the run's memory. */
void run_boxes_free(struct run_boxes *boxes);

/* The boxes of a save as the run's memory has them, on whatever device that is. */
accel_status_t run_boxes_list(accel_t *run, struct run_boxes *boxes_out,
                              accel_error_t *err);
/* Bytes of a box in memory. */
size_t run_box_bytes(const accel_ckpt_box_t *box);
/* Is box i in device memory? */
bool run_box_on_device(const accel_t *run, const struct run_boxes *boxes, size_t i);

#endif
