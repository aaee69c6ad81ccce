/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter that is longer than what is read, written or loaded at a time, with masters
 * in each form: every number comes back, at its place, from accel_param_write and from a
 * file of weights.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

/* Beyond the 4 Mi elements of a read, and of several pieces of a load. */
#define NAME "long.weight"
enum { LONG = (4 << 20) + 3 * 4096 + 7 };

struct scene {
    int world;
    char dir[128];
};

static char root[64] = "/tmp/accel-large-XXXXXX";
static float values[LONG], got[LONG];

/* Exact in fp8 of fraction; blocks have scales of their own, pieces other numbers. */
static float value(int64_t i)
{
    const float size = (float)(128 + (i * 37 + i / 4096 * 11) % 127);

    return ldexpf(i % 3 ? size : -size, (int)(i / 32 % 19) - 12);
}

static accel_tensor_t *long_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    accel_tensor_t **weight = accel_module_state(m);

    (void)n;
    return accel_linear(in[0], *weight, NULL, ACCEL_ACT_NONE);
}

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    return accel_call(m->child, in, n);
}

static accel_module_t *long_new(accel_t *run)
{
    static const accel_class_t cls = { sizeof(cls), "Linear", long_forward,
                                       sizeof(accel_tensor_t *) };
    static const accel_class_t net = { sizeof(net), "Net", net_forward, 0 };
    accel_module_t *root_module = accel_module_new(run, &net, NULL, NULL);
    accel_module_t *m = accel_module_new(run, &cls, root_module, "long");

    *(accel_tensor_t **)accel_module_state(m) =
        accel_param(m, "weight", 2, (const int64_t[]){ 1, LONG },
                    (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    return root_module;
}

static int wrong_values(accel_t *run, const char *what, accel_error_t *err)
{
    int wrong = 0;

    memset(got, 0, sizeof(got));
    if (accel_param_read(run, NAME, -1, got, LONG, err))
        return 1;
    for (int64_t i = 0; i < LONG; i++)
        wrong += got[i] != values[i];
    if (wrong)
        fprintf(stderr, "# %s: %d wrong\n", what, wrong);
    return wrong;
}

/* Written, saved, overwritten, loaded. */
static accel_status_t there_and_back(accel_t *run, const struct scene *p, int *wrong,
                                     accel_error_t *err)
{
    char file[192];
    accel_status_t st = accel_param_write(run, NAME, values, LONG, err);

    snprintf(file, sizeof(file), "%s/weights", p->dir);
    if (!st)
        *wrong += wrong_values(run, "written", err);
    ACCEL_TRY(st, accel_save_weights(run, file, "float32", 0, err));
    memset(got, 0, sizeof(got));
    ACCEL_TRY(st, accel_param_write(run, NAME, got, LONG, err));
    ACCEL_TRY(st, accel_load_weights(run, file, err));
    if (!st)
        *wrong += wrong_values(run, "loaded", err);
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    const accel_optimizer_t o = { sizeof(o), .kind = ACCEL_SGD };
    accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1, .seed = 5,
                          .out_dir = p->dir };
    accel_error_t err = { 0 };
    accel_module_t *net;
    accel_t *run = NULL;
    accel_status_t st = run_net_run(&run, p->dir, NULL, NULL, &err);
    int wrong = 0;

    net = st ? NULL : long_new(run);
    ACCEL_TRY(st, accel_model_add(run, "", net, &err));
    if (!st && !accel_optim_add(run, "o", &net, 1, &o, &err))
        st = err.code;
    ACCEL_TRY(st, accel_prepare_all(run, &loop, &err));
    ACCEL_TRY(st, there_and_back(run, p, &wrong, &err));
    if (st)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    accel_close(run, NULL);
    return st || wrong;
}

int main(void)
{
    static const char *const forms[] = { "float32", "bf16", "fp16" };

    for (int64_t i = 0; i < LONG; i++)
        values[i] = value(i);
    run_folder_new(root);
    for (int i = 0; i < 6; i += TAP_SANITIZED ? 5 : 1) {
        struct scene p = { .world = 1 + i % 2 };
        char more[96];

        snprintf(p.dir, sizeof(p.dir), "%s/%s%d", root, forms[i / 2], p.world);
        snprintf(more, sizeof(more),
                 "mixed_precision: bf16\naccel:\n  precision:\n    masters: %s\n",
                 forms[i / 2]);
        run_net_config(p.dir, "FULL_SHARD", p.world, 1, more);
        tap_is_int(open_world(p.world, 1, rank_main, &p, HANG_S), 0,
                   "masters in %s on %d ranks", forms[i / 2], p.world);
    }
    run_folder_remove(root);
    return tap_done();
}
