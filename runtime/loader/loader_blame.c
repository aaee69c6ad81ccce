/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a loader may be the reason why ranks made different calls. In: an error of a
 * run. Out: the same error with the loader's name and the cure. Never changes a loader.
 */
#include <stdio.h>

#include "loader/loader.h"
#include "loader/loader_impl.h"
#include "handle/run.h"

/* A rank without a batch begins the next epoch, where the others make a step. */
void loaders_blame(const accel_t *run, accel_error_t *e)
{
    if (message_of(e) != A0503)
        return;
    for (const struct accel_loader *l = run->loaders; l; l = l->next)
        if (l->plan.ends == ENDS_UNEVEN && l->place.ranks > 1)
            snprintf(e->hint, sizeof(e->hint),
                     "loader '%s' is uneven: ranks may have different numbers of "
                     "batches, but each step needs all of them. Set join and train on "
                     "accel_loader_loss, or leave out uneven",
                     l->name);
}
