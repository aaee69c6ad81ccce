/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_objects.h: runs of several models and optimizers with a loop of your own,
 * learning-rate schedules, averages of weights, compressed gradients and loss scaling.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_OBJECTS_H
#define ACCEL_OBJECTS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- models and optimizers ----------------------------------------------------------
 * accel_job_t names one model and one optimizer. A program with several (a GAN, a
 * student and its teacher) adds them to the run one by one, between accel_open and
 * accel_prepare_all, which replaces accel_prepare:
 *
 *     accel_model_add(run, "generator", g, &err);
 *     accel_model_add(run, "critic", d, &err);
 *     og = accel_optim_add(run, "g", &g, 1, &adamw, &err);
 *     od = accel_optim_add(run, "d", &d, 1, &adamw, &err);
 *     accel_prepare_all(run, &loop, &err);
 *     while (accel_more(run)) {
 *         accel_batch_begin(run, &err);
 *         accel_model_freeze(run, g, 1, &err);
 *         accel_backward(run, critic_loss(...), &err);
 *         accel_optim_step(od, NULL, &err);
 *         accel_model_freeze(run, g, 0, &err);
 *         ...
 *         accel_step(run, &err);
 *     }
 *
 * All models are sharded together, with the run's config. Checkpoints hold all of them
 * and the state of all optimizers, by name. */

/* Adds the tree of `root` as a model of the run. `name` (at most 63 letters, digits, _,
 * - and dots; unique) comes before the names of its parameters, "generator/h.0.weight",
 * in checkpoints, globs and initial values. A run's only model may have the name "",
 * which adds no prefix. Errors: ACCEL_EINVAL. */
accel_status_t accel_model_add(accel_t *run, const char *name, accel_module_t *root,
                               accel_error_t *err);
typedef struct accel_optim accel_optim_t; /* an optimizer; owned by the run */
/* Adds an optimizer called `name` that trains models[n], given by their roots. A model
 * has at most one optimizer. A model without one is frozen: sharded and saved, but
 * without gradients and optimizer state. `settings` is copied; its groups must stay
 * valid until accel_prepare_all, and match full names ("critic/[a-z]*.bias"). The
 * learning rate is settings->lr until accel_optim_set_lr, or as accel_schedule_add
 * says. NULL on failure, also in `err`: ACCEL_EINVAL. */
accel_optim_t *accel_optim_add(accel_t *run, const char *name,
                               accel_module_t *const *models, int n,
                               const accel_optimizer_t *settings, accel_error_t *err);

/* One contiguous piece of a parameter with its gradient and optimizer state: arrays of
 * `count` float32 elements in host memory (on a GPU copies, which are written back). */
typedef struct accel_piece {
    const char *name; /* full name of the parameter */
    int64_t first;    /* index of the piece's first element in the parameter */
    int64_t count;
    float *values;
    const float *gradient; /* reduced and clipped */
    float *const *state;   /* [states] arrays of the optimizer, zero at first */
    int64_t step;          /* 1, 2, ... */
    float lr;              /* including the lr_scale of its group */
    float weight_decay;    /* as in struct accel_optimizer */
} accel_piece_t;

/* An optimizer of the program. The optimizer's step calls `update` for each piece that
 * this rank holds, with the same values on every rank that holds a copy. state[states]
 * (0 .. 4) are the names of its state arrays in checkpoints. All of this must outlive
 * the run. */
typedef struct accel_own_optim {
    size_t bytes;
    void (*update)(void *user, const accel_piece_t *piece);
    void *user;
    const char *const *state;
    int states;
} accel_own_optim_t;
/* As accel_optim_add, with the program's own update. Of `settings`, only lr,
 * weight_decay and groups are used. */
accel_optim_t *accel_optim_add_own(accel_t *run, const char *name,
                                   accel_module_t *const *models, int n,
                                   const accel_optimizer_t *settings,
                                   const accel_own_optim_t *own, accel_error_t *err);
/* The optimizer called `name`; after accel_prepare, "" is the job's. NULL: the run has
 * none. */
accel_optim_t *accel_optim_find(accel_t *run, const char *name);

/* Settings of the program's loop, as in struct accel_job. */
typedef struct accel_loop {
    size_t bytes;
    accel_dataset_t *data; /* for accel_next; NULL: accel_batch_begin */
    int64_t steps;         /* iterations, which accel_step ends; see accel_scaler */
    int batch;             /* samples per rank and micro-batch */
    int accumulate;        /* micro-batches per step; 0: 1 */
    uint64_t seed;
    const char *out_dir;
    int log_every;
} accel_loop_t;

/* accel_prepare for a run with its own models and optimizers. The memory for
 * activations is not known before the first step, so the plan omits it. Collective. */
accel_status_t accel_prepare_all(accel_t *run, const accel_loop_t *loop,
                                 accel_error_t *err);

/* accel_load_weights and accel_save_weights for one model of the run, given by its
 * root. Files hold the model's own names, without "generator/", so that they also fit a
 * run with this model alone. Each model may be loaded from its own files; models that
 * are not loaded keep their initial values. Collective. Errors: as for those calls,
 * ACCEL_EINVAL (no model of the run). */
accel_status_t accel_model_load(accel_t *run, accel_module_t *root, const char *path,
                                accel_error_t *err);
accel_status_t accel_model_save(accel_t *run, accel_module_t *root, const char *dir,
                                const char *dtype, int64_t shard_bytes,
                                accel_error_t *err);
/* accel_evaluate with the forward of `root`, which takes the fields of the loop's data
 * and returns the loss (accel_evaluate itself takes the run's only model). `root` may
 * also be a module that has no parameters, is not a model of the run, and calls several
 * models. Collective. Errors: as for accel_evaluate. */
accel_status_t accel_model_evaluate(accel_t *run, accel_module_t *root, int batches,
                                    double *loss_out, accel_error_t *err);

/* ---- the loop -------------------------------------------------------------------- */

/* Begins a micro-batch, as accel_next does, for values that the program brings itself
 * (accel_input). Frees the tensors of the previous one. Collective. Errors:
 * ACCEL_EINVAL. */
accel_status_t accel_batch_begin(accel_t *run, accel_error_t *err);
/* on: computes no gradients for the model's parameters, until it is turned off;
 * gradients still flow through the model to its inputs. A forward whose inputs need no
 * gradient then records nothing, as under torch.no_grad. It applies to a forward and
 * its backward, so turn it on before the forward and off after the backward. Must be
 * the same on all ranks. Errors: ACCEL_EINVAL (no model of the run). */
accel_status_t accel_model_freeze(accel_t *run, accel_module_t *root, int on,
                                  accel_error_t *err);
/* Does one step of the optimizer: completes its gradients over the ranks, clips,
 * updates the parameters and zeroes the gradients. *updated_out (may be NULL) is 0 when
 * it did nothing: before the last micro-batch of an accumulation, or because a gradient
 * was not finite and accel_optim_skip is on. Collective. Errors: ACCEL_EDIVERGED,
 * ACCEL_EINVAL.
 *
 * After accel_prepare_all, accel_backward may be called several times in a micro-batch,
 * with different losses; gradients add up until their optimizer steps. Each loss needs
 * its own part of the graph: a backward frees the parts it has visited, and reaching
 * one again is an error. */
accel_status_t accel_optim_step(accel_optim_t *optim, int *updated_out,
                                accel_error_t *err);
/* Drops the gradients. Call it before a backward that must not add to those of earlier
 * losses. Not needed after a step, which leaves zeros: the optimizer kernels clear each
 * gradient as they read it, so keeping it would cost another pass. torch's order
 * (zero_grad, backward, step) gives the same result.
 *
 * accel_step ends the iteration: it steps the optimizers that have gradients and have
 * not stepped in it, logs, saves when due, and stops when told to. Gradients from a
 * backward after their optimizer's step stay, but no checkpoint holds them. A loop that
 * must resume exactly drops them or does not compute them (accel_model_freeze). */
accel_status_t accel_zero_grad(accel_optim_t *optim, accel_error_t *err);
/* Completes the gradients and scales them now so that their norm is at most `max`;
 * *norm_out (may be NULL) is the norm before. Does nothing, with a norm of 0, before
 * the last micro-batch of an accumulation. Collective. Errors: ACCEL_EDIVERGED (the
 * norm is not finite). */
accel_status_t accel_clip_norm(accel_optim_t *optim, float max, double *norm_out,
                               accel_error_t *err);
/* The same for each element: clips it to [-limit, limit] (limit > 0). Collective. */
accel_status_t accel_clip_value(accel_optim_t *optim, float limit, accel_error_t *err);
/* Makes every step clip to the norm `clip`; 0: no clipping. The config's
 * gradient_clipping wins. */
accel_status_t accel_optim_set_clip(accel_optim_t *optim, float clip,
                                    accel_error_t *err);
/* on: a gradient that is not finite skips the step, with a warning, instead of ending
 * the run. The iteration still counts, unless loss scaling skipped it
 * (accel_scaler). */
accel_status_t accel_optim_skip(accel_optim_t *optim, int on, accel_error_t *err);
/* Sets the learning rate from the next step on; kept in checkpoints. A schedule scales
 * this rate; a reduction by PLATEAU's metrics stays, by the same factor. */
accel_status_t accel_optim_set_lr(accel_optim_t *optim, float lr, accel_error_t *err);
/* The learning rate of the next step; NaN where an own schedule gives none. */
float accel_optim_lr(const accel_optim_t *optim);
int64_t accel_optim_steps(const accel_optim_t *optim); /* done, also before a resume */

/* How micro-batches make a step, as in Accelerate: each loss is divided by `every`, and
 * a group of micro-batches ends after `every` of them or with the last batch of a
 * loader's epoch. Only the loader that gave the batch counts, not others around it; the
 * batches of accel_next, accel_next_samples and accel_batch_begin have no end. A
 * micro-batch without a backward does not count. */
typedef struct accel_accumulation {
    size_t bytes;
    int every;         /* 1 .. 1048576; 0: as before */
    int across_epochs; /* groups continue from one epoch to the next */
    /* Reduces gradients in every micro-batch instead of at the end of the group; they
     * are the same except for rounding. Sharded gradients are reduced in each backward
     * anyway; with this, so are copies of them (NO_SHARD, HYBRID). */
    int sync_each_batch;
    /* A shorter group at the end of an epoch steps with the mean over its own
     * micro-batches; 0: with their sum / every, which is a smaller step. */
    int short_by_count;
} accel_accumulation_t;
/* Sets the accumulation rule from the next step on. Initially `every` is that of loop
 * or job, or the config's gradient_accumulation_steps. A new `every` restarts the
 * count, so that each step has that many micro-batches. Must be the same on all ranks.
 * Errors: ACCEL_EINVAL (in the middle of a step, `every` out of range). */
accel_status_t accel_accumulate_rule(accel_t *run, const accel_accumulation_t *rule,
                                     accel_error_t *err);
/* accel_accumulate_rule with every = k (k >= 1) and the rest unchanged. */
accel_status_t accel_accumulate(accel_t *run, int k, accel_error_t *err);
/* Whether this is the last micro-batch of a step, in which optimizers step: 1 or 0. */
int accel_sync(const accel_t *run);
/* on: accel_optim_step and accel_step do nothing, and gradients add up, until it is
 * turned off. Groups are still counted. */
accel_status_t accel_no_sync(accel_t *run, int on, accel_error_t *err);

#define ACCEL_MAX_OPTIMS 8
/* What the last accel_step that ended an iteration did. Times are this rank's wall time
 * in milliseconds, without evaluations (accel_evaluate, inference mode). The host runs
 * ahead of a GPU, whose work therefore shows as wait_ms. */
typedef struct accel_step_info {
    size_t bytes;
    int64_t step;   /* its number; a skipped step is repeated under the same one */
    double loss;    /* mean over ranks and micro-batches of the sum of all losses */
    double rate;    /* tokens (token data) or samples per second, all ranks */
    int64_t memory; /* bytes, peak of this rank's process */
    int optims;     /* in the order in which they were added: */
    double lr[ACCEL_MAX_OPTIMS], norm[ACCEL_MAX_OPTIMS]; /* norm before clipping */
    int updated[ACCEL_MAX_OPTIMS];                       /* steps in this iteration */
    double total_ms, data_ms, forward_ms, backward_ms, optimizer_ms, wait_ms;
    int skipped[ACCEL_MAX_OPTIMS]; /* steps not taken: gradients were not finite */
    double loss_scale;             /* of the next step; 1: no loss scaling */
} accel_step_info_t;
/* Fills *out with the record of the last step. Errors: ACCEL_EINVAL (no step has been
 * done in this attempt of the run). */
accel_status_t accel_last_step(const accel_t *run, accel_step_info_t *out,
                               accel_error_t *err);

/* ---- schedules: the learning rate of each step --------------------------------------
 * A schedule belongs to one optimizer. Its position starts at 0 and advances with the
 * optimizer's steps; a skipped step does not advance it. Its rate is a function of the
 * position and of the optimizer's lr, computed in double and rounded to float. The
 * formulas are those of transformers.optimization (the get_*_schedule_* functions) and,
 * for ONE_CYCLE and PLATEAU, of torch.optim.lr_scheduler. */

typedef enum accel_schedule_kind {
    ACCEL_SCHEDULE_CONSTANT = 0,
    ACCEL_SCHEDULE_LINEAR = 1,
    ACCEL_SCHEDULE_COSINE = 2,
    ACCEL_SCHEDULE_RESTARTS = 3, /* cosines with hard restarts */
    ACCEL_SCHEDULE_POLYNOMIAL = 4,
    ACCEL_SCHEDULE_ONE_CYCLE = 5,
    ACCEL_SCHEDULE_INVERSE_SQRT = 6,
    ACCEL_SCHEDULE_PLATEAU = 7, /* lowered when a metric stops improving */
    ACCEL_SCHEDULE_OWN = 8,     /* a function of the program */
} accel_schedule_kind_t;

/* What advances a schedule. */
typedef enum accel_schedule_move {
    ACCEL_MOVE_BY_STEPS = 0, /* one position with each step of the optimizer */
    /* as many positions with each step as there are ranks, as Accelerate counts */
    ACCEL_MOVE_BY_RANKS = 1,
    ACCEL_MOVE_BY_CALLS = 2, /* one position with each accel_schedule_step */
} accel_schedule_move_t;

/* The factor on the optimizer's lr at `position`: finite, not negative, always the same
 * and on every rank. Any other value ends the run, on all ranks. */
typedef double (*accel_schedule_f)(void *user, int64_t position);

/* PLATEAU: after more than `patience` metrics in a row that are no better than the
 * best, the rate is multiplied by `factor`; the next `cooldown` metrics do not count.
 * As in torch, a reduction of 1e-8 or less is not applied. */
typedef struct accel_plateau {
    int maximize;     /* 1: larger metrics are better; 0: smaller ones */
    double factor;    /* above 0, below 1; 0: 0.1 */
    int64_t patience; /* 0: 10; negative: none, the first bad metric counts */
    double threshold; /* what counts as better; 0: 1e-4; negative: any difference */
    int absolute;     /* 1: the threshold is a difference; 0: relative to the best */
    int64_t cooldown; /* 0: none */
} accel_plateau_t;

/* Zeros mean the defaults: a constant rate. With r the optimizer's lr, p the
 * position plus `first`, w = warmup, s = steps, e = r * end and x = (p - w) / (s - w),
 * at most 1, the rate is r p / w where p < w (ONE_CYCLE has its own rise) and then
 * CONSTANT:     r
 * LINEAR:       e + (r - e) (1 - x)
 * COSINE:       e + (r - e) (1 + cos(2 pi cycles x)) / 2
 * RESTARTS:     e + (r - e) (1 + cos(pi ((cycles x) mod 1))) / 2; e where x is 1
 * POLYNOMIAL:   e + (r - e) (1 - x)^power
 * INVERSE_SQRT: e + (r - e) / sqrt((p - w + t) / t), t = timescale
 * ONE_CYCLE:    half a cosine from r / div up to r at position u - 1, u = warmup or
 *               0.3 s, and another one down to r / div / final_div at s - 1
 * PLATEAU:      r, lowered by metrics, never below e
 * OWN:          r own(user, p) */
typedef struct accel_schedule {
    size_t bytes;
    accel_schedule_kind_t kind;
    int64_t steps;  /* the whole schedule, warm-up included; 0 if it has no end */
    int64_t warmup; /* 0: none */
    /* p of the first step. 0: a warm-up begins with rate 0, as in transformers; 1: with
     * rate r / warmup. */
    int first;
    accel_schedule_move_t move;
    double end;            /* lowest rate as a fraction of r, 0 .. 1 */
    double cycles;         /* COSINE: 0: 0.5; RESTARTS: 0: 1 */
    double power;          /* POLYNOMIAL; 0: 1 */
    double timescale;      /* INVERSE_SQRT; 0: warmup, or 10000 without one */
    double div, final_div; /* ONE_CYCLE; 0: 25 and 1e4 */
    accel_plateau_t plateau;
    accel_schedule_f own;
    void *user; /* must outlive the run */
} accel_schedule_t;

/* Gives the optimizer a schedule, once, before accel_prepare_all; copied. A job has its
 * schedule in accel_job_t. Checkpoints hold its position, under the optimizer's name;
 * if a checkpoint has none, the position starts at the optimizer's number of steps. A
 * resumed run may change the schedule's settings but not its kind. Errors: ACCEL_EINVAL
 * (names the field). */
accel_status_t accel_schedule_add(accel_optim_t *optim,
                                  const accel_schedule_t *schedule, accel_error_t *err);
/* Advances a schedule with ACCEL_MOVE_BY_CALLS by one position, whatever the optimizer
 * has done. Errors: ACCEL_EINVAL. */
accel_status_t accel_schedule_step(accel_optim_t *optim, accel_error_t *err);
/* Gives a PLATEAU schedule a metric, which must be the same on all ranks
 * (accel_reduce); NaN is never better. One call is one metric, on any number of ranks.
 * Errors: ACCEL_EINVAL. */
accel_status_t accel_schedule_metric(accel_optim_t *optim, double metric,
                                     accel_error_t *err);
/* The position of the next step; -1: no schedule. */
int64_t accel_schedule_position(const accel_optim_t *optim);

/* ---- averages of weights ---------------------------------------------------------
 * A moving average (EMA) of what an optimizer trains is often the better model:
 *
 *     accel_ema_t rule = { .bytes = sizeof rule, .decay = 0.9999 };
 *     accel_ema(run, NULL, &rule, &err);
 *     accel_prepare(run, &job, &err);
 *     ... train ...
 *     accel_ema_swap(run, 1, &err);
 *     accel_evaluate(run, 0, &loss, &err);
 *     accel_save_weights(run, "averaged", "float32", 0, &err);
 *     accel_ema_swap(run, 0, &err);
 *
 * It costs one float32 per trained element, sharded like the weights. Checkpoints hold
 * it as optim/NAME/ema. */

/* How the decay grows to its full value with the number n of averages so far, so that
 * early weights are soon forgotten. */
typedef enum accel_ema_warmup {
    ACCEL_EMA_FULL_AT_ONCE = 0,
    ACCEL_EMA_BY_COUNT = 1, /* (1 + n) / (10 + n): TensorFlow's num_updates */
    ACCEL_EMA_BY_POWER = 2, /* 1 - (1 + n / gamma)^-power: diffusers and timm */
} accel_ema_warmup_t;

/* average = decay average + (1 - decay) weights, after a step. The first average is the
 * weights themselves, as in torch's AveragedModel. Zeros are the defaults. */
typedef struct accel_ema_rule {
    size_t bytes;
    double decay; /* 0: 0.999; below 1 */
    accel_ema_warmup_t warmup;
    double gamma, power; /* ACCEL_EMA_BY_POWER; 0: 1 and 2/3 */
    int64_t every;       /* optimizer steps from one average to the next; 0: 1 */
    int64_t after;       /* steps before the first average */
} accel_ema_t;

/* Keeps a moving average of the weights that `optim` trains; NULL: of every optimizer
 * of the run that has no rule of its own, also that of accel_prepare. Skipped steps do
 * not count. Before accel_prepare or accel_prepare_all. Errors: ACCEL_EINVAL. */
accel_status_t accel_ema(accel_t *run, accel_optim_t *optim, const accel_ema_t *rule,
                         accel_error_t *err);
/* on: puts the averages in place of the weights, for evaluation and accel_save_weights.
 * off: restores the weights, with the same bits. Between steps; while it is on,
 * backwards, steps, saves and loads are refused. Collective. Errors: ACCEL_EINVAL (no
 * average yet, or already in that state). */
accel_status_t accel_ema_swap(accel_t *run, int on, accel_error_t *err);

/* Turns on local SGD, where each rank holds a whole copy (NO_SHARD): gradients are not
 * summed over the ranks. Each rank clips and steps on its own. The weights become their
 * mean over the ranks after every `every` iterations, after the last one, and before
 * any call that shows or saves them (accel_evaluate, accel_save_weights,
 * accel_param_read, checkpoints); such calls are then allowed only between two steps. A
 * save also averages the optimizers' state and the moving averages. Loss, stop and
 * gradients that are not finite are agreed on in every step as usual; norms are this
 * rank's. Before accel_prepare or accel_prepare_all, the same on all ranks. Errors:
 * ACCEL_EINVAL, ACCEL_EMISMATCH (the config shards the weights). */
accel_status_t accel_local_sgd(accel_t *run, int64_t every, accel_error_t *err);

/* ---- compressed gradients -------------------------------------------------------- */

/* How PowerSGD (Vogels et al. 2019) sends gradients. Zeros mean torch's defaults; the
 * fields' comments give torch's names. */
typedef struct accel_powersgd {
    size_t bytes;
    int rank;        /* matrix_approximation_rank; 0: 1 */
    int64_t start;   /* start_powerSGD_iter, exact sums before it; 0: 1000; -1: none */
    double least;    /* min_compression_rate: below it sent uncompressed; 0: 2 */
    int no_feedback; /* 1: use_error_feedback=False, the error is lost */
    int cold;        /* 1: warm_start=False, new random factors in each step */
    int batched;     /* 1: batched_powerSGD_hook, one square matrix per optimizer */
} accel_powersgd_t;
/* Turns on PowerSGD, where each rank holds a whole copy (NO_SHARD). The gradient of a
 * parameter [n, ...] is treated as a matrix with n rows, and only the factors of a
 * low-rank product are sent, in float32. The error is added to the rank's next
 * gradient. Parameters that would gain too little, including vectors, are sent
 * uncompressed. Each optimizer of the run counts its own sums; a sum that is not finite
 * changes no state. One rank compresses its gradients too, so that the result does not
 * depend on whether there are several.
 *
 * It costs one float32 per compressed element (batched: two), and the factors. A
 * checkpoint has the factors and the mean of the errors over the ranks. After a save
 * the run continues with that mean, as a resumed run does, on any number of ranks. It
 * must be resumed with the same rule, except for `start`.
 *
 * Before accel_prepare or accel_prepare_all, the same on all ranks. Not together with
 * accel_local_sgd or an accel.precision.reduce other than float32. `rule` is copied.
 * Errors: ACCEL_EINVAL, ACCEL_EMISMATCH (the config shards the weights). */
accel_status_t accel_powersgd(accel_t *run, const accel_powersgd_t *rule,
                              accel_error_t *err);

/* ---- loss scaling ----------------------------------------------------------------
 * With mixed_precision fp16, small gradients would underflow to 0, so the loss is
 * multiplied by a scale before the backward, as torch.amp.GradScaler does, without a
 * call by the program. Complete gradients are divided by it: hooks, norms, clipping and
 * own optimizers see unscaled values. If any gradient of an optimizer is not finite on
 * any rank, all ranks skip its step, its schedule does not advance, and the scale
 * shrinks at the end of the iteration. After a number of iterations without that, the
 * scale grows. An iteration in which all optimizers skip their steps does not count as
 * one of the run's `steps`, so that schedules reach their end: the next one has the
 * same number and other samples. A loss that is not finite ends the run as usual. */

/* Zeros mean the defaults of GradScaler, whose names the fields have. */
typedef struct accel_scaler_rule {
    size_t bytes;
    double init_scale;       /* 0: 65536 */
    double growth_factor;    /* above 1; 0: 2 */
    double backoff_factor;   /* below 1; 0: 0.5 */
    int64_t growth_interval; /* 0: 2000 */
    int disabled;            /* 1: enabled=False, losses are not scaled */
} accel_scaler_t;

/* Sets the rule of loss scaling. Keys accel.precision.loss_scale_* that the user gives
 * win. Without mixed_precision fp16 it has no effect. By this call a program with its
 * own backward (accel_units.h) promises to multiply its gradients by accel_loss_scale;
 * without the call nothing is scaled there. Before accel_prepare or accel_prepare_all,
 * the same on all ranks. Errors: ACCEL_EINVAL. */
accel_status_t accel_scaler(accel_t *run, const accel_scaler_t *rule,
                            accel_error_t *err);
/* The factor on the loss of the next backward; 1: no scaling. It changes in accel_step
 * only. */
double accel_loss_scale(const accel_t *run);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
