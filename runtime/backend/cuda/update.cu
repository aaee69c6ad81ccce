/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to the shards between two steps, on a CUDA device: the optimizers, which
 * zero the gradients, scaling, and sums over ranks. In place over flat float32 ranges;
 * the arithmetic is that of backend/maths.h.
 */
#include "common/wire.h"

#include "backend/cuda/sums.h"

enum { PACK = pack_size<float> };

/* ---- optimizers ------------------------------------------------------------------ */

/* One pass: reads and writes all four arrays once, which is all the time it takes. */
struct adamw_op {
    enum { INPUTS = 4 };
    float *p, *m, *v, *g;
    struct adamw_step k;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        ::load<V>(x[0], p + at);
        ::load<V>(x[1], m + at);
        ::load<V>(x[2], v + at);
        ::load<V>(x[3], g + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        for (int i = 0; i < V; i++) {
            maths_adamw(&x[0][i], &x[1][i], &x[2][i], x[3][i], &k);
            /* the next step adds to it; a separate pass would write the array again */
            x[3][i] = 0.0f;
        }
        store<V>(p + at, x[0]);
        store<V>(m + at, x[1]);
        store<V>(v + at, x[2]);
        store<V>(g + at, x[3]);
    }
};

void cuda_adamw(const struct backend *be, float *p, float *m, float *v, float *g,
                int64_t n, const struct adamw_step *k)
{
    /* packs where all four shards start at multiples of 16 bytes */
    map<PACK>(cuda_state_of(be), on_16(p, m, v, g), n, adamw_op{ p, m, v, g, *k });
}

/* Parameter, momentum and gradient; STEP is the optimizer that updates them. */
template <typename STEP> struct momentum_op {
    enum { INPUTS = 3 };
    float *p, *m, *g;
    STEP step;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        ::load<V>(x[0], p + at);
        ::load<V>(x[1], m + at);
        ::load<V>(x[2], g + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        for (int i = 0; i < V; i++) {
            step.apply(&x[0][i], &x[1][i], x[2][i]);
            x[2][i] = 0.0f;
        }
        store<V>(p + at, x[0]);
        store<V>(m + at, x[1]);
        store<V>(g + at, x[2]);
    }
};

/* the two optimizers with one moment differ in their arithmetic only */
struct sgd_momentum {
    struct sgd_step k;

    __device__ void apply(float *p, float *m, float g) const
    {
        maths_sgd_momentum(p, m, g, &k);
    }
};

struct lion {
    struct lion_step k;

    __device__ void apply(float *p, float *m, float g) const
    {
        maths_lion(p, m, g, &k);
    }
};

/* without momentum there is no third array to read */
struct sgd_op {
    enum { INPUTS = 2 };
    float *p, *g;
    struct sgd_step k;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        ::load<V>(x[0], p + at);
        ::load<V>(x[1], g + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        for (int i = 0; i < V; i++) {
            maths_sgd(&x[0][i], x[1][i], &k);
            x[1][i] = 0.0f;
        }
        store<V>(p + at, x[0]);
        store<V>(g + at, x[1]);
    }
};

void cuda_sgd(const struct backend *be, float *p, float *m, float *g, int64_t n,
              const struct sgd_step *k)
{
    if (m)
        map<PACK>(cuda_state_of(be), on_16(p, m, g), n,
                  momentum_op<sgd_momentum>{ p, m, g, { *k } });
    else
        map<PACK>(cuda_state_of(be), on_16(p, g), n, sgd_op{ p, g, *k });
}

void cuda_lion(const struct backend *be, float *p, float *m, float *g, int64_t n,
               const struct lion_step *k)
{
    map<PACK>(cuda_state_of(be), on_16(p, m, g), n,
              momentum_op<lion>{ p, m, g, { *k } });
}

/* ---- scale, sums over ranks ------------------------------------------------------ */

/* one product per element, so the pack changes no bit */
struct scale_op {
    enum { INPUTS = 1 };
    float *x, by;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = v[0][i] * by;
        store<V>(x + at, v[0]);
    }
};

/* x[n] *= by: clipping, and the mean over micro-batches */
void cuda_scale(const struct backend *be, float *x, int64_t n, float by)
{
    map<PACK>(cuda_state_of(be), on_16(x), n, scale_op{ x, by });
}

/* Reads parts of float32 or bfloat16 for sum_op. */
template <typename T> struct plain_parts {
    const T *x;
    int64_t n;

    template <int V> __device__ void read(int part, int64_t at, float *to) const
    {
        ::load<V>(to, x + part * n + at);
    }
};

void cuda_sum_parts(const struct backend *be, float *out, bool accumulate,
                    const float *first, const void *parts, accel_dtype_t type,
                    int count, int64_t n, float scale)
{
    /* the sum of no parts is 0 */
    if (count <= 0 && !accumulate)
        cuda_zero(be, out, (size_t)n * sizeof(*out));
    if (count <= 0)
        return;
    if (wire_is_scaled(type)) {
        cuda_sum_blocks(be, out, accumulate, first, parts, type, count, n, scale);
        return;
    }
    BY_TYPE(type, T,
            map<pack_size<T>>(
                cuda_state_of(be), on_16(out, first, parts) && n % pack_size<T> == 0, n,
                sum_op<plain_parts<T>>{
                    out, accumulate, first, { (const T *)parts, n }, count, scale }));
}
