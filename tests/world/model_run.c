/* SPDX-License-Identifier: Apache-2.0
 *
 * A published model, sharded, and its logits (model_run.h).
 */
#include "state/state.h"
#include "tests/world/model_run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_safetensors.h"
#include "tests/tap.h"

enum { TOKENS = 10 };

const char *model_run_data(const char *name)
{
    static char path[PATH_MAX];
    const char *src = getenv("ACCEL_SRC");

    if (src)
        snprintf(path, sizeof(path), "%s/tests/data/weights/%s", src, name);
    else
        snprintf(path, sizeof(path), DATA "/%s", name);
    return path;
}

static accel_status_t open_model(accel_t *run, const struct model_request *r,
                                 accel_error_t *err)
{
    accel_model_config_t shape = { 0 };
    accel_status_t st = model_config_open(r->dir, &shape, err);

    if (st)
        st = model_config_open(model_run_data("gpt2"), &shape, err);
    model_config_resize(&shape, &r->sizes);
    if (!st)
        st = graph_open(&run->graph, run->backend, r->compute, false, err);
    if (st)
        return st;
    run->graph_open = true;
    run->job.model = model_new(&run->graph, &shape, err);
    if (!run->job.model)
        return err->code;
    run->model[run->models++].root = run->job.model;
    run->optim[run->optims] = (struct accel_optim){ .run = run, .scheduled = true };
    run->optims++;
    return nn_units_build(run->job.model, true, "", &run->units, err);
}

/* Copies of shards between nodes, as a run makes them. */
static accel_status_t open_groups(accel_t *run, enum sharding_strategy strategy,
                                  accel_error_t *err)
{
    const bool hybrid = strategy == SHARD_HYBRID || strategy == SHARD_HYBRID_ZERO2;
    const int group = hybrid ? run->boot.local_size : run->boot.size;
    const struct plan_layout l = {
        .replicate = run->boot.size / group, .shard = group, .cp = 1, .sp = 1, .tp = 1
    };
    struct mesh *m = &run->mesh;
    accel_status_t st;

    mesh_place(m, &l, &run->boot);
    if (!hybrid)
        return ACCEL_OK;
    st = comm_split(run->comm, mesh_color(m, AXIS_SHARD), run->boot.rank, &m->group,
                    err);
    return st ? st
              : comm_split(run->comm, mesh_color(m, AXIS_REPLICATE), run->boot.rank,
                           &m->copies, err);
}

accel_status_t model_run_open(accel_t *run, struct boot *b,
                              const struct model_request *r, accel_error_t *err)
{
    struct comm_options comm = { .timeout_ms = HANG_S * 1000 };
    const struct shard_optim adamw = { 0 };
    struct shard_options o = { .strategy = r->strategy,
                               .precision = { r->compute, r->compute, ACCEL_F32, false,
                                              false },
                               .optim = &adamw,
                               .optims = 1,
                               .backend = r->backend };
    accel_status_t st;

    run->backend = r->backend;
    run->boot = *b;
    run->progress.saved_step = -1;
    st = comm_open(&run->comm, b, &comm, err);
    if (!st)
        st = open_groups(run, r->strategy, err);
    o.data = run->mesh.group;
    o.copies = run->mesh.copies;
    if (!st)
        st = open_model(run, r, err);
    if (!st)
        st = shard_open(&run->shard, run->comm, &o, &run->units, err);
    if (st)
        return st;
    run->graph.residency = shard_residency(run->shard);
    shard_init(run->shard, 1);
    run->prepared = true;
    return ACCEL_OK;
}

void model_run_close(accel_t *run)
{
    shard_close(run->shard);
    units_free(&run->units);
    nn_module_free(run->job.model);
    if (run->graph_open)
        graph_close(&run->graph);
    backend_close(run->backend);
    mesh_close(&run->mesh);
    comm_close(run->comm);
    state_identity_free(run);
}

/* ---- logits ---------------------------------------------------------------------- */

static accel_tensor_t *ints(accel_t *run, int n, int (*value)(int))
{
    accel_tensor_t *t = graph_tensor(&run->graph, ACCEL_I32, 2, (int64_t[]){ 1, n });
    int32_t host[TOKENS];

    for (int i = 0; i < n; i++)
        host[i] = value(i);
    if (t)
        run->backend->from_host(run->backend, t->data, host,
                                (size_t)n * sizeof(host[0]));
    return t;
}

static int id(int i)
{
    return (7 * i + 3) % 41;
}

static int type(int i)
{
    return i >= 5;
}

static int mask(int i)
{
    return i < 8;
}

static accel_tensor_t *model_run_forward(accel_t *run, int n, int inputs)
{
    accel_tensor_t *in[3];

    graph_reset(&run->graph);
    in[0] = ints(run, n, id);
    in[1] = ints(run, n, type);
    in[2] = ints(run, n, mask);
    return in[2] ? accel_call(run->job.model, in, inputs) : NULL;
}

accel_status_t model_run_logits(accel_t *run, const char *name, float *out,
                                int64_t *count_out, accel_error_t *err)
{
    const bool whole = strstr(name, "bert") != NULL;
    accel_status_t st = ACCEL_OK;
    int64_t count = 0;

    for (int n = whole ? TOKENS : 1; n <= TOKENS && !st; n++) {
        accel_tensor_t *y = model_run_forward(run, n, whole ? 3 : 1);

        if (!y) {
            *err = run->graph.error;
            return err->code;
        }
        st = accel_tensor_read(y, out + count, (size_t)y->elems, err);
        count += y->elems;
    }
    *count_out = count;
    return st;
}

accel_status_t model_run_torch(const char *name, float *out, accel_error_t *err)
{
    const accel_safetensors_tensor_t *t;
    accel_safetensors_t *s = NULL;
    accel_status_t st =
        accel_safetensors_open(&s, model_run_data("logits.safetensors"), err);

    if (st)
        return st;
    t = accel_safetensors_find(s, name);
    st = t ? accel_safetensors_read(s, t, 0, t->elems, out, err) : ACCEL_EINVAL;
    accel_safetensors_close(s);
    return st;
}
