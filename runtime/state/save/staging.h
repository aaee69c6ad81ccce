/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that go to the nodes' own disks first (accel.checkpoint.local_dir), and
 * are copied to the checkpoint directory while training goes on: by this life, or by
 * the next one when it resumes. All of it is the same on every rank.
 */
#ifndef ACCEL_STATE_STAGING_H
#define ACCEL_STATE_STAGING_H

#include "handle/run.h"

/* Before a resume. Makes nothing. Collective. A0862: the config's directory is in the
 * way of the checkpoint directory. */
accel_status_t staging_open(accel_t *run, accel_error_t *err);
/* Copies a checkpoint that an earlier life left on the nodes to the checkpoint
 * directory. Collective. Errors: those of accel_ckpt_drain_begin; nothing has changed
 * then. */
accel_status_t staging_copy_left(accel_t *run, const accel_ckpt_staged_t *c,
                                 accel_error_t *err);
/* Those of list[count] are of no use any more: this run has resumed without them.
 * Removes records, then parts. Collective. */
accel_status_t staging_drop_left(accel_t *run, const accel_ckpt_staged_t *list,
                                 int64_t count, accel_error_t *err);
/* Behind a resume: checkpoints go to the nodes, where the config says so.
 * Collective. */
accel_status_t staging_begin(accel_t *run, accel_error_t *err);
/* The checkpoint of `step` is on the nodes; says so. Older ones than the newest two go.
 * Collective. */
void staging_take(accel_t *run, int64_t step, const accel_ckpt_stats_t *stats);
/* At the end of a step that finds no rank copying: commits the copy, and where `begins`
 * begins that of the newest. A failure that may pass is warned about, and no error.
 * Collective. */
accel_status_t staging_go_on(accel_t *run, bool begins, accel_error_t *err);
/* Copies the newest, and waits for it. The same about failures: staging_holds then is
 * still true. Collective. */
accel_status_t staging_finish(accel_t *run, accel_error_t *err);
/* Leaves the copy in flight, if there is one: nothing of it is committed. Not
 * collective, but all ranks call it or none. */
void staging_give_up(accel_t *run);
/* The checkpoint directory has a newer one, or the run went back: what is on the nodes
 * is worth nothing any more. The same. */
void staging_forget(accel_t *run);
/* No more staging in this life, because of `why`, rank 0's; says so. */
void staging_end(accel_t *run, const accel_error_t *why);
/* Before a save to the nodes: waits until this rank has removed the parts that are
 * gone. So no node has more than four, and none of the new one's name. Not collective;
 * the ranks must agree on something before any of them writes. */
void staging_settle(accel_t *run);
/* Waits for the threads and frees what they used. */
void staging_close(accel_t *run);

#endif
