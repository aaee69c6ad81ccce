/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter groups of the job: the learning rate and weight decay of each
 * parameter, and which ones are frozen. In: globs and units. Out: parameters that carry
 * their values, laid out anew. Reads names only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "optim/optim.h"
#include "run/run.h"

/* A group without parameters is most likely a mistyped glob: the hint shows a
 * full name. */
static accel_status_t no_match(const accel_t *run, const accel_group_t *g,
                               accel_error_t *err)
{
    const accel_tensor_t *some = run->units.unit[0].param_count
                                     ? run->units.unit[0].param[0]
                                     : run->units.unit[run->units.count - 1].param[0];
    char hint[384];

    snprintf(hint, sizeof(hint),
             "match full names, like %.200s; an earlier group may take all of them",
             some->name);
    return accel_fail(err, A0911, hint, "the group '%s' matches no parameter",
                      g->match);
}

/* Frozen parameters move to the end of their unit, so the units are laid out again. */
accel_status_t groups_apply(accel_t *run, accel_error_t *err)
{
    const accel_optimizer_t *o = &run->job.optimizer;
    /* parameters of each group; one more, since calloc(0) may return NULL */
    int *hits = calloc((size_t)o->group_count + 1, sizeof(*hits));
    int64_t trained = 0;
    accel_status_t st = ACCEL_OK;

    if (!hits)
        return accel_fail_nomem(err, "the groups", (size_t)o->group_count * 4);
    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++) {
            accel_tensor_t *p = run->units.unit[u].param[i];
            struct optim_param own = optim_param_of(o, p->name, p->ndim);

            p->lr_scale = own.lr_scale;
            p->weight_decay = own.weight_decay;
            if (own.group >= 0)
                hits[own.group]++;
            if (own.frozen)
                p->needs_grad = false;
            trained += p->needs_grad;
        }
    /* A later group that an earlier one leaves nothing to is an error as well. */
    for (int i = 0; i < o->group_count && st == ACCEL_OK; i++)
        if (!hits[i])
            st = no_match(run, &o->groups[i], err);
    free(hits);
    if (st == ACCEL_OK && !trained)
        st = accel_fail(err, A0911, "leave some parameters unfrozen",
                        "all parameters are frozen");
    units_lay_out(&run->units);
    return st;
}

/* Hashes are added, not chained: the order of units follows the wrap policy. */
uint64_t groups_trained(const accel_t *run)
{
    uint64_t h = 0;

    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++) {
            const accel_tensor_t *p = run->units.unit[u].param[i];

            if (p->needs_grad)
                h += XXH3_64bits(p->name, strlen(p->name));
        }
    return h;
}
