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
/* loader_agree for a run, which a stop may end here. Collective. */
accel_status_t loaders_agree(accel_t *run, accel_error_t *err);

#endif
