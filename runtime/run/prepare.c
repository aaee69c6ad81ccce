/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_prepare: checks the job, cuts the model into units, plans memory and prints the
 * plan once, shards, initialises, and resumes from a checkpoint if there is one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "loader/loader.h"
#include "loop/loop.h"
#include "state/save/staging.h"
#include "state/state.h"
#include "training/loss_scale.h"
#include "training/fp8_scaling.h"
#include "training/parameter_groups.h"
#include "training/parts.h"
#include "run/run_impl.h"
#include "state/save/save.h"
#include "state/save/background.h"
#include "backend/device.h"
#include "common/path_dir.h"
#include "common/sized.h"
#include "optim/optim.h"
#include "handle/run.h"

/* The program passed a job that cannot be. */
static accel_status_t bad_job(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0902, "see struct accel_job in accel.h", "%s", what);
}

/* Comparisons are written so that NaN does not pass. */
static accel_status_t check_job(const accel_job_t *j, accel_error_t *err)
{
    if (!j->model && j->eval_every > 0)
        return bad_job(err, "eval_every needs a model");
    if (j->steps < 1)
        return bad_job(err, "steps must be at least 1");
    if (j->batch < 1 || j->batch > 1 << 20)
        return bad_job(err, "batch must be between 1 and 1048576");
    if (j->accumulate < 0 || j->accumulate > 1 << 20)
        return bad_job(err, "accumulate must be between 1 and 1048576");
    if (j->warmup < 0 || j->eval_every < 0 || j->log_every < 0)
        return bad_job(err, "warmup, eval_every and log_every must not be negative");
    if (j->warmup > 0 && j->schedule)
        return bad_job(err, "a job with a schedule has its warm-up there, not in "
                            "warmup");
    if (!(j->clip >= 0))
        return bad_job(err, "clip must not be negative");
    if (j->eval_every > 0 && (!j->data || data_holdout_samples(j->data) < 1))
        return bad_job(err, "eval_every needs a dataset with a held-out part "
                            "of at least one sample");
    if (j->data && data_is_iterable(j->data))
        return bad_job(err,
                       "an iterable dataset is read by a loader (accel_loader_new); "
                       "data must be NULL");
    return optim_check(j->optimizer, err);
}

/* A job of the program with what it points to, in today's sizes. */
struct own_job {
    accel_job_t job;
    accel_optimizer_t optimizer;
    accel_schedule_t schedule;
};

static accel_status_t read_job(struct own_job *own, const accel_job_t *theirs,
                               accel_error_t *err)
{
    accel_job_t *j = &own->job;
    accel_status_t st = sized_read(SIZED(accel_job_t, schedule), j, theirs, err);

    ACCEL_TRY(st, sized_read(SIZED(accel_optimizer_t, moments), &own->optimizer,
                             j->optimizer, err));
    ACCEL_TRY(st, sized_read(SIZED(accel_schedule_t, user), &own->schedule, j->schedule,
                             err));
    j->optimizer = &own->optimizer;
    if (j->schedule)
        j->schedule = &own->schedule;
    return st;
}

/* Copies the job, with the config's values instead of the program's where it has
 * some, and with defaults for what is 0. Paths are copied, since the program may free
 * its own. */
static accel_status_t take_job(accel_t *run, const accel_job_t *job, accel_error_t *err)
{
    static const accel_field_t loss = { ACCEL_F32, 1, { 1 } };
    accel_job_t *j = &run->job;
    const char *out = job->out_dir ? job->out_dir : "out";
    accel_status_t st;

    if (strlen(out) >= sizeof(run->out_dir))
        return bad_job(err, "out_dir is too long");
    *j = *job;
    strcpy(run->out_dir, out);
    /* from here on what the job points to is the run's */
    j->out_dir = run->out_dir;
    j->optimizer = NULL;
    if (j->schedule)
        j->schedule = &run->optim[0].schedule.set;
    /* The config wins over the program: it is what the user of the job has set. */
    if (config_accumulation(&run->config) > 0)
        j->accumulate = (int)config_accumulation(&run->config);
    for (int i = 0; config_clipping(&run->config) > 0 && i < run->optims; i++)
        run->optim[i].clip = (float)config_clipping(&run->config);
    if (j->accumulate == 0)
        j->accumulate = 1;
    run->loop.group.rule.every = j->accumulate;
    /* 20 lines per run, as long as it has that many steps */
    if (j->log_every == 0)
        j->log_every = j->steps / 20 > 0 ? (int)(j->steps / 20) : 1;
    if (run->config.ckpt_dir[0])
        snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s", run->config.ckpt_dir);
    else
        snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s/checkpoints", run->out_dir);
    run->loop.losses_room = (j->accumulate + 15) / 16 * 16;
    ACCEL_CHECK(st, host_batch_open(&run->loop.host, run->backend,
                                    run->loop.losses_room, &loss, 1, err));
    run->loop.losses = (float *)run->loop.host.memory;
    return job_loader_open(run, err);
}

/* mkdir -p. errno, or 0 if the directory is there and can be written. */
static int make_dirs(const char *dir)
{
    size_t failed_len;
    struct stat sb;
    int error = path_make_dirs(dir, &failed_len);

    if (error)
        return error;
    if (stat(dir, &sb) != 0)
        return errno;
    if (!S_ISDIR(sb.st_mode))
        return ENOTDIR;
    return access(dir, W_OK | X_OK) == 0 ? 0 : errno;
}

/* The directory is there and writable; may it be trusted? path_open_dir refuses links
 * that others could have planted. */
static accel_status_t check_link(const char *dir, accel_error_t *err)
{
    int fd;
    accel_status_t st = path_open_dir(dir, &fd, err);

    if (fd >= 0)
        close(fd);
    return st;
}

/* Rank 0 makes the directories for all. */
static accel_status_t make_out_dirs(const accel_t *run, accel_error_t *err)
{
    int failed = make_dirs(run->out_dir);
    accel_status_t st = run->config.ckpt_save ? accel_ckpt_can_save(err) : ACCEL_OK;

    if (st != ACCEL_OK)
        return st;
    if (failed)
        return accel_fail_at(
            err, A0903, run->out_dir, "choose an output directory that can be written",
            "cannot create or write the output directory: %s", strerror(failed));
    ACCEL_CHECK(st, check_link(run->out_dir, err));
    failed = make_dirs(run->ckpt_dir);
    if (failed)
        return accel_fail_at(
            err, A0803, run->ckpt_dir,
            "check accel.checkpoint.dir and the permissions of its parent directories",
            "cannot create or write the checkpoint directory: %s", strerror(failed));
    return check_link(run->ckpt_dir, err);
}

/* Rank 0's part of take_dirs. The limit of restarts holds for a life that is told to
 * stop here, too. */
static accel_status_t own_dirs(accel_t *run, accel_error_t *err)
{
    accel_status_t st = make_out_dirs(run, err), counted = ACCEL_OK;

    ACCEL_TRY(st, lease_take(&run->preemption, err));
    if (st == ACCEL_OK || st == ACCEL_ERESUME)
        counted = history_start(&run->preemption, err);
    return counted != ACCEL_OK ? counted : st;
}

/* The output and checkpoint directories, which this run then owns by its
 * lease. Collective. */
static accel_status_t take_dirs(accel_t *run, accel_error_t *err)
{
    accel_status_t st = run->boot.rank == 0 ? own_dirs(run, err) : ACCEL_OK;

    st = run_agree(run, st, err);
    return st == ACCEL_ERESUME ? run_stop_waiting(run, err) : st;
}

/* Offloaded shards are updated by the CPU backend. */
static accel_status_t open_home(accel_t *run, accel_error_t *err)
{
    return run_offloads(run) ? backend_cpu_open(&run->home, run->place.threads, err)
                             : ACCEL_OK;
}

/* Opens the shards and puts their residency into the graph. Collective. */
static accel_status_t shard_model(accel_t *run, accel_error_t *err)
{
    struct shard_optim optim[ACCEL_MAX_OPTIMS];
    struct shard_options o = { .strategy = plan_strategy(&run->config),
                               .prefetch = config_prefetch(&run->config),
                               .precision = precision_of(&run->config),
                               .local = run->averaging.local.every > 0,
                               .powersgd =
                                   run->compression.on ? &run->compression.rule : NULL,
                               .seed = run->job.seed,
                               .optim = optim,
                               .optims = run->optims,
                               .backend = run->backend,
                               .home = run->home,
                               .data = run->mesh.group ? run->mesh.group : run->data,
                               .reduce = run->mesh.reduce,
                               .copies = run->mesh.copies,
                               .log = &run->log };
    accel_status_t st;

    for (int i = 0; i < run->optims; i++)
        optim[i] = (struct shard_optim){ run->optim[i].name, run->optim[i].settings,
                                         run->optim[i].own, run->optim[i].averaged };
    ACCEL_CHECK(st, shard_open(&run->shard, run->comm, &o, &run->units, err));
    run->graph.residency = shard_residency(run->shard);
    return ACCEL_OK;
}

/* For observe/: most bytes the device had in use. */
static int64_t device_peak(const void *user)
{
    const struct backend *be = user;
    struct backend_usage u;

    be->usage(be, &u);
    return (int64_t)u.peak;
}

/* False once a later life of the job has the lease: the log is that one's then. */
static bool log_is_ours(void *run)
{
    return lease_keep(&((accel_t *)run)->preemption, NULL) == ACCEL_OK;
}

/* Every rank prepares it; only rank 0 has a file. */
static accel_status_t open_log(accel_t *run, accel_error_t *err)
{
    char path[sizeof(run->out_dir) + 16];

    run->observe.total_steps = run->job.steps;
    run->observe.every = run->job.log_every;
    run->observe.writer = (struct lines_writer){ &run->log, log_is_ours, run };
    run->observe.device_peak = run->backend->usage ? device_peak : NULL;
    run->observe.device_user = run->backend;
    if (run->boot.rank != 0)
        return ACCEL_OK;
    snprintf(path, sizeof(path), "%s/log.jsonl", run->out_dir);
    return observe_open(&run->observe, path, run->progress.step, err);
}

/* fsdp_activation_checkpointing. A model of one unit would have nothing
 * to recompute. */
static void recompute_units(accel_t *run)
{
    int units = 0;

    if (!config_recomputes(&run->config))
        return;
    for (int i = 0; i < run->models; i++)
        units += nn_recompute_units(run->model[i].root);
    if (units == 0 && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "fsdp_activation_checkpointing has no effect: the model is one "
                   "unit; set fsdp_auto_wrap_policy to divide it");
}

/* The units of one model, behind those of the models before it. */
static accel_status_t take_model(accel_t *run, const struct run_model *m, bool wrap,
                                 accel_error_t *err)
{
    struct units part = { 0 };
    accel_status_t st =
        nn_units_build(m->root, wrap, config_wrap_classes(&run->config), &part, err);

    for (int i = 0; i < part.count; i++)
        part.unit[i].optim = m->optim ? m->optim->number : -1;
    ACCEL_TRY(st, units_append(&run->units, &part, err));
    units_free(&part);
    return st;
}

/* The units of the models' trees, or those that the program declared. */
static accel_status_t take_units(accel_t *run, accel_error_t *err)
{
    bool wrap = config_wraps(&run->config);
    const char *classes = config_wrap_classes(&run->config);
    accel_module_t *root[RUN_MAX_TREES];
    accel_status_t st;
    int wrapped = 0, others;

    if (!run->models)
        return own_units_build(run, &run->units, err);
    if (run->own_units)
        return bad_job(err, "a job has a model or the run has units, not both");
    for (int i = 0; i < run->models; i++)
        root[i] = run->model[i].root;
    st = nn_precision_assign(root, run->models, &run->config, &others, err);
    if (st == ACCEL_OK && others && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "precision: %d module%s in another dtype than %s", others,
                   others == 1 ? "" : "s",
                   accel_dtype_name(precision_of(&run->config).compute));
    if (wrap && st == ACCEL_OK)
        st = nn_classes_check(root, run->models, classes, err);
    for (int i = 0; i < run->models && st == ACCEL_OK; i++) {
        st = take_model(run, &run->model[i], wrap, err);
        wrapped += nn_wrapped(root[i]);
    }
    if (st == ACCEL_OK && wrap && !wrapped && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "fsdp_auto_wrap_policy: the model has no class ending in Block or "
                   "Layer, so it is one unit (name other classes with "
                   "fsdp_transformer_layer_cls_to_wrap)");
    if (st == ACCEL_OK)
        recompute_units(run);
    return st;
}

static accel_status_t open_buffers(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->models && st == ACCEL_OK; i++)
        st = nn_buffers_open(run->model[i].root, err);
    return st;
}

/* The initial values are in the shards: the program may free its arrays
 * after accel_prepare. */
static void forget_values(accel_t *run)
{
    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++)
            run->units.unit[u].param[i]->param->values = NULL;
}

/* Failures that one rank can have alone are agreed on before the next collective step.
 * state_same_on_all compares the jobs before anything is written; the log is opened
 * after the resume, which tells it how many steps are done. */
static accel_status_t run_prepare(accel_t *run, const accel_job_t *job,
                                  accel_error_t *err)
{
    struct own_job own;
    accel_status_t st = read_job(&own, job, err);

    ACCEL_TRY(st, check_job(&own.job, err));
    ACCEL_TRY(st, run->own_loop ? objects_check(run, err)
                                : objects_of_job(run, &own.job, err));
    ACCEL_TRY(st, parts_begin(run, err));
    ACCEL_TRY(st, take_job(run, &own.job, err));

    if (run->graph.error.code != ACCEL_OK) {
        *err = run->graph.error; /* the model was built wrongly */
        st = err->code;
    }
    ACCEL_TRY(st, objects_name(run, err));
    ACCEL_TRY(st, take_units(run, err));
    ACCEL_TRY(st, groups_apply(run, err));
    ACCEL_TRY(st, fp8_scales_begin(run, err));
    ACCEL_TRY(st, state_identity(run, err));
    st = run_agree(run, st, err);
    ACCEL_TRY(st, state_same_on_all(run, err));
    ACCEL_TRY(st, take_dirs(run, err));
    ACCEL_TRY(st, run_agree(run, open_buffers(run, err), err));
    ACCEL_TRY(st, run_agree(run, open_home(run, err), err));
    ACCEL_TRY(st, run_agree(run, plan_make(run, err), err));
    if (st == ACCEL_OK && run->fp8.linears.kept_bytes)
        st =
            run_agree(run, fp8_linears_room(&run->fp8.linears, run->backend, err), err);
    ACCEL_TRY(st, shard_model(run, err));
    if (st == ACCEL_OK)
        loss_scale_apply(run);
    if (st == ACCEL_OK)
        history_say(&run->preemption);
    retention_open(run);
    ACCEL_TRY(st, staging_open(run, err));
    ACCEL_TRY(st, resume_run(run, err));
    ACCEL_TRY(st, staging_begin(run, err));
    /* A resumed run has all its values from the checkpoint. */
    if (st == ACCEL_OK && !run->progress.resumed)
        shard_init(run->shard, run->job.seed);
    forget_values(run);
    ACCEL_TRY(st, background_open(run, err));
    ACCEL_TRY(st, run_agree(run, open_log(run, err), err));
    ACCEL_TRY(st, run_agree(run, tracking_open(run, err), err));
    if (st == ACCEL_OK) {
        history_add(&run->preemption, "start step=%lld", (long long)run->progress.step);
        report_attempt(&run->preemption, run->progress.saved_step);
    }
    return st;
}

/* Signals that would interrupt are only taken over at the end: before that, there is
 * nothing to lose. */
static accel_status_t prepare(accel_t *run, const accel_job_t *job, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    if (!job)
        st = bad_job(&e, "the job is NULL");
    else if (run->prepared)
        st = accel_fail(&e, A0901, "open one run per model",
                        "accel_prepare was called twice");
    else
        st = run_prepare(run, job, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    /* Warns when a save of the known length does not fit into the site's times. */
    notice_check(&run->preemption, run->preemption.history.save_seconds);
    history_pace(&run->preemption, (double)run->plan.checkpoint_bytes);
    run->prepared = true;
    run->progress.last_save_ns = run->loop.step_start_ns = clock_ns();
    /* A job that is submitted again after its end must not fail. */
    if (run->progress.step >= run->job.steps)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "the run is complete: all %lld steps are done; nothing to do",
                   (long long)run->job.steps);
    else /* from here on there is something to lose */
        signals_take_interrupt(&run->preemption.rules);
    return ACCEL_OK;
}

/* A run that has failed can only be closed. */
static accel_status_t can_prepare(const accel_t *run, const char *call,
                                  accel_error_t *err)
{
    if (run_outside(run, call, err) != ACCEL_OK)
        return ACCEL_EINVAL;
    if (run->status != ACCEL_OK && err)
        *err = run->failure;
    return run->status;
}

accel_status_t accel_prepare(accel_t *run, const accel_job_t *job, accel_error_t *err)
{
    accel_status_t st = can_prepare(run, "accel_prepare", err);

    return st != ACCEL_OK ? st : prepare(run, job, err);
}

/* A job without a model: those were added one by one. */
accel_status_t accel_prepare_all(accel_t *run, const accel_loop_t *loop,
                                 accel_error_t *err)
{
    accel_status_t st;
    accel_error_t e = { 0 };
    accel_loop_t own;
    accel_job_t job;

    ACCEL_CHECK(st, can_prepare(run, "accel_prepare_all", err));
    if (!loop)
        return prepare(run, NULL, err);
    st = sized_read(SIZED(accel_loop_t, log_every), &own, loop, &e);
    if (st != ACCEL_OK)
        return run_report(run, st, &e, err);
    job = (accel_job_t){ .bytes = sizeof(job),
                         .data = own.data,
                         .steps = own.steps,
                         .batch = own.batch,
                         .accumulate = own.accumulate,
                         .seed = own.seed,
                         .out_dir = own.out_dir,
                         .log_every = own.log_every };
    run->own_loop = run->graph.many_losses = run->own_loop || !run->prepared;
    return prepare(run, &job, err);
}
