/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules inside fsdp_config: what versions 1 and 2 each have and lack, and what one key
 * needs of another. A value that the version ignores gets a note; one that it cannot do
 * is an error.
 */
#include <string.h>

#include "config/read/validate.h"

/* Adds a note when a key is given that this version ignores. */
static void note_version(struct validator *v, const char *name, int version,
                         const char *cure)
{
    if (config_is_given(v->cfg, name))
        report_add(v->report, MESSAGE_NOTE, place_of(v, name, FSDP_CONFIG), cure,
                   "'%s' has no effect with fsdp_version %d", name, version);
}

/* With efficient loading only rank 0 reads the weights; without sync_module_states the
 * others would train from garbage. Loading is on by default, which the message says. */
static void check_loading(struct validator *v)
{
    if (!v->cfg->cpu_ram_efficient_loading || v->cfg->sync_module_states)
        return;
    report_add(v->report, A0120, place_of(v, "fsdp_sync_module_states", FSDP_CONFIG),
               "set it to true, or fsdp_cpu_ram_efficient_loading to false",
               "fsdp_cpu_ram_efficient_loading%s needs fsdp_sync_module_states: true",
               config_is_given(v->cfg, "fsdp_cpu_ram_efficient_loading")
                   ? ""
                   : " (on by default)");
}

/* Version 1 takes fsdp_sharding_strategy and cannot offload recomputed activations. */
static void check_version1(struct validator *v)
{
    check_loading(v);
    note_version(v, "fsdp_reshard_after_forward", 1,
                 "version 1 uses fsdp_sharding_strategy");
    if (config_is(v->cfg, "fsdp_activation_checkpointing_offload", "true"))
        report_add(v->report, A0124,
                   place_of(v, "fsdp_activation_checkpointing_offload", FSDP_CONFIG),
                   "set it to false, or fsdp_version to 2",
                   "fsdp_activation_checkpointing_offload needs fsdp_version 2");
}

/* Version 1 had a word here, version 2 has a truth value; the row takes either. */
static void check_reshard(struct validator *v)
{
    char text[32];

    config_get(v->cfg, "fsdp_reshard_after_forward", text, sizeof(text));
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        report_add(v->report, A0121,
                   place_of(v, "fsdp_reshard_after_forward", FSDP_CONFIG),
                   "use true for FULL_SHARD and HYBRID_SHARD, false for the others",
                   "'fsdp_reshard_after_forward: %s' belongs to fsdp_version 1; "
                   "version 2 takes true or false",
                   text);
}

/* Version 2 has no sharding strategy (reshard_after_forward stands for it), no prefetch
 * keys and no local state dict. */
static void check_version2(struct validator *v)
{
    check_reshard(v);
    note_version(v, "fsdp_sharding_strategy", 2,
                 "write fsdp_reshard_after_forward: true (FULL_SHARD) or false "
                 "(SHARD_GRAD_OP)");
    note_version(v, "fsdp_backward_prefetch", 2, "version 2 gathers by itself");
    note_version(v, "fsdp_sync_module_states", 2, "version 2 always does");
    note_version(v, "fsdp_use_orig_params", 2, "version 2 always does");
    if (config_is(v->cfg, "fsdp_forward_prefetch", "true"))
        report_add(v->report, A0122, place_of(v, "fsdp_forward_prefetch", FSDP_CONFIG),
                   "set it to false or remove it: version 2 prefetches automatically",
                   "fsdp_version 2 does not support fsdp_forward_prefetch");
    if (config_is(v->cfg, "fsdp_state_dict_type", "LOCAL_STATE_DICT"))
        report_add(v->report, A0123, place_of(v, "fsdp_state_dict_type", FSDP_CONFIG),
                   "use SHARDED_STATE_DICT",
                   "fsdp_version 2 does not support LOCAL_STATE_DICT");
    /* Offloading only moves what checkpointing keeps. */
    if (config_is(v->cfg, "fsdp_activation_checkpointing_offload", "true") &&
        !config_is(v->cfg, "fsdp_activation_checkpointing", "true"))
        report_add(v->report, A0124,
                   place_of(v, "fsdp_activation_checkpointing_offload", FSDP_CONFIG),
                   "set fsdp_activation_checkpointing: true as well",
                   "fsdp_activation_checkpointing_offload needs "
                   "fsdp_activation_checkpointing");
}

/* One map serves both versions; fsdp_version decides which rules apply. */
void check_fsdp(struct validator *v)
{
    const struct config *cfg = v->cfg;

    if (cfg->distributed_type != DIST_FSDP) {
        note_unused_map(v, FSDP_CONFIG, "distributed_type", "FSDP");
        return;
    }
    if (config_get_int(cfg, "fsdp_version") == 2)
        check_version2(v);
    else
        check_version1(v);
    /* The class names are for one policy only. */
    if (cfg->transformer_cls[0] && cfg->auto_wrap_policy != WRAP_TRANSFORMER)
        report_add(v->report, MESSAGE_NOTE,
                   place_of(v, "fsdp_transformer_layer_cls_to_wrap", FSDP_CONFIG),
                   "set fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP to use it",
                   "fsdp_transformer_layer_cls_to_wrap has no effect with %s",
                   cfg->auto_wrap_policy == WRAP_SIZE ? "SIZE_BASED_WRAP" : "NO_WRAP");
}
