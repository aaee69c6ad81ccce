/* SPDX-License-Identifier: Apache-2.0
 *
 * state/: what a checkpoint of a run holds, how it is saved and how a run resumes from
 * it.
 */
#ifndef ACCEL_STATE_H
#define ACCEL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "accel_ckpt.h"

/* Where the training stands. */
struct progress {
    int64_t step;         /* optimizer steps done */
    int64_t cursor;       /* training samples consumed, by all ranks together */
    bool resumed;         /* weights and progress came from a checkpoint */
    int64_t saved_step;   /* newest checkpoint in the run's directory; -1: none */
    int64_t failed_saves; /* in a row */
    int64_t last_save_ns;
    char run_id[512]; /* identity of the run: must agree to resume */
};

/* Place in the global sample order of the first sample that `rank` takes in micro-batch
 * `micro` of a step that starts at `cursor`: in each micro-batch the ranks take `batch`
 * samples one after another. With micro = the number of micro-batches and rank 0 this
 * is where the next step starts, for any number of ranks. */
static inline int64_t run_first_sample(int64_t cursor, int micro, int world, int rank,
                                       int batch)
{
    return cursor + ((int64_t)micro * world + rank) * batch;
}

/* ---- state.c: identity and progress as text -------------------------------------- */

accel_status_t state_identity(accel_t *run, accel_error_t *err);
/* Refuses ranks that were started with different jobs, models or configs and names what
 * differs: they would silently train on different things. Collective. */
accel_status_t state_same_on_all(accel_t *run, accel_error_t *err);
/* Text of the trainer state; the caller frees *text_out. */
accel_status_t state_encode(const accel_t *run, char **text_out, size_t *bytes_out,
                            accel_error_t *err);
/* Checks that the checkpoint holds the optimizer state that this run's optimizer
 * needs. */
accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, size_t bytes,
                                     accel_error_t *err);
/* Restores step and cursor; warns about settings that differ. */
accel_status_t state_decode(accel_t *run, const char *text, size_t bytes,
                            accel_error_t *err);

/* ---- run_boxes.c: the tensors of a checkpoint ------------------------------------ */

struct run_boxes {
    accel_ckpt_box_t *all, *shards; /* `all` has `count` boxes */
    size_t count, shard_count;      /* the shards' boxes come first */
    /* With a device the boxes point to host memory: */
    char *image;
    void **device; /* [count] device memory that each box is a copy of; NULL: none */
};

/* What this rank stores in a checkpoint, or with for_load reads from one, in host
 * memory: the run's own memory, or a copy of the device's. Free it in either case. */
accel_status_t run_boxes(accel_t *run, bool for_load, struct run_boxes *boxes_out,
                         accel_error_t *err);
/* After a load: copies what was read into the run's memory. */
void run_boxes_store(accel_t *run, const struct run_boxes *boxes);
void run_boxes_free(struct run_boxes *boxes);

/* ---- save.c ---------------------------------------------------------------------- */

/* Saves a checkpoint. Every rank gets the same status; on failure older checkpoints are
 * untouched. Collective. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* The same in the middle of a run: a save that fails (disk full) is counted and warned
 * about, and training goes on with the older checkpoint. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* The same at the end of a life, where no later save can make up for it: up to 4 tries
 * with 7 s of pauses; then the failure is the run's error. */
accel_status_t save_last(accel_t *run, accel_error_t *err);

/* ---- resume.c -------------------------------------------------------------------- */

/* Resumes as ACCEL_RESUME says: from the newest intact checkpoint of this run, from
 * none, or from another one. ACCEL_OK with step 0 and `resumed` false when the run
 * starts anew. Falls back to an older checkpoint only from proven damage, and moves the
 * damaged one aside; a checkpoint that cannot be read now, or has another format, is an
 * error. Never deletes or overwrites a checkpoint. Collective. */
accel_status_t resume_run(accel_t *run, accel_error_t *err);

#endif
