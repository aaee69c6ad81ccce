/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that go to the nodes' own disks first (accel.checkpoint.local_dir). This
 * attempt copies them to the checkpoint directory while training continues, or the next
 * one does when it resumes. All of this is the same on every rank.
 */
#ifndef ACCEL_STATE_STAGING_H
#define ACCEL_STATE_STAGING_H

#include "handle/run.h"

/* Call this before a resume. Creates nothing. Collective. A0862: the config's directory
 * conflicts with the checkpoint directory. */
accel_status_t staging_open(accel_t *run, accel_error_t *err);
/* Copies a checkpoint that an earlier attempt left on the nodes to the checkpoint
 * directory. Collective. Errors: those of accel_ckpt_drain_begin; nothing has changed
 * then. */
accel_status_t staging_copy_left(accel_t *run, const accel_ckpt_staged_t *c,
                                 accel_error_t *err);
/* Removes the checkpoints of list[count], which are no longer of use because the run
 * has resumed without them: first the records, then the parts. Collective. */
accel_status_t staging_drop_left(accel_t *run, const accel_ckpt_staged_t *list,
                                 int64_t count, accel_error_t *err);
/* Call this after a resume: from here on checkpoints go to the nodes, if the config
 * says so. Collective. */
accel_status_t staging_begin(accel_t *run, accel_error_t *err);
/* Notes and logs that the checkpoint of `step` is on the nodes. All but the newest two
 * are dropped. Collective. */
void staging_take(accel_t *run, int64_t step, const accel_ckpt_stats_t *stats);
/* Call this at the end of a step in which no rank is still copying. Commits the copy,
 * and with `begins` begins to copy the newest checkpoint. A failure that may pass is
 * only a warning. Collective. */
accel_status_t staging_go_on(accel_t *run, bool begins, accel_error_t *err);
/* Copies the newest checkpoint, and waits for it. A failure that may pass is only a
 * warning; staging_holds is then still true. Collective. */
accel_status_t staging_finish(accel_t *run, accel_error_t *err);
/* Abandons the copy in flight, if there is one: nothing of it is committed. Not
 * collective, but either all ranks call it or none. */
void staging_give_up(accel_t *run);
/* Drops what is on the nodes: the checkpoint directory has a newer checkpoint, or the
 * run went back. Not collective, but either all ranks call it or none. */
void staging_forget(accel_t *run);
/* Ends staging for this attempt, because of `why`, which is rank 0's, and logs that. */
void staging_end(accel_t *run, const accel_error_t *why);
/* Call this before a save to the nodes. Waits until this rank has removed the parts
 * that were dropped. So no node has more than four, and none with the name of the new
 * one. Not collective; the ranks must synchronise before any of them writes. */
void staging_settle(accel_t *run);
/* Waits for the threads and frees what they used. */
void staging_close(accel_t *run);

#endif
