/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves of a run: in its midst, at its end, at a stop.
 */
#ifndef ACCEL_STATE_SAVE_SAVE_H
#define ACCEL_STATE_SAVE_SAVE_H

#include "handle/run.h"

/* ---- save_notes.c ---------------------------------------------------------------- */

/* This life's name in the names of what it saves: rank 0's word. Collective. */
accel_status_t save_owner(accel_t *run, char *buf, size_t len, accel_error_t *err);
/* For accel_ckpt_save_t, whose may_commit_user is the run: a later life ends it. */
accel_status_t save_may_commit(void *user, accel_error_t *err);
/* Notes and logs what is known once the checkpoint of `step` is durable: also how long
 * it took, for stops of this life and of later ones. */
void save_note(accel_t *run, int64_t step, enum save_kind kind,
               const accel_ckpt_stats_t *stats);
/* Notes that a save of `kind` took `seconds`, without the time that it left to others,
 * for the deadlines of this life and of later ones. */
void save_measure(accel_t *run, int64_t step, enum save_kind kind, double seconds);
/* Is it an error that another try may cure: a full disk, a file system that is away? */
bool save_may_pass(accel_status_t st);

/* ---- save.c ---------------------------------------------------------------------- */

/* Saves a checkpoint of the current step, which replaces one of that step: the program
 * may have changed weights or objects since. Does nothing if the run saves none.
 * Collective: every rank gets the same status. On failure older checkpoints, and that
 * of this step, are untouched. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* Waits until the save in flight is written, and commits it; does nothing if there is
 * none. A failure that may pass is warned about, and no error. Collective: every rank
 * gets the same status. */
accel_status_t save_finish(accel_t *run, accel_error_t *err);
/* Writes the current step below `root`, which keeps the newest `keep` of its
 * checkpoints and what the rule adds. Collective: every rank gets the same status. */
accel_status_t save_below(accel_t *run, const char *root, int keep,
                          accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* save_checkpoint in the middle of a run. A save that fails and may succeed later (disk
 * full) is counted and warned about, and training goes on with the older
 * checkpoint. With accel.checkpoint.async it is only begun, and save_finish ends it.
 * Collective. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* Saves the current step on the nodes; staging.on is true. A failure ends the staging
 * of this life, with a warning, and is the caller's. Collective: every rank gets the
 * same status. */
accel_status_t save_staged(accel_t *run, accel_error_t *err);

/* ---- last_save.c ----------------------------------------------------------------- */

/* save_checkpoint at the end of a run, where no later save can make up for it: up to 4
 * tries with 7 s of pauses, then the failure is the run's error. Collective. */
accel_status_t save_last(accel_t *run, accel_error_t *err);
/* The same for a stop by `sig`, and the save in flight before it, as far as there is
 * time for them. ACCEL_OK with progress.saved_step below the run's step: there was not,
 * and life.declined says why. Collective. */
accel_status_t save_stop(accel_t *run, int sig, accel_error_t *err);

#endif
