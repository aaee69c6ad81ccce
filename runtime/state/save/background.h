/* SPDX-License-Identifier: Apache-2.0
 *
 * A save that is written while training goes on, and the memory of its copy.
 */
#ifndef ACCEL_STATE_SAVE_BACKGROUND_H
#define ACCEL_STATE_SAVE_BACKGROUND_H

#include "state/run_boxes.h"

/* Copies the boxes to the pool and points them there. From a device the copy goes on
 * behind the call: background_copied ends it. None may be in flight. Not collective. */
accel_status_t background_snapshot(accel_t *run, struct run_boxes *boxes,
                                   accel_error_t *err);
/* Waits until the copy from a device is complete; its write begins. Does nothing where
 * there is none. Not collective. */
accel_status_t background_copied(accel_t *run, accel_error_t *err);
/* The same, collective: every rank gets the same status. */
accel_status_t background_all_copied(accel_t *run, accel_error_t *err);
/* Begins to write, once the copy is complete; none may be in flight. What `s` points to
 * must stay until it is published. Collective: every rank gets the same status. */
accel_status_t background_begin(accel_t *run, const accel_ckpt_save_t *s,
                                const accel_ckpt_coll_t *coll, accel_error_t *err);
/* Lets the thread write b->saving, the caller's, which saves `step`. */
void background_write(struct background *b, int64_t step);
/* Lets the thread write as fast as it can, if it writes: somebody waits for it. Not
 * collective. */
void background_hurry(struct background *b);
/* Has this rank's write failed? The other ranks need not take their time then. Not
 * collective. */
bool background_failed(const struct background *b);
/* Does this rank's thread still write, also what was given up? Not collective. */
bool background_writes(const struct background *b);
/* How long this rank's thread wrote the last one, or has written so far. ns; 0: there
 * was none. */
int64_t background_ns(const struct background *b);
/* Waits for the write and commits. Older checkpoints are then deleted by the thread.
 * Collective: every rank gets the same status. */
accel_status_t background_publish(struct background *b, const accel_ckpt_coll_t *coll,
                                  accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* A save at once, durable when the call returns. Older checkpoints are then deleted by
 * the thread. None may be in flight. Collective: every rank gets the same status. */
accel_status_t background_save_now(accel_t *run, const accel_ckpt_save_t *s,
                                   const accel_ckpt_coll_t *coll,
                                   accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* Lets the thread do work(run), which must not touch what the training uses. None may
 * be in flight. Not collective. */
void background_do(struct background *b, accel_t *run, void (*work)(accel_t *run));
/* Waits until nothing is deleted any more; does nothing about a save in flight. Not
 * collective. */
void background_settle(struct background *b);
/* Tells the thread to leave the save in flight; there must be one. No other is begun.
 * Not collective, but all ranks call it or none. */
void background_give_up(struct background *b);
/* Waits for the thread and frees everything; a save in flight is not committed. */
void background_close(accel_t *run);

/* ---- background_pool.c ----------------------------------------------------------- */

/* Makes the pool as accel.checkpoint.async has it. auto: background.on is false where
 * memory is short, which rank 0 logs, and that is no error. Collective: every rank gets
 * the same status. */
accel_status_t background_open(accel_t *run, accel_error_t *err);
/* The copy of `step` could not be had: frees the pool, and says that saves are at once
 * from here on. Not collective, but all ranks call it or none. */
void background_drop(accel_t *run, int64_t step);
/* Where a box of `bytes` begins that follows `at`. */
size_t pool_place(size_t at, size_t bytes);
/* Bytes of a copy of all boxes. */
size_t pool_bytes(const struct run_boxes *b);
/* A pool of at least `bytes`; on a device it is page-locked. */
accel_status_t pool_make(accel_t *run, size_t bytes, accel_error_t *err);
void pool_free(accel_t *run);

#endif
