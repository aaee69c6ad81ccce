/* SPDX-License-Identifier: Apache-2.0
 *
 * A config and a small model for runs of a test. See run_net.h.
 */
#include "tests/world/run_net.h"

#include "handle/run.h"

#include "tests/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void run_net_config(const char *path, const char *strategy, int world, int nodes,
                    const char *more)
{
    char config[256];
    FILE *f;

    snprintf(config, sizeof(config), "%s.yaml", path);
    f = fopen(config, "w");
    if (!f)
        tap_skip_all("no config can be written");
    fprintf(f,
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n"
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
            "  fsdp_transformer_layer_cls_to_wrap: Linear\n"
            "num_machines: %d\nnum_processes: %d\nuse_cpu: true\n%s",
            strategy, nodes, world, more ? more : "mixed_precision: 'no'\n");
    if (fclose(f))
        tap_skip_all("no config can be written");
}

void run_net_life(const char *path, const struct net_world *w,
                  int (*fn)(struct boot *b, void *arg), void *arg)
{
    run_net_config(path, w->strategy, w->world, w->nodes, w->more);
    tap_is_int(open_world(w->world, w->nodes, fn, arg, HANG_S), 0, "%s: %d ranks, %s",
               strrchr(path, '/') + 1, w->world, w->strategy);
}

accel_status_t run_net_run(accel_t **run_out, const char *path, accel_log_f log,
                           void *log_user, accel_error_t *err)
{
    char config[256];
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1,
                                .log = log, .log_user = log_user };

    snprintf(config, sizeof(config), "%s.yaml", path);
    return accel_open(run_out, &o, err);
}

bool run_net_says(accel_error_t *err, enum message code, const char *text)
{
    bool good = message_of(err) == code && strstr(err->text, text) && err->hint[0];

    if (!good)
        tap_diag("%d: %s", (int)err->code, err->text);
    *err = (accel_error_t){ 0 };
    return good;
}

/* ---- the model ------------------------------------------------------------------- */

struct layer {
    accel_tensor_t *weight, *bias;
};

static accel_tensor_t *layer_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    const struct layer *l = accel_module_state(m);

    (void)n;
    return accel_linear(in[0], l->weight, l->bias,
                        l->bias ? ACCEL_ACT_RELU : ACCEL_ACT_NONE);
}

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t *h = accel_call(m->child, in, n);

    return accel_call(m->child->next, &h, 1);
}

static void layer_new(accel_t *run, accel_module_t *parent, const char *name,
                      const int64_t dims[2], bool bias)
{
    static const accel_class_t cls = { sizeof(cls), "Linear", layer_forward,
                                       sizeof(struct layer) };
    accel_module_t *m = accel_module_new(run, &cls, parent, name);
    struct layer *l = accel_module_state(m);

    l->weight =
        accel_param(m, "weight", 2, dims, (accel_init_t){ ACCEL_INIT_UNIFORM, 0.7f });
    if (bias)
        l->bias =
            accel_param(m, "bias", 1, dims, (accel_init_t){ ACCEL_INIT_UNIFORM, 0.3f });
}

accel_module_t *run_net_new(accel_t *run)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward, 0 };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);

    layer_new(run, m, "first", (const int64_t[]){ NET_HIDDEN, NET_IN }, true);
    layer_new(run, m, "last", (const int64_t[]){ 1, NET_HIDDEN }, false);
    return m;
}

static const struct {
    const char *name;
    size_t at, elems;
} params[] = {
    { "first.weight", offsetof(struct net_values, first), (size_t)NET_HIDDEN *NET_IN },
    { "first.bias", offsetof(struct net_values, bias), NET_HIDDEN },
    { "last.weight", offsetof(struct net_values, last), NET_HIDDEN },
};

float run_net_sample(int step, int rank, int batch, int i)
{
    return (float)((step * 37 + (rank * batch * NET_IN + i) * 11) % 19 - 9) / 9.0f;
}

accel_status_t run_net_push(accel_t *run, accel_module_t *net, int step, float by,
                            accel_error_t *err)
{
    const int batch = NET_SAMPLES / accel_world_size(run);
    const int64_t dims[] = { batch, NET_IN }, ones[] = { batch, 1 };
    float x[NET_SAMPLES * NET_IN], want[NET_SAMPLES];
    accel_tensor_t *in, *out;

    for (int i = 0; i < batch * NET_IN; i++)
        x[i] = by * run_net_sample(step, accel_rank(run), batch, i);
    for (int i = 0; i < batch; i++)
        want[i] = 1;
    in = accel_input(run, ACCEL_F32, 2, dims, x, err);
    out = accel_call(net, &in, 1);
    return accel_backward(
        run, accel_mse(out, accel_input(run, ACCEL_F32, 2, ones, want, err)), err);
}

accel_status_t run_net_read(accel_t *run, struct net_values *to, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(params) && !st; i++)
        st = accel_param_read(run, params[i].name, -1,
                              (float *)(void *)((char *)to + params[i].at),
                              (int64_t)params[i].elems, err);
    return st;
}

float run_net_distance(const struct net_values *a, const struct net_values *b)
{
    const float *x = (const float *)a, *y = (const float *)b;
    float most = 0;

    for (size_t i = 0; i < sizeof(*a) / sizeof(float); i++)
        most = fmaxf(most, fabsf(x[i] - y[i]));
    return most;
}

/* ---- runs of it ------------------------------------------------------------------ */

accel_status_t run_net_begin(struct net_run *k, const char *path, accel_error_t *err)
{
    char config[256];
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };

    snprintf(config, sizeof(config), "%s.yaml", path);
    if (accel_open(&k->run, &o, err))
        return err->code;
    k->net = run_net_new(k->run);
    return accel_model_add(k->run, "", k->net, err);
}

accel_status_t run_net_open(struct net_run *k, const char *path, float rate,
                            accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = rate,
                                    .momentum = 0.5f };

    if (run_net_begin(k, path, err))
        return err->code;
    k->optim = accel_optim_add(k->run, "o", &k->net, 1, &sgd, err);
    return k->optim ? ACCEL_OK : err->code;
}

accel_status_t run_net_prepare(const struct net_run *k, const char *path,
                               accel_error_t *err)
{
    const accel_loop_t loop = { sizeof(loop), .steps = NET_STEPS,
                                .batch = NET_SAMPLES / accel_world_size(k->run),
                                .seed = NET_SEED, .out_dir = path };
    const accel_status_t st = accel_prepare_all(k->run, &loop, err);

    return st ? st : run_net_as_planned(k->run, err);
}

accel_status_t run_net_as_planned(const accel_t *run, accel_error_t *err)
{
    const struct plan *p = &run->plan;
    struct shard_memory m;

    shard_memory(run->shard, &m);
    if ((int64_t)m.master == p->param_bytes && (int64_t)m.moments == p->moment_bytes &&
        (int64_t)m.gradient_shard == p->gradient_bytes &&
        (int64_t)(m.gather_slots + m.coded_room) == p->gather_bytes &&
        (int64_t)(m.reduce_buffer + m.wire_buffer + m.powersgd) == p->reduce_bytes)
        return ACCEL_OK;
    return accel_fail(err, A0003, "", "shards do not take what the plan says");
}

accel_status_t run_net_step(const struct net_run *k, int step, accel_error_t *err)
{
    accel_status_t st = accel_batch_begin(k->run, err);

    if (!st)
        st = run_net_push(k->run, k->net, step, 1, err);
    return st ? st : accel_step(k->run, err);
}

/* ---- the same in plain C --------------------------------------------------------- */

void run_net_gradient(const float *w, int step, int rank, int batch, float *out)
{
    struct net_values v, g = { 0 };

    memcpy(&v, w, sizeof(v));
    for (int n = 0; n < batch; n++) {
        float h[NET_HIDDEN], x[NET_IN], y = 0, dy;

        for (int j = 0; j < NET_IN; j++)
            x[j] = run_net_sample(step, rank, batch, n * NET_IN + j);
        for (int k = 0; k < NET_HIDDEN; k++) {
            h[k] = v.bias[k];
            for (int j = 0; j < NET_IN; j++)
                h[k] += v.first[k][j] * x[j];
            h[k] = h[k] > 0 ? h[k] : 0;
            y += v.last[0][k] * h[k];
        }
        dy = 2 * (y - 1) / (float)batch;
        for (int k = 0; k < NET_HIDDEN; k++) {
            const float dh = h[k] > 0 ? dy * v.last[0][k] : 0;

            g.last[0][k] += dy * h[k];
            g.bias[k] += dh;
            for (int j = 0; j < NET_IN; j++)
                g.first[k][j] += dh * x[j];
        }
    }
    memcpy(out, &g, sizeof(g));
}

void run_net_update(float *w, const float *gradient, float *velocity, float rate,
                    float clip)
{
    double norm = 0;
    float factor;

    for (int i = 0; i < NET_NUMBERS; i++)
        norm += (double)gradient[i] * gradient[i];
    norm = sqrt(norm);
    factor = clip > 0 && norm > clip ? (float)(clip / norm) : 1;
    for (int i = 0; i < NET_NUMBERS; i++) {
        velocity[i] = 0.5f * velocity[i] + factor * gradient[i];
        w[i] -= rate * velocity[i];
    }
}

void run_net_mean(float (*x)[NET_NUMBERS], int world, int from, int to)
{
    for (int i = from; i < to; i++) {
        float sum = 0;

        for (int r = 0; r < world; r++)
            sum += x[r][i];
        for (int r = 0; r < world; r++)
            x[r][i] = sum / (float)world;
    }
}
