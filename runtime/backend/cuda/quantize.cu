/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as 8-bit floats on a CUDA device, in a pass of its own: the bits of
 * cpu_quantize. Kernels that write a tensor may narrow it on the way (narrow.h).
 */
#include "backend/cuda/narrow.h"
#include "precision/fp8_blocks.h"

template <typename T>
static __global__ void __launch_bounds__(MAP_BLOCK)
    quantize_kernel(const T *src, struct narrow_copy to)
{
    struct narrowing n = narrow_begin(to);

    GRID_STRIDE(i, to.cols)
    {
        const float x = load_float(src, i);

        narrow_pack<1>(n, i, &x);
    }
    narrow_end(n, to.amax);
}

void cuda_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                   const void *src, accel_dtype_t type, int64_t n, const float *scale,
                   float *amax)
{
    const struct narrow_copy all = { to, 1, n, dst, NULL, dst ? scale : NULL, amax };

    BY_TYPE(type, T,
            LAUNCH((quantize_kernel<T>), elements_grid(n, 8 * MAP_BLOCK), MAP_BLOCK, 0,
                   cuda_state_of(be), (const T *)src, all));
}

/* What is there already. */
template <typename T> struct stored_source {
    const T *src;

    __device__ float value(int64_t at) const
    {
        return load_float(src, at);
    }
};

/* Codes, which have the same codes when they are narrowed again. */
struct coded_source {
    const f8_t *src;
    bool wide;

    __device__ float value(int64_t at) const
    {
        return wide ? e5m2_to_f32(src[at]) : e4m3_to_f32(src[at]);
    }
};

void cuda_quantize_turned(const struct backend *be, void *dst, void *turned,
                          accel_dtype_t to, const void *src, accel_dtype_t type,
                          int64_t rows, int64_t cols, const float *scale, float *amax)
{
    const struct narrow_copy all = { to, rows, cols, dst, turned, scale, amax };

    if (type == to) {
        turn(cuda_state_of(be), coded_source{ (const f8_t *)src, to == ACCEL_F8E5M2 },
             &all);
        return;
    }
    BY_TYPE(type, T, turn(cuda_state_of(be), stored_source<T>{ (const T *)src }, &all));
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
