/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: no key of a strategy is dropped without a word. Each value that is not the
 * default is read by libaccel, refused by it, or has a stated reason in the schema
 * table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "precision/policy.h"
#include "tests/tap.h"

/* ---- the keys that libaccel reads ------------------------------------------------ */

/* In struct config or by name; `file` is where that is done. NULL: one of the functions
 * that differ() calls. */
static const struct {
    const char *key, *file, *text;
} read_by[] = {
    { "distributed_type", NULL, NULL },
    { "mixed_precision", NULL, NULL },
    { "num_processes", "runtime/run/run_config.c", "config.num_processes" },
    { "num_machines", "srun_plugin/step/size.c", "cfg->num_machines" },
    { "use_cpu", "runtime/place/place.c", "c->use_cpu" },
    { "debug", "runtime/ranks/collective_entry.c", "config.debug" },
    { "fsdp_version", "runtime/config/rules/support.c", "\"fsdp_version\"" },
    { "fsdp_sharding_strategy", NULL, NULL },
    { "fsdp_reshard_after_forward", NULL, NULL },
    { "fsdp_auto_wrap_policy", NULL, NULL },
    { "fsdp_transformer_layer_cls_to_wrap", "runtime/run/prepare.c",
      "config_wrap_classes" },
    { "fsdp_backward_prefetch", NULL, NULL },
    { "fsdp_state_dict_type", NULL, NULL },
    { "fsdp_offload_params", "runtime/handle/run_info.c", "\"fsdp_offload_params\"" },
    { "fsdp_activation_checkpointing", NULL, NULL },
    { "parallelism_config_dp_shard_size", NULL, NULL },
    { "fp8_use_autocast_during_eval", NULL, NULL },
    { "fp8_margin", NULL, NULL },
    { "fp8_interval", NULL, NULL },
    { "fp8_format", NULL, NULL },
    { "fp8_use_mxfp8_block_scaling", NULL, NULL },
    { "fp8_amax_history_len", NULL, NULL },
    { "fp8_amax_compute_algo", NULL, NULL },
    { "zero_stage", NULL, NULL },
    { "gradient_accumulation_steps", NULL, NULL },
    { "gradient_clipping", NULL, NULL },
    { "deepspeed_config_file", "runtime/config/python/deepspeed.c",
      "\"deepspeed_config_file\"" },
};
static bool proved[ACCEL_ARRAY_SIZE(read_by)];

static int reader(const char *key)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(read_by); i++)
        if (!strcmp(read_by[i].key, key))
            return (int)i;
    return -1;
}

static bool recipes_differ(const struct config *a, const struct config *b)
{
    const struct fp8_recipe p = fp8_recipe_of(a), q = fp8_recipe_of(b);

    return p.type[FP8_GRADIENT] != q.type[FP8_GRADIENT] || p.margin != q.margin ||
           p.interval != q.interval || p.history != q.history ||
           p.most_recent != q.most_recent || p.blocks != q.blocks ||
           p.evaluation != q.evaluation;
}

/* Does anything that libaccel asks of a config have another answer? */
static bool differ(const struct config *a, const struct config *b)
{
    struct precision p = precision_of(a), q = precision_of(b);
    struct config_mesh m, n;

    config_mesh(a, 0, &m);
    config_mesh(b, 0, &n);
    return a->distributed_type != b->distributed_type || p.compute != q.compute ||
           p.reduce != q.reduce || recipes_differ(a, b) ||
           config_strategy(a) != config_strategy(b) ||
           config_wraps(a) != config_wraps(b) ||
           config_accumulation(a) != config_accumulation(b) ||
           config_clipping(a) != config_clipping(b) ||
           config_recomputes(a) != config_recomputes(b) ||
           config_state_dict(a) != config_state_dict(b) ||
           config_prefetch(a) != config_prefetch(b) || m.total != n.total;
}

/* ---- one value ------------------------------------------------------------------- */

/* Where a map counts: the settings that switch it on. */
static const struct {
    const char *section;
    struct config_setting on[2];
} contexts[] = {
    { "", { { "distributed_type", "FSDP" }, { "fsdp_version", "1" } } },
    { "fsdp_config", { { "distributed_type", "FSDP" }, { "fsdp_version", "1" } } },
    { "fsdp_config", { { "distributed_type", "FSDP" }, { "fsdp_version", "2" } } },
    { "dynamo_config", { { "distributed_type", "FSDP" }, { "fsdp_version", "1" } } },
    { "fp8_config", { { "distributed_type", "FSDP" }, { "mixed_precision", "fp8" } } },
    { "parallelism_config",
      { { "distributed_type", "FSDP" }, { "fsdp_version", "2" } } },
    { "deepspeed_config",
      { { "distributed_type", "DEEPSPEED" }, { "zero_stage", "3" } } },
    { "megatron_lm_config",
      { { "distributed_type", "MEGATRON_LM" }, { "debug", "false" } } },
};

static bool resolve(const struct config_setting *s, size_t count, struct config *cfg,
                    bool *noted)
{
    struct config_sources src = { .flags = s, .flag_count = count };
    struct config_diags diags;
    bool good = config_resolve(&src, cfg, &diags, NULL) == ACCEL_OK;

    *noted = false;
    for (size_t i = 0; i < diags.count; i++)
        *noted |= strstr(diags.item[i].text, s[count - 1].name) != NULL;
    config_diags_free(&diags);
    return good;
}

/* Of a row with one value that is what libaccel always does. */
static bool does_one(const char *ours)
{
    return ours && !strchr(ours, '|') && strcmp(ours, "*") != 0;
}

/* "" : refused, noted, or with a reason; else what is wrong. */
static const char *judge(const struct config_key *k, size_t context, const char *value)
{
    struct config_setting s[3] = { contexts[context].on[0],
                                   contexts[context].on[1],
                                   { k->name, value } };
    static struct config without, with;
    bool noted;
    int r = reader(k->name);

    if (!resolve(s, 2, &without, &noted) || !resolve(s, 3, &with, &noted) || noted)
        return ""; /* the config itself says what is wrong, or that it has no effect */
    if (config_supported(&with, NULL) != ACCEL_OK || (k->why && !k->moot) ||
        config_moot(&with, (size_t)config_row(k->name)) || does_one(k->ours))
        return "";
    if (r < 0)
        return "dropped without a word";
    if (!read_by[r].file)
        proved[r] |= differ(&without, &with);
    return "";
}

/* Values to try, besides the words of the row. */
static void try_key(const struct config_key *k, size_t context)
{
    static const char *const tries[] = { "true", "false", "1", "2",
                                         "0.5",  "x",     "0", "all" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(tries); i++)
        if (!k->default_text || strcmp(tries[i], k->default_text) != 0)
            tap_is_str(judge(k, context, tries[i]), "", "%s: %s (%s %s)", k->name,
                       tries[i], contexts[context].on[0].value,
                       contexts[context].on[1].value);
    for (int i = 0; k->values && k->values[i]; i++)
        if (!k->default_text || strcmp(k->values[i], k->default_text) != 0)
            tap_is_str(judge(k, context, k->values[i]), "", "%s: %s", k->name,
                       k->values[i]);
}

static bool file_has(const char *name, const char *text)
{
    static char buf[200 << 10];
    char path[4200];
    const char *src = getenv("ACCEL_SRC");
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", src ? src : ".", name);
    f = fopen(path, "re");
    if (!f)
        return false;
    n = fread(buf, 1, sizeof(buf) - 1, f);
    fclose(f);
    buf[n] = '\0';
    return strstr(buf, text) != NULL;
}

int main(void)
{
    size_t n, reasons = 0;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < ACCEL_ARRAY_SIZE(contexts); c++)
            if (!strcmp(k[i].section, contexts[c].section) &&
                (k[i].use == USE_HONOURED || k[i].use == USE_HANDED_ON))
                try_key(&k[i], c);
        reasons += k[i].why != NULL;
        if (k[i].why)
            tap_ok(k[i].moot || (k[i].ours && reader(k[i].name) < 0),
                   "%s has values that are taken, and nobody reads it: %s", k[i].name,
                   k[i].why);
    }
    tap_ok(reasons >= 12, "reasons are given for %zu keys", reasons);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(read_by); i++)
        tap_ok(read_by[i].file ? file_has(read_by[i].file, read_by[i].text) : proved[i],
               "%s is read%s%s", read_by[i].key, read_by[i].file ? " in " : "",
               read_by[i].file ? read_by[i].file : "");
    return tap_done();
}
