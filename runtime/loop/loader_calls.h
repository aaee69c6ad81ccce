/* SPDX-License-Identifier: Apache-2.0
 *
 * The loaders of a run.
 */
#ifndef ACCEL_LOOP_LOADER_CALLS_H
#define ACCEL_LOOP_LOADER_CALLS_H

#include "handle/run.h"

/* Ends their threads: no batch is asked for any more. */
void loaders_rest(accel_t *run);
/* Frees those that are left, and their lines. */
void loaders_close(accel_t *run);
/* loader_agree of a run, which may end it by a stop. Collective. */
accel_status_t loaders_agree(accel_t *run, accel_error_t *err);

#endif
