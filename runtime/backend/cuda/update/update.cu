/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to the shards between two steps, on a CUDA device: the optimizers, which
 * zero the gradients, scaling, limits, moving averages and sums over ranks. In place
 * over flat ranges, float32 but for narrow masters; the arithmetic is that of
 * backend/maths.h.
 */
#include "numbers/wire.h"

#include "backend/cuda/update/sums.h"
#include "backend/cuda/update/update_list.h"

enum { PACK = pack_size<float> };

/* ---- optimizers ------------------------------------------------------------------ */

/* Each OP has STEP, its constants; of, which picks them; and is made from a range, from
 * element `at` of it on. INPUTS, load and finish are those of `map`. MASTERS: those of
 * master_places.h. */

/* One pass: reads and writes all four arrays once, which is all the time it takes. */
template <typename MASTERS> struct adamw_op {
    using STEP = struct adamw_step;
    enum { INPUTS = 4 };
    MASTERS p;
    float *m, *v, *g;
    STEP k;

    static STEP of(const struct optim_step &k)
    {
        return k.adamw;
    }
    __device__ adamw_op(const struct update_span &x, int64_t at, const STEP &step,
                        const struct rounding &by)
        : p(x, at, by), m((float *)x.m.data + at), v((float *)x.v.data + at),
          g(x.g + at), k(step)
    {
    }
    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        p.template load<V>(at, x[0]);
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
        p.template store<V>(at, x[0]);
        store<V>(m + at, x[1]);
        store<V>(v + at, x[2]);
        store<V>(g + at, x[3]);
    }
};

/* Parameter, momentum and gradient; RULE is the optimizer that updates them. */
template <typename RULE, typename MASTERS> struct momentum_op {
    using STEP = typename RULE::STEP;
    enum { INPUTS = 3 };
    MASTERS p;
    float *m, *g;
    STEP k;

    static STEP of(const struct optim_step &k)
    {
        return RULE::of(k);
    }
    __device__ momentum_op(const struct update_span &x, int64_t at, const STEP &step,
                           const struct rounding &by)
        : p(x, at, by), m((float *)x.m.data + at), g(x.g + at), k(step)
    {
    }
    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        p.template load<V>(at, x[0]);
        ::load<V>(x[1], m + at);
        ::load<V>(x[2], g + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        for (int i = 0; i < V; i++) {
            RULE::apply(&x[0][i], &x[1][i], x[2][i], &k);
            x[2][i] = 0.0f;
        }
        p.template store<V>(at, x[0]);
        store<V>(m + at, x[1]);
        store<V>(g + at, x[2]);
    }
};

/* the two optimizers with one moment differ in their arithmetic only */
struct sgd_momentum {
    using STEP = struct sgd_step;

    static STEP of(const struct optim_step &k)
    {
        return k.sgd;
    }
    static __device__ void apply(float *p, float *m, float g, const STEP *k)
    {
        maths_sgd_momentum(p, m, g, k);
    }
};

struct lion {
    using STEP = struct lion_step;

    static STEP of(const struct optim_step &k)
    {
        return k.lion;
    }
    static __device__ void apply(float *p, float *m, float g, const STEP *k)
    {
        maths_lion(p, m, g, k);
    }
};

/* without momentum there is no third array to read */
template <typename MASTERS> struct sgd_op {
    using STEP = struct sgd_step;
    enum { INPUTS = 2 };
    MASTERS p;
    float *g;
    STEP k;

    static STEP of(const struct optim_step &k)
    {
        return k.sgd;
    }
    __device__ sgd_op(const struct update_span &x, int64_t at, const STEP &step,
                      const struct rounding &by)
        : p(x, at, by), g(x.g + at), k(step)
    {
    }
    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        p.template load<V>(at, x[0]);
        ::load<V>(x[1], g + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        for (int i = 0; i < V; i++) {
            maths_sgd(&x[0][i], x[1][i], &k);
            x[1][i] = 0.0f;
        }
        p.template store<V>(at, x[0]);
        store<V>(g + at, x[1]);
    }
};

/* A block per part, so that short ranges and long ones share the device. The result of
 * an element does not depend on its part. */
template <typename OP>
static __global__ void __launch_bounds__(MAP_BLOCK)
    update_kernel(struct update_list<typename OP::STEP> list)
{
    ROW_STRIDE(part, list.first[list.count])
    {
        const int k = update_range(list, part);
        const struct update_span x = list.span[k];
        const int64_t at = (part - list.first[k]) * UPDATE_PART;
        const int64_t n = least(x.n - at, UPDATE_PART);
        const uintptr_t places = (uintptr_t)x.p | (uintptr_t)x.narrow |
                                 (uintptr_t)x.m.data | (uintptr_t)x.v.data |
                                 (uintptr_t)x.g;

        if (x.step < 0) {
            BLOCK_STRIDE(i, n)
            x.g[at + i] = 0.0f;
            continue;
        }
        if (places % 16 == 0)
            map_elements<PACK>(OP(x, at, list.step[x.step], list.by), threadIdx.x,
                               MAP_BLOCK, n);
        else
            map_elements<1>(OP(x, at, list.step[x.step], list.by), threadIdx.x,
                            MAP_BLOCK, n);
    }
}

/* A launch for each 32 ranges. */
template <typename OP>
static void update(struct cuda_state *s, const struct update_span *x, int count,
                   const struct optim_step *k)
{
    while (count > 0) {
        struct update_list<typename OP::STEP> list;
        const int n = take<OP>(&list, x, count, k);

        LAUNCH((update_kernel<OP>), rows_grid(list.first[n]), MAP_BLOCK, 0, s, list);
        x += n;
        count -= n;
    }
}

/* The first range with arrays, of which those without constants have none; NULL: there
 * is none. */
static const struct update_span *with_arrays(const struct update_span *x, int count)
{
    while (count > 0 && x->step < 0) {
        x++;
        count--;
    }
    return count > 0 ? x : NULL;
}

/* first: of the ranges with arrays, or NULL. One kind for all; without trained ranges
 * it does not matter which. */
template <typename MASTERS>
static void update_masters(struct cuda_state *s, const struct update_span *x, int count,
                           const struct optim_step *k, const struct update_span *first)
{
    if (count > 0 && k[0].kind == ACCEL_ADAMW)
        update<adamw_op<MASTERS>>(s, x, count, k);
    else if (count > 0 && k[0].kind == ACCEL_LION)
        update<momentum_op<lion, MASTERS>>(s, x, count, k);
    else if (first && first->m.data)
        update<momentum_op<sgd_momentum, MASTERS>>(s, x, count, k);
    else
        update<sgd_op<MASTERS>>(s, x, count, k);
}

void cuda_update(const struct backend *be, const struct update_span *x, int count,
                 const struct optim_step *k)
{
    const struct update_span *first = with_arrays(x, count);
    struct cuda_state *s = cuda_state_of(be);

    if (first && (first->m.scale || first->scaled))
        cuda_update_lanes(be, x, count, k);
    else if (first && first->narrow)
        update_masters<narrow_masters>(s, x, count, k, first);
    else
        update_masters<wide_masters>(s, x, count, k, first);
}

/* ---- scale, clamp, blend, sums over ranks ---------------------------------------- */

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

/* the limit of a gradient's elements */
struct clamp_op {
    enum { INPUTS = 1 };
    float *x, limit;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = maths_clamp(v[0][i], limit);
        store<V>(x + at, v[0]);
    }
};

void cuda_clamp(const struct backend *be, float *x, int64_t n, float limit)
{
    map<PACK>(cuda_state_of(be), on_16(x), n, clamp_op{ x, limit });
}

/* one pass over both arrays: reading and writing them is all the time it takes */
struct blend_op {
    enum { INPUTS = 2 };
    float *x;
    const float *y;
    float keep, take;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
        ::load<V>(v[1], y + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        for (int i = 0; i < V; i++)
            v[0][i] = keep * v[0][i] + take * v[1][i];
        store<V>(x + at, v[0]);
    }
};

void cuda_blend(const struct backend *be, float *x, const float *y, int64_t n,
                float keep, float take)
{
    map<PACK>(cuda_state_of(be), on_16(x, y), n, blend_op{ x, y, keep, take });
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
