/* SPDX-License-Identifier: Apache-2.0
 *
 * When gradients of several micro-batches become one step: the rule of Accelerate's
 * accumulate and no_sync, and which of several loaders it follows. Numbers in, numbers
 * out. Never communicates, never allocates.
 */
#ifndef ACCEL_OPTIM_ACCUMULATE_H
#define ACCEL_OPTIM_ACCUMULATE_H

#include "common/common.h"

/* ---- loaders: whose end counts --------------------------------------------------- */

/* More than anybody nests: train, validation and test, each within the other. */
#define ACCUMULATE_LOADERS 8

/* The loaders in the middle of an epoch, the innermost last. */
struct accumulate_loaders {
    struct {
        const void *id;
        bool at_end;
    } in[ACCUMULATE_LOADERS];
    int count;
};

/* The loader begins an epoch and becomes the innermost one. One that was left in the
 * middle of its epoch is taken out first; Accelerate would count it twice.
 * ACCEL_EINVAL: too many are in the middle of an epoch. */
accel_status_t accumulate_loader_begin(struct accumulate_loaders *l, const void *id,
                                       accel_error_t *err);
/* The batch that the loader has just given is its last one, or is not. */
void accumulate_loader_at_end(struct accumulate_loaders *l, const void *id,
                              bool at_end);
/* The loader has ended, or is left for good: the one around it counts again. */
void accumulate_loader_end(struct accumulate_loaders *l, const void *id);
/* Was the last batch of the innermost loader its last one? False without a loader. */
bool accumulate_at_end(const struct accumulate_loaders *l);

/* ---- groups of micro-batches ----------------------------------------------------- */

/* What a group of fewer than k micro-batches, at the end of a loader, counts. */
enum accumulate_short {
    /* Each micro-batch counts 1 / k, as in Accelerate: a short group makes a shorter
     * step. */
    SHORT_GROUP_BY_K,
    /* The weights of a group add up to 1: the mean over the micro-batches it has. */
    SHORT_GROUP_BY_COUNT,
};

/* Zeros are Accelerate's defaults, but for k. */
struct accumulate_rule {
    /* k: micro-batches per step, at least 1 */
    int64_t every;
    /* groups go on from one epoch to the next: sync_with_dataloader = false */
    bool across_epochs;
    /* gradients are reduced in every micro-batch: less memory, more traffic */
    bool sync_each_batch;
    enum accumulate_short short_group;
};

/* A group in the making. Zeros and a rule are the start. Only `step` outlives a group:
 * it is what a checkpoint between two steps has to keep. */
struct accumulate {
    struct accumulate_rule rule;
    /* Accelerate's counter of micro-batches, set to 0 by the end of a loader */
    int64_t step;
    /* The micro-batch ends its group: the optimizer steps after it. Unset before the
     * first accumulate_next, when nothing accumulates and every backward syncs. */
    bool in_group;
    /* micro-batches of the group so far, the k of the latest, and whether all had it */
    int64_t micro, latest;
    bool one_k;
    /* sum of 1 / k over the group */
    double weight;
    /* nested no_sync */
    int held;
};

/* ACCEL_EINVAL: k is not positive. In the middle of a group a new k counts from the
 * next micro-batch on. */
accel_status_t accumulate_set(struct accumulate *a, const struct accumulate_rule *rule,
                              accel_error_t *err);
/* Begins a micro-batch; at_end: accumulate_at_end(). */
void accumulate_next(struct accumulate *a, bool at_end);
/* Does the optimizer step after this micro-batch, and is the gradient zeroed then? */
bool accumulate_syncs(const struct accumulate *a);
/* Is the gradient reduced over the ranks in this micro-batch's backward? */
bool accumulate_reduces(const struct accumulate *a);
/* The factor on this micro-batch's loss: 1 / k. */
double accumulate_loss_scale(const struct accumulate *a);
/* The factor on the gradient before the step, 1 with SHORT_GROUP_BY_K and for full
 * groups. */
double accumulate_step_scale(const struct accumulate *a);
/* Between these two gradients stay on their rank; they may be nested. ACCEL_EINVAL: end
 * without a begin. */
void accumulate_no_sync_begin(struct accumulate *a);
accel_status_t accumulate_no_sync_end(struct accumulate *a, accel_error_t *err);

#endif
