/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer steps on a CUDA device where moments have 8 bits, or weights, gradients or
 * moments rest with scales; what is narrow besides may have any of the forms. Codes,
 * scales and draws are those of the CPU's kernels.
 *
 * A lane has an element, and its warp whole blocks of numbers that share a scale.
 */
#include "backend/cuda/update/lanes.h"
#include "backend/cuda/update/update_list.h"

static_assert(UPDATE_PART % LANES_BLOCK == 0, "warps stay whole");

/* ---- one element ----------------------------------------------------------------- */

/* A range in all its forms, and what its numbers are rounded by. */
struct range_forms {
    struct update_span x;
    struct scaled_arrays with;
    struct moment_key weights, state;
    bool nearest;
};

static __device__ inline float load_weight(const struct range_forms &r, int64_t i)
{
    return r.with.master.data ? widen_scaled(r.with.master, i)
           : r.x.narrow       ? bf16_to_f32(r.x.narrow[i])
                              : r.x.p[i];
}

static __device__ inline float load_gradient(const struct range_forms &r, int64_t i)
{
    return r.with.gradient.data ? widen_scaled(r.with.gradient, i) : r.x.g[i];
}

/* An array of state; 0 where there is none. */
template <bool POSITIVE>
static __device__ inline float load_state(const struct moments &plain,
                                          const struct scaled &with, int64_t i)
{
    return with.data     ? widen_scaled(with, i)
           : plain.scale ? widen_moment<POSITIVE>(plain, i)
           : plain.data  ? ((const float *)plain.data)[i]
                         : 0.0f;
}

/* The draw of element e. */
static __device__ inline uint32_t word_of(struct moment_key key, int64_t e)
{
    return moment_word(key, (uint32_t)e, (uint32_t)(e >> 32));
}

/* All lanes of a warp call this, and the next one. */
static __device__ inline void store_weight(const struct range_forms &r, int64_t i,
                                           bool inside, float p)
{
    const uint32_t word = word_of(r.weights, r.x.first + i);

    if (r.with.master.data) {
        const float by = scale_lanes(r.with.master, i, inside, p);

        put_code(r.with.master, i, inside, master_f16_of(p * by, word));
    } else if (inside && r.x.narrow) {
        r.x.narrow[i] = r.nearest ? f32_to_bf16(p) : master_of(p, word);
    } else if (inside) {
        r.x.p[i] = p;
    }
}

/* Squares are rounded by the upper half of the draw, other averages by the lower. */
template <bool POSITIVE>
static __device__ inline void store_state(const struct moments &plain,
                                          const struct scaled &with, int64_t i,
                                          bool inside, float v, uint32_t word)
{
    const uint32_t half = (POSITIVE ? word >> 16 : word) & 0xffffu;

    if (with.data) {
        const float y = v * scale_lanes(with, i, inside, v);

        put_code(with, i, inside,
                 POSITIVE ? moment_max(master_f16_of(y, half),
                                       moment_min(minifloat_bits(v), 1))
                          : moment_e4m3_of(y, half << 4));
    } else if (plain.scale) {
        narrow_moment<POSITIVE>(plain, i, inside, v, moment_dither(half));
    } else if (inside && plain.data) {
        ((float *)plain.data)[i] = v;
    }
}

/* ---- optimizers ------------------------------------------------------------------ */

struct adamw_lanes {
    using STEP = struct adamw_step;

    static STEP of(const struct optim_step &k)
    {
        return k.adamw;
    }
    static __device__ void apply(float *p, float *m, float *v, float g, bool,
                                 const STEP *k)
    {
        maths_adamw(p, m, v, g, k);
    }
};

struct sgd_lanes {
    using STEP = struct sgd_step;

    static STEP of(const struct optim_step &k)
    {
        return k.sgd;
    }
    static __device__ void apply(float *p, float *m, float *, float g, bool moves,
                                 const STEP *k)
    {
        if (moves)
            maths_sgd_momentum(p, m, g, k);
        else
            maths_sgd(p, g, k);
    }
};

struct lion_lanes {
    using STEP = struct lion_step;

    static STEP of(const struct optim_step &k)
    {
        return k.lion;
    }
    static __device__ void apply(float *p, float *m, float *, float g, bool,
                                 const STEP *k)
    {
        maths_lion(p, m, g, k);
    }
};

/* One element, in all lanes of a warp. Gradients with scales are left as they were. */
template <typename OP>
static __device__ inline void step_element(const struct range_forms &r, int64_t i,
                                           const typename OP::STEP &k)
{
    const bool inside = i < r.x.n;
    const uint32_t word = word_of(r.state, r.x.first + i);
    float p = 0, m = 0, v = 0;

    if (inside) {
        p = load_weight(r, i);
        m = load_state<false>(r.x.m, r.with.m, i);
        v = load_state<true>(r.x.v, r.with.v, i);
        OP::apply(&p, &m, &v, load_gradient(r, i), r.x.m.data != NULL, &k);
        if (!r.with.gradient.data)
            r.x.g[i] = 0.0f;
    }
    store_weight(r, i, inside, p);
    store_state<false>(r.x.m, r.with.m, i, inside, m, word);
    store_state<true>(r.x.v, r.with.v, i, inside, v, word);
}

/* ---- launches -------------------------------------------------------------------- */

/* The arrays with scales of a launch's ranges are passed by value as well, which halves
 * how many ranges the 4 KiB of arguments hold. */
enum { LANES_SPANS = 16 };

template <typename STEP> struct lanes_list {
    struct update_list<STEP, LANES_SPANS> plain;
    struct scaled_arrays with[LANES_SPANS];
};

/* A block per part. All its threads go through the whole part, also past the
 * range. */
template <typename OP>
static __global__ void __launch_bounds__(LANES_BLOCK)
    lanes_kernel(struct lanes_list<typename OP::STEP> list)
{
    ROW_STRIDE(part, list.plain.first[list.plain.count])
    {
        const int k = update_range(list.plain, part);
        const struct update_span x = list.plain.span[k];
        const int64_t at = (part - list.plain.first[k]) * UPDATE_PART;

        if (x.step < 0) {
            BLOCK_STRIDE(i, least(x.n - at, UPDATE_PART))
            x.g[at + i] = 0.0f;
            continue;
        }
        const struct range_forms r = { x, list.with[k],
                                       master_key_of(list.plain.by.draws, x.name),
                                       moment_key_of(list.plain.by.draws, x.name),
                                       list.plain.by.nearest };

        BLOCK_STRIDE(j, UPDATE_PART)
        step_element<OP>(r, at + j, list.plain.step[x.step]);
    }
}

template <typename OP>
static void update(struct cuda_state *s, const struct update_span *x, int count,
                   const struct optim_step *k)
{
    while (count > 0) {
        struct lanes_list<typename OP::STEP> list;
        const int n = take<OP>(&list.plain, x, count, k);

        for (int i = 0; i < n; i++)
            list.with[i] = x[i].scaled ? *x[i].scaled : scaled_arrays();
        LAUNCH((lanes_kernel<OP>), rows_grid(list.plain.first[n]), LANES_BLOCK, 0, s,
               list);
        x += n;
        count -= n;
    }
}

void cuda_update_lanes(const struct backend *be, const struct update_span *x, int count,
                       const struct optim_step *k)
{
    struct cuda_state *s = cuda_state_of(be);

    if (k[0].kind == ACCEL_ADAMW)
        update<adamw_lanes>(s, x, count, k);
    else if (k[0].kind == ACCEL_LION)
        update<lion_lanes>(s, x, count, k);
    else
        update<sgd_lanes>(s, x, count, k);
}
