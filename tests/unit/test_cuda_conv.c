/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution and maximum pooling of the CUDA backend beside those of the CPU, forward
 * and backward. Twice: the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/cuda_rig.h"

/* batch, channels, height, width, outputs, height and width of kernels, stride, pad */
static const int64_t convs[][9] = {
    { 2, 3, 7, 9, 5, 3, 3, 1, 1 },
    { 3, 4, 8, 6, 6, 1, 1, 1, 0 },
    { 1, 2, 11, 10, 3, 4, 2, 3, 2 },
    { 2, 1, 5, 5, 8, 5, 5, 1, 0 },
};

/* Arrays of one case; `made` are results, begun with the same values on both sides. */
enum { X, W, BIAS, DY, INPUTS, Y = INPUTS, PRE, DX, DW, DB, ALL };

struct arrays {
    struct cuda_array of[ALL];
    int64_t n[ALL];
    accel_dtype_t type[ALL];
    void *before[ALL];
};

static void open_arrays(struct cuda_rig *rig, struct arrays *a, const struct conv *p)
{
    const int64_t out = p->batch * p->outputs * p->out_h * p->out_w;
    const int64_t in = p->batch * p->channels * p->height * p->width;
    const int64_t weights = p->outputs * p->channels * p->kernel_h * p->kernel_w;
    const int64_t n[ALL] = { in,  weights, p->outputs, out,       out,
                             out, in,      weights,    p->outputs };

    for (int i = 0; i < ALL; i++) {
        a->n[i] = n[i];
        a->type[i] = i == DW || i == DB ? ACCEL_F32 : p->type;
        a->of[i] = cuda_rig_values(rig, a->type[i], n[i], i == W ? 0.25f : 1.0f);
        a->before[i] = cuda_rig_copy(rig, a->of[i].host,
                                     (size_t)n[i] * accel_dtype_bytes(a->type[i]));
    }
}

static void run_conv(const struct backend *be, const struct conv *p,
                     void *const of[ALL], int how, void *scratch)
{
    const struct conv_forward f = { .y = of[Y],
                                    .pre = (how & 5) == 5 ? of[PRE] : NULL,
                                    .x = of[X],
                                    .weight = of[W],
                                    .bias = how & 2 ? of[BIAS] : NULL,
                                    .act = how & 4 ? ACCEL_ACT_GELU : ACCEL_ACT_NONE };
    const struct conv_backward b = { .dy = of[DY],
                                     .x = of[X],
                                     .weight = of[W],
                                     .dx = how & 8 ? NULL : of[DX],
                                     .add = how & 1,
                                     .dweight = how & 16 ? NULL : of[DW],
                                     .dbias = how & 2 ? of[DB] : NULL };

    be->conv(be, p, &f, scratch);
    be->conv_grad(be, p, &b, scratch);
}

/* Planning asks without a device. */
static struct backend *sizes;

static size_t scratch_bytes(const struct backend *be, const struct conv *p)
{
    const size_t forward = be->conv_scratch(be, p, false);
    const size_t backward = be->conv_scratch(be, p, true);

    return forward > backward ? forward : backward;
}

/* The worst distance; *same: the device's bits are those of its first run. */
static double compare(struct cuda_rig *rig, struct arrays *a, const struct conv *p,
                      int how, bool *same)
{
    void *host[ALL], *device[ALL], *room, *scratch = NULL, *once[ALL];
    double worst = 0;

    room = malloc(scratch_bytes(rig->cpu, p));
    if (!room || rig->device->alloc(rig->device, MEMORY_WORK,
                                    scratch_bytes(rig->device, p), &scratch, NULL))
        exit(1);
    for (int i = 0; i < ALL; i++) {
        host[i] = a->of[i].host;
        device[i] = a->of[i].device;
    }
    run_conv(rig->cpu, p, host, how, room);
    run_conv(rig->device, p, device, how, scratch);
    for (int i = INPUTS; i < ALL; i++) {
        const size_t bytes = (size_t)a->n[i] * accel_dtype_bytes(a->type[i]);
        double d;

        once[i] = cuda_rig_fetch(rig, device[i], bytes);
        d = cuda_rig_distance(host[i], once[i], a->type[i], a->n[i]);
        worst = d > worst ? d : worst;
        rig->device->from_host(rig->device, device[i], a->before[i], bytes);
    }
    run_conv(rig->device, p, device, how, scratch);
    for (int i = INPUTS; i < ALL; i++) {
        const size_t bytes = (size_t)a->n[i] * accel_dtype_bytes(a->type[i]);

        *same = *same && !memcmp(once[i], cuda_rig_fetch(rig, device[i], bytes), bytes);
    }
    rig->device->free(rig->device, scratch);
    free(room);
    return worst;
}

static void test_conv(struct cuda_rig *rig, const int64_t s[9], accel_dtype_t type)
{
    struct conv p = { .type = type,
                      .batch = s[0],
                      .channels = s[1],
                      .height = s[2],
                      .width = s[3],
                      .outputs = s[4],
                      .kernel_h = s[5],
                      .kernel_w = s[6],
                      .stride = s[7],
                      .pad = s[8] };
    double worst = 0;
    bool same = true;

    p.out_h = (p.height + 2 * p.pad - p.kernel_h) / p.stride + 1;
    p.out_w = (p.width + 2 * p.pad - p.kernel_w) / p.stride + 1;
    for (int how = 0; how < 32; how += 3) {
        struct arrays a;
        double d;

        open_arrays(rig, &a, &p);
        d = compare(rig, &a, &p, how, &same);
        worst = d > worst ? d : worst;
        cuda_rig_reset(rig);
    }
    tap_ok(
        worst <= 1.0 && same,
        "%s, %lld x %lld kernel, stride %lld, pad %lld: %.2f of the bound, same bits",
        accel_dtype_name(type), (long long)p.kernel_h, (long long)p.kernel_w,
        (long long)p.stride, (long long)p.pad, worst);
    tap_ok(sizes->conv_scratch(sizes, &p, false) ==
                   rig->device->conv_scratch(rig->device, &p, false) &&
               sizes->conv_scratch(sizes, &p, true) ==
                   rig->device->conv_scratch(rig->device, &p, true),
           "  without a device the same scratch");
}

static void test_pool(struct cuda_rig *rig, int64_t size, int64_t stride,
                      accel_dtype_t type)
{
    struct pool p = { .type = type,
                      .planes = 6,
                      .height = 9,
                      .width = 7,
                      .size = size,
                      .stride = stride };
    const int64_t in = p.planes * p.height * p.width;
    int64_t out;
    struct cuda_array x, y, where, dx, dy;
    float scratch[9 * 7];
    bool good;

    p.out_h = (p.height - size) / stride + 1;
    p.out_w = (p.width - size) / stride + 1;
    out = p.planes * p.out_h * p.out_w;
    x = cuda_rig_values(rig, type, in, 1.0f);
    y = cuda_rig_values(rig, type, out, 1.0f);
    where = cuda_rig_values(rig, ACCEL_F32, out, 1.0f);
    dx = cuda_rig_values(rig, type, in, 1.0f);
    dy = cuda_rig_values(rig, type, out, 1.0f);
    rig->cpu->maxpool(rig->cpu, &p, y.host, where.host, x.host);
    rig->device->maxpool(rig->device, &p, y.device, where.device, x.device);
    good = !memcmp(y.host,
                   cuda_rig_fetch(rig, y.device, (size_t)out * accel_dtype_bytes(type)),
                   (size_t)out * accel_dtype_bytes(type)) &&
           !memcmp(where.host, cuda_rig_fetch(rig, where.device, (size_t)out * 4),
                   (size_t)out * 4);
    for (int add = 0; add < 2; add++) {
        rig->cpu->maxpool_grad(rig->cpu, &p, dx.host, add, dy.host, where.host,
                               scratch);
        rig->device->maxpool_grad(rig->device, &p, dx.device, add, dy.device,
                                  where.device, NULL);
        good = good && !memcmp(dx.host,
                               cuda_rig_fetch(rig, dx.device,
                                              (size_t)in * accel_dtype_bytes(type)),
                               (size_t)in * accel_dtype_bytes(type));
    }
    tap_ok(good, "%s, maximum of %lld x %lld every %lld: the CPU's bits",
           accel_dtype_name(type), (long long)size, (long long)size, (long long)stride);
    tap_ok(sizes->maxpool_scratch(sizes, &p) ==
               rig->device->maxpool_scratch(rig->device, &p),
           "  without a device the same scratch");
    cuda_rig_reset(rig);
}

int main(void)
{
    const accel_dtype_t types[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F16 };
    struct cuda_rig rig;

    cuda_rig_open(&rig);
    if (backend_cuda_sizes_open(&sizes, NULL))
        return 1;
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(convs); i++)
            test_conv(&rig, convs[i], types[t]);
        test_pool(&rig, 2, 2, types[t]);
        test_pool(&rig, 3, 1, types[t]);
        test_pool(&rig, 3, 2, types[t]);
        test_pool(&rig, 2, 3, types[t]);
    }
    backend_close(sizes);
    cuda_rig_close(&rig);
    return tap_done();
}
