/* SPDX-License-Identifier: Apache-2.0
 *
 * What Slurm's environment says about the number of tasks on each node of a step.
 */
#ifndef ACCEL_TASK_COUNTS_H
#define ACCEL_TASK_COUNTS_H

/* The tasks on node number `node` (from 0) in Slurm's list "2(x3),1". 0: no such entry,
 * or not a list of this form. */
int step_tasks_on_node(const char *list, int node);

#endif
