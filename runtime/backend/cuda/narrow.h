/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floats for kernels that write a tensor, or read one. In: numbers as they are
 * stored. Out: codes, turned ones, and the largest magnitude. It goes into its place by
 * atomics on integers, whose result does not depend on their order.
 */
#ifndef ACCEL_BACKEND_CUDA_NARROW_H
#define ACCEL_BACKEND_CUDA_NARROW_H

#include "backend/cuda/vector.h"

/* What one thread narrows, from narrow_begin to narrow_end. */
struct narrowing {
    f8_t *copy; /* NULL: none */
    float by;
    bool wide; /* e5m2 */
    uint32_t most;
};

static __device__ inline struct narrowing narrow_begin(const struct narrow_copy &to)
{
    return { (f8_t *)to.copy, to.scale ? *to.scale : 1.0f, to.type == ACCEL_F8E5M2, 0 };
}

/* The code of x. The device's own conversion, where there is one, has the same bits but
 * for a NaN's, of which it knows one. */
static __device__ inline f8_t narrow_code(float x, bool wide)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;

    if (wide)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return (f8_t)pair;
#else
    return (f8_t)(wide ? f32_to_full_e5m2(x) : f32_to_full_e4m3(x));
#endif
}

/* The code of x, whose magnitude is noted: as the bits of a float32, 0 for NaN. */
static __device__ inline f8_t narrow_one(struct narrowing &n, float x)
{
    const uint32_t u = minifloat_bits(x) & 0x7fffffffu;

    n.most = u > 0x7f800000u || u < n.most ? n.most : u;
    return narrow_code(x * n.by, n.wide);
}

/* V numbers in a row, from element `at` on: a multiple of V. */
template <int V>
static __device__ inline void narrow_pack(struct narrowing &n, int64_t at,
                                          const float *x)
{
    pack<f8_t, V> p;

    for (int i = 0; i < V; i++)
        p.v[i] = narrow_one(n, x[i]);
    if (n.copy)
        *reinterpret_cast<pack<f8_t, V> *>(n.copy + at) = p;
}

/* All threads of a warp must call. */
static __device__ inline void narrow_end(const struct narrowing &n, float *amax)
{
    uint32_t most = n.most;

    if (!amax)
        return;
    for (int apart = WARP / 2; apart; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(WARP_MASK, most, apart);

        most = other > most ? other : most;
    }
    if (threadIdx.x % WARP == 0)
        atomicMax(reinterpret_cast<unsigned *>(amax), most);
}

/* to[V] = v in T; v becomes what is stored. */
template <int V, typename T>
static __device__ inline void store_rounded(T *to, float *v)
{
    pack<T, V> p;

    for (int i = 0; i < V; i++) {
        store_float(p.v, i, v[i]);
        v[i] = load_float(p.v, i);
    }
    *reinterpret_cast<pack<T, V> *>(to) = p;
}

/* ---- turned copies --------------------------------------------------------------- */

/* A square of a turned matrix: its lines are written in packs of 16 bytes, and lie
 * apart so that neither way has all threads of a warp in one bank. */
enum { SQUARE = 64, SQUARE_LINE = SQUARE + 16, SQUARE_PACK = 16 };

/* SOURCE has value(at), which returns element `at` as it is stored, and may be what
 * stores it. A block per square; columns in y. Zeros behind the last row; ld is
 * narrow_ld(rows). */
template <typename SOURCE>
static __global__ void __launch_bounds__(MAP_BLOCK)
    turn_kernel(SOURCE source, struct narrow_copy to, int64_t ld)
{
    __shared__ pack<f8_t, SQUARE_PACK> square[SQUARE][SQUARE_LINE / SQUARE_PACK];
    const int64_t row = (int64_t)blockIdx.x * SQUARE,
                  col = (int64_t)blockIdx.y * SQUARE;
    f8_t *const turned = (f8_t *)to.turned;
    struct narrowing n = narrow_begin(to);

    for (int i = (int)threadIdx.x; i < SQUARE * SQUARE; i += MAP_BLOCK) {
        const int r = i / SQUARE, c = i % SQUARE;
        const int64_t at = (row + r) * to.cols + col + c;
        f8_t y = 0;

        if (row + r < to.rows && col + c < to.cols) {
            y = narrow_one(n, source.value(at));
            if (n.copy)
                n.copy[at] = y;
        }
        square[c][r / SQUARE_PACK].v[r % SQUARE_PACK] = y;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < SQUARE * SQUARE / SQUARE_PACK; i += MAP_BLOCK) {
        const int c = i / (SQUARE / SQUARE_PACK), r = i % (SQUARE / SQUARE_PACK);
        const int64_t at = (col + c) * ld + row + r * SQUARE_PACK;

        if (col + c < to.cols && row + r * SQUARE_PACK < ld)
            *reinterpret_cast<pack<f8_t, SQUARE_PACK> *>(turned + at) = square[c][r];
    }
    narrow_end(n, to.amax);
}

/* The y of a grid ends at 65535: 4 million columns. */
template <typename SOURCE>
static void turn(struct cuda_state *s, SOURCE source, const struct narrow_copy *to)
{
    const dim3 grid((unsigned)((to->rows + SQUARE - 1) / SQUARE),
                    (unsigned)((to->cols + SQUARE - 1) / SQUARE));

    LAUNCH((turn_kernel<SOURCE>), grid, MAP_BLOCK, 0, s, source, *to,
           narrow_ld(to->rows));
}

#endif
