/* SPDX-License-Identifier: Apache-2.0
 *
 * handle/: struct accel, which is behind accel_t, with what each room of a run keeps in
 * it. The rooms above include this header and fill in their part; the handle calls none
 * of them. One thread uses a run.
 */
#ifndef ACCEL_HANDLE_RUN_H
#define ACCEL_HANDLE_RUN_H

#include "bootstrap/boot.h"
#include "comm/comm.h"
#include "common/common.h"
#include "config/config.h"
#include "handle/run_checkpoints.h"
#include "handle/run_loaders.h"
#include "handle/run_loop.h"
#include "handle/run_place.h"
#include "mesh/mesh.h"
#include "nn/fp8_linears.h"
#include "observe/observe.h"
#include "optim/averages.h"
#include "optim/schedule.h"
#include "plan/plan.h"
#include "preemption/preemption.h"
#include "precision/scaler.h"
#include "shard/shard.h"
#include "tensor/graph.h"
#include "track/track.h"

struct backend;

/* Limits of regions: their number, their depth, and the bytes of a name and of a path,
 * each with its NUL. A path fits into the name of a tracked item. */
#define RUN_REGIONS      64
#define RUN_REGION_DEPTH 16
#define RUN_REGION_NAME  63
#define RUN_REGION_PATH  240

#define RUN_MAX_TREES 16
#define RUN_MAX_HOOKS 8
#define RUN_NAME      64

/* A function of the program that sees gradients (loop/gradient_hooks.c). */
struct gradient_hook {
    /* glob of parameter names, malloc; NULL: every parameter */
    char *match;
    accel_gradient_f fn;
    void *user;
};

/* The time of a region of the program since the last report (loop/regions.c). */
struct region {
    char path[RUN_REGION_PATH];
    int64_t ns, times;
};
struct regions {
    struct region known[RUN_REGIONS];
    int count;
    /* open[depth], the innermost last; `known` is its index in `known` above */
    struct {
        int known;
        int64_t since_ns;
    } open[RUN_REGION_DEPTH];
    int depth;
};

/* What a run keeps for ranks/ from one call to the next. */
struct run_ranks {
    /* accel_trigger_set since the last check */
    bool trigger;
    /* between accel_first_begin and accel_first_end */
    bool in_first;
    /* this rank is one of the ranks that go first */
    bool goes_first;
};

/* A unit of the program. The run owns it, its name and its parameters. */
struct accel_unit {
    accel_t *run;
    char *name;
    accel_tensor_t **param;
    int params;
    /* in run->units; -1: not prepared, or the job has a model */
    int number;
    /* calls of want without their done */
    int wanted;
    /* the gathered values, while wanted */
    void *data;
};

/* A model of a run (models_and_optimizers.c). */
struct run_model {
    /* "": the names of its parameters get no prefix */
    char name[RUN_NAME];
    accel_module_t *root;
    /* NULL: frozen */
    accel_optim_t *optim;
};

/* An optimizer of the run. The job of accel_prepare has one, called "". */
struct accel_optim {
    accel_t *run;
    /* its index in run->optim, and in the shards */
    int number;
    char name[RUN_NAME];
    /* with defaults; the groups are the program's until the end of accel_prepare */
    accel_optimizer_t settings;
    /* the program's own optimizer; update NULL: `settings` says what it does */
    accel_own_optim_t own;
    /* `schedule` sets the learning rate of each step; if false, it is not used */
    bool scheduled;
    struct schedule schedule;
    /* accel_optim_set_lr has been called, by this attempt or before the resume */
    bool lr_set;
    /* a step whose gradients are not finite is skipped */
    bool skip;
    /* of the next step; with a schedule, `lr` is set when the step begins */
    float lr, clip;
    /* steps done */
    int64_t t;
    /* this rank's part of the last sum of squares; local SGD: of all its gradients */
    double own_sumsq;
    /* In this iteration: steps, and how many of them were skipped; the learning rate of
     * the last, and its norm before clipping. */
    int updated, skipped;
    double last_lr, norm;
    /* accel_clip_norm has set `norm`, so the step does not set it */
    bool clipped;
    /* with a loss scale: its gradients were not finite, even if changed since */
    bool overflowed;
    /* it keeps a moving average (accel_ema), whose rule and progress are in `ema` */
    bool averaged;
    struct ema ema;
};

/* Averages of weights (training/ema.c). */
struct averaging {
    /* the rule of optimizers without one of their own */
    bool averaged;
    struct ema ema;
    /* the averages have taken the place of the weights */
    bool swapped;
    /* accel_local_sgd; `every` 0: off. weights_apart, state_apart: ranks have stepped
     * on their own since the last mean of the weights, or of what is kept beside
     * them. */
    struct local_sgd local;
    bool weights_apart, state_apart;
};

/* Compressed sums of gradients (training/gradient_compression.c). */
struct compression {
    bool on;
    /* with defaults */
    accel_powersgd_t rule;
};

/* Loss scaling (training/loss_scale.c). */
struct loss_scaling {
    /* accel_scaler has been called; the rule that it and the config give */
    bool asked;
    accel_scaler_t rule;
    /* losses are multiplied by scaler.scale */
    bool on;
    struct scaler scaler;
    /* In this iteration: optimizers have checked gradients; some were not finite. */
    bool checked, overflow;
    /* a warning about a small scale has been logged */
    bool warned;
};

/* Matmuls in fp8 (training/fp8_scaling.c). */
struct fp8_scales {
    struct fp8_linears linears;
    /* steps that have ended so far */
    int64_t steps;
    /* [FP8_TENSORS * count], scratch: a step's largest magnitudes, of all ranks */
    float *seen;
    /* [count states]: from a checkpoint that has been checked, until it is loaded;
     * NULL: none */
    float *found;
};

/* A run. Members are grouped by who sets them, and are freed in accel_close. */
struct accel {
    /* Set by accel_open. */
    struct config config;
    /* "file", "srun" or "built-in" */
    const char *config_source;
    char config_path[1024];
    /* keys that the program sets, separated by spaces, owned; NULL: none */
    char *config_set;
    /* its level depends on the rank */
    struct accel_log log;
    struct boot boot;
    struct place place;
    /* the soft limit of open files before the run raised it; 0: not raised */
    unsigned long long files_before;
    /* of all ranks, for host memory */
    struct comm *comm;
    /* of all ranks, for device memory; NULL: `comm` does its work */
    struct comm *data;
    /* the ranks as the strategy groups them */
    struct mesh mesh;
    /* computes; owned, as are graph and communicators */
    struct backend *backend;
    /* the CPU, where shards may be offloaded to it; NULL: they may not. The shards know
     * whether they are (run_home). */
    struct backend *home;
    struct graph graph;
    /* graph_open has succeeded, so graph_close must be called */
    bool graph_open;
    char run_name[128];
    struct run_ranks ranks;

    /* Set by the program between accel_open and accel_prepare. The run owns these
     * trees: adopt in model.c. */
    accel_module_t *tree[RUN_MAX_TREES];
    /* [trees]: the directory whose config.json it was built from, owned; NULL: none */
    char *tree_from[RUN_MAX_TREES];
    int trees;
    /* units of own compute, which have no model (own_compute.c) */
    accel_unit_t **own;
    int own_units;
    struct gradient_hook hook[RUN_MAX_HOOKS];
    int hooks;
    /* bits of enum track_format; sinks of the program; the same on all ranks */
    unsigned track_formats;
    int own_sinks;
    /* owned, newest first (loop/loader_calls.c) */
    struct accel_loader *loaders;
    /* of accel_next and accel_evaluate, owned; NULL: the job has no data */
    struct accel_loader *job_loader;
    /* positions of loaders that the run has from a checkpoint */
    struct loader_lines loader_lines;
    /* the failure that the next reduction of a step tells the other ranks */
    struct loader_failure loader_failure;
    struct run_model model[RUN_MAX_TREES];
    int models;
    struct accel_optim optim[ACCEL_MAX_OPTIMS];
    int optims;
    struct averaging averaging;
    struct compression compression;
    struct loss_scaling scaling;
    struct fp8_scales fp8;

    /* accel_find_batch_size is running: its trial may use the run, but not end it */
    bool attempting;

    /* Set by accel_prepare; true at its very end. */
    bool prepared;
    /* set by accel_prepare_all: the program has its own loop */
    bool own_loop;
    /* a copy; what it points to are members below */
    accel_job_t job;
    char out_dir[1024];
    char ckpt_dir[2048];
    /* the lists are owned, the parameters belong to trees or own units */
    struct units units;
    struct shard *shard;
    /* the plan that plan_make has printed and checked */
    struct plan plan;
    struct observe observe;
    struct track track;
    struct regions regions;
    /* memory of the process before the model, in bytes */
    int64_t base_bytes;
    /* device memory in use that is not ours, in bytes */
    int64_t device_base_bytes;
    struct progress progress;
    struct background background;
    struct staging staging;
    struct retention retention;
    struct loop loop;
    struct preemption preemption;

    /* What the rooms above do in run_ready, and at the first failure; set by
     * accel_open. NULL: nothing. */
    void (*on_ready)(accel_t *run);
    void (*on_failure)(const accel_t *run, accel_error_t *e);
    /* The first failure; ACCEL_OK while running. After it run_ready refuses
     * every call. */
    accel_status_t status;
    accel_error_t failure;

    /* Objects and hooks of the program; set before accel_prepare, freed at the end. */
    struct program_state program;
};

/* ---- status.c -------------------------------------------------------------------- */

/* Keeps the first failure in the run, tells the other ranks, copies it to `err` (may be
 * NULL), and returns st. */
accel_status_t run_report(accel_t *run, accel_status_t st, const accel_error_t *e,
                          accel_error_t *err);
/* Tells the other ranks why this one ends, so that they do not wait for it. Does
 * nothing unless `st` is a failure and *why has a text. Not collective. */
void run_tell(accel_t *run, accel_status_t st, const accel_error_t *why);
/* The first failure of the run, also in `err` (may be NULL); ACCEL_OK: none. */
accel_status_t run_failed(const accel_t *run, accel_error_t *err);
/* ACCEL_EINVAL if the program passed no run. `call` is its name, for the message. */
accel_status_t run_given(const accel_t *run, const char *call, accel_error_t *err);
/* A0962 if the program passed no optimizer. `call` is its name, for the message. */
accel_status_t optim_given(const accel_optim_t *o, const char *call,
                           accel_error_t *err);
/* ACCEL_EINVAL without a run, inside a forward, or inside another function of the
 * program that the library has called. */
accel_status_t run_outside(const accel_t *run, const char *call, accel_error_t *err);
/* For calls that are allowed only between accel_prepare and the first failure. They
 * begin and end micro-batches, so they are refused inside a function of the program.
 * Also announces a signal that has arrived. Not collective. */
accel_status_t run_ready(accel_t *run, const char *call, accel_error_t *err);
/* Gives all ranks one outcome: the worst `st` of any rank. A rank that gets it from
 * another one has an empty error. Collective. */
accel_status_t run_agree(accel_t *run, accel_status_t st, accel_error_t *err);

/* A0912 if the program still holds the values of a unit of own compute. */
accel_status_t own_units_done(const accel_t *run, accel_error_t *err);
/* Do masters, optimizer state and gradients live on the host, away from the device? */
bool run_offloads(const accel_t *run);

/* The backend in whose memory the shards live. */
static inline const struct backend *run_home(const accel_t *run)
{
    return shard_home(run->shard);
}

/* ---- run_stop.c ------------------------------------------------------------------ */

/* accel.preemption of a config. */
struct preemption_rules preemption_rules_of(const struct config *cfg);
/* Gives run->preemption what it needs of the run, once ranks and config are known. */
void run_preemption(accel_t *run);
/* What the last save of a stop would be. */
struct stop_save run_last_save(const accel_t *run);
/* Ends a run because of `sig`, as preemption_stop does. Its state is saved, or an older
 * checkpoint is kept. Collective. */
accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err);
/* The same for a run that has not begun because it waits for a tool. */
accel_status_t run_stop_waiting(accel_t *run, accel_error_t *err);
/* Answers the first Ctrl-C, once, on rank 0: what happens now, what a second keeps. */
void stop_announce(accel_t *run, int sig);
/* The same for the signal that has arrived, if any, because a handler must not log. */
void stop_announce_pending(accel_t *run);

/* ---- models_and_optimizers.c ----------------------------------------------------- */

/* Takes the one model of a job, unless the run has units, and its one optimizer. */
accel_status_t objects_of_job(accel_t *run, const accel_job_t *job, accel_error_t *err);
/* Checks that each optimizer trains something, and that something is trained. */
accel_status_t objects_check(const accel_t *run, accel_error_t *err);
/* Gives parameters and buffers of named models their full names. */
accel_status_t objects_name(accel_t *run, accel_error_t *err);
/* Writes the buffers of all models to list_out (NULL: counts only), and returns how
 * many there are. */
int64_t models_buffers(const accel_t *run, accel_tensor_t **list_out);
/* The model with that root; ACCEL_EINVAL if there is none, in the call `call`. */
accel_status_t models_given(accel_t *run, const accel_module_t *root, const char *call,
                            const struct run_model **model_out, accel_error_t *err);
/* The run's one model; NULL: it has units instead. ACCEL_EINVAL if the run has several;
 * the error names the call `call` and gives `cure`. */
accel_status_t models_only(const accel_t *run, const char *call, const char *cure,
                           const struct run_model **model_out, accel_error_t *err);
/* How many arrays of state the optimizer keeps. */
int optim_state_count(const struct accel_optim *o);
/* ".NAME" for the keys in texts of checkpoints; "" if the optimizer has no name. */
const char *optim_suffix(const struct accel_optim *o, char *buf, size_t len);
/* Begins the optimizer's schedule, from its lr. Errors: those of schedule_begin. */
accel_status_t optim_schedule(struct accel_optim *o, const accel_schedule_t *set,
                              accel_error_t *err);

/* ---- ckpt_collectives.c ---------------------------------------------------------- */

/* The collectives of communicator c, for libaccelckpt. */
accel_ckpt_coll_t state_collectives(struct comm *c);

#endif
