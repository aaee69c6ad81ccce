/* SPDX-License-Identifier: Apache-2.0
 *
 * The scales of linears in fp8.
 */
#ifndef ACCEL_TRAINING_FP8_SCALING_H
#define ACCEL_TRAINING_FP8_SCALING_H

#include "handle/run.h"

/* Gives linears of a run with mixed_precision fp8 their scales. A0170: not on this
 * device. */
accel_status_t fp8_scales_begin(accel_t *run, accel_error_t *err);
void fp8_scales_free(accel_t *run);
/* Call this when the gradients of a step are complete. Computes the next scales from
 * the largest magnitudes that any rank has seen. Collective. */
accel_status_t fp8_scales_end_step(accel_t *run, accel_error_t *err);
/* Discards the magnitudes that forwards and backwards have seen since the last step. */
void fp8_scales_forget(accel_t *run);
/* Do scales last from step to step, and do checkpoints hold them? */
static inline bool fp8_scales_kept(const accel_t *run)
{
    return run->fp8.linears.count > 0 && !run->fp8.linears.recipe.current;
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* Writes the tensors of a save as boxes to box[] and their names to `text`; NULL: only
 * counts them. Returns how many there are; *text_bytes_out: the bytes of all names. */
size_t fp8_boxes(const accel_t *run, accel_ckpt_box_t *box, char *text,
                 size_t *text_bytes_out);
/* The scales that a checkpoint has for linears of this run, before and after they are
 * read. Zeros: none. fp8_stored_free frees what it points to. */
struct fp8_stored {
    /* [count] boxes, and the linear of each */
    accel_ckpt_box_t *box;
    int *linear;
    size_t count;
    /* length of the checkpoint's histories; 0: it has no scales */
    int64_t history;
    char *names;
    float *data;
};
/* Lists the scales that checkpoint `c` of directory `dir` has; `text` is its trainer
 * state. Not collective. A0998: they have a wrong form. */
accel_status_t fp8_find(accel_t *run, const char *dir, accel_ckpt_t *c,
                        const char *text, struct fp8_stored *stored_out,
                        accel_error_t *err);
/* Reads them from storage once, for all ranks and for fp8_take_progress. Collective;
 * errors are this rank's own. A0998: they are damaged. */
accel_status_t fp8_read(accel_t *run, const char *dir, accel_ckpt_t *c,
                        const struct fp8_stored *s, accel_error_t *err);
void fp8_stored_free(struct fp8_stored *s);

#endif
