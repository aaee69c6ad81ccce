/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices as 8-bit floats with a scale for each 32 or 128 numbers of a line, or 128 x
 * 128, on a CUDA device: the bits of cpu_quantize_blocks, with codes and scales where
 * products look for them. A block of threads reads a tile once and keeps it in
 * registers, for the largest magnitudes and the codes of both copies.
 */
#include "backend/cuda/narrow.h"
#include "backend/cuda/ptx.h"
#include "numbers/fp8_blocks.h"

enum { TILE = LINE };
/* Most blocks that meet in a tile. */
enum { TILE_BLOCKS = TILE * TILE / SCALE_TILE_K };

static_assert((int)TILE == (int)SCALE_TILE_LINES && (int)TILE == 4 * (int)SCALE_TILE_K,
              "a tile of numbers has one tile of scales");

/* One of the copies. */
struct block_copy {
    f8_t *dst; /* NULL: none */
    /* rows that are written, of which those after the last are zeros */
    int64_t lines;
    struct block_scales s;
};

struct block_task {
    struct block_copy copy[2];
    int64_t rows, cols, ld;
    bool wide; /* e5m2 */
};

/* What a thread has of a tile: V columns of R rows from (row, col) on. */
template <typename T> struct tile_part {
    enum { V = pack_size<T>, R = TILE * TILE / MAP_BLOCK / V };
    int row, col;
    pack<float, 4> x[R]; /* bits of V of them */
};

static_assert((int)SCALE_TILE_K % (int)tile_part<bf16_t>::R == 0 &&
                  (int)SCALE_TILE_K % (int)tile_part<float>::R == 0,
              "a thread's rows are in one block");

/* The number of a block among those of its tile, row by row. */
static __device__ inline int group_of(const struct block_scales &s, int r, int c)
{
    return r / (int)s.height * (TILE / (int)s.width) + c / (int)s.width;
}

/* Zeros after the matrix. PACKED, here and below: rows of numbers and codes are whole
 * packs. */
template <bool PACKED, typename T>
static __device__ inline void tile_read(const struct block_task &o, const T *src,
                                        int64_t row, int64_t col,
                                        struct tile_part<T> &p)
{
    enum { V = tile_part<T>::V, R = tile_part<T>::R };

    p.row = part_row<R>((int)threadIdx.x);
    p.col = part_col<V, R>((int)threadIdx.x);
    src += (row + p.row) * o.cols + col + p.col;
#pragma unroll
    for (int k = 0; k < R; k++, src += o.cols) {
        const int64_t left = row + p.row + k < o.rows ? o.cols - col - p.col : 0;

        pack<T, V> x = {};

        if (PACKED && left > 0)
            x = pack_at<V>(src);
        for (int j = 0; j < V && !PACKED; j++)
            if (j < left)
                x.v[j] = src[j];
        memcpy(&p.x[k], &x, sizeof(x));
    }
}

/* Keeps numbers as they are stored: as float32, which the compiler would make of them
 * once and for all, 64 of bfloat16 take twice as many registers. */
template <typename T> static __device__ inline void tile_hold(struct tile_part<T> &p)
{
    for (int k = 0; k < tile_part<T>::R; k++)
        for (int i = 0; i < 4; i++)
            PTX_HOLD(p.x[k].v[i]);
}

/* The largest magnitude among `threads` neighbours of the warp, a power of two of them,
 * `apart` from each other. */
static __device__ inline float most_of(float most, int threads, int apart)
{
    for (int end = threads * apart; apart < end; apart *= 2) {
        const float other = __shfl_xor_sync(WARP_MASK, most, apart);

        most = other > most ? other : most;
    }
    return most;
}

/* most[]: by group_of; it begins with zeros. Neighbours find what is theirs before one
 * of them goes to shared memory. */
template <typename T>
static __device__ inline void tile_most(const struct block_scales &s,
                                        const struct tile_part<T> &p, unsigned *most)
{
    enum { V = tile_part<T>::V, R = tile_part<T>::R };
    const int lane = (int)threadIdx.x % WARP;
    /* of a block: threads side by side, and below each other */
    const int across = (int)least(8, s.width / V), below = (int)least(4, s.height / R);
    float down[V] = {};

#pragma unroll
    for (int k = 0; k < R; k++) {
        pack<T, V> numbers;
        float row = 0;

        memcpy(&numbers, &p.x[k], sizeof(numbers));
        for (int j = 0; j < V; j++) {
            const float x = load_float(numbers.v, j);

            row = narrow_most(row, x);
            down[j] = narrow_most(down[j], x);
        }
        if (s.height > 1)
            continue;
        row = most_of(row, across, 1);
        if (lane % across == 0)
            atomicMax(&most[group_of(s, p.row + k, p.col)], minifloat_bits(row));
    }
    if (s.height == 1)
        return;
#pragma unroll
    for (int j = 0; j < V; j++) {
        const float col = most_of(down[j], below, 8);

        if (lane / 8 % below == 0)
            atomicMax(&most[group_of(s, p.row, p.col + j)], minifloat_bits(col));
    }
}

/* By the rule of the blocks. */
static __device__ inline float scale_for(const struct block_scales &s, bool wide,
                                         float amax)
{
    const accel_dtype_t to = wide ? ACCEL_F8E5M2 : ACCEL_F8E4M3;

    return s.e8m0 ? e8m0_to_f32((uint8_t)(254 - e8m0_of(amax, to)))
                  : fp8_block_scale(amax, to);
}

/* group[]: by group_of, the largest magnitudes, which become scales. Writes the inverse
 * ones of blocks that are there, as far as they lie in no tiles. */
static __device__ inline void tile_scales(const struct block_task &o,
                                          const struct block_copy &copy, int64_t row,
                                          int64_t col, unsigned *group)
{
    const struct block_scales &s = copy.s;
    const int across = TILE / (int)s.width;

    for (int g = (int)threadIdx.x; g < TILE / (int)s.height * across; g += MAP_BLOCK) {
        const int64_t r = row + g / across * s.height;
        const int64_t c = col + g % across * s.width;
        const float scale = scale_for(s, o.wide, minifloat_float(group[g]));

        group[g] = minifloat_bits(scale);
        if (!s.tiles && r < copy.lines && c < o.cols)
            ((float *)s.inverse)[r / s.height * s.row_step + c / s.width * s.col_step] =
                1 / scale;
    }
}

/* The inverse scales as one tile of bytes: 0 where there are no numbers. */
static __device__ inline void tile_bytes(const struct block_task &o,
                                         const struct block_scales &s, int64_t row,
                                         int64_t col, const unsigned *scale)
{
    const int64_t line = s.down ? col : row, k = s.down ? row : col;
    uint8_t *dst =
        (uint8_t *)s.inverse + (line / TILE * s.tiles + k / TILE) * SCALE_TILE_BYTES;

    for (int i = (int)threadIdx.x; i < SCALE_TILE_BYTES; i += MAP_BLOCK) {
        const int own = i / 16 + i / 4 % 4 * 32, far = i % 4 * SCALE_TILE_K;
        const int r = s.down ? far : own, c = s.down ? own : far;
        const bool inside = row + r < o.rows && col + c < o.cols;
        const float by = minifloat_float(scale[group_of(s, r, c)]);

        dst[i] = inside ? e8m0_of_power(1 / by) : 0;
    }
}

/* V codes of a row, of which `left` are before its end. */
template <int V, bool PACKED>
static __device__ inline void put_row(f8_t *dst, int64_t left, const code_pack<V> &y)
{
    if (PACKED && left > 0)
        put_codes<V>(dst, y);
    for (int j = 0; j < V && !PACKED; j++)
        if (j < left)
            dst[j] = (f8_t)(y.v[j / 4] >> j % 4 * 8);
}

/* The thread's codes, to where they belong or to the lines of a transposed copy. */
template <bool PACKED, typename T>
static __device__ inline void tile_codes(const struct block_task &o,
                                         const struct block_copy &c, int64_t row,
                                         int64_t col, const struct tile_part<T> &p,
                                         const unsigned *scale, line_t *lines)
{
    enum { V = tile_part<T>::V, R = tile_part<T>::R };
    float by[V];
    pack<uint32_t, R / 4> down[V];
    uint32_t four[V] = {};
    f8_t *dst = c.dst + (row + p.row) * o.cols + col + p.col;

#pragma unroll
    for (int k = 0; k < R; k++) {
        pack<T, V> numbers;
        code_pack<V> y;
        float x[V];

        memcpy(&numbers, &p.x[k], sizeof(numbers));
        if (k == 0 || c.s.height == 1) {
            const unsigned *const own = scale + group_of(c.s, p.row + k, p.col);

            for (int j = 0; j < V; j++)
                by[j] = minifloat_float(own[c.s.width == 1 ? j : 0]);
        }
        for (int j = 0; j < V; j++)
            x[j] = load_float(numbers.v, j) * by[j];
        y = narrow_codes<V>(x, o.wide);
        append_row<V>(four, y);
        for (int j = 0; j < V && k % 4 == 3; j++)
            down[j].v[k / 4] = four[j];
        if (!c.s.transposed && row + p.row + k < c.lines)
            put_row<V, PACKED>(dst, o.cols - col - p.col, y);
        dst += o.cols;
    }
    if (c.s.transposed)
        put_lines<V>(lines, p.row, p.col, down);
}

template <bool PACKED, typename T>
static __global__ void __launch_bounds__(MAP_BLOCK, 2)
    blocks_kernel(const T *src, struct block_task o)
{
    __shared__ line_t lines[TILE];
    __shared__ unsigned group[2][TILE_BLOCKS];
    const int64_t row = (int64_t)blockIdx.x * TILE, col = (int64_t)blockIdx.y * TILE;
    struct tile_part<T> p;

    for (int g = (int)threadIdx.x; g < 2 * TILE_BLOCKS; g += MAP_BLOCK)
        group[g / TILE_BLOCKS][g % TILE_BLOCKS] = 0;
    tile_read<PACKED>(o, src, row, col, p);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        const struct block_copy &c = o.copy[i];

        if (!c.dst)
            continue;
        tile_hold(p);
        tile_most(c.s, p, group[i]);
        __syncthreads();
        tile_scales(o, c, row, col, group[i]);
        __syncthreads();
        if (c.s.tiles)
            tile_bytes(o, c.s, row, col, group[i]);
        tile_hold(p);
        tile_codes<PACKED>(o, c, row, col, p, group[i], lines);
        if (!c.s.transposed)
            continue;
        /* those of the next copy are put two barriers later */
        __syncthreads();
        write_lines<tile_part<T>::V>(lines, TILE, c.dst, o.cols, o.ld, row, col);
    }
}

template <typename T>
static void quantize_tiles(struct cuda_state *s, const T *src,
                           const struct block_task &o)
{
    const dim3 grid((unsigned)((o.rows + TILE - 1) / TILE),
                    (unsigned)((o.cols + TILE - 1) / TILE));

    if (on_16(src, o.copy[0].dst, o.copy[1].dst) && o.cols % pack_size<T> == 0)
        LAUNCH((blocks_kernel<true, T>), grid, MAP_BLOCK, 0, s, src, o);
    else
        LAUNCH((blocks_kernel<false, T>), grid, MAP_BLOCK, 0, s, src, o);
}

static struct block_copy copy_of(void *dst, int64_t rows, const struct block_scales &s)
{
    return { (f8_t *)dst, s.padded ? block_lines(rows) : rows, s };
}

void cuda_quantize_blocks(const struct backend *be, void *const dst[2],
                          accel_dtype_t to, const void *src, accel_dtype_t type,
                          int64_t rows, const struct block_scales s[2])
{
    const struct block_task o = { .copy = { copy_of(dst[0], rows, s[0]),
                                            copy_of(dst[1], rows, s[1]) },
                                  .rows = rows,
                                  .cols = s[dst[0] ? 0 : 1].cols,
                                  .ld = narrow_ld(rows),
                                  .wide = to == ACCEL_F8E5M2 };

    BY_TYPE(type, T, quantize_tiles(cuda_state_of(be), (const T *)src, o));
}
