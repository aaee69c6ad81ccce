/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving elements on a CUDA device: rows with strides, heads, swapped dimensions.
 * Copies move the largest units that sizes and addresses allow, whatever the dtype;
 * adding goes by elements.
 */
#include "backend/cuda/vector.h"

enum { MOVE_BLOCK = 256 };

/* 16 bytes: the largest access of a thread */
struct alignas(16) unit16 {
    uint64_t half[2];
};

/* Runs the statements with U as the largest unit that divides `bits`, which is the
 * bitwise or of addresses, strides and lengths in bytes. */
#define BY_UNIT(bits, U, ...)                                                          \
    do {                                                                               \
        const uint64_t unit_bits = (bits);                                             \
                                                                                       \
        if (unit_bits % 16 == 0) {                                                     \
            using U = unit16;                                                          \
            __VA_ARGS__;                                                               \
        } else if (unit_bits % 8 == 0) {                                               \
            using U = uint64_t;                                                        \
            __VA_ARGS__;                                                               \
        } else if (unit_bits % 4 == 0) {                                               \
            using U = uint32_t;                                                        \
            __VA_ARGS__;                                                               \
        } else if (unit_bits % 2 == 0) {                                               \
            using U = uint16_t;                                                        \
            __VA_ARGS__;                                                               \
        } else {                                                                       \
            using U = uint8_t;                                                         \
            __VA_ARGS__;                                                               \
        }                                                                              \
    } while (0)

/* `width` adjacent elements at each of dim[0] x ... x dim[3] places; `to` and `from`
 * are the strides of both arrays, all in elements. */
enum { DIMS = 4 };
struct places {
    int64_t dim[DIMS], width;
    int64_t to[DIMS], from[DIMS];
};

/* Offsets of unit i in both arrays. */
static __device__ inline void find_place(const struct places &p, int64_t i,
                                         int64_t *to_out, int64_t *from_out)
{
    int64_t at;

    /* i = (((d0 n1 + d1) n2 + d2) n3 + d3) width + at */
    i = divide(i, p.width, &at);
    *to_out = *from_out = at;
    for (int k = DIMS - 1; k >= 0; k--) {
        i = divide(i, p.dim[k], &at);
        *to_out += at * p.to[k];
        *from_out += at * p.from[k];
    }
}

/* n units of U bytes: any dtype, bits only. */
template <typename U>
static __global__ void __launch_bounds__(MOVE_BLOCK)
    copy_kernel(struct places p, U *dst, const U *src, int64_t n)
{
    GRID_STRIDE(i, n)
    {
        int64_t to, from;

        find_place(p, i, &to, &from);
        dst[to] = src[from];
    }
}

/* dst += src, places in packs of V. */
template <int V, typename T>
static __global__ void __launch_bounds__(MOVE_BLOCK)
    add_kernel(struct places p, T *dst, const T *src, int64_t n)
{
    GRID_STRIDE(i, n)
    {
        int64_t to, from;
        float v[V];

        find_place(p, i, &to, &from);
        load<V>(v, src + from * V);
        store<V>(dst + to * V, true, v);
    }
}

/* Converts from elements of `size` bytes to units of `unit` bytes, which divide every
 * stride and length. */
static struct places in_units(struct places p, int64_t size, int64_t unit)
{
    p.width = p.width * size / unit;
    for (int i = 0; i < DIMS; i++) {
        p.to[i] = p.to[i] * size / unit;
        p.from[i] = p.from[i] * size / unit;
    }
    return p;
}

static int64_t units_of(const struct places &p)
{
    int64_t n = p.width;

    for (int i = 0; i < DIMS; i++)
        n *= p.dim[i];
    return n;
}

/* Places in elements become packs, so that one kernel serves both. */
template <typename T>
static void add(struct cuda_state *s, const struct places &p, void *dst,
                const void *src, bool packed)
{
    const int64_t size = (int64_t)sizeof(T);
    /* adding needs the type: packs of 16 bytes, or single elements */
    const struct places packs = in_units(p, size, packed ? 16 : size);
    const int64_t n = units_of(packs);

    if (packed)
        LAUNCH((add_kernel<pack_size<T>, T>), elements_grid(n, MOVE_BLOCK), MOVE_BLOCK,
               0, s, packs, (T *)dst, (const T *)src, n);
    else
        LAUNCH((add_kernel<1, T>), elements_grid(n, MOVE_BLOCK), MOVE_BLOCK, 0, s,
               packs, (T *)dst, (const T *)src, n);
}

template <typename U>
static void copy(struct cuda_state *s, const struct places &p, void *dst,
                 const void *src)
{
    const int64_t n = units_of(p);

    LAUNCH(copy_kernel<U>, elements_grid(n, MOVE_BLOCK), MOVE_BLOCK, 0, s, p, (U *)dst,
           (const U *)src, n);
}

/* Dimensions of size 1 have no say in the unit: their strides are not used. */
static void move(struct cuda_state *s, const struct places &p, void *dst, bool adds,
                 const void *src, accel_dtype_t type)
{
    const int64_t size = (int64_t)accel_dtype_bytes(type);
    uint64_t bits = (uint64_t)((uintptr_t)dst | (uintptr_t)src);

    bits |= (uint64_t)(p.width * size);
    for (int i = 0; i < DIMS; i++)
        /* a dimension of one element is never stepped along */
        if (p.dim[i] > 1)
            bits |= (uint64_t)((p.to[i] | p.from[i]) * size);
    if (adds)
        BY_TYPE(type, T, add<T>(s, p, dst, src, bits % 16 == 0));
    else
        BY_UNIT(bits, U, copy<U>(s, in_units(p, size, (int64_t)sizeof(U)), dst, src));
}

void cuda_copy_rows(const struct backend *be, void *dst, int64_t dst_stride, bool add,
                    const void *src, int64_t src_stride, accel_dtype_t type,
                    int64_t rows, int64_t cols)
{
    /* rows are the last dimension, the others have one element */
    const struct places p = {
        { 1, 1, 1, rows }, cols, { 0, 0, 0, dst_stride }, { 0, 0, 0, src_stride }
    };

    move(cuda_state_of(be), p, dst, add, src, type);
}

/* From one array to the other, in elements. */
static int64_t distance(const void *from, const void *to, accel_dtype_t type)
{
    return ((intptr_t)to - (intptr_t)from) / (intptr_t)accel_dtype_bytes(type);
}

/* Both at once: their distance is a stride. */
void cuda_copy_heads(const struct backend *be, const struct heads_out to[2],
                     const struct heads from[2], accel_dtype_t type, int64_t batch,
                     int64_t rows, int64_t count, int64_t width)
{
    const int64_t apart_to = distance(to[0].data, to[1].data, type),
                  apart_from = distance(from[0].data, from[1].data, type);
    const struct places p = { { 2, batch, rows, count },
                              width,
                              { apart_to, to->sample, to->row, to->head },
                              { apart_from, from->sample, from->row, from->head } };

    move(cuda_state_of(be), p, to->data, false, from->data, type);
}

/* ---- the last two dimensions swapped --------------------------------------------- */

enum { TILE = 32, TILE_ROWS = MOVE_BLOCK / TILE };

/* src [a][b][c][d] -> dst [a][d][c][b]. Tiles of b x d pass through shared memory, so
 * that both sides are accessed along their rows. */
struct swap_dims {
    int64_t a, b, c, d;
};

template <typename T, typename PUT>
static __device__ inline void swap_tile(struct swap_dims n, T *dst, const T *src,
                                        T (*tile)[TILE + 1], int64_t matrix, int64_t b0,
                                        int64_t d0, PUT put)
{
    const int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    int64_t c;
    const int64_t a = divide(matrix, n.c, &c);

    for (int k = y; k < TILE; k += TILE_ROWS)
        if (b0 + k < n.b && d0 + x < n.d)
            /* a warp reads 32 adjacent d of one b */
            tile[k][x] = src[((a * n.b + b0 + k) * n.c + c) * n.d + d0 + x];
    __syncthreads();
    for (int k = y; k < TILE; k += TILE_ROWS)
        if (d0 + k < n.d && b0 + x < n.b)
            /* and writes 32 adjacent b of one d */
            put(dst + ((a * n.d + d0 + k) * n.c + c) * n.b + b0 + x, tile[x][k]);
    __syncthreads();
}

/* A block turns a tile of 32 x 32 elements of one matrix [b, d] (fixed a and c). PUT
 * copies or adds. */
template <typename T, typename PUT>
static __global__ void __launch_bounds__(MOVE_BLOCK)
    swap_kernel(struct swap_dims n, T *dst, const T *src, PUT put)
{
    /* one more column: reading down a column meets 32 different banks */
    __shared__ T tile[TILE][TILE + 1];
    const int64_t across = (n.d + TILE - 1) / TILE, down = (n.b + TILE - 1) / TILE;

    ROW_STRIDE(i, n.a * n.c * across * down)
    {
        int64_t b, d, matrix;

        matrix = divide(divide(i, across, &d), down, &b);
        swap_tile(n, dst, src, tile, matrix, b * TILE, d * TILE, put);
    }
}

struct put_copy {
    template <typename T> __device__ void operator()(T *to, T v) const
    {
        *to = v;
    }
};

struct put_sum {
    template <typename T> __device__ void operator()(T *to, T v) const
    {
        store_float(to, 0, true, load_float(&v, 0));
    }
};

template <typename T, typename PUT>
static void swap(struct cuda_state *s, struct swap_dims n, void *dst, const void *src,
                 PUT put)
{
    const int64_t tiles =
        n.a * n.c * ((n.d + TILE - 1) / TILE) * ((n.b + TILE - 1) / TILE);

    LAUNCH((swap_kernel<T, PUT>), rows_grid(tiles), MOVE_BLOCK, 0, s, n, (T *)dst,
           (const T *)src, put);
}

/* Element (a, b, c, d, e) is at (((a B + b) C + c) D + d) E + e of src and at (((a D +
 * d) C + c) B + b) E + e of dst. With E = 1 tiles are transposed; otherwise rows of E
 * elements are copied in the order of dst. */
void cuda_transpose(const struct backend *be, void *dst, bool add, const void *src,
                    accel_dtype_t type, const int64_t dim[5])
{
    const int64_t nb = dim[1], nc = dim[2], nd = dim[3], ne = dim[4];
    struct cuda_state *s = cuda_state_of(be);

    if (ne != 1) {
        const struct places p = { { dim[0], nd, nc, nb },
                                  ne,
                                  /* places in the order of dst: (a, d, c, b) */
                                  { nd * nc * nb * ne, nc * nb * ne, nb * ne, ne },
                                  { nb * nc * nd * ne, ne, nd * ne, nc * nd * ne } };

        move(s, p, dst, add, src, type);
        return;
    }
    if (add)
        BY_TYPE(type, T, swap<T>(s, { dim[0], nb, nc, nd }, dst, src, put_sum{}));
    else
        BY_UNIT(accel_dtype_bytes(type), U,
                swap<U>(s, { dim[0], nb, nc, nd }, dst, src, put_copy{}));
}
