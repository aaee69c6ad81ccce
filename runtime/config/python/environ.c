/* SPDX-License-Identifier: Apache-2.0
 *
 * Config and step come in, the variables of `accelerate launch` go out. One row per
 * variable says where its value comes from, how it is written and when it is set. Never
 * reads or changes the environment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "config/python/environ.h"
#include "config/read/document.h"

/* When a row applies: all of its bits must hold for the config. */
enum condition {
    ALWAYS = 0,
    RANKS = 1 << 0,    /* the processes must find each other: all types but NO */
    TORCHRUN = 1 << 1, /* Accelerate starts this type through torchrun */
    CPU = 1 << 2,      /* MULTI_CPU, and any other type that is told to stay on CPUs */
    ENGINE = 1 << 3,   /* not DEEPSPEED, which sets these itself */
    DEEPSPEED = 1 << 4,
    FSDP = 1 << 5,
    MEGATRON = 1 << 6,
    FP8 = 1 << 7,
    MESH = 1 << 8, /* a parallelism_config is given */
    MESH_CP = 1 << 9,
    MESH_SP = 1 << 10,
    SIMPLE = 1 << 11, /* NO and MULTI_CPU, which Accelerate starts without torchrun */
    DEBUG = 1 << 12,
    AFFINITY = 1 << 13,
    TRAINER = 1 << 14, /* accel.python.trainer */
};

/* How the value of a row is written. */
enum form {
    FIXED,     /* `value` as it stands */
    TASK,      /* `value` is a word for environ_apply */
    TEXT,      /* the key's canonical text */
    PYTHON,    /* truth words as True and False */
    BIT,       /* truth words as 1 and 0 */
    UPPER,     /* upper case, as the names of DynamoBackend are */
    ONE_OF_3,  /* the n-th of three truth words, n being the first letter of `value` */
    DS_FIELDS, /* names of the keys that a file sets in deepspeed_config */
    WORLD,     /* number of tasks */
    NODES,
    ADDR,
    PORT,
    THREADS,
    DEVICES, /* gpu_ids, unless it is "all" or Slurm has chosen the GPUs */
    PATHS,   /* `value` is a word with accel's own directories of Python modules */
    PREEMPTION,
    OWN_KEY, /* `value`, in the variable by which a user sets `key` */
};

/* One variable. `value` of TEXT, PYTHON, BIT and UPPER: the default of accelerate
 * launch where `key` is not given; NULL: then the variable is not set. `key` is a name
 * for config_row. */
struct rule {
    const char *name;
    unsigned when;
    enum form form;
    const char *value;
    const char *key;
};

/* Rows of one map each: Accelerate's prefix and our name of the key differ by map. */
#define FS(n, k, v)                                                                    \
    {                                                                                  \
        "FSDP_" n, FSDP, TEXT, v, "fsdp_" k                                            \
    }
#define MG(n, k, f, v)                                                                 \
    {                                                                                  \
        "MEGATRON_LM_" n, MEGATRON, f, v, "megatron_lm_" k                             \
    }
#define PC(n, c, f, k, v)                                                              \
    {                                                                                  \
        "PARALLELISM_CONFIG_" n, c, f, v, "parallelism_config_" k                      \
    }
#define DS(n, k)                                                                       \
    {                                                                                  \
        "ACCELERATE_" n, DEEPSPEED, TEXT, NULL, k                                      \
    }
#define F8(n, f, k, v)                                                                 \
    {                                                                                  \
        "ACCELERATE_FP8_" n, FP8, f, v, "fp8_" k                                       \
    }
#define DYNAMO(n, f, k, v)                                                             \
    {                                                                                  \
        "ACCELERATE_DYNAMO_" n, ENGINE, f, v, "dynamo_config.dynamo_" k                \
    }

/* In the order in which the tasks see them. Two rows with one name stand together; the
 * first one that applies counts. */
static const struct rule rules[] = {
    { "RANK", RANKS, TASK, "rank", NULL },
    { "LOCAL_RANK", RANKS, TASK, "local_rank", NULL },
    { "LOCAL_WORLD_SIZE", RANKS, TASK, "local_world", NULL },
    { "WORLD_SIZE", RANKS, WORLD, NULL, NULL },
    { "MASTER_ADDR", RANKS, ADDR, NULL, NULL },
    { "MASTER_PORT", RANKS, PORT, NULL, NULL },
    { "GROUP_RANK", RANKS, TASK, "node", NULL },
    { "GROUP_WORLD_SIZE", RANKS, NODES, NULL, NULL },
    { "ROLE_RANK", RANKS, TASK, "rank", NULL },
    { "ROLE_WORLD_SIZE", RANKS, WORLD, NULL, NULL },
    { "ROLE_NAME", RANKS, FIXED, "default", NULL },
    /* There is no elastic agent: nobody serves its store, and restarts are up
     * to Slurm. */
    { "TORCHELASTIC_RESTART_COUNT", RANKS, FIXED, "0", NULL },
    { "TORCHELASTIC_MAX_RESTARTS", RANKS, FIXED, "0", NULL },
    { "TORCHELASTIC_USE_AGENT_STORE", RANKS, FIXED, "False", NULL },
    { "TORCH_NCCL_ASYNC_ERROR_HANDLING", TORCHRUN, FIXED, "1", NULL },

    { "ACCELERATE_MIXED_PRECISION", ALWAYS, TEXT, "no", "mixed_precision" },
    { "ACCELERATE_USE_CPU", CPU, FIXED, "True", NULL },
    { "ACCELERATE_USE_CPU", SIMPLE, PYTHON, "False", "use_cpu" },
    { "KMP_AFFINITY", CPU, FIXED, "granularity=fine,compact,1,0", NULL },
    { "KMP_BLOCKTIME", CPU, FIXED, "1", NULL },
    { "OMP_NUM_THREADS", ENGINE, THREADS, NULL, NULL },
    { "ACCELERATE_DEBUG_MODE", DEBUG, FIXED, "true", NULL },
    { "ACCELERATE_CPU_AFFINITY", AFFINITY, FIXED, "1", NULL },
    { "CUDA_VISIBLE_DEVICES", ALWAYS, DEVICES, NULL, "gpu_ids" },

    DYNAMO("BACKEND", UPPER, "backend", "no"),
    DYNAMO("MODE", TEXT, "mode", "default"),
    DYNAMO("USE_FULLGRAPH", PYTHON, "use_fullgraph", "False"),
    DYNAMO("USE_DYNAMIC", PYTHON, "use_dynamic", "False"),
    DYNAMO("USE_REGIONAL_COMPILATION", PYTHON, "use_regional_compilation", "False"),

    F8("BACKEND", TEXT, "backend", NULL),
    F8("USE_AUTOCAST_DURING_EVAL", PYTHON, "use_autocast_during_eval", "False"),
    F8("MARGIN", TEXT, "margin", "0"),
    F8("INTERVAL", TEXT, "interval", "1"),
    F8("FORMAT", TEXT, "format", "HYBRID"),
    F8("AMAX_HISTORY_LEN", TEXT, "amax_history_len", "1024"),
    F8("AMAX_COMPUTE_ALGO", TEXT, "amax_compute_algo", "most_recent"),
    F8("OVERRIDE_FPROP", ONE_OF_3, "override_linear_precision", "0"),
    F8("OVERRIDE_DGRAD", ONE_OF_3, "override_linear_precision", "1"),
    F8("OVERRIDE_WGRAD", ONE_OF_3, "override_linear_precision", "2"),
    F8("OPT_LEVEL", TEXT, "opt_level", "O2"),
    F8("ENABLE_FSDP_FLOAT8_ALL_GATHER", BIT, "enable_fsdp_float8_all_gather", "1"),
    F8("PAD_INNER_DIM", BIT, "pad_inner_dim", "1"),
    F8("USE_MXFP8_BLOCK_SCALING", TEXT, "use_mxfp8_block_scaling", NULL),

    { "ACCELERATE_USE_FSDP", FSDP, FIXED, "true", NULL },
    FS("VERSION", "version", "1"),
    FS("SHARDING_STRATEGY", "sharding_strategy", "FULL_SHARD"),
    FS("RESHARD_AFTER_FORWARD", "reshard_after_forward", "true"),
    FS("OFFLOAD_PARAMS", "offload_params", "false"),
    FS("MIN_NUM_PARAMS", "min_num_params", "100000000"),
    FS("AUTO_WRAP_POLICY", "auto_wrap_policy", NULL),
    FS("TRANSFORMER_CLS_TO_WRAP", "transformer_layer_cls_to_wrap", NULL),
    FS("BACKWARD_PREFETCH", "backward_prefetch", NULL),
    FS("STATE_DICT_TYPE", "state_dict_type", NULL),
    FS("FORWARD_PREFETCH", "forward_prefetch", "false"),
    FS("USE_ORIG_PARAMS", "use_orig_params", "true"),
    FS("CPU_RAM_EFFICIENT_LOADING", "cpu_ram_efficient_loading", "true"),
    FS("SYNC_MODULE_STATES", "sync_module_states", "true"),
    FS("ACTIVATION_CHECKPOINTING", "activation_checkpointing", "false"),
    FS("ACTIVATION_CHECKPOINTING_OFFLOAD", "activation_checkpointing_offload", "false"),
    FS("IGNORED_MODULES", "ignored_modules", NULL),

    { "ACCELERATE_USE_PARALLELISM_CONFIG", MESH, FIXED, "true", NULL },
    PC("DP_REPLICATE_SIZE", MESH, TEXT, "dp_replicate_size", "1"),
    PC("DP_SHARD_SIZE", MESH, TEXT, "dp_shard_size", "1"),
    PC("TP_SIZE", MESH, TEXT, "tp_size", "1"),
    PC("CP_SIZE", MESH, TEXT, "cp_size", "1"),
    PC("CP_BACKEND", MESH, TEXT, "cp_backend", "torch"),
    PC("SP_SIZE", MESH, TEXT, "sp_size", "1"),
    PC("SP_BACKEND", MESH, TEXT, "sp_backend", "deepspeed"),
    PC("CP_COMM_STRATEGY", MESH_CP, TEXT, "cp_comm_strategy", "allgather"),
    PC("SP_SEQ_LENGTH", MESH_SP, TEXT, "sp_seq_length", "None"),
    PC("SP_SEQ_LENGTH_IS_VARIABLE", MESH_SP, PYTHON, "sp_seq_length_is_variable",
       "True"),
    PC("SP_ATTN_IMPLEMENTATION", MESH_SP, TEXT, "sp_attn_implementation", "sdpa"),

    { "ACCELERATE_USE_DEEPSPEED", DEEPSPEED, FIXED, "true", NULL },
    { "ACCELERATE_CONFIG_DS_FIELDS", DEEPSPEED, DS_FIELDS, NULL, NULL },
    DS("DEEPSPEED_ZERO_STAGE", "zero_stage"),
    DS("GRADIENT_ACCUMULATION_STEPS", "gradient_accumulation_steps"),
    DS("GRADIENT_CLIPPING", "gradient_clipping"),
    DS("DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "offload_optimizer_device"),
    DS("DEEPSPEED_OFFLOAD_PARAM_DEVICE", "offload_param_device"),
    DS("DEEPSPEED_ZERO3_INIT", "zero3_init_flag"),
    DS("DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "zero3_save_16bit_model"),
    DS("DEEPSPEED_CONFIG_FILE", "deepspeed_config_file"),
    DS("DEEPSPEED_MOE_LAYER_CLS_NAMES", "deepspeed_moe_layer_cls_names"),
    { "PYTHONPATH", DEEPSPEED | TRAINER, PATHS, "dirs_first_cwd_last", NULL },
    { "PYTHONPATH", TRAINER, PATHS, "dirs_first", NULL },
    { "PYTHONPATH", DEEPSPEED, TASK, "cwd_last", NULL },

    { "ACCELERATE_USE_MEGATRON_LM", MEGATRON, FIXED, "true", NULL },
    MG("TP_DEGREE", "tp_degree", TEXT, "1"),
    MG("PP_DEGREE", "pp_degree", TEXT, "1"),
    MG("GRADIENT_CLIPPING", "gradient_clipping", TEXT, "1.0"),
    MG("USE_CUSTOM_FSDP", "use_custom_fsdp", PYTHON, "False"),
    MG("NO_LOAD_OPTIM", "no_load_optim", PYTHON, "False"),
    MG("NO_SAVE_OPTIM", "no_save_optim", PYTHON, "False"),
    MG("EOD_MASK_LOSS", "eod_mask_loss", PYTHON, "False"),
    MG("OPTIMIZER_CPU_OFFLOAD", "optimizer_cpu_offload", PYTHON, "False"),
    MG("USE_PRECISION_AWARE_OPTIMIZER", "use_precision_aware_optimizer", PYTHON,
       "False"),
    MG("OVERLAP_CPU_OPTIMIZER_D2H_H2D", "overlap_cpu_optimizer_d2h_h2d", PYTHON,
       "False"),
    MG("DECODER_LAST_PIPELINE_NUM_LAYERS", "decoder_last_pipeline_num_layers", TEXT,
       NULL),
    MG("NUM_MICRO_BATCHES", "num_micro_batches", TEXT, NULL),
    MG("SEQUENCE_PARALLELISM", "sequence_parallelism", PYTHON, NULL),
    MG("RECOMPUTE_ACTIVATIONS", "recompute_activations", PYTHON, NULL),
    MG("USE_DISTRIBUTED_OPTIMIZER", "use_distributed_optimizer", PYTHON, NULL),
    MG("RECOMPUTE_GRANULARITY", "recompute_granularity", TEXT, NULL),
    MG("RECOMPUTE_METHOD", "recompute_method", TEXT, NULL),
    MG("RECOMPUTE_NUM_LAYERS", "recompute_num_layers", TEXT, NULL),
    MG("ATTENTION_BACKEND", "attention_backend", TEXT, NULL),
    MG("EXPERT_MODEL_PARALLEL_SIZE", "expert_model_parallel_size", TEXT, NULL),
    MG("CONTEXT_PARALLEL_SIZE", "context_parallel_size", TEXT, NULL),
    MG("ATTENTION_DROPOUT", "attention_dropout", TEXT, NULL),
    MG("HIDDEN_DROPOUT", "hidden_dropout", TEXT, NULL),
    MG("ATTENTION_SOFTMAX_IN_FP32", "attention_softmax_in_fp32", PYTHON, NULL),
    MG("EXPERT_TENSOR_PARALLEL_SIZE", "expert_tensor_parallel_size", TEXT, NULL),
    MG("CALCULATE_PER_TOKEN_LOSS", "calculate_per_token_loss", PYTHON, NULL),
    MG("USE_ROTARY_POSITION_EMBEDDINGS", "use_rotary_position_embeddings", PYTHON,
       NULL),

    { "", TRAINER, OWN_KEY, "1", "accel.python.trainer" },
    { ENV_PREEMPTION, ALWAYS, PREEMPTION, NULL, NULL },
};

/* The variable that selects devices, for types other than CUDA. */
static const char *const device_names[][2] = {
    { "MULTI_XPU", "ZE_AFFINITY_MASK" },
    { "MULTI_NPU", "ASCEND_RT_VISIBLE_DEVICES" },
    { "MULTI_MLU", "MLU_VISIBLE_DEVICES" },
    { "MULTI_SDAA", "SDAA_VISIBLE_DEVICES" },
    { "MULTI_MUSA", "MUSA_VISIBLE_DEVICES" },
    { "MULTI_HPU", "HABANA_VISIBLE_MODULES" },
    { "MULTI_NEURON", "NEURON_RT_VISIBLE_CORES" },
};

static const char mesh_section[] = "parallelism_config";
static const char deepspeed_section[] = "deepspeed_config";

/* One call of config_environment. */
struct writer {
    const struct config *cfg;
    const struct config_world *world;
    config_env_f emit;
    void *user;
    char type[32];
    /* Bits of enum condition that hold. */
    unsigned holds;
    /* Scratch of CONFIG_GIVEN_BYTES: the value of one key at a time. */
    char *text;
};

/* These two overwrite w->text. */
static bool key_true(const struct writer *w, const char *key)
{
    return word_truth(config_get(w->cfg, key, w->text, CONFIG_GIVEN_BYTES)) == 1;
}

static long key_long(const struct writer *w, const char *key)
{
    return strtol(config_get(w->cfg, key, w->text, CONFIG_GIVEN_BYTES), NULL, 10);
}

static bool is_type(const struct writer *w, const char *type)
{
    return !strcmp(w->type, type);
}

/* Is the run told to stay on CPUs, by use_cpu or by accel.device? */
static bool on_cpu(const struct writer *w)
{
    return key_true(w, "use_cpu") || w->cfg->device == DEVICE_CPU;
}

/* The bits of enum condition that hold for this config. */
static unsigned conditions(const struct writer *w)
{
    bool simple = is_type(w, "NO") || is_type(w, "MULTI_CPU");
    bool deepspeed = is_type(w, "DEEPSPEED");
    unsigned c = simple ? SIMPLE : TORCHRUN;

    if (!is_type(w, "NO"))
        c |= RANKS;
    /* Without ACCELERATE_USE_CPU a script that finds no GPU trains alone, however many
     * ranks there are. DeepSpeed connects them itself. */
    if (is_type(w, "MULTI_CPU") || (!deepspeed && on_cpu(w)))
        c |= CPU;
    c |= deepspeed ? DEEPSPEED : ENGINE;
    c |= is_type(w, "FSDP") ? FSDP : is_type(w, "MEGATRON_LM") ? MEGATRON : 0;
    c |= w->cfg->mixed_precision == PRECISION_FP8 ? FP8 : 0;
    if (!simple && config_section_given(w->cfg, mesh_section)) {
        c |= MESH;
        c |= key_long(w, "parallelism_config_cp_size") > 1 ? MESH_CP : 0;
        c |= key_long(w, "parallelism_config_sp_size") > 1 ? MESH_SP : 0;
    }
    c |= key_true(w, "debug") ? DEBUG : 0;
    c |= key_true(w, "enable_cpu_affinity") ? AFFINITY : 0;
    c |= w->cfg->python_trainer && w->world->python_dir ? TRAINER : 0;
    return c;
}

/* Is word n of "false, true, false" true? With or without brackets, since the value may
 * be a Python tuple or list. */
static bool truth_at(const char *list, int n)
{
    static const char between[] = " ,[]()'\"";
    char word[8]; /* longer than any word of truth */

    for (;; n--) {
        size_t length;

        list += strspn(list, between);
        length = strcspn(list, between);
        if (n == 0 || !*list) {
            snprintf(word, sizeof(word), "%.*s", (int)length, list);
            return word_truth(word) == 1;
        }
        list += length;
    }
}

/* Rows of deepspeed_config that a file sets, in the order of their lines, into
 * rows_out. Returns their number. Insertion sort: there are about a dozen. */
static size_t deepspeed_rows(const struct config *cfg, size_t rows_out[CONFIG_MAX_KEYS])
{
    size_t n, count = 0;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++) {
        size_t at = count;

        if (strcmp(k[i].section, deepspeed_section) != 0 ||
            cfg->origin[i] == ORIGIN_DEFAULT || cfg->origin[i] > ORIGIN_FILE)
            continue;
        for (; at > 0 && cfg->line[rows_out[at - 1]] > cfg->line[i]; at--)
            rows_out[at] = rows_out[at - 1];
        rows_out[at] = i;
        count++;
    }
    return count;
}

/* A truth value in the form of the row. */
static const char *truth_form(enum form form, bool yes)
{
    return form == BIT ? (yes ? "1" : "0") : yes ? "True" : "False";
}

/* The value of a row that has a key, in w->text or static. NULL: the variable is
 * not set. */
static const char *key_value(const struct writer *w, const struct rule *r)
{
    char *text = w->text;

    if (config_is_given(w->cfg, r->key))
        config_get(w->cfg, r->key, text, CONFIG_GIVEN_BYTES);
    else if (r->value)
        snprintf(text, CONFIG_GIVEN_BYTES, "%s", r->value);
    else
        return NULL;
    if (r->form == PYTHON || r->form == BIT)
        return truth_form(r->form, word_truth(text) == 1);
    if (r->form == UPPER)
        for (char *c = text; *c; c++)
            *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    return text[0] ? text : NULL;
}

/* Emits a decimal number. */
static void emit_number(const struct writer *w, const struct rule *r, int64_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)n);
    w->emit(w->user, r->name, text, false);
}

/* As many threads as were asked for. Otherwise a CPU run gets one per core of the task,
 * which only the task knows; any other run gets one, as from torchrun. */
static void emit_threads(const struct writer *w, const struct rule *r)
{
    if (w->world->threads > 0)
        emit_number(w, r, w->world->threads);
    else if ((w->holds & CPU) || on_cpu(w))
        w->emit(w->user, r->name, "cores", true);
    else
        w->emit(w->user, r->name, "1", false);
}

/* Emits gpu_ids under the name that the type's devices have. */
static void emit_devices(const struct writer *w, const struct rule *r)
{
    const char *name = r->name;

    config_get(w->cfg, r->key, w->text, CONFIG_GIVEN_BYTES);
    if (w->world->devices_chosen || !config_is_given(w->cfg, r->key) || !w->text[0] ||
        !strcmp(w->text, "all"))
        return;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(device_names); i++)
        if (is_type(w, device_names[i][0]))
            name = device_names[i][1];
    w->emit(w->user, name, w->text, false);
}

/* The list lets Accelerate refuse keys that the DeepSpeed file sets as well. Only with
 * such a file does the precision count as one of them. An empty list is emitted, too:
 * Accelerate expects the variable. False: out of memory. */
static bool emit_fields(const struct writer *w, const struct rule *r)
{
    size_t n, rows[CONFIG_MAX_KEYS], count = deepspeed_rows(w->cfg, rows);
    const struct config_key *k = config_schema(&n);
    int precision = config_row("mixed_precision");
    struct strbuf b = { 0 };
    bool done;

    for (size_t i = 0; i < count; i++)
        strbuf_printf(&b, "%s%s", i ? "," : "", k[rows[i]].name);
    if (config_is_given(w->cfg, "deepspeed_config_file") && precision >= 0 &&
        w->cfg->origin[precision] != ORIGIN_DEFAULT &&
        w->cfg->origin[precision] <= ORIGIN_FILE)
        strbuf_printf(&b, "%s%s", b.len ? "," : "", "mixed_precision");
    done = !b.failed;
    if (done)
        w->emit(w->user, r->name, b.s ? b.s : "", false);
    strbuf_free(&b);
    return done;
}

/* The word and, after "=", the directories: that of sitecustomize.py, which Python runs
 * at its start, and that of the package. */
static void emit_paths(const struct writer *w, const struct rule *r)
{
    const char *dir = w->world->python_dir;

    snprintf(w->text, CONFIG_GIVEN_BYTES, "%s=%s/python-site:%s/python", r->value, dir,
             dir);
    w->emit(w->user, r->name, w->text, true);
}

/* The rules that a program needs which does not read the config. */
static void emit_preemption(const struct writer *w, const struct rule *r)
{
    const struct config *c = w->cfg;

    if (c->preempt_enabled)
        snprintf(w->text, CONFIG_GIVEN_BYTES,
                 "signal=%s lead_seconds=%lld max_restarts=%lld requeue=%s",
                 c->preempt_signal == PREEMPT_USR2 ? "USR2" : "USR1",
                 (long long)c->preempt_lead_seconds, (long long)c->preempt_max_restarts,
                 c->preempt_requeue ? "true" : "false");
    else
        snprintf(w->text, CONFIG_GIVEN_BYTES, "enabled=false");
    w->emit(w->user, r->name, w->text, false);
}

/* Emits the variable of one row, if it has a value. False: out of memory. */
static bool emit_row(const struct writer *w, const struct rule *r)
{
    const char *value = r->value;

    switch (r->form) {
    case FIXED:
    case TASK:
        w->emit(w->user, r->name, value, r->form == TASK);
        break;
    case TEXT:
    case PYTHON:
    case BIT:
    case UPPER:
        value = key_value(w, r);
        if (value)
            w->emit(w->user, r->name, value, false);
        break;
    case ONE_OF_3:
        config_get(w->cfg, r->key, w->text, CONFIG_GIVEN_BYTES);
        value = truth_form(PYTHON, truth_at(w->text, r->value[0] - '0'));
        w->emit(w->user, r->name, value, false);
        break;
    case DS_FIELDS:
        return emit_fields(w, r);
    case WORLD:
        emit_number(w, r, w->world->tasks);
        break;
    case NODES:
        emit_number(w, r, w->world->nodes);
        break;
    case ADDR:
        w->emit(w->user, r->name, w->world->master_addr, false);
        break;
    case PORT:
        emit_number(w, r, w->world->master_port);
        break;
    case THREADS:
        emit_threads(w, r);
        break;
    case DEVICES:
        emit_devices(w, r);
        break;
    case PATHS:
        emit_paths(w, r);
        break;
    case PREEMPTION:
        emit_preemption(w, r);
        break;
    case OWN_KEY:
        config_env_name((size_t)config_row(r->key), w->text, CONFIG_GIVEN_BYTES);
        w->emit(w->user, w->text, value, false);
        break;
    }
    return true;
}

/* `before` is the name that was emitted last, which is enough to skip the second of
 * two rows. */
accel_status_t config_environment(const struct config *cfg,
                                  const struct config_world *world, config_env_f emit,
                                  void *user, accel_error_t *err)
{
    struct writer w = { .cfg = cfg, .world = world, .emit = emit, .user = user };
    const char *before = "";
    bool good = true;

    w.text = malloc(CONFIG_GIVEN_BYTES);
    if (!w.text)
        return accel_fail_nomem(err, "the tasks' environment", CONFIG_GIVEN_BYTES);
    config_get(cfg, "distributed_type", w.type, sizeof(w.type));
    w.holds = conditions(&w);
    for (size_t i = 0; good && i < ACCEL_ARRAY_SIZE(rules); i++) {
        const struct rule *r = &rules[i];

        /* Of two rows with one name the first that applies counts. */
        if ((w.holds & r->when) != r->when || !strcmp(before, r->name))
            continue;
        good = emit_row(&w, r);
        before = r->name;
    }
    free(w.text);
    return good ? ACCEL_OK : accel_fail_nomem(err, "the tasks' environment", 0);
}
