/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices as 8-bit floats with a scale for each 32 or 128 numbers of a line, or 128 x
 * 128, on a CUDA device: the bits of cpu_quantize_blocks, with codes and scales where
 * products look for them. A block of threads has a tile, which it reads twice: for the
 * largest magnitudes and, when that is in the cache, for the codes.
 */
#include "backend/cuda/narrow.h"
#include "precision/fp8_blocks.h"

enum { TILE = 128, TILE_LINE = TILE + 16, TILE_PACK = 16 };
/* Most blocks that meet in a tile. */
enum { TILE_BLOCKS = TILE * TILE / SCALE_TILE_K };

static_assert((int)TILE == (int)SCALE_TILE_LINES && (int)TILE == 4 * (int)SCALE_TILE_K,
              "a tile of numbers has one tile of scales");

struct block_task {
    f8_t *dst;
    /* lines: rows that are written, of which those behind the last are zeros */
    int64_t rows, lines, ld;
    bool wide; /* e5m2 */
    struct block_scales s;
};

/* The number of a block among those of its tile, row by row. */
static __device__ inline int group_of(const struct block_scales &s, int r, int c)
{
    return r / (int)s.height * (TILE / (int)s.width) + c / (int)s.width;
}

/* 0: behind the matrix. */
template <typename T>
static __device__ inline float tile_value(const struct block_task &o, const T *src,
                                          int64_t row, int64_t col)
{
    return row < o.rows && col < o.s.cols ? load_float(src, row * o.s.cols + col)
                                          : 0.0f;
}

/* most[]: by group_of; it begins with zeros. */
template <typename T>
static __device__ inline void tile_most(const struct block_task &o, const T *src,
                                        int64_t row, int64_t col, unsigned *most)
{
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += MAP_BLOCK) {
        const int r = i / TILE, c = i % TILE;
        const uint32_t u =
            minifloat_bits(tile_value(o, src, row + r, col + c)) & 0x7fffffffu;
        uint32_t v = u > 0x7f800000u ? 0 : u;

        /* a warp has numbers of one row */
        for (int apart = WARP / 2; apart && o.s.width > 1; apart /= 2) {
            const uint32_t other = __shfl_xor_sync(WARP_MASK, v, apart);

            v = other > v ? other : v;
        }
        if (o.s.width == 1 || threadIdx.x % WARP == 0)
            atomicMax(&most[group_of(o.s, r, c)], v);
    }
}

/* By the rule of the blocks. */
static __device__ inline float scale_for(const struct block_task &o, float amax)
{
    const accel_dtype_t to = o.wide ? ACCEL_F8E5M2 : ACCEL_F8E4M3;

    return o.s.e8m0 ? e8m0_to_f32((uint8_t)(254 - e8m0_of(amax, to)))
                    : fp8_block_scale(amax, to);
}

/* scale[]: by group_of. Writes the inverse ones of blocks that are there, as far as
 * they lie in no tiles. */
static __device__ inline void tile_scales(const struct block_task &o, int64_t row,
                                          int64_t col, const unsigned *most,
                                          float *scale)
{
    const int across = TILE / (int)o.s.width;

    for (int g = (int)threadIdx.x; g < TILE / (int)o.s.height * across;
         g += MAP_BLOCK) {
        const int64_t r = row + g / across * o.s.height;
        const int64_t c = col + g % across * o.s.width;

        scale[g] = scale_for(o, minifloat_float(most[g]));
        if (!o.s.tiles && r < o.lines && c < o.s.cols)
            ((float *)o.s.inverse)[r / o.s.height * o.s.row_step +
                                   c / o.s.width * o.s.col_step] = 1 / scale[g];
    }
}

/* The inverse scales as one tile of bytes: 0 where there are no numbers. */
static __device__ inline void tile_bytes(const struct block_task &o, int64_t row,
                                         int64_t col, const float *scale)
{
    const int64_t line = o.s.down ? col : row, k = o.s.down ? row : col;
    uint8_t *dst = (uint8_t *)o.s.inverse +
                   (line / TILE * o.s.tiles + k / TILE) * SCALE_TILE_BYTES;

    for (int i = (int)threadIdx.x; i < SCALE_TILE_BYTES; i += MAP_BLOCK) {
        const int own = i / 16 + i / 4 % 4 * 32, far = i % 4 * SCALE_TILE_K;
        const int r = o.s.down ? far : own, c = o.s.down ? own : far;
        const bool inside = row + r < o.rows && col + c < o.s.cols;

        dst[i] = inside ? e8m0_of_power(1 / scale[group_of(o.s, r, c)]) : 0;
    }
}

/* The tile's codes, which a turned copy gets line by line. */
template <typename T>
static __device__ inline void tile_codes(
    const struct block_task &o, const T *src, int64_t row, int64_t col,
    const float *scale, pack<f8_t, TILE_PACK> (*turned)[TILE_LINE / TILE_PACK])
{
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += MAP_BLOCK) {
        const int r = i / TILE, c = i % TILE;
        const bool inside = row + r < o.lines && col + c < o.s.cols;
        f8_t y = 0;

        if (inside)
            y = narrow_code(tile_value(o, src, row + r, col + c) *
                                scale[group_of(o.s, r, c)],
                            o.wide);
        if (o.s.turned)
            turned[c][r / TILE_PACK].v[r % TILE_PACK] = y;
        else if (inside)
            o.dst[(row + r) * o.s.cols + col + c] = y;
    }
    if (!o.s.turned)
        return;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILE * TILE / TILE_PACK; i += MAP_BLOCK) {
        const int c = i / (TILE / TILE_PACK), r = i % (TILE / TILE_PACK);
        const int64_t at = (col + c) * o.ld + row + r * TILE_PACK;

        if (col + c < o.s.cols && row + r * TILE_PACK < o.ld)
            *reinterpret_cast<pack<f8_t, TILE_PACK> *>(o.dst + at) = turned[c][r];
    }
}

template <typename T>
static __global__ void __launch_bounds__(MAP_BLOCK)
    blocks_kernel(const T *src, struct block_task o)
{
    __shared__ pack<f8_t, TILE_PACK> turned[TILE][TILE_LINE / TILE_PACK];
    __shared__ unsigned most[TILE_BLOCKS];
    __shared__ float scale[TILE_BLOCKS];
    const int64_t row = (int64_t)blockIdx.x * TILE, col = (int64_t)blockIdx.y * TILE;

    for (int g = (int)threadIdx.x; g < TILE_BLOCKS; g += MAP_BLOCK)
        most[g] = 0;
    __syncthreads();
    tile_most(o, src, row, col, most);
    __syncthreads();
    tile_scales(o, row, col, most, scale);
    __syncthreads();
    if (o.s.tiles)
        tile_bytes(o, row, col, scale);
    tile_codes(o, src, row, col, scale, turned);
}

void cuda_quantize_blocks(const struct backend *be, void *dst, accel_dtype_t to,
                          const void *src, accel_dtype_t type, int64_t rows,
                          const struct block_scales *s)
{
    const struct block_task o = {
        (f8_t *)dst,        rows, s->padded ? block_lines(rows) : rows, narrow_ld(rows),
        to == ACCEL_F8E5M2, *s
    };
    const dim3 grid((unsigned)((rows + TILE - 1) / TILE),
                    (unsigned)((s->cols + TILE - 1) / TILE));

    BY_TYPE(type, T,
            LAUNCH((blocks_kernel<T>), grid, MAP_BLOCK, 0, cuda_state_of(be),
                   (const T *)src, o));
}
