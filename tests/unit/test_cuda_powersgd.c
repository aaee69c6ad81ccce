/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD in a device's memory beside the CPU: layer by layer and as one square, and
 * twice the same bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "powersgd/powersgd.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

enum { STEPS = 4 };
static const struct powersgd_shape shapes[] = { { 24, 17, 3 },
                                                { 5, 1, 0 },
                                                { 16, 33, 0 } };
enum { TOTAL = 24 * 17 + 3 + 5 + 16 * 33 };

/* Two ranks with the same gradient. */
static accel_status_t double_up(void *user, float *x, int64_t n, accel_error_t *err)
{
    const struct backend *be = user;

    (void)err;
    be->scale(be, x, n, 2);
    return ACCEL_OK;
}

/* The last gradient after a few steps. */
static bool after_steps(struct backend *be, accel_powersgd_t rule, float *out)
{
    const struct powersgd_peers twice = { 2, double_up, be };
    struct powersgd *s = NULL;
    accel_error_t err = { 0 };
    void *gradient = NULL;
    bool good =
        !be->alloc(be, MEMORY_GRADIENTS, sizeof(float[TOTAL]), &gradient, &err) &&
        !powersgd_open(&s, be, &rule, 5, shapes, 3, &err);

    for (int t = 0; good && t < STEPS; t++) {
        for (int i = 0; i < TOTAL; i++)
            out[i] = (float)(sin(0.37 * i * (t + 1)) + cos(0.013 * i * i));
        be->from_host(be, gradient, out, sizeof(float[TOTAL]));
        good = !powersgd_reduce(s, gradient, t, &twice, &err);
    }
    if (good)
        be->to_host(be, out, gradient, ACCEL_F32, TOTAL);
    good = good && !be->sync(be, &err);
    if (!good)
        tap_diag("%s", err.text);
    powersgd_close(s);
    be->free(be, gradient);
    return good;
}

static void test_beside(struct backend *cpu, struct backend *device,
                        accel_powersgd_t rule, const char *what)
{
    static float want[TOTAL], got[TOTAL], again[TOTAL];
    double worst = 0;
    bool good = after_steps(cpu, rule, want) && after_steps(device, rule, got) &&
                after_steps(device, rule, again);

    for (int i = 0; i < TOTAL; i++)
        worst = fmax(worst, fabs((double)want[i] - got[i]));
    tap_ok(good && worst < 1e-4, "%s: as on the CPU to %.2g", what, worst);
    tap_ok(good && memcmp(got, again, sizeof(got)) == 0, "%s: twice the same", what);
}

int main(void)
{
    struct backend *device = cuda_device(), *cpu;

    if (backend_cpu_open(&cpu, 1, NULL))
        return 1;
    test_beside(cpu, device, (accel_powersgd_t){ .start = -1, .rank = 2 },
                "layer by layer");
    test_beside(cpu, device,
                (accel_powersgd_t){ .start = -1, .rank = 3, .batched = true },
                "one square");
    test_beside(cpu, device,
                (accel_powersgd_t){ .start = -1, .cold = true, .no_feedback = true },
                "without memory");
    backend_close(cpu);
    backend_close(device);
    return tap_done();
}
