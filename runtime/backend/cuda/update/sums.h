/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over ranks on a CUDA device, whatever format the numbers have: an operation for
 * `map`. In: `count` readable arrays, at least one. Out: float32.
 */
#ifndef ACCEL_BACKEND_CUDA_SUMS_H
#define ACCEL_BACKEND_CUDA_SUMS_H

#include "backend/cuda/vector.h"

/* PARTS has read<V>(part, at, to): the numbers at .. at + V - 1 of that array as
 * float32. */
template <typename PARTS> struct sum_op {
    enum { INPUTS = 1 };
    float *out;
    bool accumulate;
    const float *first; /* NULL: the sum starts with part 0 */
    PARTS parts;
    int count;
    float scale;

    /* The sum starts with `first` or the first part, not with 0, and continues in rank
     * order, as on the CPU: the bits are the same. */
    template <int V> __device__ void load(int64_t at, float (*sum)[V]) const
    {
        if (first)
            ::load<V>(sum[0], first + at);
        else
            parts.template read<V>(0, at, sum[0]);
#pragma unroll 4
        for (int part = first ? 0 : 1; part < count; part++) {
            float x[V];

            parts.template read<V>(part, at, x);
            for (int i = 0; i < V; i++)
                sum[0][i] = sum[0][i] + x[i];
        }
    }
    template <int V> __device__ void finish(int64_t at, float (*sum)[V]) const
    {
        for (int i = 0; i < V; i++)
            sum[0][i] = sum[0][i] * scale;
        store<V>(out + at, accumulate, sum[0]);
    }
};

#endif
