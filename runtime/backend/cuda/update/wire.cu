/* SPDX-License-Identifier: Apache-2.0
 *
 * Wire blocks (numbers/wire.h) on a CUDA device: numbers into blocks behind a scale
 * each, and sums of several arrays of blocks. A warp has one block, each lane four
 * adjacent numbers, so that only 32-bit words are moved.
 */
#include "numbers/wire.h"

#include "backend/cuda/update/sums.h"

enum { LANE = WIRE_BLOCK / WARP };

/* The three formats: their storage type, largest number and conversions. */
struct of_f16 {
    using type = f16_t;
    static constexpr float largest = WIRE_LARGEST_F16;

    static __device__ uint32_t narrow(float f)
    {
        return f32_to_f16(f);
    }
    static __device__ float widen(type h)
    {
        return f16_to_f32(h);
    }
};

struct of_e4m3 {
    using type = f8_t;
    static constexpr float largest = WIRE_LARGEST_E4M3;

    static __device__ uint32_t narrow(float f)
    {
        return f32_to_e4m3(f);
    }
    static __device__ float widen(type h)
    {
        return e4m3_to_f32(h);
    }
};

struct of_e5m2 {
    using type = f8_t;
    static constexpr float largest = WIRE_LARGEST_E5M2;

    static __device__ uint32_t narrow(float f)
    {
        return f32_to_e5m2(f);
    }
    static __device__ float widen(type h)
    {
        return e5m2_to_f32(h);
    }
};

/* Runs the statements with F as the format of a scaled type. */
#define BY_FORMAT(type, F, ...)                                                        \
    do {                                                                               \
        if ((type) == ACCEL_F16) {                                                     \
            using F = of_f16;                                                          \
            __VA_ARGS__;                                                               \
        } else if ((type) == ACCEL_F8E4M3) {                                           \
            using F = of_e4m3;                                                         \
            __VA_ARGS__;                                                               \
        } else {                                                                       \
            using F = of_e5m2;                                                         \
            __VA_ARGS__;                                                               \
        }                                                                              \
    } while (0)

/* Bytes of a whole block, and from one array to the next. */
struct stride {
    int64_t block, array;
};

/* An array may end with a short block, so its length is no multiple of a block's. */
static struct stride stride_of(int64_t n, accel_dtype_t type)
{
    return { (int64_t)wire_bytes(WIRE_BLOCK, type),
             (int64_t)wire_bytes((size_t)n, type) };
}

/* ---- into blocks ----------------------------------------------------------------- */

struct narrow_blocks {
    char *dst;
    const float *src;
    int64_t n, each; /* numbers and blocks per array */
    struct stride stride;
};

/* The largest magnitude of the block, in every lane. Compared as integers, so NaN and
 * infinity rank above all numbers. */
static __device__ inline uint32_t warp_most(const float *x)
{
    uint32_t most = 0;

    for (int i = 0; i < LANE; i++) {
        /* bits without the sign: their order as integers is that of the numbers */
        const uint32_t u = wire_magnitude(x[i]);

        most = u > most ? u : most;
    }
    for (int apart = WARP / 2; apart; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(WARP_MASK, most, apart);

        most = other > most ? other : most;
    }
    return most;
}

/* One warp narrows one block. The shuffles in warp_most make sure that every lane has
 * read its numbers before any writes: src and dst may overlap. */
template <typename F>
static __device__ inline void narrow_block(const struct narrow_blocks &o, int64_t b)
{
    constexpr int per_word = 4 / (int)sizeof(typename F::type);
    const int lane = (int)threadIdx.x % WARP;
    int64_t i;
    const int64_t array = divide(b, o.each, &i);
    const int64_t first = i * WIRE_BLOCK + lane * LANE;
    /* below 1: none of this lane's numbers exist */
    const int left = (int)least(o.n - first, LANE);
    const float *src = o.src + array * o.n + first;
    uint32_t *to = reinterpret_cast<uint32_t *>(o.dst + array * o.stride.array +
                                                i * o.stride.block);
    float x[LANE];
    uint32_t exponent;

    for (int k = 0; k < LANE; k++)
        /* zeros do not change the maximum */
        x[k] = k < left ? src[k] : 0.0f;
    exponent = wire_exponent(warp_most(x), F::largest);
    if (lane == 0)
        /* a power of two as a float32: multiplying by it is exact */
        to[0] = exponent << 23;
    to += 1 + lane * LANE / per_word;
    for (int k = 0; k < LANE; k += per_word) {
        uint32_t word = 0;

        for (int j = 0; j < per_word; j++)
            if (k + j < left)
                /* lane words are assembled in registers: bytes of several lanes never
                 * share a word */
                word |= F::narrow(x[k + j] * wire_inverse(exponent))
                        << (32 / per_word * j);
        if (k < left)
            to[k / per_word] = word;
    }
}

/* Blocks [first, last), counted over all arrays: a warp each. */
template <typename F>
static __global__ void __launch_bounds__(MAP_BLOCK)
    narrow_blocks_kernel(struct narrow_blocks o, int64_t first, int64_t last)
{
    const int64_t warps = (int64_t)gridDim.x * (MAP_BLOCK / WARP);
    /* warps take blocks in turn; which one does not matter for the bits */
    const int64_t own =
        (int64_t)blockIdx.x * (MAP_BLOCK / WARP) + (int)threadIdx.x / WARP;

    for (int64_t b = first + own; b < last; b += warps)
        narrow_block<F>(o, b);
}

/* In place, wire_reach() says how far a launch may go before results would land on
 * numbers not yet read; the next launch continues there. */
void cuda_narrow_parts(const struct backend *be, void *dst, accel_dtype_t type,
                       const float *src, int count, int64_t n)
{
    const struct narrow_blocks o = { (char *)dst, src, n, wire_blocks(n),
                                     stride_of(n, type) };
    const int64_t blocks = o.each * count;

    for (int64_t at = 0, reach; at < blocks; at = reach) {
        reach = dst == (const void *)src ? wire_reach(at, n, type) : blocks;
        reach = least(reach, blocks);
        BY_FORMAT(type, F,
                  LAUNCH(narrow_blocks_kernel<F>,
                         elements_grid((reach - at) * WARP, MAP_BLOCK), MAP_BLOCK, 0,
                         cuda_state_of(be), o, at, reach));
    }
}

/* ---- sums ------------------------------------------------------------------------ */

/* Reads parts in blocks for sum_op. */
template <typename F> struct block_parts {
    const char *x;
    struct stride stride;

    template <int V>
    static __device__ void words(const uint32_t *from, float by, float *to)
    {
        using T = typename F::type;
        constexpr int per_word = 4 / (int)sizeof(T);

        for (int i = 0; i < V; i++) {
            const uint32_t word = from[i / per_word];

            to[i] = F::widen((T)(word >> (8 * (int)sizeof(T) * (i % per_word)))) * by;
        }
    }
    /* Numbers at .. at + V - 1 of the block at p. V is 1, or LANE with `at` a multiple
     * of it. */
    template <int V> static __device__ void numbers(const char *p, int at, float *to)
    {
        using T = typename F::type;
        const float by = *reinterpret_cast<const float *>(p);
        const T *from = reinterpret_cast<const T *>(p + WIRE_HEAD) + at;

        if constexpr (V == 1)
            to[0] = F::widen(from[0]) * by;
        else
            words<V>(reinterpret_cast<const uint32_t *>(from), by, to);
    }
    template <int V> __device__ void read(int part, int64_t at, float *to) const
    {
        numbers<V>(x + part * stride.array + at / WIRE_BLOCK * stride.block,
                   (int)(at % WIRE_BLOCK), to);
    }
};

void cuda_sum_blocks(const struct backend *be, float *out, bool accumulate,
                     const float *first, const void *parts, accel_dtype_t type,
                     int count, int64_t n, float scale)
{
    BY_FORMAT(
        type, F,
        map<LANE>(cuda_state_of(be), on_16(out, first), n,
                  sum_op<block_parts<F>>{ out,
                                          accumulate,
                                          first,
                                          { (const char *)parts, stride_of(n, type) },
                                          count,
                                          scale }));
}
