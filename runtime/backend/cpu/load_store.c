/* SPDX-License-Identifier: Apache-2.0
 *
 * How CPU kernels see arrays of any storage type: float32 in a stack buffer of the
 * caller, or the array itself where it is float32 already. No arithmetic beyond adding
 * to the destination.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "numbers/floats.h"

ACCEL_MULTIVERSION
static void load_i8(float *dst, const int8_t *src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i];
}

void cpu_load_row(float *dst, const void *src, accel_dtype_t type, int64_t n)
{
    if (type == ACCEL_I8)
        load_i8(dst, src, n);
    else
        floats_widen(dst, src, type, (size_t)n);
}

VM_INLINE void add_row(void *dst, const float *src, int64_t n, const accel_dtype_t t)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vm_store(dst, i, vm_load(dst, i, t) + src[i], t);
}

ACCEL_MULTIVERSION
static void add_any(void *dst, const float *src, accel_dtype_t type, int64_t n)
{
    VM_BY_TYPE(type, add_row, dst, src, n);
}

void cpu_store_row(void *dst, const float *src, accel_dtype_t type, int64_t n, bool add)
{
    if (add)
        add_any(dst, src, type, n);
    else
        floats_narrow(dst, type, src, (size_t)n);
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
