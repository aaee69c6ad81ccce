/* SPDX-License-Identifier: Apache-2.0
 *
 * Accelerate's rule for moving a schedule on (AcceleratedScheduler.step): only after a
 * step that the optimizer took, and by as many positions as ranks unless they share one
 * batch.
 */
#include "optim/schedule.h"

int64_t schedule_advance(const struct schedule_advance *rule,
                         const struct schedule_event *event,
                         const accel_schedule_t *set, int64_t position)
{
    int64_t to = position + 1;

    if (!rule->with_optimizer)
        return to;
    if (!event->sync || event->skipped)
        return position;
    if (!rule->split_batches)
        to = position + rule->ranks;
    /* The last steps of a run would go beyond, when a loader keeps its last, smaller
     * batch. A position that is beyond already stays. */
    if (set->kind == ACCEL_SCHEDULE_ONE_CYCLE && to > set->steps)
        to = position > set->steps ? position : set->steps;
    return to;
}
