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
/* Fills in the times of loop.last from those of the iteration that ends, and starts
 * again. */
void phases_take(accel_t *run);
/* An evaluation begins or ends; one in inference mode ends with the mode. Its time
 * belongs to no step. */
void phases_evaluate(accel_t *run, bool begins);

/* ---- optim_step.c ---------------------------------------------------------------- */

/* Completes the gradients of optimizer `o`, shows them to the hooks, and gives this
 * rank's part of the sum of squares. Collective. */
accel_status_t optim_gather(accel_t *run, struct accel_optim *o, double *sumsq_out,
                            accel_error_t *err);
/* Clips and updates by the sum of squares of all ranks, at the rate that optim_rate has
 * found. ACCEL_EDIVERGED, without a text but on rank 0: it is not finite, and the
 * optimizer skips no step; with a loss scale all do. */
accel_status_t optim_apply(accel_t *run, struct accel_optim *o, double sumsq,
                           accel_error_t *err);
/* `what` is no longer finite. All ranks see it, and rank 0 alone says it. */
accel_status_t loop_diverged(const accel_t *run, const char *what, accel_error_t *err);

/* ---- stop_waiting.c -------------------------------------------------------------- */

/* The signal that counts, of the ranks that got each of the three kinds; 0: none. */
int stop_agreed(const accel_t *run, double interrupts, double warnings, double terms);
/* Ends the run by the stop that some rank was told of and that did not wait for a
 * sample. Between two steps it is saved. The status is that of run_stop. Collective. */
accel_status_t loop_stop_waiting(accel_t *run, accel_error_t *err);

/* ---- accumulation.c: accumulation --------------------------------------------- */

/* Begins a micro-batch; at_end: it is the last one of its loader's epoch. One that is
 * open, without a backward, did not count. */
void group_next(accel_t *run, bool at_end);
/* No micro-batch is open any more; one that was did not count. */
void group_leave(accel_t *run);
/* Between steps: the next micro-batch begins a group. */
void group_restart(accel_t *run);
/* Is this the last micro-batch of a step, and may optimizers step? */
bool loop_syncs(const accel_t *run);
/* After a backward in the middle of a group: reduces the gradients where the rule says
 * so. Collective. */
accel_status_t group_reduce(accel_t *run, accel_error_t *err);

/* ---- schedules.c ----------------------------------------------------------------- */

/* The rate of the optimizer's next step. ACCEL_EINVAL, on this rank alone: an own
 * schedule gives none. */
accel_status_t optim_rate(struct accel_optim *o, accel_error_t *err);
/* That of the next step; NaN: none. */
float optim_next_rate(const struct accel_optim *o);
/* All ranks know that optim_rate has failed on one of them, the one that `why` comes
 * from. */
accel_status_t optim_rate_failed(const accel_error_t *why, accel_error_t *err);
/* The optimizer has stepped, or skipped its step: the schedule moves on by its rule. */
void optim_move(struct accel_optim *o, bool skipped);

/* ---- batch.c --------------------------------------------------------------------- */

/* Allocates host memory for the losses of a step and for a micro-batch of data. Not
 * collective. */
accel_status_t batch_open(accel_t *run, accel_error_t *err);
/* Frees the tensors of the micro-batch before and sets what dropout draws from: `count`
 * samples, the first of which is number `first` of the run. */
void batch_begin(accel_t *run, int64_t first, int64_t count);
/* Reads samples [first, first + count) into run->loop.host: of the run's order,
 * or of the held-out part. At most job.batch of them. Errors are those of data/, and
 * ACCEL_ESTOPPED, without a text: a stop did not wait for a sample. With several ranks
 * errors are noted for where they meet. */
accel_status_t batch_take(accel_t *run, int64_t first, int count, bool held_out,
                          accel_error_t *err);
/* Makes one tensor per field, [count, field's dimensions], of the samples in
 * run->loop.host. batch_out[fields]; the tensors are the graph's. */
accel_status_t batch_tensors(accel_t *run, int count, accel_tensor_t **batch_out,
                             accel_error_t *err);

#endif
