/* SPDX-License-Identifier: Apache-2.0
 *
 * Element by element on a CUDA device: fill, add, dropout, and casts. All but the last
 * kernel are operations for `map` (vector.h).
 */
#include "backend/cuda/vector.h"

/* ---- fill ------------------------------------------------------------------------ */

/* INPUTS 1, though nothing is read: `map` wants the registers */
template <typename T> struct fill_op {
    enum { INPUTS = 1 };
    T *dst;
    float value;

    template <int V> __device__ void load(int64_t, float (*x)[V]) const
    {
        /* no memory is read: load only sets the registers */
        for (int i = 0; i < V; i++)
            x[0][i] = value;
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        store<V>(dst + at, x[0]);
    }
};

void cuda_fill(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
               float value)
{
    BY_TYPE(type, T,
            map<pack_size<T>>(cuda_state_of(be), on_16(dst), n,
                              fill_op<T>{ (T *)dst, value }));
}

/* ---- add ------------------------------------------------------------------------- */

template <typename T> struct add_op {
    enum { INPUTS = 2 };
    T *dst;
    const T *a, *b;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        ::load<V>(x[0], a + at);
        ::load<V>(x[1], b + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        for (int i = 0; i < V; i++)
            x[0][i] = x[0][i] + x[1][i];
        store<V>(dst + at, x[0]);
    }
};

/* dst[n] = a[n] + b[n], added in float32 and rounded once; dst may be a or b */
void cuda_add(const struct backend *be, void *dst, const void *a, const void *b,
              accel_dtype_t type, int64_t n)
{
    BY_TYPE(type, T,
            map<pack_size<T>>(cuda_state_of(be), on_16(dst, a, b), n,
                              add_op<T>{ (T *)dst, (const T *)a, (const T *)b }));
}

/* ---- dropout --------------------------------------------------------------------- */

/* For draws that start with a whole block of four, so that packs are whole blocks
 * too. */
template <typename T> struct dropout_op {
    enum { INPUTS = 1 };
    T *y;
    const T *x;
    bool add;
    struct mask mask;

    template <int V> __device__ void load(int64_t at, float (*v)[V]) const
    {
        ::load<V>(v[0], x + at);
    }
    template <int V> __device__ void finish(int64_t at, float (*v)[V]) const
    {
        /* four draws per Philox block: number / 4 is the block, number % 4 the word */
        const uint64_t number = mask.first + (uint64_t)at;
        float keep[4];

        for (int i = 0; i < V; i++) {
            if (i % 4 == 0)
                maths_mask(&mask, (number + (uint64_t)i) / 4, keep);
            v[0][i] = v[0][i] * (V == 1 ? kept(keep, number) : keep[i % 4]);
        }
        store<V>(y + at, add, v[0]);
    }
    /* Selects one of four without an index: registers cannot be indexed. */
    static __device__ float kept(const float keep[4], uint64_t number)
    {
        const float even = number & 2 ? keep[2] : keep[0];
        const float odd = number & 2 ? keep[3] : keep[1];

        return number & 1 ? odd : even;
    }
};

/* For any first number and any addresses: one block of four of the draw per thread, so
 * the generator still runs once per four elements. */
template <typename T> struct dropout_block_op {
    enum { INPUTS = 1 };
    struct dropout_op<T> op;
    int64_t n;

    template <int V> __device__ void load(int64_t, float (*)[V]) const
    {
    }
    template <int V> __device__ void finish(int64_t block, float (*)[V]) const
    {
        /* the first block may begin before the array, the last may end past it */
        const int64_t begin = 4 * block - (int64_t)(op.mask.first % 4);
        float keep[4];

        maths_mask(&op.mask, op.mask.first / 4 + (uint64_t)block, keep);
        for (int k = 0; k < 4; k++)
            if (begin + k >= 0 && begin + k < n)
                store_float(op.y, begin + k, op.add,
                            load_float(op.x, begin + k) * keep[k]);
    }
};

/* Two ways with the same mask: packs where the draw starts on a block of four, else
 * blocks. */
template <typename T>
static void dropout(struct cuda_state *s, int64_t n, const struct dropout_op<T> &op)
{
    const int64_t into = (int64_t)(op.mask.first % 4);

    /* the usual case: the elements of a sample are a multiple of four */
    if (into == 0 && on_16(op.y, op.x))
        map<pack_size<T>>(s, true, n, op);
    else if (n > 0)
        map<1>(s, false, (n + into + 3) / 4, dropout_block_op<T>{ op, n });
}

void cuda_dropout(const struct backend *be, void *y, bool add, const void *x,
                  accel_dtype_t type, int64_t n, const struct mask *mask)
{
    BY_TYPE(type, T,
            dropout(cuda_state_of(be), n,
                    dropout_op<T>{ (T *)y, (const T *)x, add, *mask }));
}

/* ---- one dtype to another -------------------------------------------------------- */

/* Elements per pack: 16 bytes of a narrow type, two accesses of float32. */
enum { CAST_PACK = 8 };

/* the C type of each dtype that an array may have */
template <accel_dtype_t> struct element;
template <> struct element<ACCEL_F32> {
    using type = float;
};
template <> struct element<ACCEL_BF16> {
    using type = bf16_t;
};
template <> struct element<ACCEL_F16> {
    using type = half_t;
};
template <> struct element<ACCEL_I32> {
    using type = int32_t;
};
template <> struct element<ACCEL_U16> {
    using type = uint16_t;
};
template <> struct element<ACCEL_U8> {
    using type = uint8_t;
};
template <> struct element<ACCEL_I8> {
    using type = int8_t;
};
template <> struct element<ACCEL_F64> {
    using type = double;
};
template <> struct element<ACCEL_I64> {
    using type = int64_t;
};

template <typename D, accel_dtype_t FROM> struct cast_op {
    enum { INPUTS = 1 };
    D *dst;
    const typename element<FROM>::type *src;
    bool add;

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        /* bf16_t and uint16_t are one C type: the dtype decides */
        const auto p = pack_at<V>(src + at);

        for (int i = 0; i < V; i++)
            if constexpr (FROM == ACCEL_BF16 || FROM == ACCEL_F16)
                x[0][i] = load_float(p.v, i);
            else
                x[0][i] = (float)p.v[i];
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        store<V>(dst + at, add, x[0]);
    }
};

/* dst of a storage type; with `add`, dst += src. */
template <accel_dtype_t FROM>
static void cast_from(struct cuda_state *s, void *dst, accel_dtype_t dst_type, bool add,
                      const void *src, int64_t n)
{
    /* 8 elements are 8 to 64 bytes: `pack` takes as many accesses as they need */
    using S = typename element<FROM>::type;

    BY_TYPE(dst_type, D,
            map<CAST_PACK>(s, on_16(dst, src), n,
                           cast_op<D, FROM>{ (D *)dst, (const S *)src, add }));
}

void cuda_cast(const struct backend *be, void *dst, accel_dtype_t dst_type, bool add,
               const void *src, accel_dtype_t src_type, int64_t n)
{
    struct cuda_state *s = cuda_state_of(be);

#define FROM(dtype)                                                                    \
    case dtype:                                                                        \
        cast_from<dtype>(s, dst, dst_type, add, src, n);                               \
        break
    switch (src_type) {
        FROM(ACCEL_F32);
        FROM(ACCEL_BF16);
        FROM(ACCEL_F16);
        FROM(ACCEL_I32);
        FROM(ACCEL_U16);
        FROM(ACCEL_U8);
        FROM(ACCEL_I8);
        FROM(ACCEL_F64);
        FROM(ACCEL_I64);
    default: /* float8 never forms arrays */
        break;
    }
#undef FROM
}

void cuda_widen(const struct backend *be, float *dst, const void *src,
                accel_dtype_t type, int64_t n)
{
    cuda_cast(be, dst, ACCEL_F32, false, src, type, n);
}

/* Narrows the first elements in place, with one block: the results of a piece land on
 * what it was made from, and before what comes next. */
template <typename T>
static __global__ void __launch_bounds__(MAP_BLOCK)
    narrow_head_kernel(float *x, int64_t n)
{
    T *to = reinterpret_cast<T *>(x);

    for (int64_t at = 0; at < n; at += MAP_BLOCK) {
        const int64_t i = at + threadIdx.x;
        const float v = i < n ? x[i] : 0.0f;

        __syncthreads();
        if (i < n)
            store_float(to, i, v);
    }
}

/* In place, the results of [at, 2 at) land where [at / 2, at) was, which is done by
 * then: launches on one queue follow each other. */
void cuda_narrow(const struct backend *be, void *dst, accel_dtype_t type,
                 const float *src, int64_t n)
{
    /* then each launch may double: log2(n / 4096) launches */
    const int64_t head = 4096;
    struct cuda_state *s = cuda_state_of(be);

    if (dst != (const void *)src) {
        cast_from<ACCEL_F32>(s, dst, type, false, src, n);
        return;
    }
    BY_TYPE(type, T,
            LAUNCH((narrow_head_kernel<T>), n > 0, MAP_BLOCK, 0, s, (float *)dst,
                   n < head ? n : head));
    for (int64_t at = head; at < n; at *= 2)
        cast_from<ACCEL_F32>(s, (uint16_t *)dst + at, type, false, src + at,
                             n - at < at ? n - at : at);
}
