/* SPDX-License-Identifier: Apache-2.0
 *
 * The master weights of a range, as kernels of optimizers read and write them: float32,
 * or bfloat16 that a step rounds by draws or to the nearest, with the bits of
 * cpu_update_narrow.
 */
#ifndef ACCEL_BACKEND_CUDA_MASTER_PLACES_H
#define ACCEL_BACKEND_CUDA_MASTER_PLACES_H

#include "backend/cuda/vector.h"
#include "numbers/masters.h"

/* What all of a step's ranges round by (struct optim_step). */
struct rounding {
    uint64_t draws;
    bool nearest;
};

/* Those of a range from element `at` of it on. */
struct wide_masters {
    float *p;

    __device__ wide_masters(const struct update_span &x, int64_t at,
                            const struct rounding &)
        : p(x.p + at)
    {
    }
    template <int V> __device__ void load(int64_t at, float *to) const
    {
        ::load<V>(to, p + at);
    }
    template <int V> __device__ void store(int64_t at, const float *from) const
    {
        ::store<V>(p + at, from);
    }
};

struct narrow_masters {
    bf16_t *p;
    /* the number of p[0] in its parameter */
    int64_t first;
    struct moment_key key;
    bool nearest;

    __device__ narrow_masters(const struct update_span &x, int64_t at,
                              const struct rounding &by)
        : p(x.narrow + at), first(x.first + at), key(master_key_of(by.draws, x.name)),
          nearest(by.nearest)
    {
    }
    template <int V> __device__ void load(int64_t at, float *to) const
    {
        ::load<V>(to, p + at);
    }
    template <int V> __device__ void store(int64_t at, const float *from) const
    {
        pack<bf16_t, V> to;

        if (nearest) {
            ::store<V>(p + at, from);
            return;
        }
        for (int i = 0; i < V; i++) {
            const int64_t e = first + at + i;

            to.v[i] =
                master_of(from[i], moment_word(key, (uint32_t)e, (uint32_t)(e >> 32)));
        }
        *reinterpret_cast<pack<bf16_t, V> *>(p + at) = to;
    }
};

#endif
