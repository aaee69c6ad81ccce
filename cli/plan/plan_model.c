/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan`, the sizes: how many ranks, which shape, which layout; the model is built on
 * the meta backend, cut into units and measured. In: command line and config. Out: what
 * plan_compute needs. Starts nothing.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cuda_sizes.h"
#include "data/data.h"
#include "cli/cli.h"
#include "cli/plan/plan_cmd.h"
#include "shard/shard.h"
#include "topology/topo.h"

/* Of a GPU, before the model: driver's context and code; NCCL's buffers to its peers. */
#define GUESS_CONTEXT   ((int64_t)768 << 20)
#define GUESS_NCCL      ((int64_t)512 << 20)
#define LONGEST_DEFAULT 8192 /* tokens of a sample; some contexts are far longer */

/* Options decide; what they leave open comes from the file. */
static accel_status_t choose_ranks(const struct plan_args *a, struct planned *p,
                                   accel_error_t *err)
{
    const struct config *c = p->config;
    long long nodes = a->nodes ? a->nodes : c->num_machines ? c->num_machines : 1;
    long long ranks = a->ranks  ? a->ranks
                      : a->gpus ? nodes * a->gpus
                                : c->num_processes;

    if (!a->nodes && a->ranks && a->gpus) /* as many nodes as they need */
        nodes = (a->ranks + a->gpus - 1) / a->gpus;
    ranks = ranks ? ranks : nodes;
    if (ranks % nodes || (a->gpus && ranks != nodes * a->gpus))
        return accel_fail_at(
            err, A0390, a->file, "give --nodes, --gpus and --ranks that multiply",
            "%lld ranks cannot be shared evenly by %lld node%s%s", ranks, nodes,
            nodes == 1 ? "" : "s", a->gpus ? " with so many GPUs" : "");
    if (ranks > 1 << 20)
        return accel_fail(err, A0015, "give smaller --nodes or --gpus",
                          "%lld ranks are more than 1048576", ranks);
    if (c->distributed_type == DIST_NO && ranks > 1)
        return accel_fail_at(
            err, A0303, a->file, "set distributed_type: FSDP or MULTI_CPU",
            "distributed_type NO is one process, but %lld are planned", ranks);
    if (c->num_processes && c->num_processes != ranks)
        fprintf(
            stderr,
            "note: %s says num_processes: %lld, so srun will refuse %lld ranks until "
            "that key is changed or removed\n",
            a->file, (long long)c->num_processes, ranks);
    p->in.nodes = (int)nodes;
    p->in.local_size = (int)(ranks / nodes);
    p->in.world = (int)ranks;
    return ACCEL_OK;
}

static int either(int given, int otherwise)
{
    return given ? given : otherwise;
}

static accel_status_t choose_shape(const struct plan_args *a, struct planned *p,
                                   accel_error_t *err)
{
    const char *name = a->model ? a->model : "gpt2-124M";
    struct model_sizes was, given = a->shape;
    accel_status_t st = model_shape_open(name, &p->shape, err);
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);

    if (st != ACCEL_OK)
        return st;
    was = model_sizes_of(&p->shape);
    if (!given.context && a->seq > was.context)
        given.context = a->seq;
    model_resize(&p->shape, &given);
    p->sizes = model_sizes_of(&p->shape);
    p->seq = either(a->seq, p->sizes.context < LONGEST_DEFAULT ? p->sizes.context
                                                               : LONGEST_DEFAULT);
    p->batch = either(a->batch, 8);
    p->in.accumulate = either(a->accumulate, 1);
    p->threads = either(a->threads, cores / p->in.local_size);
    p->threads = p->threads < 1 ? 1 : p->threads;
    snprintf(p->model, sizeof(p->model), "%.50s%s", name,
             memcmp(&p->sizes, &was, sizeof(was)) ? ", changed" : "");
    return ACCEL_OK;
}

/* What one tensor-parallel rank holds of a unit: its part of every matrix, all of the
 * vectors. */
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

static accel_status_t take_units(struct plan_input *in, const struct units *units,
                                 accel_error_t *err)
{
    int64_t *elems = calloc((size_t)units->count, sizeof(*elems));

    if (!elems)
        return accel_fail_nomem(err, "the plan", (size_t)units->count * sizeof(*elems));
    in->params = 0;
    for (int u = 0; u < units->count; u++) {
        elems[u] = part_of(&units->unit[u], in->layout.tp);
        for (int i = 0; i < units->unit[u].param_count; i++)
            in->params += units->unit[u].param[i]->elems;
    }
    in->units = units->count;
    in->unit_elems = elems;
    return ACCEL_OK;
}

/* What can be known of GPUs without one. */
static void describe_device(const struct planned *p, struct plan_device *d,
                            const struct backend *sizes, size_t own,
                            const accel_field_t *fields, int n)
{
    enum { PAGE = 2 << 20 };
    size_t batch = 0;

    if (!d->present)
        return;
    for (int i = 0; i < n; i++)
        batch += (size_t)p->batch * (size_t)data_field_bytes(&fields[i]);
    d->base_guessed = true;
    d->base_bytes = GUESS_CONTEXT + (p->in.world > 1 ? GUESS_NCCL : 0);
    d->activation_step = BACKEND_STEP;
    d->kernel_bytes = (int64_t)(sizes->fixed_bytes + (own + PAGE - 1) / PAGE * PAGE);
    d->staging_bytes = (int64_t)(CUDA_STAGING_BYTES + SHARD_STAGE_BYTES + batch);
    d->library_sums = p->config->sums == SUMS_NCCL;
}

/* The activations of the model, its blocks units of their own or not, recomputed or not; what
 * `in` does not have yet: its units, and what a device has beside them. */
static accel_status_t measure(const struct planned *p, struct plan_input *in, bool wrap,
                              bool recompute, int64_t *bytes_out, accel_error_t *err)
{
    const struct plan_layout *l = &p->in.layout;
    int pieces = l->cp * l->sp, seq = (p->seq + pieces - 1) / pieces;
    struct backend *be = NULL;
    struct graph g = { 0 };
    struct units units = { 0 };
    accel_module_t *model = NULL;
    accel_field_t fields[4];
    int n = model_fields(&p->shape, seq, fields);
    size_t activations = 0, own = 0;
    accel_status_t s;

    s = p->in.device.present ? backend_cuda_sizes_open(&be, err)
                             : backend_cpu_sizes_open(&be, p->threads, err);
    if (s != ACCEL_OK)
        return s;
    s = graph_open(&g, be, config_precision(p->config).compute, true, err);
    if (s != ACCEL_OK)
        goto close_backend;
    model = model_new(&g, &p->shape, err);
    if (!model) {
        s = err->code;
        goto out;
    }
    s = nn_units_build(model, wrap, p->config->transformer_cls, &units, err);
    if (s == ACCEL_OK && recompute)
        nn_recompute_units(model);
    if (s == ACCEL_OK)
        s = nn_measure(model, p->batch, fields, n, true, &activations, &own, err);
    *bytes_out = (int64_t)activations;
    in->layers = p->sizes.layers;
    in->hidden_elems = (int64_t)p->batch * seq * p->sizes.width;
    in->batch = p->batch;
    if (s == ACCEL_OK && !in->unit_elems) {
        describe_device(p, &in->device, be, own, fields, n);
        s = take_units(in, &units, err);
    }
out:
    units_free(&units);
    nn_module_free(model);
    graph_close(&g);
close_backend:
    backend_close(be);
    return s;
}

/* The memory of this machine's GPUs, where it has some: often those of the cluster. */
static int64_t gpu_memory_here(void)
{
    struct topo_machine *m = NULL;
    const struct topo_gpus *gpus;
    int64_t bytes = 0;

    if (topo_machine_open(&m, NULL, true, NULL))
        return 0;
    gpus = topo_machine_gpus(m);
    if (gpus->known && gpus->count > 0)
        bytes = gpus->gpu[0].memory_bytes;
    topo_machine_close(m);
    return bytes;
}

/* --gpus plans for GPUs, unless the file wants the CPU. */
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

    plan_compute(&p->in, &plan);
    return !d->present || d->memory_bytes == 0 || plan.total_bytes <= d->memory_bytes;
}

static bool wraps(const struct config *c)
{
    return config_wrap_policy(c) == WRAP_TRANSFORMER;
}

/* What keys of FSDP would change of the model itself: its blocks as units, activations
 * computed once more. */
static accel_status_t measure_others(struct planned *p, accel_error_t *err)
{
    const struct config *c = p->config;
    accel_status_t st = ACCEL_OK;

    if (c->distributed_type == DIST_DEEPSPEED)
        return ACCEL_OK;
    if (!wraps(c)) {
        p->other.unit_elems = NULL;
        p->other.rewrapped = true;
        st = measure(p, &p->other, true, config_recomputes(c),
                     &p->other.activation_bytes, err);
    }
    if (st == ACCEL_OK && !config_recomputes(c))
        st = measure(p, &p->other, true, true, &p->other.recomputed_bytes, err);
    return st;
}

accel_status_t plan_prepare(const struct plan_args *a, struct planned *p,
                            accel_error_t *err)
{
    accel_status_t st = choose_ranks(a, p, err);

    p->in.config = p->config;
    p->in.states = 2;
    p->in.optimizer = "adam moments";
    choose_device(a, p);
    if (st == ACCEL_OK)
        st = plan_layout_of(p->config, p->in.world, p->in.local_size, &p->in.layout,
                            err);
    if (st != ACCEL_OK)
        return st;
    st = choose_shape(a, p, err);
    if (st == ACCEL_OK)
        st = measure(p, &p->in, wraps(p->config), config_recomputes(p->config),
                     &p->in.activation_bytes, err);
    p->other = p->in;
    return st == ACCEL_OK && !plan_fits(p) ? measure_others(p, err) : st;
}

void plan_free(struct planned *p)
{
    if (p->other.unit_elems != p->in.unit_elems)
        free((void *)p->other.unit_elems);
    free((void *)p->in.unit_elems);
}
