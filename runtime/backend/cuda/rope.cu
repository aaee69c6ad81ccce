/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions on a CUDA device: a block takes one position of some samples and
 * computes sine and cosine of its angles once, in double, as on the CPU.
 */
#include "backend/cuda/vector.h"

/* ROPE_GRID: about as many blocks as fill a device; short sequences are cut by
 * samples. */
enum { ROPE_BLOCK = 128, ROPE_GRID = 2048 };

template <int V, typename T>
static __device__ inline void turn(T *dst, const T *src, const float *c, const float *s,
                                   int64_t pairs, bool add)
{
    /* pair (i, i + pairs): u = x cos - y sin, v = y cos + x sin */
    float x[V], y[V], u[V], v[V];

    load<V>(x, src);
    load<V>(y, src + pairs);
    for (int i = 0; i < V; i++) {
        u[i] = x[i] * c[i] - y[i] * s[i];
        v[i] = y[i] * c[i] + x[i] * s[i];
    }
    store<V>(dst, add, u);
    store<V>(dst + pairs, add, v);
}

/* dst, src [batch, time, heads, head_width]. x: positions, y: slices of the samples. */
template <int V, typename T>
static __global__ void __launch_bounds__(ROPE_BLOCK)
    rope_kernel(struct rope p, T *dst, const T *src, bool back, bool add)
{
    __shared__ float c[ROPE_MAX_PAIRS], s[ROPE_MAX_PAIRS];
    const int64_t pairs = p.head_width / 2, packs = pairs / V;

    ROW_STRIDE(t, p.time)
    {
        BLOCK_STRIDE(i, pairs)
        {
            double angle = (double)(p.first + t) * (double)p.frequency[i], sine, cosine;

            /* double, as on the CPU: far positions have angles of 10^5 radians */
            sincos(angle, &sine, &cosine);
            c[i] = (float)cosine;
            s[i] = (float)(back ? -sine : sine);
        }
        __syncthreads();
        /* dst[b, t, h, :]; the sines serve all heads and samples of the block */
        for (int64_t b = blockIdx.y; b < p.batch; b += gridDim.y)
            BLOCK_STRIDE(k, p.heads * packs)
            {
                int64_t i;
                const int64_t h = divide(k, packs, &i);
                const int64_t at = ((b * p.time + t) * p.heads + h) * p.head_width;

                turn<V>(dst + at + i * V, src + at + i * V, c + i * V, s + i * V, pairs,
                        add);
            }
        __syncthreads();
    }
}

template <typename T>
static void rope(struct cuda_state *s, const struct rope *p, T *dst, const T *src,
                 bool back, bool add)
{
    const int64_t pairs = p->head_width / 2;
    const int64_t wanted = p->time > 0 ? (ROPE_GRID + p->time - 1) / p->time : 0;
    const int64_t slices = least(wanted, p->batch);
    const dim3 grid(rows_grid(p->heads * pairs > 0 ? p->time : 0), (unsigned)slices);

    if (on_16(dst, src) && pairs % pack_size<T> == 0)
        LAUNCH((rope_kernel<pack_size<T>, T>), grid, ROPE_BLOCK, 0, s, *p, dst, src,
               back, add);
    else
        LAUNCH((rope_kernel<1, T>), grid, ROPE_BLOCK, 0, s, *p, dst, src, back, add);
}

void cuda_rope(const struct backend *be, void *dst, const void *src,
               const struct rope *p, bool back, bool add)
{
    BY_TYPE(p->type, T,
            rope(cuda_state_of(be), p, (T *)dst, (const T *)src, back, add));
}
