/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks keys against each other: the type and the sizes of the job, and what one key
 * implies for another. Works on the merged config, so a conflict may be between two
 * files. The rules inside a map are in check_fsdp.c and check_engines.c.
 */
#include <stdio.h>
#include <string.h>

#include "config/read/validate.h"

/* distributed_type NO means one process on one machine. */
static void check_one_process(struct validator *v, long long p, long long m)
{
    static const char cure[] = "use distributed_type: FSDP or MULTI_CPU, or %s: 1";
    const char *name = p > 1 ? "num_processes" : "num_machines";
    char hint[100];

    if (p <= 1 && m <= 1)
        return;
    snprintf(hint, sizeof(hint), cure, name);
    report_add(v->report, A0117, place_of(v, name, TOP_LEVEL), hint,
               "distributed_type NO means one process, but %s is %lld", name,
               p > 1 ? p : m);
}

/* num_processes counts the whole job, as in Accelerate, and every machine runs the same
 * number. 0 stands for "not given" and fits everything. */
static void check_sizes(struct validator *v)
{
    long long p = v->cfg->num_processes, m = v->cfg->num_machines;

    if (v->cfg->distributed_type == DIST_NO)
        check_one_process(v, p, m);
    if (p && m > p)
        report_add(v->report, A0117, place_of(v, "num_machines", TOP_LEVEL),
                   "start at least one process per machine",
                   "num_machines (%lld) is larger than num_processes (%lld), the total "
                   "of all machines",
                   m, p);
    else if (p && m && p % m)
        report_add(v->report, A0117, place_of(v, "num_processes", TOP_LEVEL),
                   "use a multiple of num_machines: every machine runs the same number",
                   "num_processes (%lld) is not a multiple of num_machines (%lld)", p,
                   m);
}

/* The value of `to` follows from `from`: gives it the origin and line of `from`, so
 * that messages point to what the user wrote. */
static void take_over(struct config *cfg, const char *to, const char *from)
{
    int i = config_row(to), j = config_row(from);

    cfg->origin[i] = cfg->origin[j];
    cfg->line[i] = cfg->line[j];
}

/* MULTI_CPU means CPU by its name, but only if the user gave it: as the default it says
 * nothing about the device. use_cpu means it for the other types. */
static void force_cpu(struct config *cfg)
{
    bool by_type = config_is_given(cfg, "distributed_type") &&
                   cfg->distributed_type == DIST_MULTI_CPU;

    /* accel.device: cpu is stronger or the same; its origin must stay. */
    if (cfg->device == DEVICE_CPU || (!cfg->use_cpu && !by_type))
        return;
    cfg->device = DEVICE_CPU;
    take_over(cfg, "accel.device", cfg->use_cpu ? "use_cpu" : "distributed_type");
}

/* A run without checkpoints has nothing to come back to, so preemption is switched off
 * and signals keep their usual effect. Asking for both is an error. */
static void preempt_only_saved(struct validator *v)
{
    if (v->cfg->ckpt_save)
        return;
    if (config_is_given(v->cfg, "accel.preemption.enabled") && v->cfg->preempt_enabled)
        report_add(
            v->report, A0134, place_of(v, "enabled", ACCEL_PREEMPTION),
            "set accel.checkpoint.save to true, or accel.preemption.enabled to false",
            "accel.preemption.enabled needs checkpoints, but "
            "accel.checkpoint.save is false");
    v->cfg->preempt_enabled = false;
    take_over(v->cfg, "accel.preemption.enabled", "accel.checkpoint.save");
}

/* The old key `fp16: true` counts where mixed_precision is not given, or only by the
 * program, which gives way to the user. It must respect a lock on mixed_precision. */
static void take_fp16(struct validator *v)
{
    int row = config_row("mixed_precision");
    bool by_program = v->cfg->origin[row] == ORIGIN_PROGRAM &&
                      v->cfg->origin[config_row("fp16")] > ORIGIN_PROGRAM;

    if ((config_is_given(v->cfg, "mixed_precision") && !by_program) ||
        !config_is(v->cfg, "fp16", "true") ||
        lock_refuses(v, (size_t)row, "fp16", place_of(v, "fp16", TOP_LEVEL)))
        return;
    v->cfg->mixed_precision = PRECISION_FP16;
    take_over(v->cfg, "mixed_precision", "fp16");
}

/* Transformer Engine's switch counts where fp8_recipe is not given, and no other engine
 * is. It must respect a lock on that. */
static void take_mxfp8(struct validator *v)
{
    static const char implied[] = "fp8_recipe", name[] = "fp8_use_mxfp8_block_scaling";

    if (config_is_given(v->cfg, implied) || config_fp8_is_ao(v->cfg) ||
        config_fp8_is_msamp(v->cfg) || !config_is(v->cfg, name, "true") ||
        lock_refuses(v, (size_t)config_row(implied), name,
                     place_of(v, name, FP8_CONFIG)))
        return;
    v->cfg->fp8_recipe = FP8_MXFP8;
    take_over(v->cfg, implied, name);
}

/* A level of MS-AMP is what other keys say one by one; those that are given win. */
static void take_msamp(struct validator *v)
{
    static const char name[] = "fp8_opt_level";
    static const struct {
        const char *name;
        size_t offset;
        int value, level;
    } implied[] = {
        { "fp8_recipe", offsetof(struct config, fp8_recipe), FP8_POWERS, 1 },
        { "masters", offsetof(struct config, masters), MASTERS_FP16, 1 },
        { "gradients", offsetof(struct config, gradients), GRADIENTS_FP8, 1 },
        { "reduce", offsetof(struct config, reduce), REDUCE_E4M3, 1 },
        { "moments", offsetof(struct config, moments), MOMENTS_FP8, 2 },
        { "weights", offsetof(struct config, weights), WEIGHTS_FP8, 3 },
    };
    char text[16] = "";
    const int level =
        config_get(v->cfg, name, text, sizeof(text))[0] == 'O' ? text[1] - '0' : 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(implied); i++) {
        const char *to = implied[i].name;

        if (!config_fp8_is_msamp(v->cfg) || level < implied[i].level ||
            config_is_given(v->cfg, to) ||
            lock_refuses(v, (size_t)config_row(to), name,
                         place_of(v, name, FP8_CONFIG)))
            continue;
        *(int *)(void *)((char *)v->cfg + implied[i].offset) = implied[i].value;
        take_over(v->cfg, to, config_is_given(v->cfg, name) ? name : "fp8_backend");
    }
}

/* Weights that steps keep in bfloat16 are what the ops see, so these compute in it.
 * Those in float16 have the same limit, so that one rule holds for all. */
static void check_masters(struct validator *v)
{
    static const char *const words[] = { "float32", "bf16", "none", "fp16" };

    if (v->cfg->masters == MASTERS_F32 || v->cfg->mixed_precision == PRECISION_BF16 ||
        v->cfg->mixed_precision == PRECISION_FP8)
        return;
    report_add(v->report, A0153, place_of(v, "masters", ACCEL_PRECISION),
               "set mixed_precision to bf16 or fp8, or leave masters out",
               "accel.precision.masters is %s, but without bf16 or fp8 weights are %s",
               words[v->cfg->masters],
               v->cfg->mixed_precision == PRECISION_FP16
                   ? "rounded to fp16 from float32"
                   : "float32");
}

/* Notes the job's keys that are for another precision. Those of the site, of the
 * program and of the user file are for many jobs. */
static void note_unused_precision(struct validator *v)
{
    static const struct {
        const char *name;
        enum mixed_precision of;
    } keys[] = {
        { "fp8_recipe", PRECISION_FP8 },
        { "fp8_weight_cache", PRECISION_FP8 },
        { "loss_scale_enabled", PRECISION_FP16 },
        { "loss_scale_init_scale", PRECISION_FP16 },
        { "loss_scale_growth_factor", PRECISION_FP16 },
        { "loss_scale_backoff_factor", PRECISION_FP16 },
        { "loss_scale_growth_interval", PRECISION_FP16 },
    };
    char now[16];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(keys); i++) {
        const char *word = keys[i].of == PRECISION_FP8 ? "fp8" : "fp16";
        char path[64], cure[48];

        snprintf(path, sizeof(path), "accel.precision.%s", keys[i].name);
        if (v->cfg->mixed_precision == keys[i].of ||
            v->cfg->origin[config_row(path)] < ORIGIN_FILE)
            continue;
        snprintf(cure, sizeof(cure), "remove it, or set mixed_precision: %s", word);
        report_add(v->report, MESSAGE_NOTE, place_of(v, keys[i].name, ACCEL_PRECISION),
                   cure, "'%s' has no effect with mixed_precision %s", path,
                   config_get(v->cfg, "mixed_precision", now, sizeof(now)));
    }
}

/* Other words of the rules do not depend on the run's precision, or are refused. */
static void note_unused_rules(struct validator *v)
{
    char now[16];

    if (v->cfg->mixed_precision == PRECISION_FP8 ||
        !strstr(v->cfg->precision_modules, "=fp8") ||
        v->cfg->origin[config_row("accel.precision.modules")] < ORIGIN_FILE)
        return;
    report_add(v->report, MESSAGE_NOTE, place_of(v, "modules", ACCEL_PRECISION),
               "remove it, or set mixed_precision: fp8",
               "fp8 in 'accel.precision.modules' has no effect with mixed_precision %s",
               config_get(v->cfg, "mixed_precision", now, sizeof(now)));
}

/* Codes are all that there is of such weights, so every product must take them. */
static void check_weights(struct validator *v)
{
    const bool fp8 = v->cfg->mixed_precision == PRECISION_FP8;

    if (v->cfg->weights == WEIGHTS_AUTO ||
        (fp8 && (v->cfg->fp8_recipe == FP8_POWERS || config_fp8_is_ao(v->cfg))))
        return;
    report_add(v->report, A0153, place_of(v, "weights", ACCEL_PRECISION),
               "set mixed_precision: fp8 with accel.precision.fp8_recipe: powers, or "
               "leave weights out",
               "accel.precision.weights is fp8, but %s",
               fp8 ? "products take others with this recipe"
                   : "mixed_precision is not fp8");
}

/* It is a word of a file beside the checkpoints. */
static void check_metric(struct validator *v)
{
    const char *name = v->cfg->ckpt_metric;

    if (*name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_.-/") == strlen(name))
        return;
    report_add(v->report, A0104, place_of(v, "metric", ACCEL_CHECKPOINT),
               "use letters, digits, '_', '.', '-' and '/', such as eval_loss",
               "'metric' cannot be '%s'", name);
}

/* Rank 0 writes the only file of FULL_STATE_DICT; other nodes have no part of it.
 * Whether the directory lies apart from the shared one is seen when the run starts. */
static void check_local_dir(struct validator *v)
{
    const char *dir = v->cfg->ckpt_local_dir;
    const struct place place = place_of(v, "local_dir", ACCEL_CHECKPOINT);

    if (!*dir)
        return;
    if (*dir != '/')
        report_add(v->report, A0862, place, "name a directory on a disk of the nodes",
                   "accel.checkpoint.local_dir '%s' is not an absolute path", dir);
    else if (config_state_dict(v->cfg) == DICT_FULL)
        report_add(
            v->report, A0135, place,
            "use fsdp_state_dict_type: SHARDED_STATE_DICT, or leave local_dir out",
            "accel.checkpoint.local_dir holds the files of a node's own ranks, "
            "but FULL_STATE_DICT has one file");
}

/* In this order: keys that imply others come first, so that the checks see the final
 * values. Without a type there is nothing to check maps against; the missing type is
 * reported then, unless it was misspelt or had a bad value. */
void validate_across(struct validator *v)
{
    int type = config_row("distributed_type");

    take_fp16(v);
    take_mxfp8(v);
    take_msamp(v);
    force_cpu(v->cfg);
    preempt_only_saved(v);
    check_masters(v);
    check_weights(v);
    note_unused_precision(v);
    note_unused_rules(v);
    check_metric(v);
    check_local_dir(v);
    check_track(v);
    if (config_is_given(v->cfg, "distributed_type")) {
        check_sizes(v);
        check_fsdp(v);
        check_fp8(v);
        check_parallelism(v);
        check_deepspeed(v);
        check_megatron(v);
    } else if (v->needs_type && !v->misspelt_type && !v->value_at[type].in) {
        report_add(v->report, A0108, (struct place){ 0 },
                   "add the line 'distributed_type: FSDP' (or MULTI_CPU, or 'NO')",
                   "the required key 'distributed_type' is missing");
    }
}
