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

/* ---- loader_calls.c -------------------------------------------------------------- */

/* Ends the threads of all loaders; call this when no more batches will be asked for. */
void loaders_rest(accel_t *run);
/* Frees the loaders that are still open, and their checkpoint lines. */
void loaders_close(accel_t *run);
/* The next batch of the job's loader, batch_out[fields], which the graph owns. Errors
 * are those of data/, and ACCEL_ESTOPPED, without a text: a stop ended the wait for a
 * sample. With several ranks, errors are noted for the next point where they meet. */
accel_status_t job_batch(accel_t *run, struct accel_loader *l,
                         accel_tensor_t **batch_out, accel_error_t *err);
/* loader_agree for a run, which a stop may end here. Collective. */
accel_status_t loaders_agree(accel_t *run, accel_error_t *err);

/* ---- gradient_hooks.c ------------------------------------------------------------ */

/* Calls the program's hooks with the optimizer's gradients of this step. Not
 * collective. */
accel_status_t hooks_call(accel_t *run, int optim, accel_error_t *err);
/* Frees the copies of the patterns. */
void hooks_free(accel_t *run);

/* ---- track_calls.c --------------------------------------------------------------- */

/* Opens the sinks that config and program ask for, after a resume. Warns about a sink
 * that cannot be opened. Not collective. */
accel_status_t tracking_open(accel_t *run, accel_error_t *err);

/* ---- regions.c ------------------------------------------------------------------- */

/* Call this at the end of a step. Logs and tracks the time of each region, and starts
 * again from 0. Not collective. */
void regions_report(accel_t *run);

#endif
