/* SPDX-License-Identifier: Apache-2.0
 *
 * A save that is written while training continues, and the memory for its copy.
 */
#ifndef ACCEL_STATE_SAVE_BACKGROUND_H
#define ACCEL_STATE_SAVE_BACKGROUND_H

#include "state/run_boxes.h"

/* Copies the boxes to the pool and points them there. From a device, the copy continues
 * after the call; background_copied ends it. No save may be in flight. Not
 * collective. */
accel_status_t background_snapshot(accel_t *run, struct run_boxes *boxes,
                                   accel_error_t *err);
/* Waits until the copy from a device is complete, and lets its write begin. Does
 * nothing if there is no copy. Not collective. */
accel_status_t background_copied(accel_t *run, accel_error_t *err);
/* The same, collective: every rank gets the same status. */
accel_status_t background_all_copied(accel_t *run, accel_error_t *err);
/* Begins a save, which writes once the copy is complete; none may be in flight. What
 * `s` points to must stay until it is published. Collective: every rank gets the same
 * status. */
accel_status_t background_begin(accel_t *run, const accel_ckpt_save_t *s,
                                const accel_ckpt_coll_t *coll, accel_error_t *err);
/* Lets the thread write b->saving, which the caller has begun, for `step`. */
void background_write(struct background *b, int64_t step);
/* Lets the thread write as fast as it can, because somebody waits for it. Does nothing
 * if it does not write. Not collective. */
void background_hurry(struct background *b);
/* Has this rank's write failed? The other ranks then need not throttle theirs. Not
 * collective. */
bool background_failed(const struct background *b);
/* Does this rank's thread still write, even a save given up? Not collective. */
bool background_writes(const struct background *b);
/* Nanoseconds that this rank's thread spent on the last save, so far; 0: there was
 * none. */
int64_t background_ns(const struct background *b);
/* Waits for the write and commits. The thread then deletes older checkpoints.
 * Collective: every rank gets the same status. */
accel_status_t background_publish(struct background *b, const accel_ckpt_coll_t *coll,
                                  accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* A blocking save, durable when the call returns. The thread then deletes older
 * checkpoints. None may be in flight. Collective: every rank gets the same status. */
accel_status_t background_save_now(accel_t *run, const accel_ckpt_save_t *s,
                                   const accel_ckpt_coll_t *coll,
                                   accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* Lets the thread run work(run), which must not touch what training uses. No save may
 * be in flight. Not collective. */
void background_do(struct background *b, accel_t *run, void (*work)(accel_t *run));
/* Waits until no deletion is under way; ignores a save in flight. Not collective. */
void background_settle(struct background *b);
/* Tells the thread to abandon the save in flight; there must be one. No other is begun.
 * Not collective, but either all ranks call it or none. */
void background_give_up(struct background *b);
/* Waits for the thread and frees everything; a save in flight is not committed. */
void background_close(accel_t *run);

/* ---- background_pool.c ----------------------------------------------------------- */

/* Allocates the pool as accel.checkpoint.async says. auto: if memory is short,
 * background.on is false, which rank 0 logs and which is no error. Collective: every
 * rank gets the same status. */
accel_status_t background_open(accel_t *run, accel_error_t *err);
/* Call this when `step` could not be copied. Frees the pool, and warns that training
 * waits for each save from now on. Not collective, but either all ranks call it or
 * none. */
void background_drop(accel_t *run, int64_t step);
/* The offset of a box of `bytes` that follows `at`. */
size_t pool_place(size_t at, size_t bytes);
/* The bytes of a copy of all boxes. */
size_t pool_bytes(const struct run_boxes *b);
/* Allocates a pool of at least `bytes`; for a device it is page-locked. */
accel_status_t pool_make(accel_t *run, size_t bytes, accel_error_t *err);
void pool_free(accel_t *run);

#endif
