/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of regions of the program.
 */
#ifndef ACCEL_LOOP_REGIONS_H
#define ACCEL_LOOP_REGIONS_H

#include "handle/run.h"

/* Call this at the end of a step. Logs and tracks the time of each region, and starts
 * again from 0. Not collective. */
void regions_report(accel_t *run);

#endif
