/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter groups of the job: the learning rate and weight decay of each
 * parameter, and which ones are frozen. In: globs and units. Out: parameters that carry
 * these values, and units laid out again. Reads names only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "training/parameter_groups.h"
#include "optim/optim.h"
#include "handle/run.h"

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
             tensor_full_name(some));
    return accel_fail(err, A0911, hint, "the group '%s' matches no parameter",
                      g->match);
}

/* Counts in hits[] how many parameters each group of `o` has. */
static void apply_to(struct unit *u, const struct accel_optim *o, int *hits)
{
    for (int i = 0; i < u->param_count; i++) {
        accel_tensor_t *p = u->param[i];
        struct optim_param own;

        if (!o) {
            p->needs_grad = false;
            continue;
        }
        own = optim_param_of(&o->settings, tensor_full_name(p), p->ndim);
        p->param->lr_scale = own.lr_scale;
        p->param->weight_decay = own.weight_decay;
        if (own.group >= 0)
            hits[own.group]++;
        if (own.frozen)
            p->needs_grad = false;
    }
}

/* A later group that an earlier one leaves nothing to is an error as well. */
static accel_status_t apply_groups_of(accel_t *run, int optim, accel_error_t *err)
{
    const struct accel_optim *o = optim >= 0 ? &run->optim[optim] : NULL;
    const int groups = o ? o->settings.group_count : 0;
    /* parameters of each group; one more, since calloc(0) may return NULL */
    int *hits = calloc((size_t)groups + 1, sizeof(*hits));
    accel_status_t st = ACCEL_OK;

    if (!hits)
        return accel_fail_nomem(err, "the groups", (size_t)groups * 4);
    for (int u = 0; u < run->units.count; u++)
        if (run->units.unit[u].optim == optim)
            apply_to(&run->units.unit[u], o, hits);
    for (int i = 0; i < groups && st == ACCEL_OK; i++)
        if (!hits[i])
            st = no_match(run, &o->settings.groups[i], err);
    free(hits);
    return st;
}

/* Frozen parameters move to the end of their unit, so the units are laid out again. */
accel_status_t groups_apply(accel_t *run, accel_error_t *err)
{
    int64_t trained = 0;
    accel_status_t st = ACCEL_OK;

    for (int o = -1; o < run->optims && st == ACCEL_OK; o++)
        st = apply_groups_of(run, o, err);
    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++)
            trained += run->units.unit[u].param[i]->needs_grad;
    if (st == ACCEL_OK && !trained)
        st = accel_fail(err, A0911, "leave some parameters unfrozen",
                        "all parameters are frozen");
    units_lay_out(&run->units);
    return st;
}

/* Hashes are added, not chained: the order of units follows the wrap policy. */
uint64_t groups_trained(const accel_t *run, int optim)
{
    uint64_t h = 0;

    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++) {
            const accel_tensor_t *p = run->units.unit[u].param[i];

            if (param_is_trained(p) && run->units.unit[u].optim == optim)
                h += XXH3_64bits(tensor_full_name(p), strlen(tensor_full_name(p)));
        }
    return h;
}
