/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations and gated products on a CUDA device, one kernel per activation: the
 * compiler must know which one it is to unroll the loop over a pack. In and out:
 * float32 or bfloat16 elements, computed in float32.
 */
#include "backend/cuda/narrow.h"

/* Runs the statements with A as the activation, a compile-time constant. */
#define BY_ACT(act, A, ...)                                                            \
    do {                                                                               \
        switch (act) {                                                                 \
            ACT_CASE(ACCEL_ACT_NONE, A, __VA_ARGS__);                                  \
            ACT_CASE(ACCEL_ACT_GELU, A, __VA_ARGS__);                                  \
            ACT_CASE(ACCEL_ACT_GELU_ERF, A, __VA_ARGS__);                              \
            ACT_CASE(ACCEL_ACT_SILU, A, __VA_ARGS__);                                  \
            ACT_CASE(ACCEL_ACT_RELU, A, __VA_ARGS__);                                  \
            ACT_CASE(ACCEL_ACT_RELU2, A, __VA_ARGS__);                                 \
            ACT_CASE(ACCEL_ACT_TANH, A, __VA_ARGS__);                                  \
            ACT_CASE(ACCEL_ACT_SIGMOID, A, __VA_ARGS__);                               \
            ACT_CASE(ACCEL_ACT_EXP, A, __VA_ARGS__);                                   \
            ACT_CASE(ACCEL_ACT_LOG, A, __VA_ARGS__);                                   \
        }                                                                              \
    } while (0)
#define ACT_CASE(value, A, ...)                                                        \
    case value: {                                                                      \
        constexpr accel_activation_t A = value;                                        \
        __VA_ARGS__;                                                                   \
        break;                                                                         \
    }

/* y = act(x); an operation for `map` (vector.h), as all structs below. One read and one
 * write per element: the time is that of the memory. */
template <typename T, accel_activation_t A> struct act_op {
    enum { INPUTS = 1 };
    T *y;
    const T *x;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        /* A is a constant: the switch in maths_act is gone, and a pack is V independent
         * chains that hide the latency of exp */
        for (int i = 0; i < V; i++)
            v[0][i] = maths_act(v[0][i], A);
        store<V>(y + at, v[0]);
    }
};

/* y = act(gate) * up, or without up act(gate), as 8-bit copies are made of it: for all
 * activations, since such kernels would be many. */
template <typename T> struct result_source {
    enum { INPUTS = 2, AHEAD = 1 };
    T *y;
    const T *gate, *up;
    accel_activation_t act;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], gate + at);
        if (up)
            ::load<V>(v[1], up + at);
    }
    template <int V>
    __device__ code_pack<V> codes(struct narrowing &n, int64_t at, float (*v)[V]) const
    {
        act_pack<V>(v[0], act);
        for (int i = 0; up && i < V; i++)
            v[0][i] *= v[1][i];
        store_rounded<V>(y + at, v[0]);
        return narrow_pack<V>(n, at, v[0]);
    }
};

template <typename T>
static void narrow_result(struct cuda_state *s, const struct result_source<T> &source,
                          const struct narrow_copy *to)
{
    narrow_source<pack_size<T>>(s, on_16(source.y, source.gate, source.up), source, to);
}

/* y[n] = act(x[n]). The pack is 16 bytes of T: 8 bfloat16 or 4 float32. */
void cuda_act(const struct backend *be, void *y, const void *x, accel_dtype_t type,
              int64_t n, accel_activation_t act, const struct narrow_copy *narrow)
{
    if (narrow) {
        BY_TYPE(type, T,
                narrow_result(cuda_state_of(be),
                              result_source<T>{ (T *)y, (const T *)x, NULL, act },
                              narrow));
        return;
    }
    BY_TYPE(type, T,
            BY_ACT(act, A,
                   map<pack_size<T>>(cuda_state_of(be), on_16(y, x), n,
                                     act_op<T, A>{ (T *)y, (const T *)x })));
}

/* dx (+)= dy * act'(pre) The slope is computed from pre and not stored in the forward:
 * that saves a tensor as large as the activation. */
template <typename T, accel_activation_t A> struct act_grad_op {
    enum { INPUTS = 2 };
    T *dx;
    const T *dy, *pre;
    bool add;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], dy + at);
        ::load<V>(v[1], pre + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = v[0][i] * maths_act_grad(v[1][i], A);
        store<V>(dx + at, add, v[0]);
    }
};

void cuda_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                   const void *pre, accel_dtype_t type, int64_t n,
                   accel_activation_t act)
{
    BY_TYPE(type, T,
            BY_ACT(act, A,
                   map<pack_size<T>>(cuda_state_of(be), on_16(dx, dy, pre), n,
                                     act_grad_op<T, A>{ (T *)dx, (const T *)dy,
                                                        (const T *)pre, add })));
}

/* y = act(gate) * up SwiGLU with SILU: one pass instead of an activation and a product.
 */
template <typename T, accel_activation_t A> struct gated_op {
    enum { INPUTS = 2 };
    T *y;
    const T *gate, *up;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], gate + at);
        ::load<V>(v[1], up + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = maths_act(v[0][i], A) * v[1][i];
        store<V>(y + at, v[0]);
    }
};

void cuda_gated(const struct backend *be, void *y, const void *gate, const void *up,
                accel_dtype_t type, int64_t n, accel_activation_t act,
                const struct narrow_copy *narrow)
{
    if (narrow) {
        BY_TYPE(type, T,
                narrow_result(
                    cuda_state_of(be),
                    result_source<T>{ (T *)y, (const T *)gate, (const T *)up, act },
                    narrow));
        return;
    }
    BY_TYPE(type, T,
            BY_ACT(act, A,
                   map<pack_size<T>>(
                       cuda_state_of(be), on_16(y, gate, up), n,
                       gated_op<T, A>{ (T *)y, (const T *)gate, (const T *)up })));
}

/* Both gradients in one pass; either destination may be NULL. dup needs act(gate) and
 * dgate its slope: both share one read of gate. */
template <typename T, accel_activation_t A> struct gated_grad_op {
    enum { INPUTS = 3 };
    T *dgate, *dup;
    bool add_gate, add_up;
    const T *dy, *gate, *up;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], dy + at);
        ::load<V>(v[1], gate + at);
        ::load<V>(v[2], up + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        /* dgate into v[2], dup into v[1]: v[1] is read for both before it is
         * overwritten */
        for (int i = 0; i < V; i++) {
            v[2][i] = v[0][i] * v[2][i] * maths_act_grad(v[1][i], A);
            v[1][i] = maths_act(v[1][i], A) * v[0][i];
        }
        if (dgate)
            store<V>(dgate + at, add_gate, v[2]);
        if (dup)
            store<V>(dup + at, add_up, v[1]);
    }
};

void cuda_gated_grad(const struct backend *be, void *dgate, bool add_gate, void *dup,
                     bool add_up, const void *dy, const void *gate, const void *up,
                     accel_dtype_t type, int64_t n, accel_activation_t act)
{
    BY_TYPE(
        type, T,
        BY_ACT(act, A,
               map<pack_size<T>>(cuda_state_of(be), on_16(dgate, dup, dy, gate, up), n,
                                 gated_grad_op<T, A>{
                                     (T *)dgate, (T *)dup, add_gate, add_up,
                                     (const T *)dy, (const T *)gate, (const T *)up })));
}

/* y (+)= by * x */
template <typename T> struct multiply_op {
    enum { INPUTS = 1 };
    T *y;
    bool add;
    const T *x;
    float by;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = v[0][i] * by;
        store<V>(y + at, add, v[0]);
    }
};

void cuda_multiply(const struct backend *be, void *y, bool add, const void *x,
                   accel_dtype_t type, int64_t n, float by)
{
    BY_TYPE(type, T,
            map<pack_size<T>>(cuda_state_of(be), on_16(y, x), n,
                              multiply_op<T>{ (T *)y, add, (const T *)x, by }));
}
