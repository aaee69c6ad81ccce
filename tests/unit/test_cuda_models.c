/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with published weights on a CUDA device, or on the stand-in: in float32
 * torch's logits, in bfloat16 those of the CPU.
 */
#include <math.h>
#include <stdio.h>

#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/model_run.h"

static struct boot boot;

static struct backend *cpu(void)
{
    struct backend *be = NULL;

    return backend_cpu_open(&be, 1, NULL) ? NULL : be;
}

/* Elements of out; 0: failed, which is told. */
static int64_t logits(struct backend *be, const char *name, accel_dtype_t compute,
                      float *out)
{
    struct model_request r = { .strategy = SHARD_FULL,
                               .compute = compute,
                               .backend = be };
    accel_error_t err = { 0 };
    accel_t run = { 0 };
    accel_status_t st;
    int64_t count = 0;
    char dir[4096];

    snprintf(dir, sizeof(dir), "%s", model_run_data(name));
    r.dir = dir;
    st = model_run_open(&run, &boot, &r, &err);
    if (!st)
        st = accel_load_weights(&run, dir, &err);
    if (!st)
        st = model_run_logits(&run, name, out, &count, &err);
    if (st)
        tap_diag("%s: %s: %s", name, err.where, err.text);
    model_run_close(&run);
    return st ? 0 : count;
}

static double distance(const float *got, const float *want, int64_t count, double *size)
{
    double far = count > 0 ? 0 : INFINITY;

    *size = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = fabs((double)got[i] - (double)want[i]);

        far = isnan(d) ? INFINITY : fmax(far, d);
        *size = fmax(*size, fabs((double)want[i]));
    }
    return far;
}

static void test_narrow(const char *name, accel_dtype_t type, double last)
{
    float got[MODEL_RUN_LOGITS], want[MODEL_RUN_LOGITS], again[MODEL_RUN_LOGITS];
    const char *called = accel_dtype_name(type);
    int64_t count = logits(cuda_device(), name, type, got);
    double far, size;

    tap_ok(logits(cpu(), name, type, want) == count, "%s: as many", name);
    far = distance(got, want, count, &size);
    tap_ok(far <= 4 * last * size,
           "%s: %s, off from the CPU's by %.1e of %.1f, 4 last places", name, called,
           far, size);
    logits(cuda_device(), name, type, again);
    tap_ok(distance(again, got, count, &size) == 0, "%s: the same bits again", name);
}

static void test_model(const char *name)
{
    float got[MODEL_RUN_LOGITS], want[MODEL_RUN_LOGITS];
    accel_error_t err = { 0 };
    int64_t count;
    double far, size;

    count = logits(cuda_device(), name, ACCEL_F32, got);
    if (!tap_ok(!model_run_torch(name, want, &err), "%s: torch's logits %s", name,
                err.text))
        return;
    far = distance(got, want, count, &size);
    tap_ok(far < 1e-4, "%s: float32, off by %.1e of %.1f", name, far, size);
    test_narrow(name, ACCEL_BF16, 0x1p-8);
    test_narrow(name, ACCEL_F16, 0x1p-11);
}

int main(void)
{
    static const char *const names[] = { "gpt2", "llama", "llama-tied", "bert",
                                         "bert-labels" };
    accel_error_t err = { 0 };

    if (boot_open(&boot, 10000, &err)) {
        tap_ok(false, "a single process: %s", err.text);
        return tap_done();
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        test_model(names[i]);
    boot_free(&boot);
    return tap_done();
}
