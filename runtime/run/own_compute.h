/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of programs that compute by themselves.
 */
#ifndef ACCEL_RUN_OWN_COMPUTE_H
#define ACCEL_RUN_OWN_COMPUTE_H

#include "handle/run.h"

/* Lays out the units that the program declared; the caller frees the lists with
 * units_free, the units stay the run's. A0609: there are none. */
accel_status_t own_units_build(accel_t *run, struct units *units_out,
                               accel_error_t *err);
/* Frees the units with their names and parameters. */
void own_units_free(accel_t *run);
/* Forgets which values the program holds: an attempt was given up. */
void own_units_abandon(accel_t *run);

#endif
