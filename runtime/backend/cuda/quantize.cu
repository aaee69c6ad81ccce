/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as 8-bit floats on a CUDA device: the bits of cpu_quantize. The largest
 * magnitude goes into its place by atomics on integers, whose result does not depend on
 * their order.
 */
#include "backend/cuda/vector.h"
#include "precision/fp8.h"

struct to_e4m3 {
    static __device__ f8_t narrow(float f)
    {
        return f32_to_full_e4m3(f);
    }
};

struct to_e5m2 {
    static __device__ f8_t narrow(float f)
    {
        return f32_to_full_e5m2(f);
    }
};

/* The bits of a magnitude as a float32; 0 for NaN. */
static __device__ inline uint32_t magnitude(float x)
{
    const uint32_t u = minifloat_bits(x) & 0x7fffffffu;

    return u > 0x7f800000u ? 0 : u;
}

/* The largest of a warp goes into amax. */
static __device__ inline void note_amax(float *amax, uint32_t most)
{
    for (int apart = WARP / 2; apart; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(WARP_MASK, most, apart);

        most = other > most ? other : most;
    }
    if (threadIdx.x % WARP == 0)
        atomicMax(reinterpret_cast<unsigned *>(amax), most);
}

template <typename T, typename F>
static __global__ void __launch_bounds__(MAP_BLOCK)
    quantize_kernel(f8_t *dst, const T *src, int64_t n, const float *scale, float *amax)
{
    const float by = dst ? *scale : 1.0f;
    uint32_t most = 0;

    GRID_STRIDE(i, n)
    {
        const float x = load_float(src, i);
        const uint32_t u = magnitude(x);

        if (dst)
            dst[i] = F::narrow(x * by);
        most = u > most ? u : most;
    }
    if (amax)
        note_amax(amax, most);
}

template <typename F>
static void quantize(struct cuda_state *s, void *dst, const void *src,
                     accel_dtype_t type, int64_t n, const float *scale, float *amax)
{
    BY_TYPE(type, T,
            LAUNCH((quantize_kernel<T, F>), elements_grid(n, 8 * MAP_BLOCK), MAP_BLOCK,
                   0, s, (f8_t *)dst, (const T *)src, n, scale, amax));
}

void cuda_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                   const void *src, accel_dtype_t type, int64_t n, const float *scale,
                   float *amax)
{
    if (to == ACCEL_F8E4M3)
        quantize<to_e4m3>(cuda_state_of(be), dst, src, type, n, scale, amax);
    else
        quantize<to_e5m2>(cuda_state_of(be), dst, src, type, n, scale, amax);
}

/* A square of a turned matrix: its lines are written in packs of 16 bytes, and lie
 * apart so that neither way has all threads of a warp in one bank. */
enum { SQUARE = 64, SQUARE_LINE = SQUARE + 16, SQUARE_PACK = 16 };

/* A block reads a square, writes it as it is, keeps it turned and writes that. Zeros
 * behind the last row: ld is a multiple of 16, and a square of 64. */
template <typename T, typename F>
static __global__ void __launch_bounds__(MAP_BLOCK)
    quantize_turned_kernel(f8_t *dst, f8_t *turned, const T *src, int64_t rows,
                           int64_t cols, int64_t ld, const float *scale, float *amax)
{
    __shared__ pack<f8_t, SQUARE_PACK> square[SQUARE][SQUARE_LINE / SQUARE_PACK];
    const int64_t row = (int64_t)blockIdx.x * SQUARE,
                  col = (int64_t)blockIdx.y * SQUARE;
    const float by = *scale;
    uint32_t most = 0;

    for (int i = (int)threadIdx.x; i < SQUARE * SQUARE; i += MAP_BLOCK) {
        const int r = i / SQUARE, c = i % SQUARE;
        const bool there = row + r < rows && col + c < cols;
        const int64_t at = (row + r) * cols + col + c;
        const float x = there ? load_float(src, at) : 0.0f;
        const uint32_t u = magnitude(x);
        const f8_t y = there ? F::narrow(x * by) : 0;

        if (dst && there)
            dst[at] = y;
        square[c][r / SQUARE_PACK].v[r % SQUARE_PACK] = y;
        most = u > most ? u : most;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < SQUARE * SQUARE / SQUARE_PACK; i += MAP_BLOCK) {
        const int c = i / (SQUARE / SQUARE_PACK), r = i % (SQUARE / SQUARE_PACK);
        const int64_t at = (col + c) * ld + row + r * SQUARE_PACK;

        if (col + c < cols && row + r * SQUARE_PACK < ld)
            *reinterpret_cast<pack<f8_t, SQUARE_PACK> *>(turned + at) = square[c][r];
    }
    if (amax)
        note_amax(amax, most);
}

template <typename F>
static void quantize_turned(struct cuda_state *s, f8_t *dst, f8_t *turned,
                            const void *src, accel_dtype_t type, int64_t rows,
                            int64_t cols, const float *scale, float *amax)
{
    const int64_t ld = narrow_ld(rows);
    /* columns in y, which ends at 65535: 4 million of them */
    const dim3 grid((unsigned)((rows + SQUARE - 1) / SQUARE),
                    (unsigned)((cols + SQUARE - 1) / SQUARE));

    BY_TYPE(type, T,
            LAUNCH((quantize_turned_kernel<T, F>), grid, MAP_BLOCK, 0, s, dst, turned,
                   (const T *)src, rows, cols, ld, scale, amax));
}

void cuda_quantize_turned(const struct backend *be, void *dst, void *turned,
                          accel_dtype_t to, const void *src, accel_dtype_t type,
                          int64_t rows, int64_t cols, const float *scale, float *amax)
{
    struct cuda_state *s = cuda_state_of(be);

    if (to == ACCEL_F8E4M3)
        quantize_turned<to_e4m3>(s, (f8_t *)dst, (f8_t *)turned, src, type, rows, cols,
                                 scale, amax);
    else
        quantize_turned<to_e5m2>(s, (f8_t *)dst, (f8_t *)turned, src, type, rows, cols,
                                 scale, amax);
}

static __global__ void scale_kernel(float *scale, accel_dtype_t to, const float *amax)
{
    scale[0] = fp8_scale_for(*amax, to, 0, 1);
    scale[1] = 1 / scale[0];
}

void cuda_scale_of(const struct backend *be, float *scale, accel_dtype_t to,
                   const float *amax)
{
    LAUNCH(scale_kernel, 1, 1, 0, cuda_state_of(be), scale, to, amax);
}
