/* SPDX-License-Identifier: Apache-2.0
 *
 * state/: what a checkpoint of a run holds, how it is saved, and how a run resumes from
 * it.
 */
#ifndef ACCEL_STATE_H
#define ACCEL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "accel_ckpt.h"

/* How far the training has come. */
struct progress {
    /* optimizer steps done */
    int64_t step;
    /* training samples consumed, by all ranks together */
    int64_t cursor;
    /* weights and progress came from a checkpoint */
    bool resumed;
    /* step of the newest checkpoint in the run's own directory; -1: none */
    int64_t saved_step;
    /* saves that failed in a row */
    int64_t failed_saves;
    /* clock_ns of the last save, also of one that failed */
    int64_t last_save_ns;
    /* What every save writes and no step changes, made once by state_identity. The
     * identity of the run: "key=value" words; must agree to resume. */
    char run_id[512];
    /* lines "key=value": optimizer, trained parameters and settings; owned */
    char *settings;
    /* sharding strategy, as a checkpoint names it */
    const char *sharding;
};

/* Place in the global sample order of the first sample that `rank` takes in micro-batch
 * `micro` of a step that starts at `cursor`. In each micro-batch the ranks take `batch`
 * samples one after the other. With micro = the number of micro-batches and rank 0 this
 * is where the next step starts, whatever the number of ranks. */
static inline int64_t run_first_sample(int64_t cursor, int micro, int world, int rank,
                                       int batch)
{
    return cursor + ((int64_t)micro * world + rank) * batch;
}

/* ---- state.c: identity and progress as text -------------------------------------- */

/* Fills in progress.run_id (name, model, data and seed), settings and sharding, from a
 * run whose units and groups are known. Not collective; reads samples of a program's
 * own dataset. */
accel_status_t state_identity(accel_t *run, accel_error_t *err);
/* Frees what state_identity made. */
void state_identity_free(accel_t *run);
/* Collective. Refuses ranks that were started with different jobs, models or configs,
 * and names what differs: they would silently train on different things. */
accel_status_t state_same_on_all(accel_t *run, accel_error_t *err);
/* Text of the trainer state, one malloc; the caller frees *text_out. */
accel_status_t state_encode(const accel_t *run, char **text_out, size_t *bytes_out,
                            accel_error_t *err);
/* Checks that the checkpoint in `dir` has the optimizer state that this run needs: the
 * same optimizer, the same trained parameters. text[bytes] is its trainer state. */
accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, size_t bytes,
                                     accel_error_t *err);
/* Restores step and cursor from text[bytes]; warns about settings that differ. On error
 * nothing is restored. */
accel_status_t state_decode(accel_t *run, const char *text, size_t bytes,
                            accel_error_t *err);

/* ---- run_boxes.c: the tensors of a checkpoint ------------------------------------ */

/* The tensors of a checkpoint as boxes in host memory. */
struct run_boxes {
    /* `all` has `count` boxes; it is `shards` where there are no buffers */
    accel_ckpt_box_t *all, *shards;
    /* the boxes of the shards come first */
    size_t count, shard_count;
    /* With a device: the host memory that boxes point to. */
    char *image;
    /* [count]: the device memory that each box is a copy of; NULL: it has none */
    void **device;
};

/* What this rank stores in a checkpoint or, for_load, reads from one: the run's own
 * memory, or a host copy of the device's, which is complete when the call returns. Not
 * collective. Free it in either case, also after an error. */
accel_status_t run_boxes(accel_t *run, bool for_load, struct run_boxes *boxes_out,
                         accel_error_t *err);
/* After a load: copies what was read into the device's memory, and drops gathered
 * copies of the old values. */
void run_boxes_store(accel_t *run, const struct run_boxes *boxes);
/* Frees the boxes and the copy, not the run's memory. */
void run_boxes_free(struct run_boxes *boxes);

/* ---- save.c ---------------------------------------------------------------------- */

/* Saves a checkpoint of the current step; does nothing if that step is saved or the
 * run saves none. Collective: every rank gets the same status. On failure older
 * checkpoints are untouched. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* The same in the middle of a run. A save that fails and may succeed later (disk
 * full) is counted and warned about, and training goes on with the older
 * checkpoint. Collective. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* The same at the end of a life, where no later save can make up for it: up to 4 tries
 * with 7 s of pauses, then the failure is the run's error. Collective. */
accel_status_t save_last(accel_t *run, accel_error_t *err);

/* ---- resume.c -------------------------------------------------------------------- */

/* Resumes as ACCEL_RESUME says: from the newest intact checkpoint of this run, from
 * none, or from another one. ACCEL_OK with step 0 and `resumed` false when the run
 * starts anew. Falls back to an older checkpoint only after proven damage, and moves
 * the damaged one aside. A checkpoint that cannot be read now, or has another format,
 * is an error. Never deletes or overwrites a checkpoint. Collective. */
accel_status_t resume_run(accel_t *run, accel_error_t *err);

#endif
