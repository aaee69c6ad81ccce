/* SPDX-License-Identifier: Apache-2.0
 *
 * RequeueExit and a bare srun. Keeps nothing. Runs in srun, inside exit().
 */
#ifndef ACCEL_SRUN_PLUGIN_REQUEUED_H
#define ACCEL_SRUN_PLUGIN_REQUEUED_H

#include <stdbool.h>
#include <stdint.h>

/* At the end of a bare srun with this exit code: cancels the job if Slurm queues it
 * again because of RequeueExit. Waits until Slurm is done with the job. */
void requeued_drop(uint32_t job_id, int exit_code);
/* Is `code` in a list of slurm.conf such as "85" or "1-3,85"? NULL is an empty list. */
bool requeued_lists(const char *list, int code);

#endif
