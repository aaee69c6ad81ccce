/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a run.
 */
#ifndef ACCEL_RUN_PLANNING_H
#define ACCEL_RUN_PLANNING_H

#include "handle/run.h"

/* Makes and prints run->plan. A0904: it does not fit. */
accel_status_t plan_make(accel_t *run, accel_error_t *err);

#endif
