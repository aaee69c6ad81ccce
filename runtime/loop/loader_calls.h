/* SPDX-License-Identifier: Apache-2.0
 *
 * The loaders of a run.
 */
#ifndef ACCEL_LOOP_LOADER_CALLS_H
#define ACCEL_LOOP_LOADER_CALLS_H

#include "handle/run.h"

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

#endif
