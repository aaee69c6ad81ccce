/* SPDX-License-Identifier: Apache-2.0
 *
 * THE key table: every key of an Accelerate config file and of our own `accel:` map, with
 * type, words, default and help. Parser, validator, defaults, canonical text and
 * `accel check` read it; a new key is a new row here and nothing else.
 *
 * Three kinds of rows:
 *   honoured     `offset` points into struct config
 *   fixed        `offset` SIZE_MAX, `fixed` lists the values that equal what we do
 *   unsupported  `offset` SIZE_MAX, `fixed` NULL: any value is refused
 * For the last two `help` says why, and is shown with the cure.
 */
#include <string.h>

#include "config/config.h"

#define WORDS(...)                                                                     \
    (const char *const[])                                                              \
    {                                                                                  \
        __VA_ARGS__, NULL                                                              \
    }

#define FIELD(f) .offset = offsetof(struct config, f)
#define HONOUR_BOOL(s, n, f, d, h)                                                     \
    {                                                                                  \
        .section = s, .name = n, .type = TYPE_BOOL, FIELD(f), .default_text = d,       \
        .help = h                                                                      \
    }
#define HONOUR_INT(s, n, f, lo, hi, d, h)                                              \
    {                                                                                  \
        .section = s, .name = n, .type = TYPE_INT, FIELD(f), .min = lo, .max = hi,     \
        .default_text = d, .help = h                                                   \
    }
#define HONOUR_ENUM(s, n, f, d, h, no, ...)                                            \
    {                                                                                  \
        .section = s, .name = n, .type = TYPE_ENUM, FIELD(f), .default_text = d,       \
        .help = h, .refused = no, .values = WORDS(__VA_ARGS__)                         \
    }
#define HONOUR_TEXT(s, n, f, h)                                                        \
    {                                                                                  \
        .section = s, .name = n, .type = TYPE_STRING, FIELD(f), .default_text = "",    \
        .max = sizeof(((struct config *)0)->f) - 1, .help = h                          \
    }
#define FIXED(s, n, t, d, same, h)                                                     \
    {                                                                                  \
        .section = s, .name = n, .type = t, .offset = SIZE_MAX, .default_text = d,     \
        .fixed = same, .help = h                                                       \
    }
#define FIXED_ENUM(s, n, d, same, h, ...)                                              \
    {                                                                                  \
        .section = s, .name = n, .type = TYPE_ENUM, .offset = SIZE_MAX,                \
        .default_text = d, .fixed = same, .help = h, .values = WORDS(__VA_ARGS__)      \
    }
#define REFUSED(s, n, h)                                                               \
    {                                                                                  \
        .section = s, .name = n, .type = TYPE_STRING, .offset = SIZE_MAX, .help = h    \
    }

static const char use_launcher[] = "Slurm or accel launch does this";
static const char no_tpu[] = "accel runs on Slurm clusters, not on TPU pods";
static const char no_sagemaker[] = "it is for SageMaker; accel runs on LOCAL_MACHINE";
static const char later[] = "other values come in a later release";
static const char no_engine[] = "use distributed_type: FSDP with fsdp_config";

static const struct config_key table[] = {
    /* Top level, honoured. */
    HONOUR_ENUM("", "distributed_type", distributed_type, "MULTI_CPU",
                "required in a file: NO one process, MULTI_CPU replicas, FSDP shards",
                WORDS("MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA",
                      "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON", "DEEPSPEED", "XLA",
                      "TPU", "MEGATRON_LM"),
                "NO", "MULTI_CPU", "FSDP"),
    HONOUR_ENUM("", "mixed_precision", mixed_precision, "no",
                "no: float32; bf16: bfloat16 compute, float32 masters and sums",
                WORDS("fp16", "fp8"), "no", "bf16"),
    HONOUR_INT("", "num_processes", num_processes, 1, 1048576, NULL,
               "processes of the whole job; -1 or absent: as many as are started"),
    HONOUR_INT("", "num_machines", num_machines, 1, 65536, NULL,
               "nodes; absent: as many as the step has"),
    HONOUR_BOOL("", "use_cpu", use_cpu, "false",
                "never use a GPU, even if one is given"),
    HONOUR_BOOL("", "debug", debug, "false", "check collectives and print more"),

    /* fsdp_config, honoured. */
    HONOUR_ENUM(
        "fsdp_config", "fsdp_sharding_strategy", sharding_strategy, "FULL_SHARD",
        "FULL_SHARD (1) splits parameters, gradients and optimizer; NO_SHARD (3) "
        "copies",
        WORDS("SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"), "FULL_SHARD",
        "NO_SHARD"),
    HONOUR_ENUM("fsdp_config", "fsdp_auto_wrap_policy", auto_wrap_policy, "NO_WRAP",
                "TRANSFORMER_BASED_WRAP: one unit per block; NO_WRAP: one unit",
                WORDS("SIZE_BASED_WRAP"), "NO_WRAP", "TRANSFORMER_BASED_WRAP"),
    HONOUR_TEXT("fsdp_config", "fsdp_transformer_layer_cls_to_wrap", transformer_cls,
                "class names, comma separated; empty: the model's own blocks"),
    HONOUR_ENUM("fsdp_config", "fsdp_backward_prefetch", backward_prefetch,
                "NO_PREFETCH", "when backward gathers the next unit", NULL,
                "NO_PREFETCH", "BACKWARD_PRE", "BACKWARD_POST"),
    HONOUR_BOOL("fsdp_config", "fsdp_sync_module_states", sync_module_states, "true",
                "rank 0's initial values are everybody's"),
    HONOUR_BOOL("fsdp_config", "fsdp_use_orig_params", use_orig_params, "true",
                "the optimizer sees original parameters"),
    HONOUR_BOOL("fsdp_config", "fsdp_cpu_ram_efficient_loading",
                cpu_ram_efficient_loading, "true",
                "no rank holds the whole model; needs fsdp_sync_module_states"),

    /* Our own map. */
    HONOUR_ENUM("accel", "device", device, "auto",
                "auto: GPUs when the step has some; cpu: never (as use_cpu: true)",
                NULL, "auto", "cpu"),
    HONOUR_TEXT("accel.checkpoint", "dir", ckpt_dir,
                "checkpoint directory; empty: OUT/checkpoints"),
    HONOUR_INT("accel.checkpoint", "every_steps", ckpt_every_steps, 0, 1e15, "0",
               "steps between checkpoints; 0: not by steps"),
    { .section = "accel.checkpoint",
      .name = "every_minutes",
      .type = TYPE_NUMBER,
      FIELD(ckpt_every_minutes),
      .min = 0,
      .max = 525600,
      .default_text = "10",
      .help = "minutes between checkpoints; 0: not by time" },
    HONOUR_INT("accel.checkpoint", "keep", ckpt_keep, 1, 1e6, "2",
               "complete checkpoints kept; older ones are removed"),
    HONOUR_BOOL("accel.preemption", "enabled", preempt_enabled, "true",
                "save and come back when preempted or near the time limit"),
    HONOUR_ENUM("accel.preemption", "signal", preempt_signal, "USR1",
                "the warning signal asked of Slurm (SIGTERM always counts)", NULL,
                "USR1", "USR2"),
    HONOUR_INT("accel.preemption", "lead_seconds", preempt_lead_seconds, 1, 65535,
               "120",
               "warning this long before the time limit; Slurm may be 60 s late"),
    HONOUR_BOOL("accel.preemption", "requeue", preempt_requeue, "true",
                "batch jobs: ask Slurm to requeue"),
    HONOUR_BOOL("accel.preemption", "resubmit", preempt_resubmit, "true",
                "bare srun: ask for a new allocation and go on"),
    HONOUR_INT("accel.preemption", "max_restarts", preempt_max_restarts, 0, 1e6, "100",
               "restarts of one job before it ends, saved, with exit code 75"),

    /* Top level, accepted at the value that equals what we do. */
    FIXED_ENUM("", "compute_environment", "LOCAL_MACHINE", "LOCAL_MACHINE",
               "accel runs on Slurm clusters and single machines", "LOCAL_MACHINE",
               "AMAZON_SAGEMAKER"),
    FIXED_ENUM("", "downcast_bf16", "no", "no", "it is for TPUs", "no", "yes"),
    FIXED("", "enable_cpu_affinity", TYPE_BOOL, "false", "false",
          "every rank is bound to the cores of its task already"),
    FIXED("", "machine_rank", TYPE_INT, "0", "0",
          "Slurm numbers the machines and one file serves all"),
    FIXED("", "main_training_function", TYPE_STRING, "main", "main", no_tpu),
    FIXED("", "rdzv_backend", TYPE_STRING, "static", "static",
          "ranks meet through PMIx"),
    FIXED("", "same_network", TYPE_BOOL, "true", "true|false",
          "either value: ranks meet through PMIx"),
    FIXED("", "tpu_use_cluster", TYPE_BOOL, "false", "false", no_tpu),
    FIXED("", "tpu_use_sudo", TYPE_BOOL, "false", "false", no_tpu),
    FIXED("", "gpu_ids", TYPE_STRING, "all", "all",
          "Slurm gives the GPUs (--gpus-per-task)"),
    FIXED("", "fp16", TYPE_BOOL, "false", "false", "old key; use mixed_precision"),
    FIXED("", "dynamo_backend", TYPE_STRING, "NO", "NO|no",
          "nothing is compiled by TorchDynamo"),

    /* fsdp_config, likewise. */
    FIXED("fsdp_config", "fsdp_version", TYPE_INT, "1", "1",
          "version 2 comes in a later release"),
    FIXED_ENUM("fsdp_config", "fsdp_state_dict_type", "SHARDED_STATE_DICT",
               "SHARDED_STATE_DICT", "checkpoints are sharded, always",
               "SHARDED_STATE_DICT", "FULL_STATE_DICT", "LOCAL_STATE_DICT"),
    FIXED("fsdp_config", "fsdp_forward_prefetch", TYPE_BOOL, "false", "false", later),
    FIXED("fsdp_config", "fsdp_offload_params", TYPE_BOOL, "false", "false", later),
    FIXED("fsdp_config", "fsdp_activation_checkpointing", TYPE_BOOL, "false", "false",
          later),
    FIXED("fsdp_config", "fsdp_activation_checkpointing_offload", TYPE_BOOL, "false",
          "false", later),
    FIXED("fsdp_config", "fsdp_limit_all_gathers", TYPE_BOOL, "true", "true",
          "at most two units are gathered at a time, always"),
    FIXED("fsdp_config", "fsdp_reshard_after_forward", TYPE_BOOL, "true", "true",
          "FULL_SHARD gathers again before backward"),
    FIXED("fsdp_config", "fsdp_min_num_params", TYPE_INT, "100000000", "0|100000000",
          "only SIZE_BASED_WRAP uses it"),
    REFUSED("fsdp_config", "fsdp_ignored_modules", "every module is sharded"),

    /* Small maps that say "nothing of this" in a file written by the questionnaire. */
    FIXED("dynamo_config", "dynamo_backend", TYPE_STRING, "NO", "NO|no",
          "nothing is compiled by TorchDynamo"),
    FIXED("dynamo_config", "dynamo_mode", TYPE_STRING, "default", "default", later),
    FIXED("dynamo_config", "dynamo_use_fullgraph", TYPE_BOOL, "false", "false", later),
    FIXED("dynamo_config", "dynamo_use_dynamic", TYPE_BOOL, "false", "false", later),
    FIXED("dynamo_config", "dynamo_use_regional_compilation", TYPE_BOOL, "false",
          "false", later),
    REFUSED("mpirun_config", "mpirun_hostfile", use_launcher),
    REFUSED("mpirun_config", "mpirun_ccl", use_launcher),

/* parallelism_config: every size 1 is one data-parallel group, which is what we do. */
#define PARALLEL(n, t, d, same)                                                        \
    FIXED("parallelism_config", "parallelism_config_" n, t, d, same, later)
    PARALLEL("dp_replicate_size", TYPE_INT, "1", "1"),
    PARALLEL("dp_shard_size", TYPE_INT, "1", "1"),
    PARALLEL("tp_size", TYPE_INT, "1", "1"),
    PARALLEL("cp_size", TYPE_INT, "1", "1"),
    PARALLEL("sp_size", TYPE_INT, "1", "1"),
    PARALLEL("cp_backend", TYPE_STRING, "torch", "torch"),
    PARALLEL("cp_comm_strategy", TYPE_STRING, "allgather", "allgather"),
    PARALLEL("sp_backend", TYPE_STRING, "deepspeed", "deepspeed"),
    PARALLEL("sp_seq_length", TYPE_INT, NULL, NULL),
    PARALLEL("sp_seq_length_is_variable", TYPE_BOOL, "true", "true"),
    PARALLEL("sp_attn_implementation", TYPE_STRING, "sdpa", "sdpa"),

    /* Top level, unsupported unless empty. */
    REFUSED("", "main_process_ip", use_launcher),
    REFUSED("", "main_process_port", use_launcher),
    REFUSED("", "fp8_config", "use mixed_precision: bf16"),
    REFUSED("", "deepspeed_config", no_engine),
    REFUSED("", "megatron_lm_config", no_engine),
    REFUSED("", "ipex_config", "nothing here is tuned by IPEX"),
    REFUSED("", "tpu_name", no_tpu),
    REFUSED("", "tpu_zone", no_tpu),
    REFUSED("", "tpu_vm", no_tpu),
    REFUSED("", "tpu_env", no_tpu),
    REFUSED("", "command_file", no_tpu),
    REFUSED("", "commands", no_tpu),
    REFUSED("", "ec2_instance_type", no_sagemaker),
    REFUSED("", "iam_role_name", no_sagemaker),
    REFUSED("", "image_uri", no_sagemaker),
    REFUSED("", "profile", no_sagemaker),
    REFUSED("", "region", no_sagemaker),
    REFUSED("", "base_job_name", no_sagemaker),
    REFUSED("", "py_version", no_sagemaker),
    REFUSED("", "pytorch_version", no_sagemaker),
    REFUSED("", "transformers_version", no_sagemaker),
    REFUSED("", "sagemaker_inputs_file", no_sagemaker),
    REFUSED("", "sagemaker_metrics_file", no_sagemaker),
    REFUSED("", "additional_args", no_sagemaker),
};

_Static_assert(ACCEL_ARRAY_SIZE(table) <= CONFIG_MAX_KEYS,
               "struct config has a row each");

const struct config_key *config_schema(size_t *count_out)
{
    *count_out = ACCEL_ARRAY_SIZE(table);
    return table;
}

int config_row(const char *name)
{
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(table); i++) {
        const struct config_key *k = &table[i];
        size_t n = strlen(k->section);

        if (!strcmp(k->name, dot ? dot + 1 : name) &&
            (!dot || (n == (size_t)(dot - name) && !strncmp(k->section, name, n))))
            return (int)i;
    }
    return -1;
}
