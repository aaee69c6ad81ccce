/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tasks learn about preemption and the warning. Runs in srun.
 */
#ifndef ACCEL_SRUN_PLUGIN_NOTICE_H
#define ACCEL_SRUN_PLUGIN_NOTICE_H

#include "srun_plugin/client.h"

/* Tells the tasks, in ACCEL_PREEMPTION_NOTICE, how much time the partition gives
 * between the notice of a preemption and the kill, and in ACCEL_WARNING which warning
 * accel asked for; says so when the time limit is too short for it. Makes at most three
 * requests to the controller. */
void notice_export(const struct client *c, uint32_t job_id);

#endif
