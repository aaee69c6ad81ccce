/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer steps with moments of 8 bits on a CUDA device, and those moments to float32
 * and back. The code, its scale and its draws are those of backend/moments.h.
 *
 * A lane has an element, and 16 of them a block, whose largest comes from all 16.
 */
#include "backend/cuda/update_list.h"
#include "backend/moments.h"

enum { LANES = MOMENT_BLOCK, STEP_BLOCK = 256 };

static_assert(UPDATE_PART % STEP_BLOCK == 0, "warps stay whole");

/* ---- one block ------------------------------------------------------------------- */

/* The largest of 16 lanes, in all of them. */
static __device__ inline uint32_t lanes_max(uint32_t v)
{
    for (int apart = LANES / 2; apart; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(WARP_MASK, v, apart);

        v = v > other ? v : other;
    }
    return v;
}

/* This lane's element of a block, with the block's scale. */
struct lane {
    uint8_t *code;
    uint16_t *scale;
    /* the range has it; if not, it counts as 0 */
    bool inside;
    /* of the block's first element, which writes the scale */
    bool first;
};

static __device__ inline struct lane lane_of(const struct moments &x, int64_t i, int l,
                                             bool inside)
{
    return { (uint8_t *)x.data + i, x.scale + (i - l) / MOMENT_BLOCK, inside,
             inside && l == 0 };
}

template <bool POSITIVE> static __device__ inline float widen_lane(const struct lane &a)
{
    if (!a.inside)
        return 0.0f;
    return POSITIVE ? moment_square(*a.code, bf16_to_f32(*a.scale))
                    : moment_signed(*a.code, bf16_to_f32(*a.scale));
}

/* All lanes of a warp must call: they have read the scale before one writes it. */
template <bool POSITIVE>
static __device__ inline void narrow_lane(const struct lane &a, float x,
                                          uint32_t dither)
{
    const uint32_t most = lanes_max(moment_bits(x) & 0x7fffffffu);
    const uint32_t unit =
        moment_unit_bits(most, POSITIVE ? MOMENT_SQUARE_TOP : MOMENT_SIGNED_TOP);
    const float per_unit = 1.0f / moment_float(unit);

    if (a.inside)
        *a.code = (uint8_t)(POSITIVE ? moment_of_square(x, per_unit, dither)
                                     : moment_of_signed(x, per_unit, dither));
    if (a.first)
        *a.scale = (uint16_t)(unit >> 16);
}

/* ---- optimizers ------------------------------------------------------------------ */

struct adamw_codes {
    using STEP = struct adamw_step;

    static STEP of(const struct optim_step &k)
    {
        return k.adamw;
    }
    template <typename MASTERS>
    static __device__ void apply(const struct update_span &x, const MASTERS &masters,
                                 int64_t i, int l, bool inside, const STEP &k,
                                 uint32_t word)
    {
        const struct lane am = lane_of(x.m, i, l, inside);
        const struct lane av = lane_of(x.v, i, l, inside);
        float m = widen_lane<false>(am), v = widen_lane<true>(av);

        if (inside) {
            float p;

            masters.template load<1>(i, &p);
            maths_adamw(&p, &m, &v, x.g[i], &k);
            masters.template store<1>(i, &p);
            x.g[i] = 0.0f;
        }
        narrow_lane<true>(av, v, moment_dither(word >> 16));
        narrow_lane<false>(am, m, moment_dither(word));
    }
};

struct lion_codes {
    using STEP = struct lion_step;

    static STEP of(const struct optim_step &k)
    {
        return k.lion;
    }
    template <typename MASTERS>
    static __device__ void apply(const struct update_span &x, const MASTERS &masters,
                                 int64_t i, int l, bool inside, const STEP &k,
                                 uint32_t word)
    {
        const struct lane am = lane_of(x.m, i, l, inside);
        float m = widen_lane<false>(am);

        if (inside) {
            float p;

            masters.template load<1>(i, &p);
            maths_lion(&p, &m, x.g[i], &k);
            masters.template store<1>(i, &p);
            x.g[i] = 0.0f;
        }
        narrow_lane<false>(am, m, moment_dither(word));
    }
};

/* A block per part. All its threads go through the whole part, also behind the
 * range. */
template <typename OP, typename MASTERS>
static __global__ void __launch_bounds__(STEP_BLOCK)
    moments_kernel(struct update_list<typename OP::STEP> list)
{
    const int l = (int)threadIdx.x % LANES;

    ROW_STRIDE(part, list.first[list.count])
    {
        const int k = update_range(list, part);
        const struct update_span x = list.span[k];
        const int64_t at = (part - list.first[k]) * UPDATE_PART;
        const struct moment_key key = moment_key_of(list.by.draws, x.name);

        if (x.step < 0) {
            BLOCK_STRIDE(i, least(x.n - at, UPDATE_PART))
            x.g[at + i] = 0.0f;
            continue;
        }
        const MASTERS masters(x, 0, list.by);

        BLOCK_STRIDE(j, UPDATE_PART)
        {
            const int64_t i = at + j, e = x.first + i;

            OP::apply(x, masters, i, l, i < x.n, list.step[x.step],
                      moment_word(key, (uint32_t)e, (uint32_t)(e >> 32)));
        }
    }
}

/* A launch for each 32 ranges. */
template <typename OP, typename MASTERS>
static void update_codes(struct cuda_state *s, const struct update_span *x, int count,
                         const struct optim_step *k)
{
    while (count > 0) {
        struct update_list<typename OP::STEP> list;
        const int n = take<OP>(&list, x, count, k);

        LAUNCH((moments_kernel<OP, MASTERS>), rows_grid(list.first[n]), STEP_BLOCK, 0,
               s, list);
        x += n;
        count -= n;
    }
}

template <typename MASTERS>
static void update_kind(struct cuda_state *s, const struct update_span *x, int count,
                        const struct optim_step *k)
{
    if (k[0].kind == ACCEL_LION)
        update_codes<lion_codes, MASTERS>(s, x, count, k);
    else
        update_codes<adamw_codes, MASTERS>(s, x, count, k);
}

void cuda_update_moments(const struct backend *be, const struct update_span *x,
                         int count, const struct optim_step *k, bool narrow)
{
    if (narrow)
        update_kind<narrow_masters>(cuda_state_of(be), x, count, k);
    else
        update_kind<wide_masters>(cuda_state_of(be), x, count, k);
}

/* ---- whole arrays ---------------------------------------------------------------- */

static __global__ void __launch_bounds__(STEP_BLOCK)
    widen_kernel(float *dst, struct moments src, bool positive, int64_t n)
{
    GRID_STRIDE(i, n)
    {
        const struct lane a = lane_of(src, i, (int)(i % LANES), true);

        dst[i] = positive ? widen_lane<true>(a) : widen_lane<false>(a);
    }
}

void cuda_moments_widen(const struct backend *be, float *dst, struct moments src,
                        bool positive, int64_t n)
{
    LAUNCH(widen_kernel, elements_grid(n, STEP_BLOCK), STEP_BLOCK, 0, cuda_state_of(be),
           dst, src, positive, n);
}

/* A row is what one block of threads has at a time, so that its warps stay whole. */
static __global__ void __launch_bounds__(STEP_BLOCK)
    narrow_kernel(struct moments dst, const float *src, bool positive, int64_t n)
{
    ROW_STRIDE(row, (n + STEP_BLOCK - 1) / STEP_BLOCK)
    {
        const int64_t i = row * STEP_BLOCK + threadIdx.x;
        const struct lane a = lane_of(dst, i, (int)threadIdx.x % LANES, i < n);
        const float x = a.inside ? src[i] : 0.0f;

        if (positive)
            narrow_lane<true>(a, x, moment_dither(MOMENT_HALF_WORD));
        else
            narrow_lane<false>(a, x, moment_dither(MOMENT_HALF_WORD));
    }
}

void cuda_moments_narrow(const struct backend *be, struct moments dst, const float *src,
                         bool positive, int64_t n)
{
    LAUNCH(narrow_kernel, rows_grid((n + STEP_BLOCK - 1) / STEP_BLOCK), STEP_BLOCK, 0,
           cuda_state_of(be), dst, src, positive, n);
}
