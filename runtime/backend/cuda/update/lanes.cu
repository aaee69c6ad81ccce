/* SPDX-License-Identifier: Apache-2.0
 *
 * Narrow arrays of the shards on a CUDA device to float32 and back: 8-bit moments,
 * and numbers with a power of two for each 32. The bits are those of the CPU's kernels.
 */
#include "backend/cuda/update/lanes.h"

/* Runs the statements for number i of n, in each thread: a row is what one block of
 * threads has at a time, so that its warps stay whole. */
#define LANES_STRIDE(i, n)                                                             \
    for (int64_t i = (int64_t)blockIdx.x * LANES_BLOCK + threadIdx.x;                  \
         i - threadIdx.x < (n); i += (int64_t)gridDim.x * LANES_BLOCK)

static unsigned lanes_grid(int64_t n)
{
    return rows_grid((n + LANES_BLOCK - 1) / LANES_BLOCK);
}

/* ---- 8-bit moments ----------------------------------------------------------- */

static __global__ void __launch_bounds__(LANES_BLOCK)
    widen_moments_kernel(float *dst, struct moments src, bool positive, int64_t n)
{
    GRID_STRIDE(i, n)
    dst[i] = positive ? widen_moment<true>(src, i) : widen_moment<false>(src, i);
}

void cuda_moments_widen(const struct backend *be, float *dst, struct moments src,
                        bool positive, int64_t n)
{
    LAUNCH(widen_moments_kernel, elements_grid(n, LANES_BLOCK), LANES_BLOCK, 0,
           cuda_state_of(be), dst, src, positive, n);
}

static __global__ void __launch_bounds__(LANES_BLOCK)
    narrow_moments_kernel(struct moments dst, const float *src, bool positive,
                          int64_t n)
{
    LANES_STRIDE(i, n)
    {
        const float x = i < n ? src[i] : 0.0f;
        const uint32_t half = moment_dither(MOMENT_HALF_WORD);

        if (positive)
            narrow_moment<true>(dst, i, i < n, x, half);
        else
            narrow_moment<false>(dst, i, i < n, x, half);
    }
}

void cuda_moments_narrow(const struct backend *be, struct moments dst, const float *src,
                         bool positive, int64_t n)
{
    LAUNCH(narrow_moments_kernel, lanes_grid(n), LANES_BLOCK, 0, cuda_state_of(be), dst,
           src, positive, n);
}

/* ---- a power of two for each 32 -------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(LANES_BLOCK)
    widen_scaled_kernel(T *dst, struct scaled src, int64_t n)
{
    GRID_STRIDE(i, n)
    store_float(dst, i, widen_scaled(src, i));
}

void cuda_scaled_widen(const struct backend *be, void *dst, accel_dtype_t type,
                       struct scaled src, int64_t n)
{
    BY_TYPE(type, T,
            LAUNCH((widen_scaled_kernel<T>), elements_grid(n, LANES_BLOCK), LANES_BLOCK,
                   0, cuda_state_of(be), (T *)dst, src, n));
}

static __global__ void __launch_bounds__(LANES_BLOCK)
    narrow_scaled_kernel(struct scaled dst, const float *src, int64_t n, bool squares)
{
    LANES_STRIDE(i, n)
    {
        const float x = i < n ? src[i] : 0.0f;
        const float y = x * scale_lanes(dst, i, i < n, x);
        const uint32_t code = dst.type == ACCEL_F16 ? f32_to_f16(y) : f32_to_e4m3(y);

        put_code(dst, i, i < n, squares && x > 0 && code == 0 ? 1 : code);
    }
}

void cuda_scaled_narrow(const struct backend *be, struct scaled dst, const float *src,
                        int64_t n, bool squares)
{
    LAUNCH(narrow_scaled_kernel, lanes_grid(n), LANES_BLOCK, 0, cuda_state_of(be), dst,
           src, n, squares);
}

static __global__ void __launch_bounds__(LANES_BLOCK)
    narrow_sum_kernel(struct scaled dst, const float *src, int64_t n, int64_t first,
                      uint32_t sums)
{
    LANES_STRIDE(i, n)
    {
        const float x = i < n ? src[i] : 0.0f;
        const float by = scale_lanes(dst, i, i < n, x);

        put_code(dst, i, i < n,
                 gradient_code(x, by, (uint32_t)(first + i),
                               gradient_salt(first + i, sums)));
    }
}

void cuda_scaled_narrow_sum(const struct backend *be, struct scaled dst,
                            const float *src, int64_t n, int64_t first, uint32_t sums)
{
    LAUNCH(narrow_sum_kernel, lanes_grid(n), LANES_BLOCK, 0, cuda_state_of(be), dst,
           src, n, first, sums);
}
