/* SPDX-License-Identifier: Apache-2.0
 *
 * When gradients of several micro-batches become one step: the rule of Accelerate's
 * accumulate and no_sync. Numbers in, numbers out. Never communicates, never allocates.
 */
#ifndef ACCEL_OPTIM_ACCUMULATE_H
#define ACCEL_OPTIM_ACCUMULATE_H

#include "common/common.h"

/* A group in the making. Zeros and a rule are the start. Between two groups `step` is
 * a multiple of k, which is as good as 0: a checkpoint need not keep it. */
struct accumulate {
    /* `every` at least 1 */
    accel_accumulation_t rule;
    /* Accelerate's counter of micro-batches, set to 0 by the end of a loader */
    int64_t step;
    /* The micro-batch ends its group: the optimizer steps after it. Unset before the
     * first accumulate_next, when nothing accumulates and every backward syncs. */
    bool in_group;
    /* micro-batches of the group so far, the k of the latest, and whether all had it */
    int64_t micro;
    int latest;
    bool one_k;
    /* sum of 1 / k over the group */
    double weight;
    /* nested no_sync */
    int held;
};

/* ACCEL_EINVAL: k is not positive. In the middle of a group a new k counts from the
 * next micro-batch on. */
accel_status_t accumulate_set(struct accumulate *a, const accel_accumulation_t *rule,
                              accel_error_t *err);
/* Forgets the group in the making: the next micro-batch begins one, and counts from
 * 1. */
void accumulate_restart(struct accumulate *a);
/* Begins a micro-batch; at_end: it is the last one of its loader's epoch. */
void accumulate_next(struct accumulate *a, bool at_end);
/* Does this micro-batch end its group? */
bool accumulate_syncs(const struct accumulate *a);
/* Does the optimizer step after it? Not within no_sync. */
bool accumulate_steps(const struct accumulate *a);
/* Is the gradient reduced over the ranks in this micro-batch's backward? */
bool accumulate_reduces(const struct accumulate *a);
/* What the loss of this micro-batch is divided by: k. */
int accumulate_divisor(const struct accumulate *a);
/* The factor on the gradient before the step: not 1 for short groups by count alone. */
double accumulate_step_scale(const struct accumulate *a);
/* Between these two gradients stay on their rank; they may be nested. ACCEL_EINVAL: end
 * without a begin. */
void accumulate_no_sync_begin(struct accumulate *a);
accel_status_t accumulate_no_sync_end(struct accumulate *a, accel_error_t *err);

#endif
