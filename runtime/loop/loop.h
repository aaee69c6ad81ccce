/* SPDX-License-Identifier: Apache-2.0
 *
 * loop/: one optimizer step, from the batches to the agreement of all ranks at its end.
 */
#ifndef ACCEL_LOOP_H
#define ACCEL_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "handle/run.h"

/* ---- step_times.c ---------------------------------------------------------------- */

/* The time since the last call was spent on `phase`. */
void phase_end(accel_t *run, enum phase phase);
/* Fills in the times of loop.last from the iteration that ends, and starts again. */
void phases_take(accel_t *run);
/* Call this when an evaluation begins or ends; one in inference mode ends with the
 * mode. Its time belongs to no step. */
void phases_evaluate(accel_t *run, bool begins);

/* ---- optim_step.c ---------------------------------------------------------------- */

/* Completes the gradients of optimizer `o`, passes them to the hooks, and computes this
 * rank's part of the sum of squares. Collective. */
accel_status_t optim_gather(accel_t *run, struct accel_optim *o, double *sumsq_out,
                            accel_error_t *err);
/* Clips by the sum of squares of all ranks, and updates at the rate from optim_rate.
 * ACCEL_EDIVERGED, with a text only on rank 0: the sum is not finite, and the optimizer
 * skips no steps. With a loss scale all optimizers skip such a step. */
accel_status_t optim_apply(accel_t *run, struct accel_optim *o, double sumsq,
                           accel_error_t *err);
/* The error that `what` is no longer finite. On all ranks; only rank 0's has a text. */
accel_status_t loop_diverged(const accel_t *run, const char *what, accel_error_t *err);

/* ---- stop_waiting.c -------------------------------------------------------------- */

/* The signal to stop for, given how many ranks got each of the three kinds; 0: none. */
int stop_agreed(const accel_t *run, double interrupts, double warnings, double terms);
/* Ends the run: some rank was told to stop and gave up the wait for a sample. Between
 * two steps the run is saved. The status is that of run_stop. Collective. */
accel_status_t loop_stop_waiting(accel_t *run, accel_error_t *err);

/* ---- accumulation.c -------------------------------------------------------------- */

/* Begins a micro-batch; at_end: it is the last of its loader's epoch. A micro-batch
 * that is still open had no backward and does not count. */
void group_next(accel_t *run, bool at_end);
/* Closes the micro-batch that is open, if any; it does not count. */
void group_leave(accel_t *run);
/* Between steps: makes the next micro-batch begin a group. */
void group_restart(accel_t *run);
/* Is this the last micro-batch of a step, and may optimizers step? */
bool loop_syncs(const accel_t *run);
/* Call this after a backward in the middle of a group. Reduces the gradients if the
 * rule says so. Collective. */
accel_status_t group_reduce(accel_t *run, accel_error_t *err);

/* ---- schedules.c ----------------------------------------------------------------- */

/* Finds the rate of the optimizer's next step. ACCEL_EINVAL, on this rank alone: the
 * program's own schedule gives no rate. */
accel_status_t optim_rate(struct accel_optim *o, accel_error_t *err);
/* The rate of the next step; NaN: there is none. */
float optim_next_rate(const struct accel_optim *o);
/* Call this when all ranks know that optim_rate has failed on one, which sent `why`. */
accel_status_t optim_rate_failed(const accel_error_t *why, accel_error_t *err);
/* Call this when the optimizer has taken or skipped a step: the schedule advances. */
void optim_move(struct accel_optim *o, bool skipped);

/* ---- batch.c --------------------------------------------------------------------- */

/* Frees the tensors of the previous micro-batch and sets the samples that dropout draws
 * for: `count` of them, of which the first is number `first` of the run. */
void batch_begin(accel_t *run, int64_t first, int64_t count);

#endif
