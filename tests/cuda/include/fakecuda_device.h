/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: what a kernel may call. Float atomics are missing on purpose: their
 * order is not fixed, so nothing here may use them.
 */
#ifndef FAKECUDA_DEVICE_H
#define FAKECUDA_DEVICE_H

#include <math.h>
#include <string.h>

#pragma GCC visibility push(default)

/* The thread that runs now. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* Dynamic shared memory of the block. */
void *fakecuda_shared(void);
/* Waits for all threads of the block that have not ended. Two places in the source are
 * two barriers: to meet at different ones is an error. */
void fakecuda_barrier(int line);
/* Waits for the lanes of `mask` that have not ended: values[lane] of those in *present. The
 * values stay until the thread waits again. */
const uint64_t *fakecuda_warp(unsigned mask, uint64_t value, unsigned *present);
unsigned fakecuda_lane(void);
/* Ends the kernel with cudaErrorLaunchFailure. */
[[noreturn]] void fakecuda_trap(void);

#pragma GCC visibility pop

static inline void __syncthreads(int line = __builtin_LINE())
{
    fakecuda_barrier(line);
}

/* ---- warps ------------------------------------------------------------------------------ */

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    unsigned present;

    fakecuda_warp(mask, 0, &present);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned present, ballot = 0;
    const uint64_t *all = fakecuda_warp(mask, predicate != 0, &present);

    for (unsigned lane = 0; lane < 32; lane++)
        if (present >> lane & 1)
            ballot |= (unsigned)(all[lane] & 1) << lane;
    return ballot;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

/* The value of lane `from`; all bits set when that lane is not there, as nothing is said of
 * it; own: when `from` is outside the group. */
template <class T>
static inline T fakecuda_shuffle(unsigned mask, T value, unsigned from, bool own)
{
    uint64_t bits = 0;
    unsigned present;
    const uint64_t *all;

    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves up to 8 bytes");
    memcpy(&bits, &value, sizeof(T));
    all = fakecuda_warp(mask, bits, &present);
    if (own)
        return value;
    bits = present >> from & 1 ? all[from] : ~(uint64_t)0;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    unsigned base = fakecuda_lane() & ~(unsigned)(width - 1);

    return fakecuda_shuffle(mask, value,
                            base + ((unsigned)from & (unsigned)(width - 1)), false);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32)
{
    unsigned lane = fakecuda_lane(), from = lane ^ (unsigned)by;

    return fakecuda_shuffle(mask, value, from & 31,
                            from >= (lane & ~(unsigned)(width - 1)) + (unsigned)width);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    unsigned lane = fakecuda_lane(), from = lane + by;

    return fakecuda_shuffle(mask, value, from & 31,
                            from >= (lane & ~(unsigned)(width - 1)) + (unsigned)width);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    unsigned lane = fakecuda_lane(), base = lane & ~(unsigned)(width - 1);

    return fakecuda_shuffle(mask, value, (lane - by) & 31, lane < base + by);
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Bytes of low (0 to 3) and high (4 to 7), chosen by the digits of `which`. */
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which)
{
    const unsigned long long both = (unsigned long long)high << 32 | low;
    unsigned out = 0;

    for (int i = 0; i < 4; i++)
        out |= (unsigned)(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}

/* One thread runs at a time: reading and writing is atomic as it is. */
#define FAKECUDA_ATOMIC(name, type, result)                                            \
    static inline type name(type *p, type value)                                       \
    {                                                                                  \
        type old = *p;                                                                 \
                                                                                       \
        *p = (result);                                                                 \
        return old;                                                                    \
    }
#define FAKECUDA_ATOMICS(type)                                                         \
    FAKECUDA_ATOMIC(atomicAdd, type, (type)(old + value))                              \
    FAKECUDA_ATOMIC(atomicMin, type, old < value ? old : value)                        \
    FAKECUDA_ATOMIC(atomicMax, type, old > value ? old : value)

FAKECUDA_ATOMICS(int)
FAKECUDA_ATOMICS(unsigned)
FAKECUDA_ATOMICS(unsigned long long)

#include "fakecuda_maths.h"
#include "fakecuda_ptx.h"

#endif
