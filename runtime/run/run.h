/* SPDX-License-Identifier: Apache-2.0
 *
 * run/: the handle behind accel_t, which ties the stages together. It is made of one
 * struct per room (place, life, state, loop). The files of those rooms include this
 * header; programs never do. A run is used by one thread.
 */
#ifndef ACCEL_RUN_H
#define ACCEL_RUN_H

#include "between/between.h"
#include "bootstrap/boot.h"
#include "comm/comm.h"
#include "common/common.h"
#include "config/config.h"
#include "life/life.h"
#include "loader/loader.h"
#include "loop/loop.h"
#include "nn/fp8_linears.h"
#include "observe/observe.h"
#include "optim/averages.h"
#include "optim/schedule.h"
#include "place/place.h"
#include "plan/plan.h"
#include "precision/scaler.h"
#include "shard/shard.h"
#include "state/staging.h"
#include "state/state.h"
#include "tensor/graph.h"
#include "track/track.h"

struct backend;

/* Regions: how many, how deep, and the bytes of a name and of a path with its NUL. A
 * path fits into the name of an item. */
#define RUN_REGIONS      64
#define RUN_REGION_DEPTH 16
#define RUN_REGION_NAME  63
#define RUN_REGION_PATH  240

#define RUN_MAX_TREES 16
#define RUN_MAX_HOOKS 8
#define RUN_NAME      64

/* A function of the program that sees gradients (hooks.c). */
struct gradient_hook {
    /* glob of parameter names, malloc; NULL: every parameter */
    char *match;
    accel_gradient_f fn;
    void *user;
};

/* The time of a region of the program since the last report (regions.c). */
struct region {
    char path[RUN_REGION_PATH];
    int64_t ns, times;
};
struct regions {
    struct region known[RUN_REGIONS];
    int count;
    /* open[depth], the innermost last; `known` is its index */
    struct {
        int known;
        int64_t since_ns;
    } open[RUN_REGION_DEPTH];
    int depth;
};

/* A model of the run (objects.c). */
struct run_model {
    /* "": its parameters' names stand alone */
    char name[RUN_NAME];
    accel_module_t *root;
    /* NULL: frozen */
    accel_optim_t *optim;
};

/* An optimizer of the run. The job of accel_prepare has one, called "". */
struct accel_optim {
    accel_t *run;
    /* its place in run->optim, and in the shards */
    int number;
    char name[RUN_NAME];
    /* with defaults; the groups are the program's until the end of accel_prepare */
    accel_optimizer_t settings;
    /* update NULL: `settings` says what it does */
    accel_own_optim_t own;
    /* the rate of a step is that of `schedule`; only then is there one */
    bool scheduled;
    struct schedule schedule;
    /* accel_optim_set_lr has been called, also before a resume */
    bool lr_set;
    /* gradients that are not finite skip a step */
    bool skip;
    /* of the next step; with a schedule `lr` is known when the step begins */
    float lr, clip;
    /* steps done */
    int64_t t;
    /* this rank's part of the last sum of squares; local SGD: all of its own */
    double own_sumsq;
    /* In this iteration: steps, and those that were skipped; learning rate of the last,
     * norm before clipping. */
    int updated, skipped;
    double last_lr, norm;
    /* `norm` is from accel_clip_norm, and stays */
    bool clipped;
    /* with a loss scale: its gradients were not finite, whatever the program has made
     * of them since */
    bool overflowed;
    /* accel_ema: it keeps a moving average, which stands at `ema` */
    bool averaged;
    struct ema ema;
};

/* Averages of weights (averaging.c). */
struct averaging {
    /* the rule of optimizers without one of their own */
    bool averaged;
    struct ema ema;
    /* the averages are in the place of the weights */
    bool swapped;
    /* accel_local_sgd; `every` 0: off. Ranks have stepped by themselves since the last
     * mean of the weights, and of what is kept beside them. */
    struct local_sgd local;
    bool weights_apart, state_apart;
};

/* Compressed sums of gradients (compression.c). */
struct compression {
    bool on;
    /* with defaults */
    accel_powersgd_t rule;
};

/* Loss scaling (loss_scale.c). */
struct loss_scaling {
    /* accel_scaler has been called; the rule as it and the config have it */
    bool asked;
    accel_scaler_t rule;
    /* losses are multiplied by scaler.scale */
    bool on;
    struct scaler scaler;
    /* In this iteration: an optimizer has looked at its gradients, and some were not
     * finite. */
    bool checked, overflow;
    /* the log has a warning of a small scale */
    bool warned;
};

/* Products in 8 bits (fp8_scales.c). */
struct fp8_scales {
    struct fp8_linears linears;
    /* ends of steps so far */
    int64_t steps;
    /* [FP8_TENSORS * count], scratch: what the ranks have seen in a step */
    float *seen;
    /* [count states]: those of a checkpoint that has been checked, until it is loaded;
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
    /* keys that the program sets, separated by blanks, owned; NULL: none */
    char *config_set;
    /* its level depends on the rank */
    struct accel_log log;
    struct boot boot;
    struct place place;
    /* soft limit of open files before the run; 0: not raised */
    unsigned long long files_before;
    /* all ranks, memory of the host */
    struct comm *comm;
    /* all ranks, memory of the device; NULL: `comm` does its work */
    struct comm *data;
    /* the sharding strategy's, from meshes.c; NULL: not needed */
    struct comm *group, *copies, *reduce;
    /* computes; owned, as are graph and communicators */
    struct backend *backend;
    /* the CPU, where shards may be offloaded; NULL: they are not. Whether they are is
     * for the shards to say (run_home). */
    struct backend *home;
    struct graph graph;
    /* graph_open has succeeded, so graph_close must be called */
    bool graph_open;
    char run_name[128];
    struct between between;

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
    /* set of enum track_format, and sinks of the program; the same on all ranks */
    unsigned track_formats;
    int own_sinks;
    /* owned, newest first (loader_calls.c) */
    struct accel_loader *loaders;
    /* places of loaders that the run has from a checkpoint */
    struct loader_lines loader_lines;
    /* what the next reduction of a step tells the other ranks */
    struct loader_failure loader_failure;
    struct run_model model[RUN_MAX_TREES];
    int models;
    struct accel_optim optim[ACCEL_MAX_OPTIMS];
    int optims;
    struct averaging averaging;
    struct compression compression;
    struct loss_scaling scaling;
    struct fp8_scales fp8;

    /* accel_find_batch_size is at work: its attempt may use the run, but not end it */
    bool attempting;

    /* Set by accel_prepare; true at its very end. */
    bool prepared;
    /* by accel_prepare_all: the program has its own loop */
    bool own_loop;
    /* a copy; what it points to are members below */
    accel_job_t job;
    char out_dir[1024];
    char ckpt_dir[2048];
    /* the lists are owned, the parameters belong to trees or own units */
    struct units units;
    struct shard *shard;
    /* what plan_make has printed and checked */
    struct plan plan;
    struct observe observe;
    struct track track;
    struct regions regions;
    /* memory of the process before the model */
    int64_t base_bytes;
    /* device memory in use that is not ours */
    int64_t device_base_bytes;
    struct progress progress;
    struct background background;
    struct staging staging;
    struct retention retention;
    struct loop loop;
    struct life life;

    /* The first failure; ACCEL_OK while running. After it run_ready refuses
     * every call. */
    accel_status_t status;
    accel_error_t failure;

    /* Objects and hooks of the program; set before accel_prepare, freed at the end. */
    struct program_state program;
};

/* ---- run_config.c: the config ---------------------------------------------------- */

/* Installs the signal handlers of what srun resolved: a signal during the bootstrap
 * must not kill the task. A config that does not decode is reported later. */
void settings_early_signals(accel_t *run);
/* Reads the config and logs what the program sets. Not collective. */
accel_status_t settings_open(accel_t *run, const accel_options_t *o,
                             accel_error_t *err);
/* ACCEL_OK if libaccel implements the config and it fits what was started. The same
 * answer on all ranks. Not collective. */
accel_status_t settings_check(const accel_t *run, accel_error_t *err);
/* A0905 if the programs of the ranks set different keys. Collective. */
accel_status_t settings_same_on_all(accel_t *run, const accel_options_t *o,
                                    accel_error_t *err);
/* Do masters, optimizer state and gradients live on the host, away from the device? */
bool run_offloads(const accel_t *run);

/* ---- status.c -------------------------------------------------------------------- */

/* Keeps the first failure in the run, tells the other ranks, copies it to `err` (may be
 * NULL), and returns st. */
accel_status_t run_report(accel_t *run, accel_status_t st, const accel_error_t *e,
                          accel_error_t *err);
/* Tells the other ranks why this one ends, if `st` is a failure and *why has a text, so
 * that they do not wait for it. Not collective. */
void run_tell(accel_t *run, accel_status_t st, const accel_error_t *why);
/* The first failure of the run, also in `err` (may be NULL); ACCEL_OK: none. */
accel_status_t run_failed(const accel_t *run, accel_error_t *err);
/* ACCEL_EINVAL if the program passed no run. `call` is its name, for the message. */
accel_status_t run_given(const accel_t *run, const char *call, accel_error_t *err);
/* A0962 if the program passed no optimizer. `call` is its name, for the message. */
accel_status_t optim_given(const accel_optim_t *o, const char *call,
                           accel_error_t *err);
/* ACCEL_EINVAL without a run, inside a forward, and inside another function of the
 * program that the library has called. */
accel_status_t run_outside(const accel_t *run, const char *call, accel_error_t *err);
/* For calls that are allowed only between accel_prepare and the first failure, and not
 * inside a function of the program, because they begin and end micro-batches. Also
 * announces a signal that has come. Not collective. */
accel_status_t run_ready(accel_t *run, const char *call, accel_error_t *err);
/* Gives all ranks one outcome: the worst `st` of any rank. A rank that did not report
 * it itself gets it with an empty error. Collective. */
accel_status_t run_agree(accel_t *run, accel_status_t st, accel_error_t *err);

/* The backend in whose memory the shards live. */
static inline const struct backend *run_home(const accel_t *run)
{
    return shard_home(run->shard);
}

/* ---- meshes.c: communicators of the sharding strategy ---------------------------- */

/* Opens the communicators of the sharding strategy, after those of all ranks, which
 * must outlive them. Collective. */
accel_status_t meshes_open(accel_t *run, accel_error_t *err);
/* NULL ones are fine. */
void meshes_close(accel_t *run);

/* ---- objects.c: models and optimizers -------------------------------------------- */

/* The one model (unless the run has units) and the one optimizer of a job. */
accel_status_t objects_of_job(accel_t *run, const accel_job_t *job, accel_error_t *err);
/* Each optimizer trains something, and something is trained. */
accel_status_t objects_check(const accel_t *run, accel_error_t *err);
/* Gives parameters and buffers of named models their full names. */
accel_status_t objects_name(accel_t *run, accel_error_t *err);
/* Writes the buffers of all models to list_out (NULL: counts only), and returns how
 * many there are. */
int64_t models_buffers(const accel_t *run, accel_tensor_t **list_out);
/* The model with that root; NULL: there is none. */
struct run_model *models_find(accel_t *run, const accel_module_t *root);
/* The same for the call `call`: ACCEL_EINVAL if there is none. */
accel_status_t models_given(accel_t *run, const accel_module_t *root, const char *call,
                            const struct run_model **model_out, accel_error_t *err);
/* The run's one model; NULL: its units. ACCEL_EINVAL for a run of several, with `cure`
 * for the call `call`. */
accel_status_t models_only(const accel_t *run, const char *call, const char *cure,
                           const struct run_model **model_out, accel_error_t *err);
/* Arrays of state that the optimizer keeps. */
int optim_state_count(const struct accel_optim *o);
/* ".NAME" for keys of texts, "" without a name. */
const char *optim_suffix(const struct accel_optim *o, char *buf, size_t len);

/* ---- averaging.c: averages of weights -------------------------------------------- */

/* Gives each optimizer its rule. A0986: a name clashes. */
accel_status_t averaging_begin(accel_t *run, accel_error_t *err);
/* After a step of the optimizer that was taken. Not collective. */
void averaging_step(struct accel_optim *o);
/* run_ready for calls that change or save the weights; they are refused while the
 * averages are in their place. */
accel_status_t run_trains(accel_t *run, const char *call, accel_error_t *err);

/* ---- local_sgd.c ----------------------------------------------------------------- */

/* What this rank's gradients are clipped by: `sumsq`, that of all ranks, or its own
 * where each steps by itself. One that is not finite is that of all. */
double local_sgd_sumsq(const struct accel_optim *o, double sumsq);
/* An optimizer has stepped. */
void local_sgd_stepped(accel_t *run);
/* Makes the weights, and with `state` what is kept beside them, the same on all ranks.
 * Does nothing where they are. Collective. A0986: in a micro-batch. */
accel_status_t local_sgd_meet(accel_t *run, bool state, accel_error_t *err);
/* At the end of an iteration: when a mean is due, or it is the last. Collective. */
accel_status_t local_sgd_end_step(accel_t *run, bool last, accel_error_t *err);

/* ---- compression.c: compressed sums of gradients --------------------------------- */

/* A0990: not together with local SGD. */
accel_status_t compression_check(const accel_t *run, accel_error_t *err);
/* What the units of the run need for it. */
accel_status_t compression_plan(const accel_t *run, struct plan_input *in,
                                accel_error_t *err);

/* ---- optim_moments.c: the form of optimizer state -------------------------------- */

/* Takes the user's word for that of the program. A0902: an optimizer has no such
 * form. */
accel_status_t moments_begin(accel_t *run, accel_error_t *err);
/* "float32", "8bit" or "fp8"; static. */
const char *moments_word(accel_moments_t form);
enum moments_choice moments_choice_of(accel_moments_t form);
/* The form of its state; that of the program's own optimizers is float32. */
accel_moments_t moments_form(const struct accel_optim *o);

/* ---- run_masters.c: the form of master weights ----------------------------------- */

/* A0902: the run cannot keep its weights as accel.precision.masters says. */
accel_status_t masters_begin(const accel_t *run, accel_error_t *err);
/* A0902: the same for gradients and accel.precision.gradients. */
accel_status_t gradients_begin(const accel_t *run, accel_error_t *err);

/* ---- loss_scale.c: loss scaling -------------------------------------------------- */

/* Is the loss scaled, and from where on? A0995: not like that. */
accel_status_t loss_scale_begin(accel_t *run, accel_error_t *err);
/* Tells the shards, once there are some and after a resume. */
void loss_scale_apply(accel_t *run);
/* An optimizer's gradients of all ranks: are some not finite? */
void loss_scale_found(accel_t *run, bool overflow);
/* Moves the scale after the optimizers' steps. False: it is of no use any more. The
 * same on all ranks; not collective. */
bool loss_scale_end_step(accel_t *run);

/* ---- fp8_scales.c: products in 8 bits -------------------------------------------- */

/* Gives linears of a run with mixed_precision fp8 their scales. A0170: not on this
 * device. */
accel_status_t fp8_scales_begin(accel_t *run, accel_error_t *err);
void fp8_scales_free(accel_t *run);
/* When the gradients of a step are complete: scales follow the largest magnitudes that
 * any rank has seen. Collective. */
accel_status_t fp8_scales_end_step(accel_t *run, accel_error_t *err);
/* What forwards and backwards since the last step have seen does not count. */
void fp8_scales_forget(accel_t *run);
/* Do scales go from step to step, and into checkpoints? */
static inline bool fp8_scales_kept(const accel_t *run)
{
    return run->fp8.linears.count > 0 && !run->fp8.linears.recipe.current;
}

/* ---- descriptors.c: the soft limit of open files, raised while the run is open --- */

/* To the hard limit; restore gives the old limit back. */
void descriptors_raise(accel_t *run);
void descriptors_restore(const accel_t *run);

/* ---- own_compute.c --------------------------------------------------------------- */

/* Lays out the units that the program declared; the caller frees the lists with
 * units_free, the units stay the run's. A0609: there are none. */
accel_status_t own_units_build(accel_t *run, struct units *units_out,
                               accel_error_t *err);
/* Frees the units with their names and parameters. */
void own_units_free(accel_t *run);
/* Forgets which values the program holds: an attempt was given up. */
void own_units_abandon(accel_t *run);
/* A0912 if the program still holds the values of one of them. */
accel_status_t own_units_done(const accel_t *run, accel_error_t *err);

/* ---- planning.c ------------------------------------------------------------------ */

/* Makes and prints run->plan. A0904: it does not fit. */
accel_status_t plan_make(accel_t *run, accel_error_t *err);

/* ---- tracking.c ------------------------------------------------------------------ */

/* Opens the sinks that config and program ask for, after a resume. A sink that cannot
 * be opened is warned of. Not collective. */
accel_status_t tracking_open(accel_t *run, accel_error_t *err);

/* ---- regions.c ------------------------------------------------------------------- */

/* At the end of a step: logs and tracks the time of each region, and begins anew. Not
 * collective. */
void regions_report(accel_t *run);

/* ---- groups.c -------------------------------------------------------------------- */

/* Gives the parameters of run->units the learning rate and weight decay of their group,
 * freezes some, and lays the units out again. A0911: a group matches nothing, or
 * nothing is trained. */
accel_status_t groups_apply(accel_t *run, accel_error_t *err);
/* A number that identifies the set of parameters that the optimizer trains, for the
 * run's identity. */
uint64_t groups_trained(const accel_t *run, int optim);

/* ---- hooks.c --------------------------------------------------------------------- */

/* Calls the program's hooks with the optimizer's gradients of this step. Not
 * collective. */
accel_status_t hooks_call(accel_t *run, int optim, accel_error_t *err);
/* Frees the copies of the patterns. */
void hooks_free(accel_t *run);

#endif
