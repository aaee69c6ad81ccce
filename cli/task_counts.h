/* SPDX-License-Identifier: Apache-2.0
 *
 * What Slurm says in the environment about this task's place in its step.
 */
#ifndef ACCEL_STEP_H
#define ACCEL_STEP_H

/* Entry `node` of Slurm's "2(x3),1": the tasks on that node; 0: no such entry, or not in
 * this form. */
int step_tasks_on_node(const char *list, int node);

#endif
