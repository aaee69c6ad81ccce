/* SPDX-License-Identifier: Apache-2.0
 *
 * The sinks that config and program ask for.
 */
#ifndef ACCEL_LOOP_TRACK_CALLS_H
#define ACCEL_LOOP_TRACK_CALLS_H

#include "handle/run.h"

/* Opens the sinks that config and program ask for, after a resume. Warns about a sink
 * that cannot be opened. Not collective. */
accel_status_t tracking_open(accel_t *run, accel_error_t *err);

#endif
