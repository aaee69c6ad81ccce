/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the CUDA backend beside the CPU's and gives out arrays of both. Each array is
 * an allocation of its own, so that a tool that watches memory sees a kernel leave it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/floats.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/unit/cuda_rig.h"

void cuda_rig_open(struct cuda_rig *rig)
{
    accel_error_t err = { .text = "" };

    *rig = (struct cuda_rig){ .seed = 1, .device = cuda_device() };
    if (backend_cpu_open(&rig->cpu, 1, &err)) {
        tap_ok(false, "the CPU's backend opens: %s", err.text);
        exit(tap_done());
    }
}

void cuda_rig_reset(struct cuda_rig *rig)
{
    for (int i = 0; i < rig->count; i++) {
        free(rig->host[i]);
        rig->device->free(rig->device, rig->room[i]);
    }
    rig->count = 0;
}

void cuda_rig_close(struct cuda_rig *rig)
{
    accel_error_t err = { .text = "" };

    tap_ok(!rig->device->sync(rig->device, &err), "no call failed %s", err.text);
    cuda_rig_reset(rig);
    free(rig->host);
    free(rig->room);
    backend_close(rig->device);
    backend_close(rig->cpu);
}

/* room: of the device, NULL: none. */
static void *keep(struct cuda_rig *rig, void *p, void *room)
{
    if (rig->count == rig->space) {
        rig->space = rig->space ? 2 * rig->space : 32;
        rig->host = realloc(rig->host, (size_t)rig->space * sizeof(*rig->host));
        rig->room = realloc(rig->room, (size_t)rig->space * sizeof(*rig->room));
    }
    if (!p || !rig->host || !rig->room)
        exit(1);
    rig->room[rig->count] = room;
    rig->host[rig->count++] = p;
    return p;
}

void *cuda_rig_copy(struct cuda_rig *rig, const void *from, size_t bytes)
{
    void *p = keep(rig, malloc(bytes ? bytes : 1), NULL);

    memcpy(p, from, bytes);
    return p;
}

void *cuda_rig_fetch(struct cuda_rig *rig, const void *device, size_t bytes)
{
    void *p = keep(rig, malloc(bytes ? bytes : 1), NULL);

    rig->device->to_host_bytes(rig->device, p, device, bytes);
    return p;
}

static float next_value(struct cuda_rig *rig)
{
    rig->seed = rig->seed * 1664525u + 1013904223u;
    return (float)(int32_t)(rig->seed & 0xffffff00u) / 2147483648.0f;
}

struct cuda_array cuda_rig_values(struct cuda_rig *rig, accel_dtype_t type, int64_t n,
                                  float scale)
{
    const size_t bytes = (size_t)n * accel_dtype_bytes(type);
    const size_t begin = rig->skew * accel_dtype_bytes(type);
    struct cuda_array a = { .host = NULL };
    void *room = NULL;
    float *v;

    if (rig->device->alloc(rig->device, MEMORY_BUFFERS, begin + bytes, &room, NULL))
        exit(1);
    v = a.host = keep(rig, malloc((size_t)n * sizeof(float) + 1), room);
    for (int64_t i = 0; i < n; i++)
        v[i] = next_value(rig) * scale;
    floats_narrow(a.host, type, v, (size_t)n);
    a.device = (char *)room + begin;
    rig->device->from_host(rig->device, a.device, a.host, bytes);
    return a;
}

/* Element i of an array of a type that kernels compute in. */
static double element(const void *p, accel_dtype_t type, int64_t i)
{
    float v;

    floats_widen(&v, (const char *)p + i * (int64_t)accel_dtype_bytes(type), type, 1);
    return v;
}

double cuda_rig_distance(const void *want, const void *got, accel_dtype_t type,
                         int64_t n)
{
    double worst = 0;

    for (int64_t i = 0; i < n; i++) {
        const double last = type == ACCEL_BF16  ? 1.0 / 64
                            : type == ACCEL_F16 ? 1.0 / 512
                                                : 0;
        double w = element(want, type, i), g = element(got, type, i);
        double allowed = 1e-5 * (fabs(w) + 4.0) + last * fabs(w);
        double d = isnan(w) && isnan(g) ? 0.0 : fabs(w - g) / allowed;

        if (!(d <= worst))
            worst = isnan(d) ? (double)INFINITY : d;
    }
    return worst;
}
