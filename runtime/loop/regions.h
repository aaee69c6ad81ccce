/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of regions of the program.
 */
#ifndef ACCEL_LOOP_REGIONS_H
#define ACCEL_LOOP_REGIONS_H

#include "handle/run.h"

/* At the end of a step: logs and tracks the time of each region, and begins again. Not
 * collective. */
void regions_report(accel_t *run);

#endif
