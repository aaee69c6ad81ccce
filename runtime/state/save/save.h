/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves of a run: during training, at the end, at a stop.
 */
#ifndef ACCEL_STATE_SAVE_SAVE_H
#define ACCEL_STATE_SAVE_SAVE_H

#include "handle/run.h"

/* ---- save_notes.c ---------------------------------------------------------------- */

/* Rank 0's name for this attempt, for the names of what it saves. Collective. */
accel_status_t save_owner(accel_t *run, char *buf, size_t len, accel_error_t *err);
/* For accel_ckpt_save_t, whose may_commit_user is the run: fails once a later attempt
 * took over. */
accel_status_t save_may_commit(void *user, accel_error_t *err);
/* Call this once the checkpoint of `step` is durable. Notes and logs it, and how long
 * it took, for stops of this attempt and of later ones. */
void save_note(accel_t *run, int64_t step, enum save_kind kind,
               const accel_ckpt_stats_t *stats);
/* Notes that a save of `kind` took `seconds`, without the time that it was throttled,
 * for the deadlines of this attempt and of later ones. */
void save_measure(accel_t *run, int64_t step, enum save_kind kind, double seconds);
/* May another try succeed after this error: a full disk, a file system that is away? */
bool save_may_pass(accel_status_t st);

/* ---- save.c ---------------------------------------------------------------------- */

/* Saves a checkpoint of the current step. It replaces an existing one of that step,
 * because the program may have changed weights or objects since. Does nothing if the
 * run saves none. Collective: every rank gets the same status. After a failure, older
 * checkpoints and an existing one of this step are untouched. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* Waits until the save in flight is written, and commits it; does nothing if there is
 * none. A failure that may pass is only a warning. Collective: every rank gets the same
 * status. */
accel_status_t save_finish(accel_t *run, accel_error_t *err);
/* Writes the current step below `root`, where the newest `keep` checkpoints stay, and
 * those that the rule adds. Collective: every rank gets the same status. */
accel_status_t save_below(accel_t *run, const char *root, int keep,
                          accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* save_checkpoint during training. If a save fails but may succeed later (disk full),
 * the failure is counted, a warning is given, and training continues with the older
 * checkpoint. With accel.checkpoint.async the save is only begun, and save_finish ends
 * it. Collective. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* Saves the current step on the nodes; staging.on must be true. A failure ends staging
 * for this attempt, with a warning, and is returned. Collective: every rank gets the
 * same status. */
accel_status_t save_staged(accel_t *run, accel_error_t *err);

/* ---- last_save.c ----------------------------------------------------------------- */

/* save_checkpoint at the end of a run, where no later save can make up for a failure:
 * up to 4 tries, with pauses of 7 s in total, then the failure is the run's error.
 * Collective. */
accel_status_t save_last(accel_t *run, accel_error_t *err);
/* The same for a stop by `sig`, after finishing the save in flight, as far as there is
 * time for both. ACCEL_OK with progress.saved_step below the run's step: there was no
 * time, and preemption.declined says why. Collective. */
accel_status_t save_stop(accel_t *run, int sig, accel_error_t *err);

/* ---- retention.c: which checkpoints stay once a save is durable ------------------ */

/* Takes the rule from the config. */
void retention_open(accel_t *run);
/* How many of the newest stay: never fewer than two, so that one is left if the newest
 * proves to be damaged. */
int retention_keep(const accel_t *run);
/* Notes a metric of the program or accel_evaluate; others than the rule's are
 * ignored. */
void retention_note(accel_t *run, const char *name, double value);
/* Call this before the current step is saved. Writes its value down. Warns once if the
 * rule needs values and there are none. */
void retention_save(accel_t *run);
/* Forgets the value, because the run has gone back to another step. */
void retention_forget(accel_t *run);
/* For accel_ckpt_save_t: false once a stop has been asked for. Any thread. */
int retention_may_delete(void);

#endif
