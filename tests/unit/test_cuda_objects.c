/* SPDX-License-Identifier: Apache-2.0
 *
 * Two optimizers over the units of one run, one of them the program's own, on a device
 * and on the CPU: the same parameters, norms and state. The first keeps a moving average.
 * Also with gradients that are compressed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/shard_world.h"

enum { STEPS = 3 };

/* What a run leaves behind. */
struct outcome {
    float values[TOTAL], zeros[2];
    /* with the averages of the first in their place, and when that is undone */
    float swapped[TOTAL], back[TOTAL];
    double sumsq[STEPS][2];
};

/* SGD with momentum 0.5, as torch has it. */
static void own_update(void *user, const accel_piece_t *p)
{
    (void)user;
    for (int64_t i = 0; i < p->count; i++) {
        p->state[0][i] = 0.5f * p->state[0][i] + p->gradient[i];
        p->values[i] -= p->lr * p->state[0][i];
    }
}

/* Adds gradients to all units but one, which then is the other optimizer's alone. */
static accel_status_t add_gradients(const struct backend *be, struct shard *s,
                                    const struct model *m, int step, accel_error_t *err)
{
    struct residency r = shard_residency(s);
    accel_status_t st = shard_backward_begin(s, 2, err);

    for (int u = 0; u < UNITS && !st; u++) {
        const size_t n = (size_t)m->unit[u].elems;
        float *host = calloc(n + 1, sizeof(*host)), *g = NULL;

        for (size_t i = 0; i < n; i++)
            host[i] = (float)((int)(i * 7 + (size_t)(u + step)) % 23 - 11) / 8.0f;
        st = r.grad(r.user, u, &g, err);
        if (!st)
            be->from_host(be, g, host, n * sizeof(*host));
        free(host);
    }
    return st ? st : shard_backward_end(s, err);
}

/* A step of both optimizers; the gradients of the first are halved before. */
static accel_status_t step_both(struct shard *s, int step, struct outcome *out,
                                accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int o = 0; o < 2 && !st; o++) {
        st = shard_reduce(s, o, err);
        if (!st && !o)
            shard_scale(s, o, 0.5f);
        if (!st)
            st = shard_grad_sumsq(s, o, &out->sumsq[step][o], err);
        if (!st)
            st = shard_update(s, o, 0.01f, step + 1, 0.5f, err);
    }
    if (!st)
        shard_average(s, 0, step ? 0.75f : 0.0f, step ? 0.25f : 1.0f);
    return st;
}

/* All parameters, unit after unit, in host memory. */
static accel_status_t read_values(const struct backend *be, struct shard *s, float *to,
                                  accel_error_t *err)
{
    accel_ckpt_box_t *box;
    size_t n, at = 0;
    accel_status_t st = shard_boxes(s, false, &box, &n, err);

    for (size_t i = 0; !st && i < n; i++) {
        size_t elems = 1;

        for (int d = 0; d < box[i].ndim; d++)
            elems *= (size_t)box[i].shape[d];
        if (strncmp(box[i].name, "model/", 6) != 0)
            continue;
        be->to_host_bytes(be, to + at, box[i].data, elems * sizeof(float));
        at += elems;
    }
    if (!st)
        free(box);
    return st;
}

static accel_status_t run_on(struct backend *be, struct boot *b,
                             const accel_powersgd_t *rule, struct outcome *out,
                             accel_error_t *err)
{
    static const char *const state[] = { "velocity" };
    const struct shard_optim optim[] = {
        { .name = "adamw",
          .settings = optim_defaults((accel_optimizer_t){ .weight_decay = 0.1f }),
          .averaged = true },
        { .name = "own",
          .own = { sizeof(accel_own_optim_t), own_update, NULL, state, 1 } },
    };
    const struct shard_options o = { .strategy = SHARD_NONE,
                                     .powersgd = rule,
                                     .optim = optim,
                                     .optims = 2,
                                     .backend = be };
    struct shard *s = NULL;
    struct comm *c = NULL;
    struct model m;
    accel_status_t st = comm_open(&c, b, NULL, err);

    model_build(&m);
    for (int u = 0; u < UNITS; u++)
        m.unit[u].optim = u % 2;
    if (!st)
        st = shard_open(&s, c, &o, &m.units, err);
    if (!st)
        shard_init(s, 1);
    for (int step = 0; step < STEPS && !st; step++) {
        st = add_gradients(be, s, &m, step, err);
        if (!st)
            st = step_both(s, step, out, err);
    }
    for (int k = 0; k < 2 && !st; k++)
        out->zeros[k] = shard_has_gradient(s, k);
    if (!st)
        st = read_values(be, s, out->values, err);
    for (int in = 1; in >= 0 && !st; in--) {
        shard_swap_average(s, 0);
        st = read_values(be, s, in ? out->swapped : out->back, err);
    }
    shard_close(s);
    comm_close(c);
    return st;
}

/* Returns the first value. */
static float test_beside(struct backend *host, struct backend *device,
                         struct boot *boot, const accel_powersgd_t *rule)
{
    static struct outcome gpu, cpu;
    accel_error_t err = { 0 };
    float most = 0, averages = 0, moved = 0;

    tap_is_int(run_on(host, boot, rule, &cpu, &err), 0, "on the CPU %s", err.text);
    tap_is_int(run_on(device, boot, rule, &gpu, &err), 0, "on the device %s", err.text);
    for (int i = 0; i < TOTAL; i++) {
        most = fmaxf(most, fabsf(gpu.values[i] - cpu.values[i]));
        averages = fmaxf(averages, fabsf(gpu.swapped[i] - cpu.swapped[i]));
        moved = fmaxf(moved, fabsf(gpu.swapped[i] - gpu.values[i]));
    }
    tap_ok(most <= 1e-6f && cpu.values[0] != 0, "the same values, within %g",
           (double)most);
    tap_ok(averages <= 1e-6f && moved > 1e-4f, "the same averages, within %g",
           (double)averages);
    tap_ok(!memcmp(gpu.back, gpu.values, sizeof(gpu.back)) &&
               !memcmp(cpu.back, cpu.values, sizeof(cpu.back)),
           "and the weights are back");
    for (int s = 0; s < STEPS; s++)
        tap_ok(cpu.sumsq[s][0] > 0 && cpu.sumsq[s][1] > 0 &&
                   cpu.sumsq[s][0] != cpu.sumsq[s][1] &&
                   fabs(gpu.sumsq[s][0] / cpu.sumsq[s][0] - 1) < 1e-6 &&
                   fabs(gpu.sumsq[s][1] / cpu.sumsq[s][1] - 1) < 1e-6,
               "step %d: norms of both", s + 1);
    tap_ok(!gpu.zeros[0] && !gpu.zeros[1], "no gradients are left");
    return cpu.values[0];
}

int main(void)
{
    const accel_powersgd_t rule = { .start = -1 },
                           square = { .start = -1, .batched = 1 };
    struct backend *device = cuda_device(), *host = NULL;
    accel_error_t err = { 0 };
    struct boot boot;
    float plain;

    if (boot_open(&boot, 10000, &err) || backend_cpu_open(&host, 1, &err))
        tap_skip_all(err.text);
    plain = test_beside(host, device, &boot, NULL);
    tap_ok(test_beside(host, device, &boot, &rule) != plain, "layer by layer");
    tap_ok(test_beside(host, device, &boot, &square) != plain, "as one square");
    backend_close(host);
    backend_close(device);
    boot_free(&boot);
    return tap_done();
}
