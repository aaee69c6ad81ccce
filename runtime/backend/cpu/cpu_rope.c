/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions on the CPU: sine and cosine of a position once, in double, for all
 * samples and heads. In: vectors of heads. Out: the same, rotated. Keeps no table.
 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* Rotates the pairs (i, i + pairs) of one head. dst may be src: a pair is read before
 * it is written. */
VM_INLINE void turn(void *dst, const void *src, const float *c, const float *s,
                    int64_t pairs, const int add, const accel_dtype_t t)
{
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        float x = vm_load(src, i, t), y = vm_load(src, i + pairs, t);
        float u = x * c[i] - y * s[i], v = y * c[i] + x * s[i];

        vm_store(dst, i, add ? vm_load(dst, i, t) + u : u, t);
        vm_store(dst, i + pairs, add ? vm_load(dst, i + pairs, t) + v : v, t);
    }
}

ACCEL_MULTIVERSION
static void turn_any(void *dst, const void *src, const float *c, const float *s,
                     int64_t pairs, bool add, accel_dtype_t type)
{
    if (add)
        VM_BY_TYPE(type, turn, dst, src, c, s, pairs, 1);
    else
        VM_BY_TYPE(type, turn, dst, src, c, s, pairs, 0);
}

/* Threads take positions, so each sine is computed once. Double: positions reach 10^5,
 * where a float32 angle has lost its low digits. */
void cpu_rope(const struct backend *be, void *dst, const void *src,
              const struct rope *p, bool back, bool add)
{
    int64_t d = p->head_width, pairs = d / 2;

#pragma omp parallel for num_threads(                                                  \
    be->threads) if (p->batch * p->time * p->heads * d > CPU_ALONE_ELEMS / 2)
    for (int64_t t = 0; t < p->time; t++) {
        float c[ROPE_MAX_PAIRS], s[ROPE_MAX_PAIRS];

        for (int64_t i = 0; i < pairs; i++) {
            double angle = (double)(p->first + t) * (double)p->frequency[i];

            c[i] = (float)cos(angle);
            s[i] = (float)(back ? -sin(angle) : sin(angle));
        }
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t h = 0; h < p->heads; h++) {
                /* [batch, time, heads, head_width] */
                int64_t at = ((b * p->time + t) * p->heads + h) * d;

                turn_any(vm_to(dst, at, p->type), vm_at(src, at, p->type), c, s, pairs,
                         add, p->type);
            }
    }
}
