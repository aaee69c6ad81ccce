/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: an Accelerate YAML file in, a validated struct config out, every value with
 * its origin; or a list of diagnostics, all of them in one run.
 * Links libc and libyaml only (the Slurm plugin carries it). Never prints.
 */
#ifndef ACCEL_CONFIG_CONFIG_H
#define ACCEL_CONFIG_CONFIG_H

#include "common/common.h"

/* In the order of the schema table's words. */
enum distributed_type {
    DIST_NO,
    DIST_MULTI_CPU,
    DIST_FSDP,
    DIST_DEEPSPEED,
    DIST_MULTI_GPU,
    DIST_MULTI_NPU,
    DIST_MULTI_MLU,
    DIST_MULTI_SDAA,
    DIST_MULTI_MUSA,
    DIST_MULTI_XPU,
    DIST_MULTI_HPU,
    DIST_MULTI_NEURON,
    DIST_MEGATRON_LM,
};
enum mixed_precision { PRECISION_NO, PRECISION_BF16, PRECISION_FP16, PRECISION_FP8 };
enum sums_choice { SUMS_RANKS, SUMS_NCCL };
enum reduce_choice {
    REDUCE_AUTO,
    REDUCE_F32,
    REDUCE_BF16,
    REDUCE_FP16,
    REDUCE_E4M3,
    REDUCE_E5M2
};
enum sharding_strategy {
    SHARD_FULL,
    SHARD_NONE,
    SHARD_GRAD_OP,
    SHARD_HYBRID,
    SHARD_HYBRID_ZERO2,
};
enum wrap_policy { WRAP_NONE, WRAP_TRANSFORMER, WRAP_SIZE };
enum backward_prefetch { PREFETCH_NONE, PREFETCH_PRE, PREFETCH_POST };
enum preempt_signal { PREEMPT_USR1, PREEMPT_USR2 };
enum device_choice { DEVICE_AUTO, DEVICE_CPU };

/* Where a value came from, weakest first: a later source wins over an earlier one. */
enum config_origin {
    ORIGIN_DEFAULT, /* built in */
    ORIGIN_SITE,    /* the site file, SYSCONFDIR/accel/site.yaml */
    ORIGIN_USER, /* the user file, XDG_CONFIG_HOME/accel/config.yaml, or Accelerate's */
    ORIGIN_FILE, /* the job file, --accel-config=FILE */
    ORIGIN_ENV,  /* ACCEL_<KEY> */
    ORIGIN_FLAG, /* --<key> of an accel command */
};
enum { CONFIG_MAX_KEYS = 320, CONFIG_GIVEN_BYTES = 8192 };

struct config {
    enum distributed_type distributed_type;
    enum mixed_precision mixed_precision;
    int64_t num_processes; /* 0: not given */
    int64_t num_machines;  /* 0: not given */
    bool use_cpu, debug;

    enum sharding_strategy sharding_strategy;
    enum wrap_policy auto_wrap_policy;
    char transformer_cls[256]; /* comma list; empty: the model's own blocks */
    enum backward_prefetch backward_prefetch;
    bool sync_module_states, use_orig_params, cpu_ram_efficient_loading;

    bool ckpt_save;
    char ckpt_dir[1024];       /* empty: <out_dir>/checkpoints */
    int64_t ckpt_every_steps;  /* 0: off */
    double ckpt_every_minutes; /* 0: off */
    int64_t ckpt_keep;         /* complete checkpoints kept, >= 1 */

    bool preempt_enabled;
    enum preempt_signal preempt_signal;
    int64_t preempt_lead_seconds; /* --signal lead before the time limit */
    bool preempt_requeue;         /* batch: ask Slurm to requeue */
    bool preempt_resubmit;        /* bare srun: ask for a new allocation */
    int64_t preempt_max_restarts; /* of one job, whoever asks for them */

    enum reduce_choice reduce; /* what gradients travel in */
    enum sums_choice sums;     /* who adds them up between GPUs */
    enum device_choice device;
    bool topo_bind;    /* bind every rank to its cores */
    char topo_nic[64]; /* interface for the traffic between nodes; empty: the nearest */
    bool has_accel_section;
    char job_path[200]; /* the job file as messages show it; empty: none */
    char
        deepspeed_more[64]; /* a section of the DeepSpeed file that only DeepSpeed does;
                                empty: none */
    /* origin[i], line[i] and given_at[i] belong to row i of the schema table
     * (config_schema). Rows without a field above keep their canonical text in `given`,
     * from given_at[i] - 1 on; 0: not given. */
    unsigned char origin[CONFIG_MAX_KEYS];
    int line[CONFIG_MAX_KEYS];
    uint16_t given_at[CONFIG_MAX_KEYS];
    uint16_t given_used;
    char given[CONFIG_GIVEN_BYTES];
    bool locked[CONFIG_MAX_KEYS]; /* by the site file; not handed on to tasks */
};

/* One problem. `text` is the complete rustc-style message, several lines, no colour:
 *   FILE:7:3: error: unknown key 'sharding_stratgy' in 'fsdp_config'
 *     7 |   sharding_stratgy: FULL_SHARD
 *       |   ^^^^^^^^^^^^^^^^ did you mean 'fsdp_sharding_strategy'?  */
struct config_diag {
    bool is_error; /* else a note */
    bool
        is_told; /* a note that srun tells, too: something is not done as a file says */
    enum config_origin source;
    int line, col; /* 1-based; 0: the whole source */
    char *text;
};
struct config_diags {
    struct config_diag *item;
    size_t count, errors;
    char path[1024]; /* as shown in the messages */
};
void config_diags_free(struct config_diags *d);

/* What a config is made of, weakest source last. NULL leaves a source out. */
struct config_setting {
    const char *name, *value; /* "fsdp_version" or "accel.checkpoint.dir" */
};
struct config_sources {
    const char *job_path, *user_path, *site_path;
    char *const *env; /* ACCEL_<KEY>=value, as environ */
    const struct config_setting *flags;
    size_t flag_count;
    bool without_slurm;       /* accel launch: keys that Slurm would replace count */
    bool user_is_accelerates; /* user_path is the default file of accelerate config */
};
/* Room for the paths of a config_sources. */
struct config_paths {
    char user[1024], site[1024];
    char accelerate[1024]; /* accelerate/default_config.yaml below HF_HOME */
};
/* The usual sources: user file, site file and the environment of this process. Keeps the
 * other members. With neither a job file (job_path is set before this call) nor a user file
 * user_path is Accelerate's default file, where that exists: as accelerate launch, which
 * reads it only where no file is named. paths->user is accel's own in any case. */
void config_sources_default(struct config_sources *src, struct config_paths *paths);

/* Reads, validates and merges the sources: flag > environment > job file > user file > site
 * file > built-in. Size and device of a run go with its distributed_type: where a stronger
 * source says it, those of the site and the user file do not count if that file has a type
 * of its own or if the type cannot have them; a note says so. ACCEL_OK: *cfg is filled, diags may hold notes. Else `err` names the first
 * problem and diags holds all (at most 20). Opens files with the caller's rights; never
 * more than 1 MiB, depth 16, 10 000 events each. User and site file may be missing. */
accel_status_t config_resolve(const struct config_sources *src, struct config *cfg,
                              struct config_diags *diags, accel_error_t *err);
/* Where the value of schema row `row` came from: "FILE:7", "environment ACCEL_X", "flag",
 * "built-in". `src` is what cfg was resolved from. Returns buf. */
const char *config_place(const struct config *cfg, const struct config_sources *src,
                         size_t row, char *buf, size_t len);
/* Name of the environment variable that sets schema row `row`, "ACCEL_FSDP_VERSION", into
 * buf; returns buf. Empty for a row that another one stands for (an old top-level key). */
const char *config_env_name(size_t row, char *buf, size_t len);
/* The built-in defaults (no file). */
void config_defaults(struct config *cfg);

/* Canonical text of a validated config: "accel1;key=value;...;xxh3=HEX", printable ASCII
 * (';', '%' and control characters as %XX), at most 16 KiB. It travels to the tasks in
 * ACCEL_CONFIG_RESOLVED so that nothing on a node opens the user's file. */
accel_status_t config_encode(const struct config *cfg, char *buf, size_t len,
                             accel_error_t *err);
accel_status_t config_decode(const char *text, struct config *cfg, accel_error_t *err);

/* ---- what a config means ---------------------------------------------------------------- */

/* ACCEL_OK when libaccel's own runtime does what the config says; else "not supported yet"
 * with the key, its place and the cure. A Python program is not concerned. */
accel_status_t config_supported(const struct config *cfg, accel_error_t *err);
/* Place of a key for such messages: "FILE:7", "environment ACCEL_X", "default of KEY". */
const char *config_where(const struct config *cfg, const char *name, char *buf,
                         size_t len);
/* The one place where dtypes are decided. */
struct precision {
    accel_dtype_t compute;    /* activations, and the parameters that ops see */
    accel_dtype_t parameters; /* the gathered copy and its wire: as compute, since
                                 narrowing before or after the gather gives equal bits */
    accel_dtype_t reduce; /* the wire of gradients of sharded state; sums, and copies
                                 that are whole, are float32 */
};
struct precision config_precision(const struct config *cfg);
/* How the parameters are kept: fsdp_config in either version, or deepspeed_config, or
 * copies. */
enum sharding_strategy config_strategy(const struct config *cfg);
const char *config_strategy_name(enum sharding_strategy strategy); /* static */
/* How the model is cut into units that are gathered at a time. */
enum wrap_policy config_wrap_policy(const struct config *cfg);
/* When backward gathers the next unit: as the key says; version 2 has no key and always
 * gathers ahead. */
enum backward_prefetch config_prefetch(const struct config *cfg);
/* Micro-batches per step and the largest norm of the gradients as the config says; 0: it
 * does not say. */
int64_t config_accumulation(const struct config *cfg);
double config_clipping(const struct config *cfg);
/* Are units computed again in backward (fsdp_activation_checkpointing)? */
bool config_recomputes(const struct config *cfg);

/* Sizes of parallelism_config, in the order of the mesh. */
enum mesh_dim {
    DIM_DP_REPLICATE,
    DIM_DP_SHARD,
    DIM_CP,
    DIM_SP,
    DIM_TP,
    MESH_DIMS,
};
struct config_mesh {
    int64_t size[MESH_DIMS];
    int64_t total;         /* of all sizes */
    int64_t data_parallel; /* dp_replicate x dp_shard: how many groups get other data */
    int64_t others;        /* cp x sp x tp: the ranks of one such group */
};
/* With all sizes 1, dp_replicate is `world` (0: not known). */
void config_mesh(const struct config *cfg, int64_t world, struct config_mesh *mesh);
/* "dp_replicate"; static. */
const char *mesh_dim_name(enum mesh_dim dim);
/* The sizes of parallelism_config and megatron_lm_config against the number of processes
 * that were really started. */
accel_status_t config_check_world(const struct config *cfg, int64_t world,
                                  accel_error_t *err);

/* ---- the schema table: drives parser, validator, defaults, help ------------------------ */

enum config_type {
    TYPE_BOOL,
    TYPE_INT,
    TYPE_NUMBER,
    TYPE_STRING,
    TYPE_ENUM,
    TYPE_BOOLS, /* three truth values, "true,false,false" */
};
/* What is done with a key. */
enum config_use {
    USE_HONOURED,  /* accel's own runtime acts on it */
    USE_HANDED_ON, /* checked, and handed to the program in its environment */
    USE_REPLACED,  /* Slurm or accel decides it: taken, with a note that says so */
    USE_REFUSED,   /* not on a Slurm cluster */
};
struct config_key {
    const char *section; /* "", "fsdp_config", "accel.checkpoint" ... */
    const char *name;    /* full key name */
    enum config_type type;
    enum config_use use;
    const char *const
        *values; /* TYPE_ENUM: allowed words, NULL-terminated; other types:
                                  words allowed besides, or NULL */
    const char *default_text;
    const char *help; /* one line */
    size_t offset;    /* in struct config; SIZE_MAX: its text is kept in `given` */
    const char
        *ours;       /* the values, "a|b" or "*" for all, that accel's own runtime does;
                         NULL: all of an honoured key, none of another one. A replaced
                         key needs no note at them, a refused one has only them. */
    const char *why; /* NULL: accel's own runtime reads the key, or refuses it. Else why
                        it need not: what those of `ours` come to there, one line */
    double min, max; /* TYPE_INT, TYPE_NUMBER; TYPE_STRING: max is the longest length in
                         bytes */
    const char *const *refused; /* words of Accelerate that are refused, or NULL */
    const char *other_name;     /* what else Accelerate calls it, or NULL */
    const char *moved_to; /* an old key: the path of the row that took its place */
};
/* At most CONFIG_MAX_KEYS rows; static. */
const struct config_key *config_schema(size_t *count_out);

/* Row of the key "fsdp_version" or, where a name occurs twice, "accel.checkpoint.dir"
 * (section and name); -1: no such key. */
int config_row(const char *name);
/* That name of section and name, "accel.checkpoint.dir", into buf; returns buf. */
const char *config_key_path(const struct config_key *key, char *buf, size_t len);
/* Was it given by any source (file, environment, flag), that is, not the default? */
bool config_is_given(const struct config *cfg, const char *name);
/* The same of any key of the map "fsdp_config". */
bool config_section_given(const struct config *cfg, const char *section);
/* Canonical text of one key: what was given, else its default ("true", "2",
 * "FULL_SHARD"; empty: none), cut to len - 1 bytes. */
void config_value_text(const struct config *cfg, const struct config_key *key,
                       char *buf, size_t len);
/* The same by name; returns buf. A name that is no key gives "". */
const char *config_get(const struct config *cfg, const char *name, char *buf,
                       size_t len);
/* The same of a number; 0 when it is not given, or a word such as "auto". */
int64_t config_get_int(const struct config *cfg, const char *name);
double config_get_number(const struct config *cfg, const char *name);

#endif
