/* SPDX-License-Identifier: Apache-2.0
 *
 * Two-dimensional convolution: columns of many places at a time, of all images in one
 * row, one product each. cuda_sizes.h says how many. Gradients of x are gathered, not
 * scattered, so that every sum has one order. Columns (im2col): cols[(channel kh + u)
 * kw + v][place] = x(channel, row stride - pad + u, col stride - pad + v), so that
 * weight [outputs, depth] times cols is the convolution.
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda_sizes.h"

enum { THREADS = 256 };

/* Places [first, first + n), counted over all images; rows of the matrices are `ld`
 * elements apart. */
struct piece {
    struct conv p;
    int64_t taps, places, first, n, ld;
};

static struct piece piece_of(const struct conv *p, const struct cuda_conv_plan *c,
                             int64_t first, int64_t n)
{
    struct piece k = { *p, c->taps, c->places, first, n, cuda_conv_ld(n) };

    return k;
}

/* x: elements; y: rows, which the kernels step over. */
static dim3 grid_of(int64_t n, int64_t rows)
{
    return dim3(elements_grid(n, THREADS), (unsigned)(rows < 4096 ? rows : 4096));
}

/* cols[k][j]: tap k % taps of channel k / taps around place first + j, zero in the
 * padding. */
template <typename T>
static __global__ void columns_kernel(T *cols, const T *x, struct piece k,
                                      int64_t depth)
{
    const struct conv p = k.p;

    GRID_STRIDE(j, k.n)
    {
        /* threads of a warp take adjacent places: they read along a row of x and write
         * along a row of cols */
        const int64_t place = (k.first + j) % k.places;
        const int64_t top = place / p.out_w * p.stride - p.pad;
        const int64_t left = place % p.out_w * p.stride - p.pad;
        const T *image = x + (k.first + j) / k.places * p.channels * p.height * p.width;

        for (int64_t d = blockIdx.y; d < depth; d += gridDim.y) {
            const int64_t tap = d % k.taps, r = top + tap / p.kernel_w;
            const int64_t c = left + tap % p.kernel_w;
            const bool inside = r >= 0 && r < p.height && c >= 0 && c < p.width;

            cols[d * k.ld + j] =
                inside ? image[(d / k.taps * p.height + r) * p.width + c] : T{};
        }
    }
}

/* Index of place first + j, channel o, in y or dy. */
static __device__ inline int64_t output_at(const struct piece &k, int64_t o, int64_t j)
{
    /* y[image][o][place], with `at` = image places + place */
    const int64_t at = k.first + j;

    return (at / k.places * k.p.outputs + o) * k.places + at % k.places;
}

/* y = act(sum + bias), pre = sum + bias, from [outputs][n] back to the layout of y. */
template <typename T>
static __global__ void finish_kernel(T *y, T *pre, const float *sum, const T *bias,
                                     struct piece k, accel_activation_t act)
{
    GRID_STRIDE(j, k.n)
    for (int64_t o = blockIdx.y; o < k.p.outputs; o += gridDim.y) {
        const int64_t to = output_at(k, o, j);
        float v = sum[o * k.ld + j];

        if (bias)
            v += load_float(bias, o);
        if (pre)
            store_float(pre, to, v);
        store_float(y, to, maths_act(v, act));
    }
}

/* out[o][j] = dy of channel o at place first + j: dy in the layout that the product
 * takes. */
template <typename T>
static __global__ void delta_kernel(T *out, const T *dy, struct piece k)
{
    GRID_STRIDE(j, k.n)
    for (int64_t o = blockIdx.y; o < k.p.outputs; o += gridDim.y)
        out[o * k.ld + j] = dy[output_at(k, o, j)];
}

/* dx (+)= sum of the columns that an element was copied into, for channels [from, from
 * + count) of the images that start with place `first`. Tap (u, v) copied it for place
 * (y, x) / stride, if that is whole and inside. */
template <typename T>
static __global__ void gather_kernel(T *dx, bool add, const float *cols, struct piece k,
                                     int64_t from, int64_t count)
{
    const struct conv p = k.p;
    const int64_t plane = p.height * p.width, images = k.n / k.places;

    GRID_STRIDE(i, images * count * plane)
    {
        /* i = ((image count + channel) height + r) width + c */
        const int64_t c = i % p.width, r = i / p.width % p.height;
        const int64_t channel = i / plane % count, image = i / plane / count;
        const float *from_image = cols + channel * k.taps * k.ld + image * k.places;
        float sum = 0.0f;

        for (int64_t u = 0; u < p.kernel_h; u++)
            for (int64_t v = 0; v < p.kernel_w; v++) {
                /* in units of 1 / stride: the place whose tap (u, v) is here */
                const int64_t y = r + p.pad - u, x = c + p.pad - v;
                const bool met = y >= 0 && x >= 0 && y % p.stride == 0 &&
                                 x % p.stride == 0 && y / p.stride < p.out_h &&
                                 x / p.stride < p.out_w;

                if (met)
                    sum += from_image[(u * p.kernel_w + v) * k.ld +
                                      y / p.stride * p.out_w + x / p.stride];
            }
        store_float(dx,
                    ((k.first / k.places + image) * p.channels + from + channel) *
                            plane +
                        r * p.width + c,
                    add, sum);
    }
}

/* One block per output channel. */
template <typename T>
static __global__ void bias_kernel(float *dbias, const T *dy, struct piece k)
{
    __shared__ float room[WARP];

    ROW_STRIDE(o, k.p.outputs)
    {
        float sum = 0.0f;

        /* 256 partial sums, then block_sum: one order for a given n */
        BLOCK_STRIDE(j, k.n)
        sum += load_float(dy, output_at(k, o, j));
        sum = block_sum(sum, room);
        if (threadIdx.x == 0)
            dbias[o] += sum;
    }
}

size_t cuda_conv_scratch(const struct backend *be, const struct conv *p, bool backward)
{
    (void)be;
    return cuda_conv_bytes(p, backward);
}

/* y [batch, outputs, out_h, out_w] from x and weight [outputs, depth], `chunk` places
 * per pass. Scratch: columns in type, then float32 sums. */
template <typename T>
static void forward(struct cuda_state *s, const struct conv *p,
                    const struct conv_forward *f, void *scratch)
{
    const struct cuda_conv_plan c = cuda_conv_plan_of(p);
    const T *x = (const T *)f->x, *bias = (const T *)f->bias;
    T *y = (T *)f->y, *pre = (T *)f->pre, *cols = (T *)scratch;
    float *sum = (float *)(cols + c.depth * cuda_conv_ld(c.chunk));
    const accel_activation_t act = f->act;
    const int64_t depth = c.depth;
    struct gemm g = {};

    /* [outputs, depth] [depth, n] -> sum [outputs, n], n places of all images */
    g.m = p->outputs;
    g.k = g.lda = c.depth;
    g.a = f->weight;
    g.b = cols;
    g.a_type = g.b_type = p->type;
    g.c = sum;
    g.c_type = ACCEL_F32;
    for (int64_t first = 0; first < c.all; first += c.chunk) {
        const struct piece k =
            piece_of(p, &c, first, c.all - first < c.chunk ? c.all - first : c.chunk);

        g.n = k.n;
        g.ldb = g.ldc = k.ld;
        LAUNCH(columns_kernel<T>, grid_of(k.n, depth), THREADS, 0, s, cols, x, k,
               depth);
        cuda_gemm(&s->be, &g);
        LAUNCH(finish_kernel<T>, grid_of(k.n, p->outputs), THREADS, 0, s, y, pre, sum,
               bias, k, act);
    }
}

void cuda_conv(const struct backend *be, const struct conv *p,
               const struct conv_forward *f, void *scratch)
{
    struct cuda_state *s = cuda_state_of(be);

    BY_TYPE(p->type, T, forward<T>(s, p, f, scratch));
}

/* dweight += dy columns^T, piece by piece; the order of the pieces fixes the sum. */
template <typename T>
static void weight_grad(struct cuda_state *s, const struct conv *p,
                        const struct conv_backward *b, void *scratch)
{
    const struct cuda_conv_plan c = cuda_conv_plan_of(p);
    const T *x = (const T *)b->x, *dy = (const T *)b->dy;
    T *cols = (T *)scratch, *delta = cols + c.depth * cuda_conv_ld(c.chunk);
    const int64_t depth = c.depth;
    struct gemm g = {};

    /* [outputs, n] [depth, n]^T -> dweight [outputs, depth] */
    g.trans_b = g.add = true;
    g.m = p->outputs;
    g.n = g.ldc = c.depth;
    g.a = delta;
    g.b = cols;
    g.a_type = g.b_type = p->type;
    g.c = b->dweight;
    g.c_type = ACCEL_F32;
    for (int64_t first = 0; first < c.all; first += c.chunk) {
        const struct piece k =
            piece_of(p, &c, first, c.all - first < c.chunk ? c.all - first : c.chunk);

        g.k = k.n;
        g.lda = g.ldb = k.ld;
        LAUNCH(columns_kernel<T>, grid_of(k.n, depth), THREADS, 0, s, cols, x, k,
               depth);
        LAUNCH(delta_kernel<T>, grid_of(k.n, p->outputs), THREADS, 0, s, delta, dy, k);
        cuda_gemm(&s->be, &g);
    }
}

/* Some channels of some images: columns = weight^T dy, then gathered into dx. */
template <typename T>
static void input_part(struct cuda_state *s, const struct conv_backward *b,
                       const struct cuda_conv_plan *c, const struct piece k,
                       float *cols, const T *delta, int64_t ld, int64_t from)
{
    const int64_t left = k.p.channels - from;
    const int64_t count = left < c->channels ? left : c->channels;
    T *dx = (T *)b->dx;
    const bool add = b->add;
    struct gemm g = {};

    /* [outputs, count taps]^T [outputs, n] -> cols [count taps, n] */
    g.trans_a = true;
    g.m = count * c->taps;
    g.n = k.n;
    g.k = k.p.outputs;
    g.a = (const T *)b->weight + from * c->taps;
    g.b = delta;
    g.a_type = g.b_type = k.p.type;
    g.lda = c->depth;
    g.ldb = ld;
    g.ldc = k.ld;
    g.c = cols;
    g.c_type = ACCEL_F32;
    cuda_gemm(&s->be, &g);
    LAUNCH(gather_kernel<T>,
           elements_grid(k.n / k.places * count * k.p.height * k.p.width, THREADS),
           THREADS, 0, s, dx, add, cols, k, from, count);
}

/* dx, whole images per pass. Scratch: float32 columns, then dy in the layout of the
 * product. */
template <typename T>
static void input_grad(struct cuda_state *s, const struct conv *p,
                       const struct conv_backward *b, void *scratch)
{
    const struct cuda_conv_plan c = cuda_conv_plan_of(p);
    /* whole images, so that each element of dx is gathered once */
    const int64_t step = c.images * c.places;
    float *cols = (float *)scratch;
    T *delta = (T *)(cols + c.channels * c.taps * cuda_conv_ld(step));
    const T *dy = (const T *)b->dy;

    for (int64_t first = 0; first < c.all; first += step) {
        const struct piece k =
            piece_of(p, &c, first, c.all - first < step ? c.all - first : step);
        /* one image's dy lies as the product needs it */
        const T *in = delta;

        if (c.images > 1)
            LAUNCH(delta_kernel<T>, grid_of(k.n, p->outputs), THREADS, 0, s, delta, dy,
                   k);
        else
            in = dy + first * p->outputs;
        for (int64_t from = 0; from < p->channels; from += c.channels)
            input_part<T>(s, b, &c, k, cols, in, c.images > 1 ? k.ld : k.n, from);
    }
}

void cuda_conv_grad(const struct backend *be, const struct conv *p,
                    const struct conv_backward *b, void *scratch)
{
    struct cuda_state *s = cuda_state_of(be);
    const struct cuda_conv_plan c = cuda_conv_plan_of(p);
    /* all places of all images at once: the bias needs no columns */
    const struct piece whole = piece_of(p, &c, 0, c.all);
    const void *dy = b->dy;
    float *dbias = b->dbias;

    /* scratch is shared by the two: the queue runs them one after the other */
    if (b->dx)
        BY_TYPE(p->type, T, input_grad<T>(s, p, b, scratch));
    if (b->dweight)
        BY_TYPE(p->type, T, weight_grad<T>(s, p, b, scratch));
    if (dbias && c.all)
        BY_TYPE(p->type, T,
                LAUNCH(bias_kernel<T>, rows_grid(p->outputs), THREADS, 0, s, dbias,
                       (const T *)dy, whole));
}
