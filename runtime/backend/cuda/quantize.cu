/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as 8-bit floats on a CUDA device, in a pass of its own: the bits of
 * cpu_quantize. Kernels that write a tensor may narrow it on the way (narrow.h).
 */
#include "backend/cuda/narrow.h"
#include "numbers/fp8_blocks.h"

/* What is there already. */
template <typename T> struct stored_source {
    enum { INPUTS = 1, AHEAD = 4 };
    const T *src;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        ::load<V>(x[0], src + at);
    }
    template <int V>
    __device__ code_pack<V> codes(struct narrowing &n, int64_t at, float (*x)[V]) const
    {
        return narrow_pack<V>(n, at, x[0]);
    }
};

/* Codes, which stay what they are: floats hold the bits of four. */
struct coded_source {
    enum { INPUTS = 1, AHEAD = 4 };
    const f8_t *src;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        code_pack<V> p = {};

        if constexpr (V == 1)
            p.v[0] = src[at];
        else
            p = *reinterpret_cast<const code_pack<V> *>(src + at);
        for (int i = 0; i < V; i += 4)
            x[0][i] = minifloat_float(p.v[i / 4]);
    }
    template <int V>
    __device__ code_pack<V> codes(struct narrowing &, int64_t, float (*x)[V]) const
    {
        code_pack<V> p;

        for (int i = 0; i < V; i += 4)
            p.v[i / 4] = minifloat_bits(x[0][i]);
        return p;
    }
};

template <typename T>
static void quantize_stored(struct cuda_state *s, const T *src,
                            const struct narrow_copy *to)
{
    narrow_source<pack_size<T>>(s, on_16(src, to->copy), stored_source<T>{ src }, to);
}

void cuda_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                   const void *src, accel_dtype_t type, int64_t n, const float *scale,
                   float *amax)
{
    const struct narrow_copy all = { to, 1, n, dst, NULL, dst ? scale : NULL, amax };

    BY_TYPE(type, T, quantize_stored(cuda_state_of(be), (const T *)src, &all));
}

void cuda_quantize_transposed(const struct backend *be, void *dst, void *transposed,
                              accel_dtype_t to, const void *src, accel_dtype_t type,
                              int64_t rows, int64_t cols, const float *scale,
                              float *amax)
{
    const struct narrow_copy all = { to, rows, cols, dst, transposed, scale, amax };

    if (type == to) {
        turn<8>(cuda_state_of(be), on_16(src), coded_source{ (const f8_t *)src }, &all);
        return;
    }
    BY_TYPE(type, T, quantize_stored(cuda_state_of(be), (const T *)src, &all));
}

static __global__ void scale_kernel(float *scale, accel_dtype_t to, bool power,
                                    const float *amax)
{
    scale[0] = power ? fp8_block_scale(*amax, to) : fp8_scale_for(*amax, to, 0, 1);
    scale[1] = 1 / scale[0];
}

void cuda_scale_of(const struct backend *be, float *scale, accel_dtype_t to, bool power,
                   const float *amax)
{
    LAUNCH(scale_kernel, 1, 1, 0, cuda_state_of(be), scale, to, power, amax);
}
