/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of two models of one number each: number_run.h.
 */
#include "tests/world/number_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the models ------------------------------------------------------------------ */

struct net {
    accel_tensor_t *w;
};

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct net *net = accel_module_state(m);

    (void)n;
    return accel_sum(accel_linear(in[0], net->w, NULL, ACCEL_ACT_NONE), -1);
}

static accel_module_t *net_new(accel_t *run, float start)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward,
                                       sizeof(struct net) };
    const int64_t dims[] = { 1, 1 };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);
    struct net *net = accel_module_state(m);

    net->w = accel_param(m, "w", 2, dims, (accel_init_t){ ACCEL_INIT_CONSTANT, start });
    return m;
}

int number_config(const char *path, int world, int nodes, const char *strategy,
                  bool save)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return -1;
    fprintf(f,
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n"
            "mixed_precision: 'no'\nnum_machines: %d\nnum_processes: %d\n"
            "use_cpu: true\naccel:\n  checkpoint:\n    save: %s\n",
            strategy, nodes, world, save ? "true" : "false");
    return fclose(f);
}

accel_status_t number_models(struct number_run *k, const char *config)
{
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };

    memset(k, 0, sizeof(*k));
    if (accel_open(&k->run, &o, &k->err))
        return k->err.code;
    k->a = net_new(k->run, 2);
    k->b = net_new(k->run, 3);
    return ACCEL_OK;
}

accel_status_t number_open(struct number_run *k, const char *config)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_status_t st = number_models(k, config);

    if (st)
        return st;
    if (accel_model_add(k->run, "a", k->a, &k->err) ||
        accel_model_add(k->run, "b", k->b, &k->err))
        return k->err.code;
    k->oa = accel_optim_add(k->run, "oa", &k->a, 1, &sgd, &k->err);
    k->ob = accel_optim_add(k->run, "ob", &k->b, 1, &sgd, &k->err);
    return k->oa && k->ob ? ACCEL_OK : k->err.code;
}

accel_status_t number_begin(struct number_run *k)
{
    return accel_batch_begin(k->run, &k->err);
}

accel_status_t number_push(struct number_run *k, accel_module_t *m, float x)
{
    const int64_t dims[] = { 1, 1 };
    accel_tensor_t *in = accel_input(k->run, ACCEL_F32, 2, dims, &x, &k->err);

    return accel_backward(k->run, accel_call(m, &in, 1), &k->err);
}

accel_status_t number_micro(struct number_run *k, accel_module_t *m, float x)
{
    accel_status_t st = number_begin(k);

    return st ? st : number_push(k, m, x);
}

float number_of(struct number_run *k, accel_module_t *m)
{
    const int64_t dims[] = { 1, 1 };
    const float one = 1;
    float value = NAN;
    accel_tensor_t *in = accel_input(k->run, ACCEL_F32, 2, dims, &one, &k->err);

    accel_tensor_read(accel_call(m, &in, 1), &value, 1, &k->err);
    return value;
}
