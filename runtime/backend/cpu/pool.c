/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pooling over square windows on the CPU, one plane (an image's channel) at a time.
 * The forward keeps the place of each maximum; the backward needs nothing else.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* The place of the first largest element of the window at (top, left). A NaN wins, and
 * the first one stays. */
VM_INLINE int32_t largest(const void *plane, const struct pool *p, int64_t top,
                          int64_t left, const accel_dtype_t t)
{
    int64_t at = top * p->width + left;
    float best = vm_load(plane, at, t);

    for (int64_t u = 0; u < p->size; u++)
        for (int64_t v = 0; v < p->size; v++) {
            int64_t i = (top + u) * p->width + left + v;
            float x = vm_load(plane, i, t);

            /* x != x: a NaN */
            if (x > best || (x != x && best == best)) {
                best = x;
                at = i;
            }
        }
    return (int32_t)at;
}

/* One plane: values and their places. */
VM_INLINE void pool_plane(void *y, int32_t *where, const void *x, const struct pool *p,
                          const accel_dtype_t t)
{
    for (int64_t i = 0; i < p->out_h * p->out_w; i++) {
        where[i] = largest(x, p, i / p->out_w * p->stride, i % p->out_w * p->stride, t);
        vm_store(y, i, vm_load(x, where[i], t), t);
    }
}

/* y, where [planes, out_h, out_w] of x [planes, height, width]. */
void cpu_maxpool(const struct backend *be, const struct pool *p, void *y,
                 int32_t *where, const void *x)
{
    int64_t in = p->height * p->width, out = p->out_h * p->out_w;

#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static) if (p->planes * in > CPU_ALONE_ELEMS / 4)
    for (int64_t k = 0; k < p->planes; k++) {
        void *to = vm_to(y, k * out, p->type);
        const void *from = vm_at(x, k * in, p->type);

        VM_BY_TYPE(p->type, pool_plane, to, where + k * out, from, p);
    }
}

/* Windows may overlap, so gradients are summed in a float32 plane per thread and
 * rounded once. */
void cpu_maxpool_grad(const struct backend *be, const struct pool *p, void *dx,
                      bool add, const void *dy, const int32_t *where, void *scratch)
{
    int64_t in = p->height * p->width, out = p->out_h * p->out_w;

#pragma omp parallel num_threads(be->threads) if (p->planes * in > CPU_ALONE_ELEMS / 4)
    {
        float *sum = (float *)scratch + omp_get_thread_num() * in;

#pragma omp for schedule(static)
        for (int64_t k = 0; k < p->planes; k++) {
            memset(sum, 0, (size_t)in * sizeof(*sum));
            for (int64_t i = 0; i < out; i++)
                sum[where[k * out + i]] += vm_load(dy, k * out + i, p->type);
            cpu_store_row(vm_to(dx, k * in, p->type), sum, p->type, in, add);
        }
    }
}
