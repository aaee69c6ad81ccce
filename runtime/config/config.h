/* SPDX-License-Identifier: Apache-2.0
 *
 * config/: an Accelerate YAML file comes in. A validated struct config goes out, with
 * the origin of every value; or a list of diagnostics, all of one run's problems at
 * once. Links libc and libyaml only, because the Slurm plugin carries it. Never prints.
 */
#ifndef ACCEL_CONFIG_CONFIG_H
#define ACCEL_CONFIG_CONFIG_H

#include "common/common.h"

/* The enums down to device_choice are in the order of the words in their row of the
 * schema table, because scalar.c stores the index of the word. A new word goes to the
 * same place in both. The types from DIST_MULTI_GPU on need accelerators; rules/shape.c
 * relies on that. */
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
/* In what dtype a run computes; precision/policy.h turns it into dtypes. */
enum mixed_precision { PRECISION_NO, PRECISION_BF16, PRECISION_FP16, PRECISION_FP8 };
/* Where the scales of fp8 come from. */
enum fp8_choice { FP8_DELAYED, FP8_CURRENT, FP8_BLOCK, FP8_MXFP8, FP8_POWERS };
/* How gradients are added: in rank order; the ranks of each node first, then the nodes;
 * or, on GPUs, by NCCL. */
enum sums_choice { SUMS_RANKS, SUMS_NODES, SUMS_NCCL };
/* The dtype in which gradients travel between ranks. */
enum reduce_choice {
    REDUCE_AUTO,
    REDUCE_F32,
    REDUCE_BF16,
    REDUCE_FP16,
    REDUCE_E4M3,
    REDUCE_E5M2
};
/* How optimizers keep their moments. */
enum moments_choice { MOMENTS_F32, MOMENTS_8BIT, MOMENTS_FP8 };
/* What of weights is held and gathered for ops: as mixed_precision and fp8_backend have
 * it, or those of fp8 linears. */
enum weights_choice { WEIGHTS_AUTO, WEIGHTS_FP8 };
/* In what form weights are kept between steps. */
enum masters_choice { MASTERS_F32, MASTERS_BF16, MASTERS_NONE, MASTERS_FP16 };
/* In what form gradients wait for their step. */
enum gradients_choice { GRADIENTS_F32, GRADIENTS_FP8 };
/* What each rank keeps whole and what it keeps a shard of; names as in FSDP. */
enum sharding_strategy {
    SHARD_FULL,
    SHARD_NONE,
    SHARD_GRAD_OP,
    SHARD_HYBRID,
    SHARD_HYBRID_ZERO2,
};
/* How the model is cut into units, which are gathered one at a time. */
enum wrap_policy { WRAP_NONE, WRAP_TRANSFORMER, WRAP_SIZE };
/* What checkpoints are made of: a file per rank; one file; a file per rank of shards
 * that only the same ranks can take up. */
enum state_dict { DICT_SHARDED, DICT_FULL, DICT_LOCAL };
/* When backward gathers the next unit, in the words of fsdp_backward_prefetch. */
enum backward_prefetch { PREFETCH_NONE, PREFETCH_PRE, PREFETCH_POST };
enum preempt_signal { PREEMPT_USR1, PREEMPT_USR2 };
/* Periodic checkpoints are written while training continues: if there is memory for a
 * copy; in any case; never. */
enum async_choice { ASYNC_AUTO, ASYNC_TRUE, ASYNC_FALSE };
/* A save is due while another one is being written. */
enum busy_choice { BUSY_AUTO, BUSY_SKIP, BUSY_WAIT };
/* Which values of accel.checkpoint.metric are better. */
enum metric_mode { METRIC_MIN, METRIC_MAX };
enum device_choice { DEVICE_AUTO, DEVICE_CPU };
/* Least important lines of rank 0, in the order of accel_log_level_t, without error. */
enum log_choice { LOG_WARN, LOG_INFO, LOG_DEBUG };
/* Kinds of files that trackers write; a set of them is a sum. */
enum track_format { TRACK_JSONL = 1, TRACK_CSV = 2, TRACK_TENSORBOARD = 4 };

/* Where a value came from, weakest first: a later source overrides an earlier one. */
enum config_origin {
    /* built in */
    ORIGIN_DEFAULT,
    /* the site file, SYSCONFDIR/accel/site.yaml */
    ORIGIN_SITE,
    /* the program, accel_options.set */
    ORIGIN_PROGRAM,
    /* the user file, XDG_CONFIG_HOME/accel/config.yaml, or Accelerate's own */
    ORIGIN_USER,
    /* the job file, --accel-config=FILE */
    ORIGIN_FILE,
    /* the variable ACCEL_<KEY> */
    ORIGIN_ENV,
    /* --<key> of an accel command */
    ORIGIN_FLAG,
};
/* Rows of the schema table at most, and the bytes of all texts kept in `given`. */
enum { CONFIG_MAX_KEYS = 320, CONFIG_GIVEN_BYTES = 8192 };

/* One configuration. It is a plain value: it holds no pointers, so it can be copied by
 * assignment and is never freed. The schema table says which key sets which field. */
struct config {
    enum distributed_type distributed_type;
    enum mixed_precision mixed_precision;
    /* Processes of the whole job, and nodes; 0: not given. */
    int64_t num_processes;
    int64_t num_machines;
    bool use_cpu, debug;

    enum sharding_strategy sharding_strategy;
    enum wrap_policy auto_wrap_policy;
    /* Comma-separated class names; empty: the model's own blocks. */
    char transformer_cls[256];
    enum backward_prefetch backward_prefetch;
    bool sync_module_states, use_orig_params, cpu_ram_efficient_loading;

    bool ckpt_save;
    /* Empty: <out_dir>/checkpoints. */
    char ckpt_dir[1024];
    /* A checkpoint is due when either has passed; 0: off. */
    int64_t ckpt_every_steps;
    double ckpt_every_minutes;
    /* Complete checkpoints kept, >= 1. */
    int64_t ckpt_keep;
    /* Besides: multiples of n steps, and the best by a metric; 0: none. */
    int64_t ckpt_keep_every, ckpt_keep_best;
    char ckpt_metric[64];
    enum metric_mode ckpt_metric_mode;
    /* Written while training continues. */
    enum async_choice ckpt_async;
    enum busy_choice ckpt_when_busy;
    char ckpt_local_dir[1024];

    bool preempt_enabled;
    enum preempt_signal preempt_signal;
    /* How long before the time limit Slurm sends the signal (--signal). */
    int64_t preempt_lead_seconds;
    /* In a batch job: ask Slurm to requeue it. */
    bool preempt_requeue;
    /* Under a bare srun: ask for a new allocation. */
    bool preempt_resubmit;
    /* Restarts of one job, whoever asks for them. */
    int64_t preempt_max_restarts;

    /* Python: the Trainer of transformers saves and resumes without its script. */
    bool python_trainer;

    enum reduce_choice reduce;
    enum sums_choice sums;
    enum moments_choice moments;
    enum masters_choice masters;
    enum weights_choice weights;
    enum gradients_choice gradients;
    /* fp16: torch's GradScaler, under its names */
    bool loss_scale_enabled;
    double loss_scale_init, loss_scale_growth, loss_scale_backoff;
    int64_t loss_scale_interval;
    enum fp8_choice fp8_recipe;
    /* fp8 weights are made once per step. */
    bool fp8_weight_cache;
    /* A list that module_rules_read reads. */
    char precision_modules[512];
    enum device_choice device;
    enum log_choice log_level;
    /* A list that config_track_formats reads; empty: the program's choice. */
    char track[64];
    /* Bind every rank to its cores. */
    bool topo_bind;
    /* Network interface for the traffic between nodes; empty: the nearest. */
    char topo_nic[64];
    /* Some file has the map `accel`. */
    bool has_accel_section;
    /* The job file as messages show it; empty: none. */
    char job_path[200];
    /* A section of the DeepSpeed file that only DeepSpeed implements; empty: none. */
    char deepspeed_more[64];
    /* origin[i], line[i], given_at[i] and locked[i] belong to row i of the schema table
     * (config_schema). A row without a field above keeps its canonical text in `given`,
     * at offset given_at[i] - 1; given_at[i] is 0 when the key was not given. */
    unsigned char origin[CONFIG_MAX_KEYS];
    int line[CONFIG_MAX_KEYS];
    uint16_t given_at[CONFIG_MAX_KEYS];
    uint16_t given_used;
    char given[CONFIG_GIVEN_BYTES];
    /* Locked by the site file. */
    bool locked[CONFIG_MAX_KEYS];
};

/* One problem. `text` is the complete rustc-style message, several lines, no colour:
 *   FILE:7:3: error: unknown key 'sharding_stratgy' in 'fsdp_config'
 *     7 |   sharding_stratgy: FULL_SHARD
 *       |   ^^^^^^^^^^^^^^^^ did you mean 'fsdp_sharding_strategy'?  */
struct config_diag {
    /* Else it is a note. */
    bool is_error;
    /* A note that srun shows as well: something is not done as a file says. */
    bool is_told;
    enum config_origin source;
    /* 1-based; 0: the whole source. */
    int line, col;
    char *text;
};
struct config_diags {
    /* item[count], owned by this struct; `errors` of them are errors. */
    struct config_diag *item;
    size_t count, errors;
    /* The job file as the messages show it. */
    char path[1024];
};
/* Frees the texts and empties the list. NULL is allowed. */
void config_diags_free(struct config_diags *d);

/* What a config is made of. NULL leaves a source out. All strings belong to the caller
 * and must outlive config_resolve and config_place. */
struct config_setting {
    /* "fsdp_version" or "accel.checkpoint.dir", and the text as the user wrote it */
    const char *name, *value;
};
struct config_sources {
    const char *job_path, *user_path, *site_path;
    /* Somebody named site_path, so a missing file is an error: its locks would
     * be gone. */
    bool site_is_named;
    /* NAME=value, NULL-terminated, as environ; only names that begin with
     * ACCEL_ matter */
    char *const *env;
    const struct config_setting *flags;
    size_t flag_count;
    /* KEY=VALUE, NULL-terminated: what the program sets */
    const char *const *program;
    /* What an earlier config_resolve made of the other sources, where the job was
     * started; they are then left out here. Only `program` is new. */
    const struct config *resolved;
    /* accel launch: keys that Slurm would replace are honoured. */
    bool without_slurm;
    /* user_path is the default file of `accelerate config`. */
    bool user_is_accelerates;
};
/* Storage for the paths of a config_sources; must live as long as that. */
struct config_paths {
    char user[1024], site[1024];
    /* accelerate/default_config.yaml below HF_HOME. */
    char accelerate[1024];
};
/* Fills in the usual sources: user file, site file and the environment of this process.
 * Keeps the other members; job_path must be set before this call. Without a job file
 * and without a user file, user_path is Accelerate's default file if that exists:
 * accelerate launch, too, reads it only where no file is named. paths->user is accel's
 * own path in any case. */
void config_sources_default(struct config_sources *src, struct config_paths *paths_out);

/* Reads, validates and merges the sources: flag > environment > job file > user file >
 * program > site file > built-in. Size and device of a run belong to its
 * distributed_type: where a stronger source sets the type, the size and device of the
 * site file, the program and the user file are ignored if that source has a type of its
 * own, or if the type cannot have them; a note says so.
 * ACCEL_OK: *cfg_out is filled, the diagnostics may hold notes. Otherwise `err` names
 * the first problem and the diagnostics hold all of them, at most 20. The caller frees
 * them with config_diags_free in both cases. Opens files with the caller's rights and
 * reads at most 1 MiB, depth 16 and 10 000 events of each. User and site file may be
 * missing. Not collective. */
accel_status_t config_resolve(const struct config_sources *src, struct config *cfg_out,
                              struct config_diags *diags_out, accel_error_t *err);
/* Writes where the value of schema row `row` came from: "FILE:7", "environment
 * ACCEL_X", "flag", "the program", "built-in". `src` is what cfg was resolved from.
 * Returns buf. */
const char *config_place(const struct config *cfg, const struct config_sources *src,
                         size_t row, char *buf, size_t len);
/* Writes the name of the environment variable that sets schema row `row`, such
 * as ACCEL_FSDP_VERSION. Returns buf. Empty for an old key that another row
 * has replaced. */
const char *config_env_name(size_t row, char *buf, size_t len);
/* The built-in defaults (no file). */
void config_defaults(struct config *cfg_out);

/* Canonical text of a validated config: "accel1;key=value;...;xxh3=HEX",
 * printable ASCII (';', '%' and control characters as %XX), at most 16 KiB with
 * its NUL; keys at their defaults are left out. It travels to the tasks in
 * ACCEL_CONFIG_RESOLVED, so that nothing on a node opens the user's file. Fails with
 * ACCEL_ECONFIG when it does not fit buf[len], or ACCEL_ENOMEM. */
accel_status_t config_encode(const struct config *cfg, char *buf, size_t len,
                             accel_error_t *err);
/* Reads that text back. *cfg_out is set on success only. Refused are a text that is
 * damaged, and one of another release with a key or value that is not known here. */
accel_status_t config_decode(const char *text, struct config *cfg_out,
                             accel_error_t *err);

/* ---- what a config means --------------------------------------------------------- */

/* ACCEL_OK when libaccel's own runtime implements everything the config asks for.
 * Otherwise "not supported yet" with the key, its place and the cure. Python programs
 * are not concerned: Accelerate implements their config. */
accel_status_t config_supported(const struct config *cfg, accel_error_t *err);
/* Why schema row `row` of the config asks for nothing that libaccel's own runtime would
 * have to implement, in one line; NULL: it is not given, or counts. */
const char *config_moot(const struct config *cfg, size_t row);
/* Writes the place of a key for such messages: "FILE:7", "environment ACCEL_X",
 * "default of KEY". Returns buf. Unlike config_place it needs no sources, so it also
 * works in a task. */
const char *config_where(const struct config *cfg, const char *name, char *buf,
                         size_t len);
/* How parameters are kept: by fsdp_config in either version, by deepspeed_config (the
 * ZeRO stage), or as whole copies for all other types. */
enum sharding_strategy config_strategy(const struct config *cfg);
const char *config_strategy_name(enum sharding_strategy strategy); /* static */
/* fsdp_state_dict_type; files per rank for all other types. */
enum state_dict config_state_dict(const struct config *cfg);
/* Are the model's blocks units of their own? DeepSpeed has no such key: they are. */
bool config_wraps(const struct config *cfg);
/* The classes of these blocks, separated by commas; empty: the model's own. */
const char *config_wrap_classes(const struct config *cfg);
/* When backward gathers the next unit: as the key says. FSDP version 2 has no key and
 * always gathers ahead. */
enum backward_prefetch config_prefetch(const struct config *cfg);
/* Micro-batches per step and the largest norm of the gradients, from deepspeed_config;
 * 0: the config does not say. */
int64_t config_accumulation(const struct config *cfg);
double config_clipping(const struct config *cfg);
/* Reads a list of formats, "jsonl,tensorboard" or "none", blanks allowed around the
 * words. False: word_out[len] gets the word that is none of them. */
bool config_track_formats(const char *list, unsigned *formats_out, char *word_out,
                          size_t len);
/* Does backward compute units again (fsdp_activation_checkpointing)? */
bool config_recomputes(const struct config *cfg);

/* The engine that a key of fp8_config is for: "TE" (Transformer Engine), "AO" (torchao)
 * or "MSAMP" (MS-AMP), which share one map; static. */
const char *config_fp8_engine(const char *name);

/* Is mixed_precision fp8, and fp8_backend AO, or MSAMP? */
bool config_fp8_is_ao(const struct config *cfg);
bool config_fp8_is_msamp(const struct config *cfg);

/* Dimensions of parallelism_config, in the order of the mesh. */
enum mesh_dim {
    DIM_DP_REPLICATE,
    DIM_DP_SHARD,
    DIM_CP,
    DIM_SP,
    DIM_TP,
    MESH_DIMS,
};
struct config_mesh {
    /* Ranks along each dimension, >= 1. */
    int64_t size[MESH_DIMS];
    /* The product of all sizes. */
    int64_t total;
    /* dp_replicate x dp_shard: how many groups get different data. */
    int64_t data_parallel;
    /* cp x sp x tp: the ranks of one such group, which get the same data. */
    int64_t others;
};
/* Fills the mesh. If all sizes are 1, dp_replicate becomes `world` (0: not known). */
void config_mesh(const struct config *cfg, int64_t world, struct config_mesh *mesh_out);
/* "dp_replicate" and so on; static. */
const char *mesh_dim_name(enum mesh_dim dim);
/* Checks the sizes of parallelism_config and megatron_lm_config against the
 * number of processes that were really started. Not collective; every rank gets
 * the same answer. */
accel_status_t config_check_world(const struct config *cfg, int64_t world,
                                  accel_error_t *err);

/* ---- the schema table: drives parser, validator, defaults, help ------------------ */

enum config_type {
    TYPE_BOOL,
    TYPE_INT,
    TYPE_NUMBER,
    TYPE_STRING,
    TYPE_ENUM,
    /* three truth values, "true,false,false" */
    TYPE_BOOLS,
};
/* What accel does with a key. */
enum config_use {
    /* accel's own runtime acts on it */
    USE_HONOURED,
    /* checked, then handed to the program in its environment */
    USE_HANDED_ON,
    /* Slurm or accel decides it: accepted, with a note that says so */
    USE_REPLACED,
    /* it is for runs of another kind than this can be: the same */
    USE_NO_EFFECT,
    /* it asks for a run of such a kind */
    USE_REFUSED,
};
/* One row of the table: one key. Strings are static. Members that a row leaves out are
 * NULL or 0. */
struct config_key {
    /* "", "fsdp_config", "accel.checkpoint" ... */
    const char *section;
    /* The full key name, with Accelerate's prefix where it has one. */
    const char *name;
    enum config_type type;
    enum config_use use;
    /* TYPE_ENUM: the allowed words, NULL-terminated. Other types: words that are
     * allowed besides, or NULL. */
    const char *const *values;
    const char *default_text;
    /* One line. */
    const char *help;
    /* Of the field in struct config; SIZE_MAX: the text is kept in `given`. */
    size_t offset;
    /* The values that accel's own runtime implements, "a|b", or "*" for all. NULL: all
     * values of an honoured key, none of any other. A key that is replaced or has no
     * effect gets no note at these values; of a refused key only this one is
     * accepted. */
    const char *ours;
    /* Values, in the same form, that leave nothing to implement: a run with them
     * computes the same numbers. `accel check` says so. */
    const char *moot;
    /* NULL: accel's own runtime reads the key, or refuses it. Otherwise one line that
     * says why it need not read it: what the values of `moot`, or else of `ours`,
     * amount to there. */
    const char *why;
    /* Bounds of TYPE_INT and TYPE_NUMBER. TYPE_STRING: max is the longest length, in
     * bytes. */
    double min, max;
    /* Words of Accelerate that are refused, or NULL. */
    const char *const *refused;
    /* Another name that Accelerate has for the key, or NULL. */
    const char *other_name;
    /* An old key: the path of the row that replaced it. */
    const char *moved_to;
};
/* The table; static. *count_out <= CONFIG_MAX_KEYS. */
const struct config_key *config_schema(size_t *count_out);
/* How many leading bytes of the key's name may be left out inside its map. 0: none. */
size_t config_key_prefix(const struct config_key *key);

/* Row of a key: "fsdp_version" or, where a name occurs twice, section and name,
 * "accel.checkpoint.dir". -1: no such key. */
int config_row(const char *name);
/* Writes that name, "accel.checkpoint.dir". Returns buf. */
const char *config_key_path(const struct config_key *key, char *buf, size_t len);
/* Did any source (file, environment, flag) give it, so that it is not the default? */
bool config_is_given(const struct config *cfg, const char *name);
/* The same for any key of the map `section`, such as "fsdp_config". */
bool config_section_given(const struct config *cfg, const char *section);
/* Canonical text of one key: what was given, else its default ("true", "2",
 * "FULL_SHARD"; empty: none), cut to len - 1 bytes. */
void config_value_text(const struct config *cfg, const struct config_key *key,
                       char *buf, size_t len);
/* The same by name; returns buf. Empty for a name that is no key. */
const char *config_get(const struct config *cfg, const char *name, char *buf,
                       size_t len);
/* Is that text `word`, such as "true"? */
bool config_is(const struct config *cfg, const char *name, const char *word);
/* The same as a number; 0 when it is not given, or is a word such as "auto". */
int64_t config_get_int(const struct config *cfg, const char *name);
double config_get_number(const struct config *cfg, const char *name);

#endif
