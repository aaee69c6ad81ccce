/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of a task: which variables each type gets, every key of every map in
 * its variable, the carrier there and back (and damaged), one task's share of it.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "config/python/environ.h"
#include "tests/tap.h"

enum { MAX_VARS = 200, MAX_SETTINGS = 40 };

struct list {
    size_t count;
    char *name[MAX_VARS], *value[MAX_VARS];
    bool task[MAX_VARS];
};

static void take(void *user, const char *name, const char *value, bool task)
{
    struct list *l = user;

    if (l->count == MAX_VARS)
        return;
    l->name[l->count] = strdup(name);
    l->value[l->count] = strdup(value);
    l->task[l->count++] = task;
}

static void list_free(struct list *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->name[i]);
        free(l->value[i]);
    }
    l->count = 0;
}

static const char *value_of(const struct list *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->name[i], name))
            return l->value[i];
    return NULL;
}

static const struct config_world two_by_two = { .tasks = 4,
                                                .nodes = 2,
                                                .master_addr = "10.0.0.7",
                                                .master_port = 15001,
                                                .python_dir = "/opt/accel" };

/* "a=b c=d": settings as a file or flags would give them. False: refused. */
static bool resolve(const char *settings, struct config *cfg)
{
    struct config_setting flags[MAX_SETTINGS];
    struct config_sources src = { .flags = flags };
    struct config_diags diags;
    accel_error_t err = { 0 };
    char *copy = strdup(settings), *rest, *word = strtok_r(copy, " ", &rest);
    bool good;

    for (; word && src.flag_count < MAX_SETTINGS; word = strtok_r(NULL, " ", &rest)) {
        char *eq = strchr(word, '=');

        *eq = '\0';
        flags[src.flag_count++] = (struct config_setting){ word, eq + 1 };
    }
    good = config_resolve(&src, cfg, &diags, &err) == ACCEL_OK;
    if (!good)
        tap_diag("%s: %s", settings, err.text);
    config_diags_free(&diags);
    free(copy);
    return good;
}

static bool environment(const char *settings, struct list *l)
{
    static struct config cfg;
    accel_error_t err;

    list_free(l);
    return resolve(settings, &cfg) &&
           config_environment(&cfg, &two_by_two, take, l, &err) == ACCEL_OK;
}

/* Names of the list, in its order. */
static char *names_of(const struct list *l)
{
    struct strbuf b = { 0 };

    for (size_t i = 0; i < l->count; i++)
        strbuf_printf(&b, "%s%s", i ? " " : "", l->name[i]);
    return b.s;
}

#define RANK_NAMES                                                                     \
    "RANK LOCAL_RANK LOCAL_WORLD_SIZE WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK "  \
    "GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME TORCHELASTIC_RESTART_COUNT " \
    "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE"
#define DYNAMO_NAMES                                                                   \
    "ACCELERATE_DYNAMO_BACKEND ACCELERATE_DYNAMO_MODE "                                \
    "ACCELERATE_DYNAMO_USE_FULLGRAPH "                                                 \
    "ACCELERATE_DYNAMO_USE_DYNAMIC ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"

/* Whole lists, name by name. */
static const struct {
    const char *settings, *names;
} lists[] = {
    { "distributed_type=NO",
      "ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU OMP_NUM_THREADS " DYNAMO_NAMES
      " ACCEL_PREEMPTION" },
    { "distributed_type=NO accel.python.trainer=true",
      "ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU OMP_NUM_THREADS " DYNAMO_NAMES
      " PYTHONPATH ACCEL_PYTHON_TRAINER ACCEL_PREEMPTION" },
    { "distributed_type=NO use_cpu=true debug=true",
      "ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU KMP_AFFINITY KMP_BLOCKTIME "
      "OMP_NUM_THREADS ACCELERATE_DEBUG_MODE " DYNAMO_NAMES " ACCEL_PREEMPTION" },
    { "distributed_type=MULTI_CPU",
      RANK_NAMES " ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU KMP_AFFINITY "
                 "KMP_BLOCKTIME OMP_NUM_THREADS " DYNAMO_NAMES " ACCEL_PREEMPTION" },
    { "distributed_type=FSDP", RANK_NAMES
      " TORCH_NCCL_ASYNC_ERROR_HANDLING ACCELERATE_MIXED_PRECISION "
      "OMP_NUM_THREADS " DYNAMO_NAMES
      " ACCELERATE_USE_FSDP FSDP_VERSION FSDP_SHARDING_STRATEGY "
      "FSDP_RESHARD_AFTER_FORWARD FSDP_OFFLOAD_PARAMS FSDP_MIN_NUM_PARAMS "
      "FSDP_FORWARD_PREFETCH FSDP_USE_ORIG_PARAMS FSDP_CPU_RAM_EFFICIENT_LOADING "
      "FSDP_SYNC_MODULE_STATES FSDP_ACTIVATION_CHECKPOINTING "
      "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD ACCEL_PREEMPTION" },
};

static void test_lists(void)
{
    struct list l = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lists); i++) {
        char *names;

        tap_ok(environment(lists[i].settings, &l), "%s", lists[i].settings);
        names = names_of(&l);
        tap_is_str(names, lists[i].names, "%s: exactly these", lists[i].settings);
        free(names);
    }
    list_free(&l);
}

/* Settings that several rows have. */
#define TE  "mixed_precision=fp8 fp8_backend=TE "
#define AO  "mixed_precision=fp8 fp8_backend=AO "
#define TWO "fsdp_version=2 parallelism_config_dp_shard_size=2 "

/* A setting, the type it needs, its variable (NULL: the key in capitals), and what that
 * then holds; NULL: it is not there. */
static const struct {
    const char *type, *setting, *name, *value;
} keys[] = {
    { "MULTI_CPU", "", "WORLD_SIZE", "4" },
    { "MULTI_CPU", "", "GROUP_WORLD_SIZE", "2" },
    { "MULTI_CPU", "", "MASTER_ADDR", "10.0.0.7" },
    { "MULTI_CPU", "", "MASTER_PORT", "15001" },
    { "MULTI_CPU", "", "ACCELERATE_USE_CPU", "True" },
    { "MULTI_CPU", "", "OMP_NUM_THREADS", "cores" },
    { "MULTI_CPU", "", "ACCELERATE_DYNAMO_BACKEND", "NO" },
    { "NO", "", "ACCELERATE_USE_CPU", "False" },
    { "NO", "", "OMP_NUM_THREADS", "1" },
    { "NO", "use_cpu=true", "ACCELERATE_USE_CPU", "True" },
    { "NO", "use_cpu=true", "OMP_NUM_THREADS", "cores" },
    { "FSDP", "", "OMP_NUM_THREADS", "1" },
    { "FSDP", "", "FSDP_STATE_DICT_TYPE", NULL },
    { "FSDP", "use_cpu=true", "OMP_NUM_THREADS", "cores" },
    { "FSDP", "use_cpu=true", "ACCELERATE_USE_CPU", "True" },
    { "FSDP", "", "ACCELERATE_USE_CPU", NULL },
    { "FSDP", "accel.device=cpu", "ACCELERATE_USE_CPU", "True" },
    { "NO", "accel.device=cpu", "ACCELERATE_USE_CPU", "True" },
    { "MULTI_GPU", "use_cpu=true", "ACCELERATE_USE_CPU", "True" },
    { "DEEPSPEED", "use_cpu=true", "ACCELERATE_USE_CPU", NULL },
    { "FSDP", "mixed_precision=bf16", "ACCELERATE_MIXED_PRECISION", "bf16" },
    { "FSDP", "fsdp_sharding_strategy=NO_SHARD", NULL, "NO_SHARD" },
    { "FSDP", "fsdp_use_orig_params=false", NULL, "false" },
    { "FSDP", "fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP", NULL,
      "TRANSFORMER_BASED_WRAP" },
    { "FSDP", "fsdp_transformer_layer_cls_to_wrap=A,B", "FSDP_TRANSFORMER_CLS_TO_WRAP",
      "A,B" },
    { "FSDP", "fsdp_backward_prefetch=BACKWARD_POST", NULL, "BACKWARD_POST" },
    { "FSDP", "fsdp_state_dict_type=SHARDED_STATE_DICT", NULL, "SHARDED_STATE_DICT" },
    { "MEGATRON_LM", "megatron_lm_tp_degree=2", NULL, "2" },
    { "MEGATRON_LM", "megatron_lm_pp_degree=2", NULL, "2" },
    { "MEGATRON_LM", "megatron_lm_num_micro_batches=8", NULL, "8" },
    { "MEGATRON_LM", "megatron_lm_gradient_clipping=0.5", NULL, "0.5" },
    { "MEGATRON_LM", "megatron_lm_recompute_activations=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_use_distributed_optimizer=false", NULL, "False" },
    { "MEGATRON_LM", "megatron_lm_expert_model_parallel_size=2", NULL, "2" },
    { "MEGATRON_LM", "megatron_lm_context_parallel_size=2", NULL, "2" },
    { "MEGATRON_LM", "megatron_lm_attention_dropout=0.1", NULL, "0.1" },
    { "MEGATRON_LM", "megatron_lm_hidden_dropout=0.1", NULL, "0.1" },
    { "MEGATRON_LM", "megatron_lm_attention_softmax_in_fp32=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_calculate_per_token_loss=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_use_rotary_position_embeddings=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_use_custom_fsdp=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_no_load_optim=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_no_save_optim=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_eod_mask_loss=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_optimizer_cpu_offload=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_use_precision_aware_optimizer=true", NULL, "True" },
    { "MEGATRON_LM", "megatron_lm_overlap_cpu_optimizer_d2h_h2d=true", NULL, "True" },
    { "MULTI_GPU", TE "fp8_margin=2", "ACCELERATE_FP8_MARGIN", "2" },
    { "MULTI_GPU", TE "fp8_interval=3", "ACCELERATE_FP8_INTERVAL", "3" },
    { "MULTI_GPU", TE "fp8_format=E4M3", "ACCELERATE_FP8_FORMAT", "E4M3" },
    { "MULTI_GPU", TE "fp8_amax_history_len=16", "ACCELERATE_FP8_AMAX_HISTORY_LEN",
      "16" },
    { "MULTI_GPU", TE "fp8_amax_compute_algo=max", "ACCELERATE_FP8_AMAX_COMPUTE_ALGO",
      "max" },
    { "MULTI_GPU", TE "fp8_use_autocast_during_eval=true",
      "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", "True" },
    { "MULTI_GPU", TE "fp8_override_linear_precision=false,true,false",
      "ACCELERATE_FP8_OVERRIDE_DGRAD", "True" },
    { "MULTI_GPU", TE "fp8_override_linear_precision=false,true,false",
      "ACCELERATE_FP8_OVERRIDE_WGRAD", "False" },
    { "MULTI_GPU", "mixed_precision=fp8 fp8_backend=MSAMP fp8_opt_level=O1",
      "ACCELERATE_FP8_OPT_LEVEL", "O1" },
    { "MULTI_GPU", AO "fp8_pad_inner_dim=false", "ACCELERATE_FP8_PAD_INNER_DIM", "0" },
    { "MULTI_GPU", AO "fp8_enable_fsdp_float8_all_gather=false",
      "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", "0" },
    { "DEEPSPEED", "gradient_accumulation_steps=4",
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4" },
    { "DEEPSPEED", "gradient_clipping=1.0", "ACCELERATE_GRADIENT_CLIPPING", "1.0" },
    { "DEEPSPEED", "zero_stage=3", "ACCELERATE_DEEPSPEED_ZERO_STAGE", "3" },
    { "DEEPSPEED", "offload_optimizer_device=cpu",
      "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu" },
    { "DEEPSPEED", "deepspeed_moe_layer_cls_names=A,B",
      "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", "A,B" },
    { "DEEPSPEED", "", "OMP_NUM_THREADS", NULL },
    { "DEEPSPEED", "", "PYTHONPATH", "cwd_last" },
    { "DEEPSPEED", "accel.python.trainer=true", "PYTHONPATH",
      "dirs_first_cwd_last=/opt/accel/python-site:/opt/accel/python" },
    { "FSDP", "accel.python.trainer=true", "PYTHONPATH",
      "dirs_first=/opt/accel/python-site:/opt/accel/python" },
    { "FSDP", "accel.python.trainer=true", "ACCEL_PYTHON_TRAINER", "1" },
    { "FSDP", "accel.python.trainer=false", "PYTHONPATH", NULL },
    { "FSDP", "accel.python.trainer=false", "ACCEL_PYTHON_TRAINER", NULL },
    { "NO", "", "ACCEL_PREEMPTION",
      "signal=USR1 lead_seconds=120 max_restarts=100 requeue=true" },
    { "NO",
      "accel.preemption.signal=USR2 accel.preemption.lead_seconds=9 "
      "accel.preemption.max_restarts=0 accel.preemption.requeue=false",
      "ACCEL_PREEMPTION", "signal=USR2 lead_seconds=9 max_restarts=0 requeue=false" },
    { "NO", "accel.preemption.enabled=false", "ACCEL_PREEMPTION", "enabled=false" },
    { "MULTI_GPU", "gpu_ids=0,1", "CUDA_VISIBLE_DEVICES", "0,1" },
    { "MULTI_GPU", "gpu_ids=all", "CUDA_VISIBLE_DEVICES", NULL },
    { "MULTI_XPU", "gpu_ids=0,1", "ZE_AFFINITY_MASK", "0,1" },
    { "MULTI_NPU", "gpu_ids=0,1", "ASCEND_RT_VISIBLE_DEVICES", "0,1" },
    { "MULTI_MLU", "gpu_ids=0,1", "MLU_VISIBLE_DEVICES", "0,1" },
    { "MULTI_SDAA", "gpu_ids=0,1", "SDAA_VISIBLE_DEVICES", "0,1" },
    { "MULTI_MUSA", "gpu_ids=0,1", "MUSA_VISIBLE_DEVICES", "0,1" },
    { "MULTI_HPU", "gpu_ids=0,1", "HABANA_VISIBLE_MODULES", "0,1" },
    { "MULTI_NEURON", "gpu_ids=0,1", "NEURON_RT_VISIBLE_CORES", "0,1" },
    { "MULTI_GPU", "debug=true", "ACCELERATE_DEBUG_MODE", "true" },
    { "MULTI_GPU", "enable_cpu_affinity=true", "ACCELERATE_CPU_AFFINITY", "1" },
    { "MULTI_GPU", "dynamo_config.dynamo_backend=INDUCTOR", "ACCELERATE_DYNAMO_BACKEND",
      "INDUCTOR" },
    { "MULTI_GPU", "dynamo_use_dynamic=true", "ACCELERATE_DYNAMO_USE_DYNAMIC", "True" },
    { "FSDP",
      TWO "parallelism_config_cp_size=2 parallelism_config_cp_comm_strategy=alltoall",
      "PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall" },
    { "FSDP", TWO "parallelism_config_tp_size=2", "PARALLELISM_CONFIG_TP_SIZE", "2" },
    { "FSDP", TWO "parallelism_config_tp_size=2", "PARALLELISM_CONFIG_CP_COMM_STRATEGY",
      NULL },
    { "FSDP", TWO "parallelism_config_sp_size=2", "PARALLELISM_CONFIG_SP_SEQ_LENGTH",
      "None" },
    { "FSDP", "fsdp_offload_params=true", NULL, "true" },
    { "FSDP", "fsdp_min_num_params=2000", NULL, "2000" },
    { "FSDP", "fsdp_forward_prefetch=true", NULL, "true" },
    { "FSDP", "fsdp_activation_checkpointing=true", NULL, "true" },
    { "FSDP", "fsdp_ignored_modules=head", NULL, "head" },
    { "FSDP", "fsdp_cpu_ram_efficient_loading=false", NULL, "false" },
};

static const char *variable_of(const char *setting, const char *name)
{
    static char capitals[100];
    const size_t n = strcspn(setting, "=");

    for (size_t i = 0; i < n; i++)
        capitals[i] = (char)toupper(setting[i]);
    capitals[n] = '\0';
    return name ? name : capitals;
}

static void test_keys(void)
{
    struct list l = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(keys); i++) {
        char settings[256];
        const char *name = variable_of(keys[i].setting, keys[i].name), *got;

        snprintf(settings, sizeof(settings), "distributed_type=%s %s", keys[i].type,
                 keys[i].setting);
        if (!environment(settings, &l)) {
            tap_ok(false, "%s", settings);
            continue;
        }
        got = value_of(&l, name);
        tap_is_str(got ? got : "(none)", keys[i].value ? keys[i].value : "(none)",
                   "%s: %s", settings, name);
    }
    list_free(&l);
}

/* ---- the carrier ----------------------------------------------------------------- */

static void test_carrier(void)
{
    struct list l = { 0 }, back = { 0 };
    struct strbuf b = { 0 };
    accel_error_t err;
    size_t same = 0, caught = 0;
    bool printable = true;

    environment("distributed_type=FSDP fsdp_transformer_layer_cls_to_wrap=A;%B=\"ä",
                &l);
    carrier_start(&b);
    for (size_t i = 0; i < l.count; i++)
        carrier_add(&b, l.name[i], l.value[i], l.task[i]);
    tap_is_int(carrier_seal(&b, &err), ACCEL_OK, "the carrier is made");
    for (size_t i = 0; i < b.len; i++)
        printable &= b.s[i] >= 0x20 && b.s[i] <= 0x7e;
    tap_ok(printable, "it is printable");
    tap_is_int(carrier_read(b.s, take, &back, &err), ACCEL_OK, "and read back");
    for (size_t i = 0; i < l.count && i < back.count; i++)
        same += !strcmp(l.name[i], back.name[i]) &&
                !strcmp(l.value[i], back.value[i]) && l.task[i] == back.task[i];
    tap_is_int((long long)same, (long long)l.count, "all variables are the same");
    tap_is_int((long long)back.count, (long long)l.count, "none is added");
    list_free(&back);
    for (size_t i = 0; i < b.len; i++) {
        b.s[i] ^= 4;
        caught += carrier_read(b.s, take, &back, &err) == ACCEL_ECORRUPT;
        b.s[i] ^= 4;
    }
    tap_is_int((long long)caught, (long long)b.len, "every damaged byte is noticed");
    caught = 0;
    for (size_t len = 0; len < b.len; len++) {
        char *cut = strndup(b.s, len);

        caught += carrier_read(cut, take, &back, &err) == ACCEL_ECORRUPT;
        free(cut);
    }
    tap_is_int((long long)caught, (long long)b.len, "so is every cut text");
    tap_is_int((long long)back.count, 0, "and nothing of it is used");
    list_free(&l);
    strbuf_free(&b);
}

/* Text that is whole, but not ours. */
static accel_status_t read_one(const char *name, const char *value)
{
    struct strbuf b = { 0 };
    struct list l = { 0 };
    accel_error_t err;
    accel_status_t status;

    carrier_start(&b);
    carrier_add(&b, "RANK", "0", false);
    carrier_add(&b, name, value, false);
    carrier_seal(&b, &err);
    status = carrier_read(b.s, take, &l, &err);
    if (status != ACCEL_OK && l.count)
        status = ACCEL_EBUG;
    list_free(&l);
    strbuf_free(&b);
    return status;
}

static void test_foreign(void)
{
    static const char *const wrong[] = { "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH",
                                         "BASH_ENV",   "ACCEL_",          "ACCEL_a",
                                         "",           "PYTHONSTARTUP",   "FSDP_X Y" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(wrong); i++)
        tap_is_int(read_one(wrong[i], "x"), ACCEL_ECORRUPT, "'%s' is refused",
                   wrong[i]);
    tap_is_int(read_one("FSDP_VERSION", "2\nLD_PRELOAD=x"), ACCEL_ECORRUPT,
               "so is a line break");
    tap_is_int(read_one("ROLE_NAME", "ä"), ACCEL_OK, "a letter beyond ASCII is not");
}

/* The text to the byte; and texts with the right hash that nobody has written. */
static void test_forged(void)
{
    static const struct {
        const char *body, *value; /* NULL: refused */
    } rows[] = {
        { "accelenv1;", "" },
        { "accelenv1;RANK=a%25%3B%7E%C3%A4=:", "a%;~\xc3\xa4=:" },
        { "accelenv1;RANK:rank", "rank" },
        { "accelenv1;RANK=", "" },
        { "accelenv1;RANK", NULL },
        { "accelenv1;RANK=1;", NULL },
        { "accelenv1;RANK=%", NULL },
        { "accelenv1;RANK=%2", NULL },
        { "accelenv1;RANK=%2;", NULL },
        { "accelenv1;RANK=%3b", NULL },
        { "accelenv1;RANK=%zz", NULL },
        { "accelenv1;RANK=%G0", NULL },
        { "accelenv1;RANK=%:0", NULL },
        { "accelenv1;RANK=%@0", NULL },
        { "accelenv1;RANK=%00", NULL },
        { "accelenv1;RANK=%1F", NULL },
        { "accelenv1;RANK=%20", " " },
        { "accelenv1;RANK=%7F", NULL },
        { "accelenv1;RANK=\x7f", NULL },
        { "accelenv1;RANK=\t", NULL },
        { "accelenv1;LD_PRELOAD=x", NULL },
        { "accelenv2;RANK=1", NULL },
        { "RANK=1", NULL },
    };
    struct strbuf b = { 0 };
    accel_error_t err = { 0 };

    carrier_start(&b);
    carrier_add(&b, "ROLE_NAME", "A;%B=\"~\x7f\xc3\xa4\t ", false);
    carrier_add(&b, "RANK", "rank", true);
    carrier_seal(&b, &err);
    tap_is_str(
        b.s,
        "accelenv1;ROLE_NAME=A%3B%25B=\"~%7F%C3%A4%09 ;RANK:rank;xxh3=9ed495741db41ac5",
        "the carrier");
    strbuf_free(&b);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct list l = { 0 };
        char text[100];
        int n = snprintf(text, sizeof(text), "%s", rows[i].body);
        bool good;

        snprintf(text + n, sizeof(text) - (size_t)n, ";xxh3=%016llx",
                 (unsigned long long)XXH3_64bits(text, (size_t)n));
        good = carrier_read(text, take, &l, &err) == ACCEL_OK;
        tap_is_str(!good     ? "refused"
                   : l.count ? l.value[0]
                             : "",
                   rows[i].value ? rows[i].value : "refused", "'%s' with its hash",
                   rows[i].body);
        list_free(&l);
    }
}

/* A sealed text of two values, n letters altogether. */
static accel_status_t sealed_of(size_t n, struct strbuf *b, accel_error_t *err)
{
    static char first[CARRIER_MAX], second[CARRIER_MAX];

    memset(first, 'x', n / 2);
    memset(second, 'x', n - n / 2);
    first[n / 2] = second[n - n / 2] = '\0';
    carrier_start(b);
    carrier_add(b, "FSDP_IGNORED_MODULES", first, false);
    carrier_add(b, "FSDP_IGNORED_MODULES", second, false);
    return carrier_seal(b, err);
}

/* One value has fewer than 32 KiB, a name fewer than 64 bytes, all have fewer than
 * 60 KiB. */
static void test_longest(void)
{
    enum { VALUE = 32 << 10, NAME = 64 };
    char name[NAME + 2], *value = calloc(1, VALUE + 2);
    struct strbuf b = { 0 };
    accel_error_t err = { 0 };
    size_t around;

    for (int n = VALUE - 2; n <= VALUE + 1; n++) {
        memset(value, 'x', (size_t)n);
        tap_is_int(read_one("FSDP_IGNORED_MODULES", value),
                   n < VALUE ? ACCEL_OK : ACCEL_ECORRUPT, "a value of %d bytes", n);
    }
    free(value);
    for (int n = NAME - 2; n <= NAME + 1; n++) {
        snprintf(name, sizeof(name), "FSDP_%0*d", n - 5, 1);
        tap_is_int(read_one(name, "1"), n < NAME ? ACCEL_OK : ACCEL_ECORRUPT,
                   "a name of %d bytes", n);
    }
    sealed_of(100, &b, &err);
    around = b.len - 100;
    strbuf_free(&b);
    for (size_t n = CARRIER_MAX - 2; n <= CARRIER_MAX + 1; n++) {
        tap_is_int(sealed_of(n - around, &b, &err),
                   n < CARRIER_MAX ? ACCEL_OK : ACCEL_EINVAL, "a text of %zu bytes", n);
        tap_is_int(carrier_read(b.s, NULL, NULL, &err),
                   n < CARRIER_MAX ? ACCEL_OK : ACCEL_ECORRUPT, "and read: %s",
                   err.text);
        strbuf_free(&b);
    }
    sealed_of(CARRIER_MAX, &b, &err);
    tap_is_str(err.hint, "shorten the long values of the config", "with a cure");
    strbuf_free(&b);
}

/* ---- one task -------------------------------------------------------------------- */

static bool get_env(void *where, const char *name, char *buf, size_t len)
{
    const char *v = getenv(name);

    (void)where;
    if (v)
        snprintf(buf, len, "%s", v);
    return v != NULL;
}

static void set_env(void *where, const char *name, const char *value)
{
    (void)where;
    setenv(name, value, 1);
}

static void unset_env(void *where, const char *name)
{
    (void)where;
    unsetenv(name);
}

static const struct environ_ops ops = { get_env, set_env, unset_env, NULL };

/* The directories of accel's own modules, in front of what is there. */
static void test_path_words(const struct task_place *place)
{
    char cwd[1024], want[1100];
    static const char first[] = "dirs_first=/s:/p",
                      both[] = "dirs_first_cwd_last=/s:/p";
    const struct {
        const char *before, *word, *want;
    } rows[] = {
        { NULL, first, "/s:/p" },
        { "", first, "/s:/p" },
        { "/a:/b", first, "/s:/p:/a:/b" },
        { "/s:/p", first, "/s:/p" },
        { "/s:/p:/a", first, "/s:/p:/a" },
        { "/s:/pp", first, "/s:/p:/s:/pp" },
        { "/a", both, want },
    };

    snprintf(want, sizeof(want), "/s:/p:/a:%s", getcwd(cwd, sizeof(cwd)) ? cwd : "?");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        unsetenv("PYTHONPATH");
        if (rows[i].before)
            setenv("PYTHONPATH", rows[i].before, 1);
        environ_apply(&ops, place, "PYTHONPATH", rows[i].word, true);
        tap_is_str(getenv("PYTHONPATH"), rows[i].want, "%s after %s", rows[i].word,
                   rows[i].before ? rows[i].before : "nothing");
    }
}

static void test_task(void)
{
    const struct task_place place = { .rank = 3,
                                      .index = 2,
                                      .world = 4,
                                      .local_rank = 1,
                                      .local_world = 2,
                                      .node = 1,
                                      .nodes = 2,
                                      .cores = 6 };
    char cwd[1024], want[1100];

    clearenv();
    setenv("FSDP_VERSION", "2", 1);
    setenv("OMP_NUM_THREADS", "5", 1);
    setenv("ACCEL_CONFIG", "/old", 1);
    environ_apply(&ops, &place, "RANK", "rank", true);
    environ_apply(&ops, &place, "GROUP_RANK", "node", true);
    environ_apply(&ops, &place, "FSDP_VERSION", "1", false);
    environ_apply(&ops, &place, "OMP_NUM_THREADS", "cores", true);
    environ_apply(&ops, &place, "ACCEL_CONFIG", "/new", false);
    unsetenv("PYTHONUNBUFFERED");
    environ_apply_place(&ops, &place);
    tap_is_str(getenv("PYTHONUNBUFFERED"), "1", "Python's output is not held back");
    setenv("PYTHONUNBUFFERED", "", 1);
    environ_apply_place(&ops, &place);
    tap_is_str(getenv("PYTHONUNBUFFERED"), "", "unless the user wants it to be");
    tap_is_str(getenv("RANK"), "3", "RANK counts node by node");
    tap_is_str(getenv("ACCEL_RANK"), "2", "ACCEL_RANK is the launcher's");
    tap_is_str(getenv("GROUP_RANK"), "1", "GROUP_RANK is the node");
    tap_is_str(getenv("FSDP_VERSION"), "2", "the user's value stays");
    tap_is_str(getenv("ACCEL_CONFIG"), "/new", "ours does not");
    tap_is_str(getenv("OMP_NUM_THREADS"), "5", "the user's threads stay");
    tap_ok(!getenv("ACCEL_OMP_NUM_THREADS"), "and are not marked as ours");
    unsetenv("OMP_NUM_THREADS");
    environ_apply(&ops, &place, "OMP_NUM_THREADS", "cores", true);
    tap_is_str(getenv("OMP_NUM_THREADS"), "6", "the task's cores otherwise");
    tap_is_str(getenv("ACCEL_OMP_NUM_THREADS"), "6", "with the mark");
    tap_ok(getcwd(cwd, sizeof(cwd)) != NULL, "there is a current directory");
    environ_apply(&ops, &place, "PYTHONPATH", "cwd_last", true);
    tap_is_str(getenv("PYTHONPATH"), cwd, "PYTHONPATH of nothing");
    setenv("PYTHONPATH", "/a:/b", 1);
    environ_apply(&ops, &place, "PYTHONPATH", "cwd_last", true);
    snprintf(want, sizeof(want), "/a:/b:%s", cwd);
    tap_is_str(getenv("PYTHONPATH"), want, "the directory is added last");
    test_path_words(&place);
    environ_apply(&ops, &place, "TORCHELASTIC_ERROR_FILE", "error_file=/s/t", true);
    tap_ok(!getenv("TORCHELASTIC_ERROR_FILE"), "no error file without its directory");
    environ_apply(&ops, &place, "TORCHELASTIC_ERROR_FILE", "error_file=/tmp", true);
    tap_is_str(getenv("TORCHELASTIC_ERROR_FILE"), "/tmp/error.3", "a file of the rank");
    setenv("TORCHELASTIC_ERROR_FILE", "/mine", 1);
    environ_apply(&ops, &place, "TORCHELASTIC_ERROR_FILE", "error_file=/tmp", true);
    tap_is_str(getenv("TORCHELASTIC_ERROR_FILE"), "/mine", "unless there is one");
}

int main(void)
{
    test_lists();
    test_keys();
    test_carrier();
    test_foreign();
    test_forged();
    test_longest();
    test_task();
    return tap_done();
}
