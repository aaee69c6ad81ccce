/* SPDX-License-Identifier: Apache-2.0
 *
 * How CPU kernels see arrays of either storage type: float32 in a stack buffer of the
 * caller, or the array itself where it is float32 already. No arithmetic beyond adding
 * to the destination.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* bf is a constant of the caller: one loop per type, and both vectorize. */
VM_INLINE void load_row(float *dst, const void *src, int64_t n, const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = vm_load(src, i, bf);
}

ACCEL_MULTIVERSION
void cpu_load_row(float *dst, const void *src, accel_dtype_t type, int64_t n)
{
    if (type == ACCEL_BF16)
        load_row(dst, src, n, 1);
    else
        memcpy(dst, src, (size_t)n * sizeof(*dst));
}

VM_INLINE void store_row(void *dst, const float *src, int64_t n, const int add,
                         const int bf)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, add ? vm_load(dst, i, bf) + src[i] : src[i], bf);
}

/* Four copies of one loop, because `add` and the type must be constants inside. */
ACCEL_MULTIVERSION
void cpu_store_row(void *dst, const float *src, accel_dtype_t type, int64_t n, bool add)
{
    if (type == ACCEL_BF16 && add)
        store_row(dst, src, n, 1, 1);
    else if (type == ACCEL_BF16)
        store_row(dst, src, n, 0, 1);
    else if (add)
        store_row(dst, src, n, 1, 0);
    else
        memcpy(dst, src, (size_t)n * sizeof(*src));
}

const float *cpu_get(const void *p, int64_t at, accel_dtype_t type, int64_t n,
                     float *room)
{
    if (type == ACCEL_F32)
        return (const float *)p + at;
    cpu_load_row(room, vm_at(p, at, type), type, n);
    return room;
}

float *cpu_room(void *p, int64_t at, accel_dtype_t type, bool add, float *room)
{
    return type == ACCEL_F32 && !add ? (float *)p + at : room;
}

void cpu_put(void *p, int64_t at, accel_dtype_t type, bool add, const float *v,
             int64_t n)
{
    if (type != ACCEL_F32 || add || v != (const float *)p + at)
        cpu_store_row(vm_to(p, at, type), v, type, n, add);
}
