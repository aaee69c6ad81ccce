/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's short form for one number per node: "2(x3),1" stands for 2, 2, 2, 1. SLURM_*
 * variables have it, and so has what srun tells its tasks. Numbers are at least 1.
 * Needs libc only: slurmstepd carries it, where it runs as the user.
 */
#ifndef ACCEL_COMMON_REPEAT_LIST_H
#define ACCEL_COMMON_REPEAT_LIST_H

#include <stdint.h>

/* The number of entry `index`, counted from 0. 0: there is no such entry, or the list
 * does not have this form up to there. `list` may be NULL. */
int64_t repeat_list_at(const char *list, int64_t index);
/* The sum of the first `count` entries, which is the first rank of node `count` when
 * ranks count node by node. -1: the list is shorter, or does not have this form up to
 * there. */
int64_t repeat_list_sum(const char *list, int64_t count);
/* The sum of all entries. 0: the list is empty or NULL, or does not have this form. */
int64_t repeat_list_total(const char *list);

#endif
