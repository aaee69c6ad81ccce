/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels over independent elements: packs of 16 bytes where the addresses allow it,
 * two packs in flight per thread. The result of an element is the same either way.
 */
#ifndef ACCEL_BACKEND_CUDA_VECTOR_H
#define ACCEL_BACKEND_CUDA_VECTOR_H

#include "backend/cuda/cuda.h"

#define MAP_BLOCK 256

/* Elements of a type in 16 bytes. */
template <typename T> constexpr int pack_size = 16 / (int)sizeof(T);

/* V elements that are moved in 16-byte accesses or, if smaller, in a single access. */
template <typename T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) pack {
    T v[V];
};

template <int V, typename T> NUMBERS_INLINE pack<T, V> pack_at(const T *from)
{
    return *reinterpret_cast<const pack<T, V> *>(from);
}

/* V elements as float32. */
template <int V, typename T> NUMBERS_INLINE void load(float *to, const T *from)
{
    const pack<T, V> p = pack_at<V>(from);

    for (int i = 0; i < V; i++)
        to[i] = load_float(p.v, i);
}

template <int V, typename T> NUMBERS_INLINE void store(T *to, const float *from)
{
    pack<T, V> p;

    for (int i = 0; i < V; i++)
        store_float(p.v, i, from[i]);
    *reinterpret_cast<pack<T, V> *>(to) = p;
}

/* to = from or to += from, rounded once. */
template <int V, typename T>
NUMBERS_INLINE void store(T *to, bool add, const float *from)
{
    float was[V], sum[V];

    if (add)
        load<V>(was, to);
    for (int i = 0; i < V; i++)
        sum[i] = add ? was[i] + from[i] : from[i];
    store<V>(to, sum);
}

/* v = act(v). One branch for the pack, so that its elements are independent chains. */
template <int V>
static __device__ inline void act_pack(float *v, accel_activation_t act)
{
#define ACT_CASE(value)                                                                \
    case value:                                                                        \
        for (int i = 0; i < V; i++)                                                    \
            v[i] = maths_act(v[i], value);                                             \
        break
    switch (act) {
        ACT_CASE(ACCEL_ACT_NONE);
        ACT_CASE(ACCEL_ACT_GELU);
        ACT_CASE(ACCEL_ACT_GELU_ERF);
        ACT_CASE(ACCEL_ACT_SILU);
        ACT_CASE(ACCEL_ACT_RELU);
        ACT_CASE(ACCEL_ACT_RELU2);
        ACT_CASE(ACCEL_ACT_TANH);
        ACT_CASE(ACCEL_ACT_SIGMOID);
        ACT_CASE(ACCEL_ACT_EXP);
        ACT_CASE(ACCEL_ACT_LOG);
    }
#undef ACT_CASE
}

/* Are all addresses multiples of 16? NULL counts as one. */
template <typename... P> static inline bool on_16(P... p)
{
    return ((((uintptr_t)p) % 16 == 0) && ...);
}

NUMBERS_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns i / by and writes the remainder. Divides in 64 bits only where needed: that
 * takes several times as long on a GPU. */
NUMBERS_INLINE int64_t divide(int64_t i, int64_t by, int64_t *rest)
{
    int64_t q;

    if ((((uint64_t)i | (uint64_t)by) >> 32) == 0)
        q = (int64_t)((uint32_t)i / (uint32_t)by);
    else
        q = i / by;
    *rest = i - q * by;
    return q;
}

/* OP has INPUTS; load<V>(at, x[INPUTS][V]), which reads what elements at .. at + V - 1
 * need; and finish<V>(at, x), which computes and writes. Both packs of a thread are
 * read before either is written, to keep two loads in flight. Thread `first` of `step`
 * threads does its share of n elements, whole packs and then the rest. */
template <int V, typename OP>
static __device__ inline void map_elements(const OP &op, int64_t first, int64_t step,
                                           int64_t n)
{
    const int64_t packs = n / V;
    int64_t i = first;

    for (; i + step < packs; i += 2 * step) {
        float x[OP::INPUTS][V], y[OP::INPUTS][V];

        op.template load<V>(i * V, x);
        op.template load<V>((i + step) * V, y);
        op.template finish<V>(i * V, x);
        op.template finish<V>((i + step) * V, y);
    }
    if (i < packs) {
        float x[OP::INPUTS][V];

        op.template load<V>(i * V, x);
        op.template finish<V>(i * V, x);
    }
    /* the elements after the last whole pack, one thread each */
    if (V > 1 && first < n % V) {
        float x[OP::INPUTS][1];

        op.template load<1>(packs * V + first, x);
        op.template finish<1>(packs * V + first, x);
    }
}

template <int V, typename OP>
static __global__ void __launch_bounds__(MAP_BLOCK) map_kernel(OP op, int64_t n)
{
    map_elements<V>(op, (int64_t)blockIdx.x * MAP_BLOCK + threadIdx.x,
                    (int64_t)gridDim.x * MAP_BLOCK, n);
}

/* Launches map_kernel. packed: the addresses allow packs of V. */
template <int V, typename OP>
static void map(struct cuda_state *s, bool packed, int64_t n, OP op)
{
    if (packed)
        LAUNCH((map_kernel<V, OP>), elements_grid((n + V - 1) / V, 2 * MAP_BLOCK),
               MAP_BLOCK, 0, s, op, n);
    else
        LAUNCH((map_kernel<1, OP>), elements_grid(n, 2 * MAP_BLOCK), MAP_BLOCK, 0, s,
               op, n);
}

#endif
