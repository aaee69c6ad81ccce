/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a run: what the model, the ranks and the backend need, printed once and
 * compared with the available memory. In: a prepared job. Out: run->plan, or why the
 * run does not fit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/loader.h"
#include "training/gradient_compression.h"
#include "training/moments_form.h"
#include "run/run_impl.h"
#include "backend/device.h"
#include "backend/cuda_sizes.h"
#include "optim/optim.h"
#include "handle/run.h"

/* Elements without padding or gaps, and how many are frozen. */
static void count_params(const struct units *units, struct plan_input *in)
{
    for (int u = 0; u < units->count; u++)
        for (int i = 0; i < units->unit[u].param_count; i++) {
            const accel_tensor_t *p = units->unit[u].param[i];

            in->params += p->elems;
            in->frozen += p->needs_grad ? 0 : p->elems;
        }
}

/* Bytes that a checkpoint has of an optimizer's state for n elements. */
static int64_t saved_bytes(const struct accel_optim *o, int64_t n)
{
    const int states = optim_state_count(o);
    const accel_moments_t form = moments_form(o);
    int64_t bytes = o->averaged ? 4 * n : 0;

    for (int k = 0; k < states; k++)
        bytes += form == ACCEL_MOMENTS_8BIT
                     ? n + (int64_t)(moment_scales(n) * sizeof(uint16_t))
                 : form == ACCEL_MOMENTS_FP8
                     ? (int64_t)scaled_bytes(n, optim_scaled_type(&o->settings, k))
                     : 4 * n;
    return bytes;
}

/* Bytes of the largest tensor that a checkpoint has. */
static void find_largest(const accel_t *run, struct plan_input *in)
{
    for (int u = 0; u < run->units.count; u++) {
        const struct unit *unit = &run->units.unit[u];
        const struct accel_optim *o =
            unit->optim >= 0 ? &run->optim[unit->optim] : NULL;
        const enum moments_choice widest =
            !o || o->averaged ? MOMENTS_F32 : moments_choice_of(moments_form(o));

        for (int i = 0; i < unit->param_count; i++) {
            const accel_tensor_t *p = unit->param[i];
            const int64_t bytes =
                plan_saved_bytes(in->config, p->elems, o && p->needs_grad, widest);

            if (bytes > in->largest_saved_bytes)
                in->largest_saved_bytes = bytes;
        }
    }
}

/* The bytes of an optimizer's state. With several each unit has its own. */
static void count_states(const accel_t *run, struct plan_input *in, int *unit_state)
{
    /* by kind of optimizer */
    static const char *const rows[] = { "adam moments", "momentum", "lion momentum" };
    enum moments_choice form;
    bool averaged = false;

    for (int i = 0; i < run->optims; i++) {
        averaged = averaged || run->optim[i].averaged;
        form = moments_choice_of(moments_form(&run->optim[i]));
        in->moments = form > in->moments ? form : in->moments;
    }
    for (int u = 0; u < run->units.count; u++) {
        const struct unit *unit = &run->units.unit[u];
        const struct accel_optim *o =
            unit->optim >= 0 ? &run->optim[unit->optim] : NULL;

        if (!o)
            continue;
        unit_state[u] =
            plan_state_bytes(optim_state_count(o), moments_choice_of(moments_form(o))) +
            plan_state_bytes(o->averaged, MOMENTS_F32);
        for (int i = 0; i < unit->param_count; i++)
            if (unit->param[i]->needs_grad)
                in->saved_state_bytes += saved_bytes(o, unit->param[i]->elems);
    }
    in->unit_state = unit_state;
    in->optimizer = averaged ? "state, average"
                    : run->optims > 1 || run->optim[0].own.update
                        ? "optimizer state"
                        : rows[run->optim[0].settings.kind];
}

/* The "data" row: samples and their fields. */
static void describe_data(const accel_dataset_t *d, char *buf, size_t len)
{
    char fields[200];

    if (!d)
        snprintf(buf, len, "the program's own");
    else if (data_seq(d) > 0)
        snprintf(buf, len, "%lld samples of %d tokens",
                 (long long)accel_dataset_samples(d), data_seq(d));
    else
        snprintf(buf, len, "%lld samples of %s", (long long)accel_dataset_samples(d),
                 data_fields_text(d, fields, sizeof(fields)));
}

/* "generator (g), critic (d), teacher (frozen)"; empty for a job's one model. */
static void describe_models(const accel_t *run, char *buf, size_t len)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; run->own_loop && i < run->models && used < len; i++) {
        const struct run_model *m = &run->model[i];

        used += (size_t)snprintf(buf + used, len - used, "%s%s (%s)", i ? ", " : "",
                                 m->name[0] ? m->name : "model",
                                 m->optim ? m->optim->name : "frozen");
    }
}

/* Logs the table line by line; rank 0's level is the one that shows it. */
static void print_plan(accel_t *run, const struct plan_input *in)
{
    const accel_job_t *j = &run->job;
    struct strbuf text = { 0 };
    const char *checkpoints =
        run->config.ckpt_save ? run->ckpt_dir : "none (accel.checkpoint.save is false)";
    char batch[128], cpu[256], data[256], steps[64], models[512];
    char *save = NULL;

    snprintf(batch, sizeof(batch), "%d per rank x %d ranks x %d micro-batches = %lld",
             j->batch, run->mesh.data.size, j->accumulate,
             (long long)j->batch * run->mesh.data.size * j->accumulate);
    if (run->backend->device)
        snprintf(cpu, sizeof(cpu), "%s, %s", run->backend->name, run->backend->isa);
    else
        snprintf(cpu, sizeof(cpu), "%s, %d thread%s per rank, %s", run->backend->name,
                 run->place.threads, run->place.threads == 1 ? "" : "s",
                 run->backend->isa);
    describe_data(j->data, data, sizeof(data));
    describe_models(run, models, sizeof(models));
    snprintf(steps, sizeof(steps), "%lld (warm-up %lld)", (long long)j->steps,
             (long long)j->warmup);

    const char *extra[] = { "run",
                            run->run_name,
                            "config",
                            run->config_path[0] ? run->config_path : run->config_source,
                            "bootstrap",
                            run->boot.method,
                            "collectives",
                            comm_backend(run->data ? run->data : run->comm),
                            "compute",
                            cpu,
                            "batch",
                            batch,
                            "data",
                            data,
                            "steps",
                            steps,
                            "output",
                            run->out_dir,
                            "checkpoints",
                            checkpoints,
                            models[0] ? "models" : NULL,
                            models,
                            "activations",
                            "not known before the first step",
                            NULL };

    plan_print(in, &run->plan, extra, &text);
    run->loop.isa_shown = strlen(run->backend->isa);
    /* Without memory for the text the run goes on: the table is information only. */
    if (text.failed || !text.s)
        return;
    for (char *line = strtok_r(text.s, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        accel_logf(&run->log, ACCEL_LOG_INFO, "%s", line);
    strbuf_free(&text);
}

/* Bytes of the models' buffers, which are not trained. */
static accel_status_t count_buffers(accel_t *run, int64_t *bytes_out,
                                    accel_error_t *err)
{
    int64_t n = models_buffers(run, NULL);
    accel_tensor_t **list = calloc((size_t)n + 1, sizeof(accel_tensor_t *));

    if (!list)
        return accel_fail_nomem(err, "list of buffers", (size_t)n * sizeof(*list));
    models_buffers(run, list);
    *bytes_out = 0;
    for (int64_t i = 0; i < n; i++)
        *bytes_out += list[i]->elems * (int64_t)accel_dtype_bytes(list[i]->dtype);
    free(list);
    return ACCEL_OK;
}

/* The device's side of the plan; nothing on a host. */
static accel_status_t describe_device(accel_t *run, struct plan_device *d,
                                      accel_error_t *err)
{
    const struct backend *be = run->backend;
    size_t staging = CUDA_STAGING_BYTES + SHARD_STAGE_BYTES + run->loop.host.bytes;
    accel_status_t st;

    if (!be->device)
        return ACCEL_OK;
    d->present = true;
    d->memory_bytes = (int64_t)be->memory_bytes;
    d->base_bytes = run->device_base_bytes;
    d->activation_step = BACKEND_STEP;
    d->kernel_bytes = (int64_t)be->fixed_bytes;
    d->staging_bytes = (int64_t)staging;
    if (run->job_loader)
        d->staging_bytes += loader_memory(run->job_loader).host;
    d->library_sums = run->config.sums == SUMS_NCCL;
    st = count_buffers(run, &d->buffer_bytes, err);
    d->buffer_bytes += (int64_t)fp8_linears_bytes(&run->fp8.linears);
    return st;
}

/* Linux grants memory that it does not have, and kills a rank much later, perhaps hours
 * into the run. What cannot fit on the node is refused at the start. */
static accel_status_t check_host(const accel_t *run, int64_t peak, accel_error_t *err)
{
    const int64_t need = peak - run->plan.optional_bytes;
    int64_t node = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    char a[32], b[32];

    /* Ranks of a node share its memory equally; 0 or less: the system does not tell. */
    if (node <= 0 || need <= node / run->boot.local_size)
        return ACCEL_OK;
    return accel_fail(err, A0904,
                      "use a smaller batch with more accumulation, a smaller model, or "
                      "more nodes",
                      "the plan needs %s in each of %d rank%s, but this node has %s of "
                      "memory",
                      format_bytes((double)need, a, sizeof(a)), run->boot.local_size,
                      run->boot.local_size == 1 ? "" : "s",
                      format_bytes((double)node, b, sizeof(b)));
}

/* Device and host each against what the plan needs there. */
static accel_status_t check_memory(const accel_t *run, const struct plan_input *in,
                                   accel_error_t *err)
{
    const int64_t need = run->plan.total_bytes, device = in->device.memory_bytes;
    char a[32], b[32], cure[384];

    if (!in->device.present)
        return check_host(run, need, err);
    /* The hint costs several plans, so it is made only for the error. */
    if (device > 0 && need > device)
        return accel_fail(err, A0904, plan_cure(in, &run->plan, cure, sizeof(cure)),
                          "the plan needs %s on the GPU, but it has %s",
                          format_bytes((double)need, a, sizeof(a)),
                          format_bytes((double)device, b, sizeof(b)));
    return check_host(run, run->plan.host_total_bytes, err);
}

/* Shapes, parameters and layout. elems[2][units] and types[units] are working memory
 * that `in` points to. */
static void describe_run(accel_t *run, struct plan_input *in, int64_t *elems,
                         struct plan_types *types)
{
    int units = run->units.count;

    for (int u = 0; u < units; u++) {
        elems[u] = run->units.unit[u].elems;
        elems[units + u] = run->units.unit[u].frozen;
    }
    in->fp8_elems = fp8_linears_elems(&run->fp8.linears);
    in->unit_elems = elems;
    in->unit_frozen = elems + units;
    units_types(&run->units, types);
    in->unit_types = types;
    count_params(&run->units, in);
    in->layout = run->mesh.layout;
    /* everything is in the CPU's memory already */
    if (!run->home)
        in->layout.offload_params = false;
    in->code_bytes = fp8_linears_keep(&run->fp8.linears, run->backend,
                                      plan_keeps_codes(&run->config, &in->layout));
}

/* Keeps logits for the backward in the memory that the plan leaves on a device, so that
 * fewer are computed again; the bits are the same either way. */
static accel_status_t keep_logits(accel_t *run, struct plan_input *in,
                                  accel_error_t *err)
{
    const int64_t spare = in->activation_bytes > 0 ? plan_spare_bytes(in) : 0;
    size_t peak = (size_t)in->activation_bytes;
    const accel_field_t *fields;
    accel_status_t st = ACCEL_OK;

    if (spare > 0) {
        int n = data_fields(run->job.data, &fields);

        st = nn_keep_logits(run->job.model, run->job.batch, fields, n,
                            peak + (size_t)spare, &peak, err);
    }
    in->kept_bytes = (int64_t)peak - in->activation_bytes;
    return st;
}

/* The plan with these logits, unless what else is on the device leaves less room than
 * was assumed: then without them. */
static void plan_with_logits(accel_t *run, struct plan_input *in)
{
    plan_compute(in, &run->plan);
    if (in->kept_bytes && run->plan.total_bytes > in->device.memory_bytes) {
        run->graph.logits_room = 0;
        in->kept_bytes = 0;
        plan_compute(in, &run->plan);
    }
}

/* The activation peak of a micro-batch. A program that feeds itself has no known
 * shapes: then activations count as 0. */
static accel_status_t measure(accel_t *run, struct plan_input *in, accel_error_t *err)
{
    size_t activations = 0;
    const accel_field_t *fields;
    accel_status_t st = ACCEL_OK;

    if (run->job.model && run->job.data) {
        int n = data_fields(run->job.data, &fields);

        fp8_linears_rehearse(&run->fp8.linears);
        st = nn_measure(run->job.model, run->job.batch, fields, n, true, &activations,
                        err);
    }
    in->activation_bytes = (int64_t)activations;
    in->batch = run->job.batch;
    return st;
}

accel_status_t plan_make(accel_t *run, accel_error_t *err)
{
    int64_t *elems = calloc(2 * (size_t)run->units.count, sizeof(*elems));
    int *states = calloc((size_t)run->units.count, sizeof(*states));
    struct plan_types *types = calloc((size_t)run->units.count, sizeof(*types));
    struct plan_coded *coded =
        calloc((size_t)run->fp8.linears.count + 1, sizeof(*coded));
    const struct loader_memory loaders = loaders_memory(run);
    /* Every rank makes the same plan; only what was measured may differ. */
    struct plan_input in = { .config = &run->config,
                             .world = run->boot.size,
                             .nodes = run->boot.nodes,
                             .local_size = run->boot.local_size,
                             .accumulate = run->job.accumulate,
                             .units = run->units.count,
                             .base_bytes = run->base_bytes,
                             .loader_bytes = loaders.host,
                             .loader_device_bytes = loaders.device };
    accel_status_t st;

    if (!elems || !states || !types || !coded) {
        free(elems);
        free(types);
        free(states);
        free(coded);
        return accel_fail_nomem(err, "the plan",
                                (size_t)run->units.count * sizeof(*elems));
    }
    count_states(run, &in, states);
    find_largest(run, &in);
    describe_run(run, &in, elems, types);
    st = compression_plan(run, &in, err);
    ACCEL_TRY(st, measure(run, &in, err));
    /* what is gathered in fp8: known after `measure` */
    in.coded.n = units_coded(&run->units, coded, NULL);
    in.coded.list = coded;
    in.wide = fp8_linears_wide(&run->fp8.linears, &in.wide_name);
    ACCEL_TRY(st, describe_device(run, &in.device, err));
    ACCEL_TRY(st, keep_logits(run, &in, err));
    if (st == ACCEL_OK) {
        plan_with_logits(run, &in);
        print_plan(run, &in);
        st = check_memory(run, &in, err);
    }
    free(elems);
    free(states);
    free(types);
    free(coded);
    return st;
}
