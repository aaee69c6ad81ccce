/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a product where cuBLASLt's epilogue does not do it: bias, the value before
 * the activation, activation or its derivative, rounding. One pass over the result.
 */
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/vector.h"

/* The call for the kernel. */
struct finish {
    void *out, *pre;
    const void *sum, *bias;
    int64_t rows, cols, ld_out, ld_sum;
    accel_dtype_t out_type, sum_type, bias_type;
    bool add, slope;
    accel_activation_t act;
};

static __device__ inline float get(const void *p, int64_t i, accel_dtype_t type)
{
    float v = 0.0f;

    BY_TYPE(type, T, v = load_float((const T *)p, i));
    return v;
}

static __device__ inline void put(void *p, int64_t i, accel_dtype_t type, float v)
{
    BY_TYPE(type, T, store_float((T *)p, i, v));
}

/* Blocks along the columns; y steps over the rows, so a row's accesses are adjacent.
 * out[r, c] = act(sum[r, c] + bias[c]) or, with slope, sum[r, c] act'(pre[r, c]);
 * pre[r, c] is the value before the activation. */
static __global__ void finish_kernel(struct finish f)
{
    for (int64_t r = blockIdx.y; r < f.rows; r += gridDim.y)
        GRID_STRIDE(c, f.cols)
        {
            int64_t at = r * f.ld_out + c;
            float v = get(f.sum, r * f.ld_sum + c, f.sum_type);

            if (f.slope) {
                v *= maths_act_grad(get(f.pre, at, f.out_type), f.act);
                put(f.out, at, f.out_type, v);
                continue;
            }
            if (f.bias)
                v += get(f.bias, c, f.bias_type);
            if (f.pre)
                put(f.pre, at, f.out_type, v);
            v = maths_act(v, f.act);
            if (f.add)
                v += get(f.out, at, f.out_type);
            put(f.out, at, f.out_type, v);
        }
}

enum { FINISH_PACK = pack_size<bf16_t>, FINISH_BLOCK = 256 };

/* The same in packs of 16 bytes: float32 sums to a narrow result. */
template <typename T>
static __global__ void __launch_bounds__(FINISH_BLOCK)
    finish_packs_kernel(struct finish f)
{
    const int64_t packs = f.cols / FINISH_PACK;

    GRID_STRIDE(i, f.rows * packs)
    {
        int64_t pack, r = divide(i, packs, &pack), c = pack * FINISH_PACK;
        int64_t at = r * f.ld_out + c;
        float v[FINISH_PACK], bias[FINISH_PACK];

        load<FINISH_PACK>(v, (const float *)f.sum + r * f.ld_sum + c);
        if (f.bias && f.bias_type == f.out_type)
            load<FINISH_PACK>(bias, (const T *)f.bias + c);
        else if (f.bias)
            load<FINISH_PACK>(bias, (const float *)f.bias + c);
        for (int k = 0; f.bias && k < FINISH_PACK; k++)
            v[k] += bias[k];
        if (f.pre)
            store<FINISH_PACK>((T *)f.pre + at, v);
        act_pack<FINISH_PACK>(v, f.act);
        store<FINISH_PACK>((T *)f.out + at, v);
    }
}

/* Are there packs only, all aligned? */
static bool finish_in_packs(const struct finish *f)
{
    return f->out_type != ACCEL_F32 && f->sum_type == ACCEL_F32 &&
           (f->bias_type == ACCEL_F32 || f->bias_type == f->out_type) && !f->add &&
           !f->slope && f->cols % FINISH_PACK == 0 && f->ld_out % FINISH_PACK == 0 &&
           f->ld_sum % pack_size<float> == 0 && on_16(f->out, f->pre, f->sum, f->bias);
}

/* sum [rows, cols] of `type`; with_bias false: the product has added it already. */
void gemm_finish(struct cuda_state *s, const struct gemm *p, const void *sum,
                 accel_dtype_t type, int64_t ld, bool with_bias)
{
    struct finish f;
    int64_t rows = p->m < 65535 ? p->m : 65535;

    f.out = p->c;
    f.pre = p->pre;
    f.sum = sum;
    f.bias = with_bias ? p->bias : NULL;
    f.rows = p->m;
    f.cols = p->n;
    f.ld_out = p->ldc;
    f.ld_sum = ld;
    f.out_type = p->c_type;
    f.sum_type = type;
    f.bias_type = p->bias_type;
    f.add = p->add && sum != p->c; /* a product into c has added already */
    f.slope = p->act_grad;
    f.act = p->act;
    if (finish_in_packs(&f)) {
        BY_TYPE(p->c_type, T,
                LAUNCH((finish_packs_kernel<T>),
                       elements_grid(p->m * p->n, FINISH_BLOCK * FINISH_PACK),
                       FINISH_BLOCK, 0, s, f));
        return;
    }
    LAUNCH(finish_kernel, dim3(elements_grid(p->n, 256), (unsigned)rows), 256, 0, s, f);
}
