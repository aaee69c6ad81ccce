/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pooling over square windows. The forward keeps the place of each maximum. The
 * backward gathers, for each element, the windows whose maximum it was, in order: no
 * atomics.
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda_sizes.h"

enum { THREADS = 256 };

/* The first largest element of a window. A NaN wins, and the first one stays. */
template <typename T>
static __global__ void maxpool_kernel(T *y, int32_t *where, const T *x, struct pool p)
{
    const int64_t out = p.out_h * p.out_w;

    GRID_STRIDE(i, p.planes * out)
    {
        /* one thread per output: windows of one row of y are adjacent in x */
        const T *plane = x + i / out * p.height * p.width;
        const int64_t top = i % out / p.out_w * p.stride;
        const int64_t left = i % p.out_w * p.stride;
        int64_t at = top * p.width + left;
        float best = load_float(plane, at);

        for (int64_t u = 0; u < p.size; u++)
            for (int64_t v = 0; v < p.size; v++) {
                const int64_t k = (top + u) * p.width + left + v;
                const float value = load_float(plane, k);

                if (value > best || (value != value && best == best)) {
                    best = value;
                    at = k;
                }
            }
        where[i] = (int32_t)at;
        y[i] = plane[at];
    }
}

/* The first window along one side that covers `at`. */
static __device__ inline int64_t first_window(const struct pool &p, int64_t at)
{
    return at < p.size ? 0 : (at - p.size) / p.stride + 1;
}

static __device__ inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* dx [planes, height, width] (+)= dy [planes, out_h, out_w] where `where` points to the
 * element. */
template <typename T>
static __global__ void maxpool_grad_kernel(T *dx, bool add, const T *dy,
                                           const int32_t *where, struct pool p)
{
    const int64_t in = p.height * p.width, out = p.out_h * p.out_w;

    GRID_STRIDE(i, p.planes * in)
    {
        const int64_t plane = i / in * out, at = i % in;
        const int64_t r = at / p.width, c = at % p.width;
        /* window u covers rows u stride ... u stride + size - 1 */
        const int64_t last_row = smaller(r / p.stride, p.out_h - 1);
        const int64_t last_col = smaller(c / p.stride, p.out_w - 1);
        float sum = 0.0f;

        for (int64_t u = first_window(p, r); u <= last_row; u++)
            for (int64_t v = first_window(p, c); v <= last_col; v++) {
                const int64_t k = plane + u * p.out_w + v;

                /* at most (size / stride + 1)^2 windows; each has one maximum */
                if (where[k] == at)
                    sum += load_float(dy, k);
            }
        store_float(dx, i, add, sum);
    }
}

void cuda_maxpool(const struct backend *be, const struct pool *p, void *y,
                  int32_t *where, const void *x)
{
    struct cuda_state *s = cuda_state_of(be);
    const unsigned grid = elements_grid(p->planes * p->out_h * p->out_w, THREADS);
    const struct pool pool = *p;

    BY_TYPE(p->type, T,
            LAUNCH(maxpool_kernel<T>, grid, THREADS, 0, s, (T *)y, where, (const T *)x,
                   pool));
}

size_t cuda_maxpool_scratch(const struct backend *be, const struct pool *p)
{
    (void)be;
    return cuda_maxpool_bytes(p);
}

void cuda_maxpool_grad(const struct backend *be, const struct pool *p, void *dx,
                       bool add, const void *dy, const int32_t *where, void *scratch)
{
    struct cuda_state *s = cuda_state_of(be);
    const unsigned grid = elements_grid(p->planes * p->height * p->width, THREADS);
    const struct pool pool = *p;

    (void)scratch;
    BY_TYPE(p->type, T,
            LAUNCH(maxpool_grad_kernel<T>, grid, THREADS, 0, s, (T *)dx, add,
                   (const T *)dy, where, pool));
}
