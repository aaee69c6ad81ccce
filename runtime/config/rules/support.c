/* SPDX-License-Identifier: Apache-2.0
 *
 * What a config means to libaccel's own runtime, and what the runtime does not
 * implement yet. Python programs are not concerned: they get everything in their
 * environment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/config.h"
#include "config/read/document.h"

/* FSDP version 2 has other keys for the same choices. */
static bool is_version2(const struct config *cfg)
{
    return config_get_int(cfg, "fsdp_version") == 2;
}

/* ZeRO stages 1 and 2 are both SHARD_GRAD_OP here: the numbers are the same, and a rank
 * holds no more than the stage says. Stage 3 frees the parameters between their uses
 * as well. */
enum sharding_strategy config_strategy(const struct config *cfg)
{
    if (cfg->distributed_type == DIST_FSDP && is_version2(cfg))
        return config_is(cfg, "fsdp_reshard_after_forward", "false") ? SHARD_GRAD_OP
                                                                     : SHARD_FULL;
    if (cfg->distributed_type == DIST_FSDP)
        return cfg->sharding_strategy;
    if (cfg->distributed_type != DIST_DEEPSPEED)
        return SHARD_NONE;
    switch (config_get_int(cfg, "zero_stage")) {
    case 0:
        return SHARD_NONE;
    case 3:
        return SHARD_FULL;
    default:
        return SHARD_GRAD_OP;
    }
}

/* The words of fsdp_sharding_strategy. */
const char *config_strategy_name(enum sharding_strategy strategy)
{
    static const char *const names[] = {
        [SHARD_FULL] = "FULL_SHARD",
        [SHARD_NONE] = "NO_SHARD",
        [SHARD_GRAD_OP] = "SHARD_GRAD_OP",
        [SHARD_HYBRID] = "HYBRID_SHARD",
        [SHARD_HYBRID_ZERO2] = "HYBRID_SHARD_ZERO2",
    };

    return names[strategy];
}

/* Only fsdp_config has a key for it. */
enum state_dict config_state_dict(const struct config *cfg)
{
    static const char key[] = "fsdp_state_dict_type";

    if (cfg->distributed_type != DIST_FSDP)
        return DICT_SHARDED;
    return config_is(cfg, key, "FULL_STATE_DICT")    ? DICT_FULL
           : config_is(cfg, key, "LOCAL_STATE_DICT") ? DICT_LOCAL
                                                     : DICT_SHARDED;
}

/* DeepSpeed gathers module by module, SIZE_BASED_WRAP what has enough parameters; the
 * model's own blocks come closest to both. */
bool config_wraps(const struct config *cfg)
{
    return cfg->distributed_type == DIST_DEEPSPEED ||
           (cfg->distributed_type == DIST_FSDP && cfg->auto_wrap_policy != WRAP_NONE);
}

const char *config_wrap_classes(const struct config *cfg)
{
    return cfg->auto_wrap_policy == WRAP_SIZE ? "" : cfg->transformer_cls;
}

/* Version 2 always gathers ahead, which is what PREFETCH_PRE does. */
enum backward_prefetch config_prefetch(const struct config *cfg)
{
    return cfg->distributed_type == DIST_FSDP && is_version2(cfg)
               ? PREFETCH_PRE
               : cfg->backward_prefetch;
}

/* Only deepspeed_config has these keys; elsewhere the program decides. */
int64_t config_accumulation(const struct config *cfg)
{
    return cfg->distributed_type == DIST_DEEPSPEED
               ? config_get_int(cfg, "gradient_accumulation_steps")
               : 0;
}

double config_clipping(const struct config *cfg)
{
    return cfg->distributed_type == DIST_DEEPSPEED
               ? config_get_number(cfg, "gradient_clipping")
               : 0;
}

/* Only fsdp_config has a key for it. */
bool config_recomputes(const struct config *cfg)
{
    return cfg->distributed_type == DIST_FSDP &&
           config_is(cfg, "fsdp_activation_checkpointing", "true");
}

/* Site and user files are named by their kind, because their paths do not travel to
 * the tasks. */
const char *config_where(const struct config *cfg, const char *name, char *buf,
                         size_t len)
{
    static const char *const files[] = {
        [ORIGIN_SITE] = "site file", [ORIGIN_USER] = "user file"
    };
    int row = config_row(name);
    char variable[96];

    buf[0] = '\0';
    if (row < 0)
        return buf;
    switch (cfg->origin[row]) {
    case ORIGIN_SITE:
    case ORIGIN_USER:
        snprintf(buf, len, "%s, line %d", files[cfg->origin[row]], cfg->line[row]);
        break;
    case ORIGIN_FILE:
        snprintf(buf, len, "%s:%d", cfg->job_path, cfg->line[row]);
        break;
    case ORIGIN_ENV:
        snprintf(buf, len, "environment %s",
                 config_env_name((size_t)row, variable, sizeof(variable)));
        break;
    case ORIGIN_FLAG:
        snprintf(buf, len, "flag %s", name);
        break;
    case ORIGIN_PROGRAM:
        snprintf(buf, len, "the program's %s", name);
        break;
    default:
        snprintf(buf, len, "default of %s", name);
    }
    return buf;
}

const char *config_fp8_engine(const char *name)
{
    static const char *const ao[] = { "fp8_enable_fsdp_float8_all_gather",
                                      "fp8_pad_inner_dim", NULL };

    if (word_index(ao, name) >= 0)
        return "AO";
    return !strcmp(name, "fp8_opt_level") ? "MSAMP" : "TE";
}

static bool is_fp8_backend(const struct config *cfg, const char *name)
{
    char backend[16];

    return cfg->mixed_precision == PRECISION_FP8 &&
           !strcasecmp(config_get(cfg, "fp8_backend", backend, sizeof(backend)), name);
}

bool config_fp8_is_ao(const struct config *cfg)
{
    return is_fp8_backend(cfg, "AO");
}

bool config_fp8_is_msamp(const struct config *cfg)
{
    return is_fp8_backend(cfg, "MSAMP");
}

/* Without a backend Transformer Engine's keys count, whose recipes are libaccel's; so
 * does what is given for another engine. */
static bool is_fp8_in_use(const struct config *cfg, const char *name)
{
    const char *engine = config_fp8_engine(name);
    char backend[16];

    if (cfg->mixed_precision != PRECISION_FP8)
        return false;
    config_get(cfg, "fp8_backend", backend, sizeof(backend));
    if (!backend[0])
        return !strcmp(engine, "TE") || config_is_given(cfg, name);
    return !strcmp(name, "fp8_backend") || !strcasecmp(engine, backend);
}

/* Does this row matter to the run, by its map, FSDP version and precision? A key that
 * is not in use must not stop a run. */
static bool is_in_use(const struct config *cfg, const struct config_key *k)
{
    static const struct {
        const char *section;
        enum distributed_type type;
    } only[] = { { "fsdp_config", DIST_FSDP },
                 { "parallelism_config", DIST_FSDP },
                 { "deepspeed_config", DIST_DEEPSPEED },
                 { "megatron_lm_config", DIST_MEGATRON_LM } };

    /* Each version of FSDP has keys that the other one ignores. */
    static const char *const of_version1[] = { "fsdp_sharding_strategy",
                                               "fsdp_backward_prefetch",
                                               "fsdp_sync_module_states",
                                               "fsdp_use_orig_params", NULL };

    if (is_version2(cfg) ? word_index(of_version1, k->name) >= 0
                         : !strcmp(k->name, "fsdp_reshard_after_forward"))
        return false;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(only); i++)
        if (!strcmp(k->section, only[i].section))
            return cfg->distributed_type == only[i].type;
    return strcmp(k->section, "fp8_config") != 0 || is_fp8_in_use(cfg, k->name);
}

/* What is moved to the memory of the CPU is there already where that computes. */
static bool is_at_home(const struct config *cfg, const struct config_key *k,
                       const char *text)
{
    static const char *const keys[] = { "offload_optimizer_device",
                                        "offload_param_device",
                                        "fsdp_activation_checkpointing_offload", NULL };

    return cfg->device == DEVICE_CPU && word_index(keys, k->name) >= 0 &&
           value_among("cpu|true", text);
}

/* Does libaccel implement the value of this key, or is there nothing to implement? */
static bool is_done(const struct config *cfg, const struct config_key *k)
{
    char text[1100];

    if (k->use == USE_REPLACED || k->use == USE_NO_EFFECT || k->use == USE_REFUSED ||
        (k->use == USE_HONOURED && !k->ours) || !is_in_use(cfg, k))
        return true;
    config_value_text(cfg, k, text, sizeof(text));
    /* A key that was neither given nor has a default asks for nothing. */
    return !text[0] || value_among(k->ours, text) || value_among(k->moot, text) ||
           is_at_home(cfg, k, text);
}

const char *config_moot(const struct config *cfg, size_t row)
{
    size_t n;
    const struct config_key *k = &config_schema(&n)[row];
    char text[1100];

    if (cfg->origin[row] == ORIGIN_DEFAULT || !is_in_use(cfg, k))
        return NULL;
    config_value_text(cfg, k, text, sizeof(text));
    if (is_at_home(cfg, k, text))
        return "everything is in the memory of the CPU already";
    return value_among(k->moot, text) && !value_among(k->ours, text) ? k->why : NULL;
}

/* Writes the cure: the values that are implemented, in the words of the row. */
static void cure_text(const struct config_key *k, char *buf, size_t len)
{
    size_t used;

    if (k->offset == offsetof(struct config, distributed_type)) {
        snprintf(buf, len,
                 "use MULTI_GPU or MULTI_CPU (copies), or FSDP (sharded, on either)");
        return;
    }
    if (!k->ours) {
        snprintf(buf, len, "remove it, or run a Python program, which receives it");
        return;
    }
    used = (size_t)snprintf(buf, len, "libaccel supports '");
    for (const char *p = k->ours; *p && used < len; p++) {
        const char letter[2] = { *p, '\0' },
                   *bar = strchr(p + 1, '|') ? "', '" : "' and '";

        used +=
            (size_t)snprintf(buf + used, len - used, "%s", *p == '|' ? bar : letter);
    }
    if (used < len)
        snprintf(buf + used, len - used, "'");
}

/* Offloading moves a rank's shard to the host; whole copies have none. */
static accel_status_t check_offload(const struct config *cfg, accel_error_t *err)
{
    char where[256];

    if (cfg->distributed_type != DIST_FSDP || config_strategy(cfg) != SHARD_NONE ||
        cfg->device == DEVICE_CPU || !config_is(cfg, "fsdp_offload_params", "true"))
        return ACCEL_OK;
    return accel_fail_at(err, A0170,
                         config_where(cfg, "fsdp_offload_params", where, sizeof(where)),
                         "use FULL_SHARD, or set it to false",
                         "'fsdp_offload_params: true' is not supported yet");
}

/* DeepSpeed's own file may ask for more than the keys that accel reads. */
static accel_status_t check_deepspeed_file(const struct config *cfg, accel_error_t *err)
{
    char where[256];

    if (cfg->distributed_type != DIST_DEEPSPEED || !cfg->deepspeed_more[0])
        return ACCEL_OK;
    return accel_fail_at(
        err, A0170, config_where(cfg, "deepspeed_config_file", where, sizeof(where)),
        "remove the section (a libaccel program has its own optimizer and schedule), "
        "or run a Python program, which receives the file",
        "section \"%s\" of the DeepSpeed file is not supported yet",
        cfg->deepspeed_more);
}

/* Without a backend libaccel follows Transformer Engine, so that torchao's and MS-AMP's
 * keys would be dropped without a word. */
static accel_status_t check_fp8_backend(const struct config *cfg, accel_error_t *err)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    char where[256], text[16], cure[64];

    if (cfg->mixed_precision != PRECISION_FP8 ||
        config_get(cfg, "fp8_backend", text, sizeof(text))[0])
        return ACCEL_OK;
    for (size_t i = 0; i < n; i++) {
        const char *engine = config_fp8_engine(k[i].name);

        if (strcmp(k[i].section, "fp8_config") != 0 ||
            !config_is_given(cfg, k[i].name) || !strcmp(engine, "TE"))
            continue;
        snprintf(cure, sizeof(cure), "set fp8_backend: %s, or remove the key", engine);
        return accel_fail_at(err, A0170,
                             config_where(cfg, k[i].name, where, sizeof(where)), cure,
                             "'%s: %s' is not supported yet", k[i].name,
                             config_get(cfg, k[i].name, text, sizeof(text)));
    }
    return ACCEL_OK;
}

/* The table covers single keys; combinations have a function each. The first
 * problem wins. */
accel_status_t config_supported(const struct config *cfg, accel_error_t *err)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    char where[256], text[60], cure[200];
    accel_status_t st;

    for (size_t i = 0; i < n; i++) {
        if (is_done(cfg, &k[i]))
            continue;
        /* Rows are in the order of the table, so the message is the same on
         * every rank. */
        config_where(cfg, k[i].name, where, sizeof(where));
        cure_text(&k[i], cure, sizeof(cure));
        return accel_fail_at(err, A0170, where, cure, "'%s: %s' is not supported yet",
                             k[i].name, config_get(cfg, k[i].name, text, sizeof(text)));
    }
    st = check_deepspeed_file(cfg, err);
    ACCEL_TRY(st, check_fp8_backend(cfg, err));
    return st == ACCEL_OK ? check_offload(cfg, err) : st;
}
