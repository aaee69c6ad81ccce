/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of programs that do their own compute.
 */
#ifndef ACCEL_RUN_OWN_COMPUTE_H
#define ACCEL_RUN_OWN_COMPUTE_H

#include "handle/run.h"

/* Lays out the units that the program has declared. The caller frees the lists with
 * units_free; the run still owns the units. A0609: there are none. */
accel_status_t own_units_build(accel_t *run, struct units *units_out,
                               accel_error_t *err);
/* Frees the units with their names and parameters. */
void own_units_free(accel_t *run);
/* Forgets which values the program holds, because a trial was given up. */
void own_units_abandon(accel_t *run);

#endif
