/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan`, the sizes: how many ranks, which shape, which layout. The model
 * is built on the meta backend (shapes only), cut into units and measured, by the
 * code that a run uses. In: command line and config. Out: what plan_compute
 * needs. Starts nothing.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/cuda_sizes.h"
#include "data/data.h"
#include "cli/cli.h"
#include "cli/plan/plan_cmd.h"
#include "nn/fp8_linears.h"
#include "shard/shard.h"
#include "topology/topo.h"

/* Tokens of a sample unless --seq says else: some models' contexts are far longer. */
#define LONGEST_DEFAULT 8192

/* Chooses nodes and ranks: options first, then the file. Nodes and GPUs must multiply
 * to the ranks, since all nodes are alike. A count in the file that contradicts is only
 * a note: planning for another size is what options are for. */
static accel_status_t choose_ranks(const struct plan_args *a, struct planned *p,
                                   accel_error_t *err)
{
    const struct config *c = p->config;
    long long nodes = a->nodes ? a->nodes : c->num_machines ? c->num_machines : 1;
    long long ranks = a->ranks  ? a->ranks
                      : a->gpus ? nodes * a->gpus
                                : c->num_processes;

    /* Without --nodes: as many nodes as the ranks need. */
    if (!a->nodes && a->ranks && a->gpus)
        nodes = (a->ranks + a->gpus - 1) / a->gpus;
    /* Nothing says how many: one rank per node. */
    ranks = ranks ? ranks : nodes;
    if (ranks % nodes || (a->gpus && ranks != nodes * a->gpus))
        return accel_fail_at(
            err, A0390, a->file, "give --nodes, --gpus and --ranks that match",
            "%lld ranks cannot be spread evenly over %lld node%s%s", ranks, nodes,
            nodes == 1 ? "" : "s", a->gpus ? " with that many GPUs" : "");
    /* The options' own bound, for their product. */
    if (ranks > 1 << 20)
        return accel_fail(err, A0015, "give smaller --nodes or --gpus",
                          "%lld ranks exceed the limit of 1048576", ranks);
    /* The mistake a run would make, told with the same message. */
    if (c->distributed_type == DIST_NO && ranks > 1)
        return accel_fail_at(
            err, A0303, a->file, "set distributed_type: FSDP or MULTI_CPU",
            "distributed_type NO is one process, but %lld are planned", ranks);
    /* The plan is for another size than the file: worth a word, no error. */
    if (c->num_processes && c->num_processes != ranks)
        fprintf(
            stderr,
            "note: %s sets num_processes: %lld, so srun will refuse %lld ranks until "
            "that key is changed or removed\n",
            a->file, (long long)c->num_processes, ranks);
    p->in.nodes = (int)nodes;
    p->in.local_size = (int)(ranks / nodes);
    p->in.world = (int)ranks;
    return ACCEL_OK;
}

static int given_or(int given, int otherwise)
{
    return given ? given : otherwise;
}

/* Chooses model, sequence, batch and threads. --seq beyond the model's context makes
 * the context longer, as one would train it. */
static accel_status_t choose_shape(const struct plan_args *a, struct planned *p,
                                   accel_error_t *err)
{
    const char *name = a->model ? a->model : "gpt2-124M";
    accel_model_config_t was, given = a->shape;
    accel_status_t st = model_config_open(name, &p->shape, err);
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);

    if (st != ACCEL_OK)
        return st;
    was = p->shape;
    /* Positions must reach to the end of a sample. */
    if (!given.context && a->seq > was.context)
        given.context = a->seq;
    model_config_resize(&p->shape, &given);
    p->seq = given_or(a->seq, p->shape.context < LONGEST_DEFAULT ? p->shape.context
                                                                 : LONGEST_DEFAULT);
    p->batch = given_or(a->batch, 8);
    p->in.accumulate = given_or(a->accumulate, 1);
    /* As accel_open does: the cores this process may use, shared out. */
    p->threads = given_or(a->threads, cores / p->in.local_size);
    p->threads = p->threads < 1 ? 1 : p->threads;
    snprintf(p->model, sizeof(p->model), "%.50s%s", name,
             memcmp(&p->shape, &was, sizeof(was)) ? ", changed" : "");
    return ACCEL_OK;
}

/* What one tensor-parallel rank holds of a unit: its part of every matrix (rounded up)
 * and all of the vectors, which are not split. */
static int64_t part_of(const struct unit *u, int tp)
{
    int64_t elems = u->elems;

    for (int i = 0; i < u->param_count; i++) {
        int64_t n = u->param[i]->elems;

        if (u->param[i]->ndim >= 2)
            elems -= n - (n + tp - 1) / tp;
    }
    return elems;
}

/* Copies the elements and types of each unit, and what is coded, out of the model,
 * which is freed after measuring. in->unit_elems, in->unit_types and in->coded.list are
 * the caller's to free. */
static accel_status_t copy_unit_sizes(struct plan_input *in, const struct units *units,
                                      accel_error_t *err)
{
    int64_t *elems = calloc((size_t)units->count, sizeof(*elems));
    const size_t weights = (size_t)units_coded(units, NULL, NULL);
    struct plan_coded *coded = calloc(weights + 1, sizeof(*coded));
    struct plan_types *types = calloc((size_t)units->count, sizeof(*types));

    if (!elems || !coded || !types) {
        free(elems);
        free(coded);
        free(types);
        return accel_fail_nomem(err, "the plan", (size_t)units->count * sizeof(*elems));
    }
    in->coded = (struct plan_codes){ coded, units_coded(units, coded, NULL) };
    /* Of the whole model; elems[] is what one rank's tensor-parallel part has. */
    in->params = 0;
    for (int u = 0; u < units->count; u++) {
        elems[u] = part_of(&units->unit[u], in->layout.tp);
        for (int i = 0; i < units->unit[u].param_count; i++) {
            const int64_t n = units->unit[u].param[i]->elems,
                          saved = plan_saved_bytes(in->config, n, true, in->moments);

            in->params += n;
            if (saved > in->largest_saved_bytes)
                in->largest_saved_bytes = saved;
        }
    }
    in->units = units->count;
    in->unit_elems = elems;
    units_types(units, types);
    in->unit_types = types;
    return ACCEL_OK;
}

/* Fills what can be known of GPUs without one. fields[n] give the bytes of a
 * micro-batch that is staged in page-locked memory. */
static void estimate_device(const struct planned *p, struct plan_device *d,
                            const accel_field_t *fields, int n)
{
    size_t batch = 0;

    if (!d->present)
        return;
    for (int i = 0; i < n; i++)
        batch += (size_t)p->batch * (size_t)data_field_bytes(&fields[i]);
    d->base_guessed = true;
    d->base_bytes = plan_base_guess(p->in.world);
    d->activation_step = BACKEND_STEP;
    d->kernel_bytes = (int64_t)cuda_fixed_bytes((size_t)d->memory_bytes);
    d->staging_bytes = (int64_t)(CUDA_STAGING_BYTES + SHARD_STAGE_BYTES + batch);
    d->library_sums = p->config->sums == SUMS_NCCL;
}

/* As a run does, unless this is about a cure: what that needs is asked. `in` has all
 * else that the plan needs. */
static accel_status_t plan_logits(const struct planned *p, struct plan_input *in,
                                  accel_module_t *model, const accel_field_t *fields,
                                  int n, size_t activations, accel_error_t *err)
{
    const int64_t spare = in == &p->in ? plan_spare_bytes(in) : 0;
    size_t peak = activations;
    accel_status_t st = ACCEL_OK;

    if (spare > 0)
        st = nn_keep_logits(model, p->batch, fields, n, peak + (size_t)spare, &peak,
                            err);
    in->kept_bytes = (int64_t)(peak - activations);
    return st;
}

/* Builds the model, cuts it and measures its activations into *bytes_out: `wrap`:
 * blocks are units of their own; `recompute`: their activations are computed again.
 * Also fills what `in` lacks: its units and what a device holds beside them. The
 * sequence is what one rank of a context- or sequence-parallel group sees. */
static accel_status_t measure_model(const struct planned *p, struct plan_input *in,
                                    bool wrap, bool recompute, int64_t *bytes_out,
                                    accel_error_t *err)
{
    const struct plan_layout *l = &p->in.layout;
    /* Groups that split the sequence, each rank holding its part. */
    int pieces = l->cp * l->sp, seq = (p->seq + pieces - 1) / pieces;
    struct backend *be = NULL;
    struct graph g = { 0 };
    struct units units = { 0 };
    struct fp8_linears linears = { 0 };
    accel_module_t *model = NULL;
    accel_field_t fields[4];
    int n = model_fields(&p->shape, seq, fields);
    size_t activations = 0;
    accel_status_t st;
    int others;

    ACCEL_CHECK(st, p->in.device.present
                        ? backend_cuda_sizes_open(&be, err)
                        : backend_cpu_sizes_open(&be, p->threads, err));
    st = graph_open(&g, be, precision_of(p->config).compute, true, err);
    if (st != ACCEL_OK)
        goto close_backend;
    model = model_new(&g, &p->shape, err);
    if (!model) {
        /* model_new returns no status: the error has it. */
        st = err->code;
        goto out;
    }
    st = nn_precision_assign(&model, 1, p->config, &others, err);
    if (wrap && st == ACCEL_OK)
        st = nn_classes_check(&model, 1, config_wrap_classes(p->config), err);
    ACCEL_TRY(st,
              nn_units_build(model, wrap, config_wrap_classes(p->config), &units, err));
    if (st == ACCEL_OK && recompute)
        nn_recompute_units(model);
    if (st == ACCEL_OK && precision_of(p->config).fp8)
        st = fp8_linears_open(&linears, &model, 1, p->config, err);
    if (st == ACCEL_OK)
        in->code_bytes = fp8_linears_keep(&linears, be, plan_keeps_codes(p->config, l));
    fp8_linears_rehearse(&linears);
    ACCEL_TRY(st, nn_measure(model, p->batch, fields, n, true, &activations, err));
    *bytes_out = (int64_t)activations;
    /* For the traffic of tensor- and context-parallel groups: what travels between two
     * blocks, [batch, seq, width]. */
    in->layers = p->shape.layers;
    in->hidden_elems = (int64_t)p->batch * seq * p->shape.width;
    in->batch = p->batch;
    in->fp8_elems = fp8_linears_elems(&linears);
    /* Units and device do not depend on recomputation: once is enough. */
    if (st == ACCEL_OK && !in->unit_elems) {
        estimate_device(p, &in->device, fields, n);
        st = copy_unit_sizes(in, &units, err);
        ACCEL_TRY(st, plan_logits(p, in, model, fields, n, activations, err));
    }
out:
    /* In reverse: units point into the model, the model into the graph. */
    units_free(&units);
    fp8_linears_close(&linears);
    nn_module_free(model);
    graph_close(&g);
close_backend:
    backend_close(be);
    return st;
}

/* The memory of this machine's first GPU, or 0: often the GPUs of the cluster. */
static int64_t gpu_memory_here(void)
{
    struct topo_machine *m = NULL;
    const struct topo_gpus *gpus;
    int64_t bytes = 0;

    if (topo_machine_open(&m, NULL, TOPO_GPUS_TOO, NULL))
        return 0;
    gpus = topo_machine_gpus(m);
    if (gpus->known && gpus->count > 0)
        bytes = gpus->gpu[0].memory_bytes;
    topo_machine_close(m);
    return bytes;
}

/* --gpus, --gpu-memory or MULTI_GPU plan for GPUs, unless the file wants the CPU. */
static void choose_device(const struct plan_args *a, struct planned *p)
{
    const struct config *c = p->config;
    struct plan_device *d = &p->in.device;

    d->present =
        (a->gpus || a->gpu_memory > 0 || c->distributed_type == DIST_MULTI_GPU) &&
        !c->use_cpu && c->device != DEVICE_CPU;
    if (!d->present)
        return;
    if (a->gpu_memory > 0)
        d->memory_bytes = (int64_t)(a->gpu_memory * 1073741824.0);
    else
        d->memory_bytes = gpu_memory_here();
}

bool plan_fits(const struct planned *p)
{
    const struct plan_device *d = &p->in.device;
    struct plan plan;

    /* 0 bytes: not known, so nothing can be said against it. */
    plan_compute(&p->in, &plan);
    return !d->present || d->memory_bytes == 0 || plan.total_bytes <= d->memory_bytes;
}

/* Measures what two keys of FSDP would change: blocks as units, activations recomputed.
 * plan_cure needs both to tell which of them makes the plan fit. DeepSpeed has other
 * keys, so nothing is tried there. */
static accel_status_t measure_cures(struct planned *p, accel_error_t *err)
{
    const struct config *c = p->config;
    accel_status_t st = ACCEL_OK;

    if (c->distributed_type == DIST_DEEPSPEED)
        return ACCEL_OK;
    if (!config_wraps(c)) {
        /* Cut again, so its units are its own: plan_free frees both. */
        p->other.unit_elems = NULL;
        p->other.unit_types = NULL;
        p->other.coded.list = NULL;
        p->other.rewrapped = true;
        st = measure_model(p, &p->other, true, config_recomputes(c),
                           &p->other.activation_bytes, err);
    }
    if (st == ACCEL_OK && !config_recomputes(c))
        st = measure_model(p, &p->other, true, true, &p->other.recomputed_bytes, err);
    return st;
}

/* plan_layout_of comes before the shape: a layout that cannot be is the more basic
 * mistake. Two moments per parameter, as AdamW has. */
accel_status_t plan_prepare(const struct plan_args *a, struct planned *p,
                            accel_error_t *err)
{
    accel_status_t st = choose_ranks(a, p, err);

    p->in.config = p->config;
    p->in.states = 2;
    p->in.moments = p->config->moments;
    p->in.optimizer = "adam moments";
    choose_device(a, p);
    ACCEL_TRY(st, plan_layout_of(p->config, p->in.world, p->in.local_size,
                                 &p->in.layout, err));
    if (st != ACCEL_OK)
        return st;
    st = choose_shape(a, p, err);
    ACCEL_TRY(st, measure_model(p, &p->in, config_wraps(p->config),
                                config_recomputes(p->config), &p->in.activation_bytes,
                                err));
    /* The cures start from the same run, its units shared. */
    p->other = p->in;
    return st == ACCEL_OK && !plan_fits(p) ? measure_cures(p, err) : st;
}

/* What is kept because there is room is left out: it would hide what a level needs. */
accel_status_t plan_again(const struct planned *p, const struct config *config,
                          struct planned *again_out, accel_error_t *err)
{
    struct plan_input *in = &again_out->in;
    accel_status_t st;

    *again_out = *p;
    again_out->config = in->config = config;
    in->moments = config->moments;
    in->unit_elems = NULL;
    in->unit_types = NULL;
    in->coded.list = NULL;
    st = measure_model(again_out, in, config_wraps(config), config_recomputes(config),
                       &in->activation_bytes, err);
    in->kept_bytes = 0;
    again_out->other = *in;
    return st;
}

/* `other` shares the unit sizes of `in` unless it was cut again. */
void plan_free(struct planned *p)
{
    if (p->other.unit_elems != p->in.unit_elems) {
        free((void *)p->other.unit_elems);
        free((void *)p->other.unit_types);
        free((void *)p->other.coded.list);
    }
    free((void *)p->in.unit_elems);
    free((void *)p->in.unit_types);
    free((void *)p->in.coded.list);
}
