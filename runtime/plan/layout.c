/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks hold which part of the state: the mesh and the strategy that the config
 * asks for, whatever the engine. In: config and world. Out: a layout. Knows keys by
 * name, so that it can plan even those that the runtime cannot honour yet.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Strategies by the names that users know: what is cut over the ranks, whether
 * parameters stay gathered through a step, and whether groups are nodes. */
static const struct scheme {
    const char *name;
    bool params, gradients, optimizer, keep, whole_all_step, hybrid;
} schemes[] = {
    { "NO_SHARD", false, false, false, false, true, false },
    { "FULL_SHARD", true, true, true, false, false, false },
    { "SHARD_GRAD_OP", true, true, true, true, false, false },
    { "HYBRID_SHARD", true, true, true, false, false, true },
    { "HYBRID_SHARD_ZERO2", true, true, true, true, false, true },
    { "ZeRO-1", false, false, true, true, true, false },
    { "ZeRO-2", false, true, true, true, true, false },
};

/* NULL: no such strategy. */
static const struct scheme *scheme_find(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(schemes); i++)
        if (strcmp(schemes[i].name, name) == 0)
            return &schemes[i];
    return NULL;
}

/* The strategy's part of a layout; the mesh is not touched. */
static void apply(struct plan_layout *l, const struct scheme *s)
{
    l->name = s->name;
    l->cut_params = s->params;
    l->cut_gradients = s->gradients;
    l->cut_optimizer = s->optimizer;
    l->keep_gathered = s->keep;
    l->whole_all_step = s->whole_all_step;
}

/* All ranks in one group, or one group per node with copies across the nodes. */
static void spread(struct plan_layout *l, const struct scheme *s, int world,
                   int local_size)
{
    int group = s->hybrid ? local_size : world;

    l->cp = l->sp = l->tp = 1;
    l->shard = s->optimizer ? group : 1;
    l->replicate = world / l->shard;
}

/* HYBRID needs at least two nodes of at least two ranks, and whole nodes. */
bool plan_layout_at(int i, int world, int local_size, struct plan_layout *layout_out)
{
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(schemes); k++) {
        const struct scheme *s = &schemes[k];

        if (s->hybrid && (local_size == world || local_size < 2 || world % local_size))
            continue;
        if (i-- > 0)
            continue;
        *layout_out = (struct plan_layout){ 0 };
        apply(layout_out, s);
        spread(layout_out, s, world, local_size);
        /* the strategies of FSDP, which come first in the table */
        layout_out->runs = k < 5;
        return true;
    }
    return false;
}

/* A size of the config; what is not positive counts as 1. */
static int key_number(const struct config *c, const char *key)
{
    char text[32];
    int n = atoi(config_get(c, key, text, sizeof(text)));

    return n > 0 ? n : 1;
}

/* FSDP1 names the strategy, or gives its number; FSDP2 has a key that says whether
 * parameters are freed after the forward. Unknown words count as FULL_SHARD. */
static const struct scheme *fsdp_scheme(const struct config *c)
{
    static const char *const by_number[] = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                             "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" };
    char text[64];
    const char *word = config_get(c, "fsdp_sharding_strategy", text, sizeof(text));

    if (config_is(c, "fsdp_version", "2"))
        word = config_is(c, "fsdp_reshard_after_forward", "false") ? "SHARD_GRAD_OP"
                                                                   : "FULL_SHARD";
    else if (word[0] >= '1' && word[0] <= '5' && !word[1])
        word = by_number[word[0] - '1'];
    return scheme_find(word) ? scheme_find(word) : scheme_find("FULL_SHARD");
}

/* Stages 0 to 3; see config_strategy. The parameters can be offloaded in
 * stage 3 only. */
static const struct scheme *deepspeed_scheme(const struct config *c,
                                             struct plan_layout *l)
{
    static const char *const stages[] = { "NO_SHARD", "SHARD_GRAD_OP", "SHARD_GRAD_OP",
                                          "FULL_SHARD" };
    char text[32];
    int stage = atoi(config_get(c, "zero_stage", text, sizeof(text)));

    l->offload_optimizer = !config_is(c, "offload_optimizer_device", "none") &&
                           !config_is(c, "offload_optimizer_device", "");
    l->offload_params = stage == 3 && !config_is(c, "offload_param_device", "none") &&
                        !config_is(c, "offload_param_device", "");
    return scheme_find(stages[stage >= 0 && stage <= 3 ? stage : 2]);
}

/* The axes that divide the ranks besides data parallelism. */
static void mesh_of(const struct config *c, struct plan_layout *l)
{
    bool megatron = config_is(c, "distributed_type", "MEGATRON_LM");

    l->tp = key_number(c, megatron ? "megatron_lm_tp_degree"
                                   : "parallelism_config_tp_size");
    l->cp = key_number(c, megatron ? "megatron_lm_context_parallel_size"
                                   : "parallelism_config_cp_size");
    l->sp = megatron ? 1 : key_number(c, "parallelism_config_sp_size");
}

/* Checks the mesh against the ranks. Ranks that the config does not assign are data
 * parallel, as the strategy wants it. */
static accel_status_t fit_mesh(const struct config *c, const struct scheme *s,
                               int world, int local_size, struct plan_layout *l,
                               accel_error_t *err)
{
    int others = l->cp * l->sp * l->tp;
    int replicate = key_number(c, "parallelism_config_dp_replicate_size");
    int shard = key_number(c, "parallelism_config_dp_shard_size");

    if (s->hybrid && (world % local_size || local_size % others))
        return accel_fail(
            err, A0070,
            "place the same number of ranks on every node, a multiple of cp x sp x tp",
            "%s needs whole nodes: %d ranks do not fill nodes of %d ranks, each "
            "divided into groups of %d",
            s->name, world, local_size, others);
    l->replicate = replicate;
    l->shard = shard;
    if (replicate * shard * others == world)
        return ACCEL_OK;
    if (replicate * shard > 1 || world % others)
        return accel_fail(
            err, A0070,
            "change the sizes of parallelism_config, or the number of ranks",
            "dp_replicate %d x dp_shard %d x cp %d x sp %d x tp %d does not "
            "equal %d, the number of ranks",
            l->replicate, l->shard, l->cp, l->sp, l->tp, world);
    /* spread sets the other axes to 1, so they are read again */
    spread(l, s, world / others, s->hybrid ? local_size / others : world / others);
    mesh_of(c, l);
    return ACCEL_OK;
}

/* An engine that is not known here has NO_SHARD: every rank holds everything. */
accel_status_t plan_layout_of(const struct config *c, int world, int local_size,
                              struct plan_layout *layout_out, accel_error_t *err)
{
    struct plan_layout l = { 0 };
    const struct scheme *s = scheme_find("NO_SHARD");
    bool fsdp = config_is(c, "distributed_type", "FSDP");
    accel_status_t st;

    if (fsdp) {
        s = fsdp_scheme(c);
        l.offload_params = config_is(c, "fsdp_offload_params", "true");
    } else if (config_is(c, "distributed_type", "DEEPSPEED")) {
        s = deepspeed_scheme(c, &l);
    } else if (config_is(c, "distributed_type", "MEGATRON_LM")) {
        if (key_number(c, "megatron_lm_pp_degree") > 1)
            return accel_fail(err, A0071,
                              "set megatron_lm_pp_degree: 1 to plan the rest",
                              "pipeline stages cannot be planned");
        if (config_is(c, "megatron_lm_use_distributed_optimizer", "true"))
            s = scheme_find("ZeRO-1");
    }
    apply(&l, s);
    mesh_of(c, &l);
    ACCEL_CHECK(st, fit_mesh(c, s, world, local_size, &l, err));
    l.runs = config_supported(c, NULL) == ACCEL_OK;
    *layout_out = l;
    return ACCEL_OK;
}

/* The stride is the product of all faster axes. */
struct plan_group plan_group_of(const struct plan_layout *l, enum plan_axis axis)
{
    const int size[AXIS_COUNT] = { l->replicate, l->shard, l->cp, l->sp, l->tp };
    struct plan_group g = { size[axis], 1 };

    for (int a = AXIS_COUNT - 1; a > (int)axis; a--)
        g.stride *= size[a];
    return g;
}

const char *plan_axis_name(enum plan_axis axis)
{
    static const char *const names[AXIS_COUNT] = { "dp_replicate", "dp_shard", "cp",
                                                   "sp", "tp" };

    return names[axis];
}
