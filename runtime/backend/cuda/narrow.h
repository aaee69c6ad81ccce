/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floats for kernels that write a tensor, or read one. In: numbers as they are
 * stored. Out: codes, transposed ones, and the largest magnitude. It goes into its
 * place by atomics on integers, whose result does not depend on their order.
 */
#ifndef ACCEL_BACKEND_CUDA_NARROW_H
#define ACCEL_BACKEND_CUDA_NARROW_H

#include "backend/cuda/vector.h"

/* What one thread narrows, from narrow_begin to narrow_end. */
struct narrowing {
    f8_t *copy; /* NULL: none */
    float by;
    bool wide; /* e5m2 */
    float most;
};

static __device__ inline struct narrowing narrow_begin(const struct narrow_copy &to)
{
    return { (f8_t *)to.copy, to.scale ? *to.scale : 1.0f, to.type == ACCEL_F8E5M2, 0 };
}

/* The larger one of `most` and the magnitude of x; NaN does not count. */
static __device__ inline float narrow_most(float most, float x)
{
    return fabsf(x) > most ? fabsf(x) : most;
}

/* The codes of two numbers, that of x in the lower byte. The device's own conversion,
 * where there is one, has the same bits but for a NaN's, of which it knows one; its
 * first source goes to the upper byte. */
static __device__ inline uint16_t narrow_pair(float x, float y, bool wide)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;

    if (wide)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y), "f"(x));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y), "f"(x));
    return pair;
#else
    return (uint16_t)(wide ? f32_to_full_e5m2(x) | f32_to_full_e5m2(y) << 8
                           : f32_to_full_e4m3(x) | f32_to_full_e4m3(y) << 8);
#endif
}

/* V codes, four in a word: bytes apart would be moved one by one. */
template <int V> using code_pack = pack<uint32_t, (V + 3) / 4>;

template <int V>
static __device__ inline void put_codes(f8_t *to, const code_pack<V> &y)
{
    if constexpr (V == 1)
        *to = (f8_t)y.v[0];
    else
        *reinterpret_cast<code_pack<V> *>(to) = y;
}

/* The codes of V numbers, which are scaled already. */
template <int V>
static __device__ inline code_pack<V> narrow_codes(const float *x, bool wide)
{
    code_pack<V> p = {};

    for (int i = 0; i < V; i += 2)
        p.v[i / 4] |= (uint32_t)narrow_pair(x[i], i + 1 < V ? x[i + 1] : 0.0f, wide)
                      << i % 4 * 8;
    return p;
}

/* V numbers in a row, from element `at` on: a multiple of V. Their magnitudes are
 * noted, and their codes returned. */
template <int V>
static __device__ inline code_pack<V> narrow_pack(struct narrowing &n, int64_t at,
                                                  const float *x)
{
    float scaled[V];
    code_pack<V> p;

    for (int i = 0; i < V; i++) {
        n.most = narrow_most(n.most, x[i]);
        scaled[i] = x[i] * n.by;
    }
    p = narrow_codes<V>(scaled, n.wide);
    if (n.copy)
        put_codes<V>(n.copy + at, p);
    return p;
}

/* All threads of a block must call. Atomics on one address wait for each other: a block
 * has one, and only where it raises what is there. That never falls, so what is read
 * may be old. */
static __device__ inline void narrow_end(const struct narrowing &n, float *amax)
{
    __shared__ float room[WARP];
    uint32_t most;

    if (!amax)
        return;
    most = minifloat_bits(block_max(n.most, room));
    if (threadIdx.x == 0 && most > *reinterpret_cast<volatile uint32_t *>(amax))
        atomicMax(reinterpret_cast<unsigned *>(amax), most);
}

/* to[V] = v in T; v becomes what is stored. */
template <int V, typename T>
static __device__ inline void store_rounded(T *to, float *v)
{
    pack<T, V> p;

    for (int i = 0; i < V; i++) {
        store_float(p.v, i, v[i]);
        v[i] = load_float(p.v, i);
    }
    *reinterpret_cast<pack<T, V> *>(to) = p;
}

/* ---- what is narrowed ------------------------------------------------------------ */

/* A SOURCE of numbers has INPUTS; AHEAD, the rows of which a thread keeps them for a
 * transposed copy; load<V>(at, x[INPUTS][V]), which reads what elements
 * at .. at + V - 1 need; and codes<V>(n, at, x), which returns their codes and writes
 * what they leave. As an operation for map: */
template <typename SOURCE> struct narrow_op {
    enum { INPUTS = SOURCE::INPUTS };
    SOURCE source;
    struct narrowing *to; /* of the thread */

    template <int V> __device__ void load(int64_t at, float (*x)[V]) const
    {
        source.template load<V>(at, x);
    }
    template <int V> __device__ void finish(int64_t at, float (*x)[V]) const
    {
        source.template codes<V>(*to, at, x);
    }
};

template <int V, typename SOURCE>
static __global__ void __launch_bounds__(MAP_BLOCK)
    narrow_kernel(SOURCE source, int64_t n, struct narrow_copy to)
{
    struct narrowing own = narrow_begin(to);

    map_elements<V>(narrow_op<SOURCE>{ source, &own },
                    (int64_t)blockIdx.x * MAP_BLOCK + threadIdx.x,
                    (int64_t)gridDim.x * MAP_BLOCK, n);
    narrow_end(own, to.amax);
}

/* ---- transposed copies ----------------------------------------------------------- */

/* A transposed copy is written in lines of 128 codes: of one column, 128 rows. In
 * shared memory a line is 8 packs of 16 bytes. */
enum { LINE = 128, LINE_PACK = 16, LINE_PACKS = LINE / LINE_PACK };
typedef pack<f8_t, LINE_PACK> line_t[LINE_PACKS];

/* A thread has V columns of R rows. A warp has 8 threads side by side, which read whole
 * lines of memory, and 4 of them below each other: the first row and column of thread
 * i. */
template <int R> static __device__ inline int part_row(int i)
{
    return i / 8 % (LINE / R) * R;
}

template <int V, int R> static __device__ inline int part_col(int i)
{
    return (i % 8 + i / (8 * LINE / R) * 8) * V;
}

/* Packs are exchanged in a line, so that the threads of a warp, whose columns are V
 * apart, do not meet in one bank. */
template <int V>
static __device__ inline pack<f8_t, LINE_PACK> &line_at(line_t *lines, int row, int col)
{
    return lines[col][row / LINE_PACK ^ col / V % LINE_PACKS];
}

/* down[V], a column of four rows in each: moves up by a row, and y is the last one. */
template <int V>
static __device__ inline void append_row(uint32_t *down, const code_pack<V> &y)
{
    for (int j = 0; j < V; j++)
        down[j] = __byte_perm(down[j], y.v[j / 4], (4 + (unsigned)j % 4) << 12 | 0x321);
}

/* The codes of V columns, as many rows as a DOWN has bytes, from (row, col) on. */
template <int V, typename DOWN>
static __device__ inline void put_lines(line_t *lines, int row, int col,
                                        const DOWN *down)
{
    for (int j = 0; j < V; j++)
        *reinterpret_cast<DOWN *>(line_at<V>(lines, row, col + j).v + row % LINE_PACK) =
            down[j];
}

/* Writes `cols` lines to transposed [all, ld] from (row, col) of what lies on chip. */
template <int V>
static __device__ inline void write_lines(line_t *lines, int cols, f8_t *transposed,
                                          int64_t all, int64_t ld, int64_t row,
                                          int64_t col)
{
    for (int i = (int)threadIdx.x; i < cols * LINE_PACKS; i += MAP_BLOCK) {
        const int c = i / LINE_PACKS, r = i % LINE_PACKS * LINE_PACK;

        if (col + c < all && row + r < ld)
            *reinterpret_cast<pack<f8_t, LINE_PACK> *>(
                transposed + (col + c) * ld + row + r) = line_at<V>(lines, r, c);
    }
}

/* Columns of a block, and rows of a thread. */
enum { TURN_COLS = 64, TURN_STRIP = 4 };

/* The thread's codes from (row, col) on, a column in a word: 0 where there is no
 * number. AHEAD rows are read before one is written, to keep the loads in flight. */
template <int V, typename SOURCE>
static __device__ inline void turn_strip(const SOURCE &source, struct narrowing &n,
                                         const struct narrow_copy &to, int64_t row,
                                         int64_t col, uint32_t *down)
{
    enum { AHEAD = SOURCE::AHEAD };

#pragma unroll 1
    for (int first = 0; first < TURN_STRIP; first += AHEAD) {
        const int64_t at = (row + first) * to.cols + col;
        float x[AHEAD][SOURCE::INPUTS][V];

#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (row + first + k < to.rows && col < to.cols)
                source.template load<V>(at + k * to.cols, x[k]);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            code_pack<V> y = {};

            if (row + first + k < to.rows && col < to.cols)
                y = source.template codes<V>(n, at + k * to.cols, x[k]);
            append_row<V>(down, y);
        }
    }
}

/* Columns in y. Zeros after the last row; ld is narrow_ld(rows). */
template <int V, typename SOURCE>
static __global__ void __launch_bounds__(MAP_BLOCK, 3)
    turn_kernel(SOURCE source, struct narrow_copy to, int64_t ld)
{
    __shared__ line_t lines[TURN_COLS];
    const int64_t row = (int64_t)blockIdx.x * LINE,
                  col = (int64_t)blockIdx.y * TURN_COLS;
    struct narrowing n = narrow_begin(to);

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < LINE / TURN_STRIP * TURN_COLS / V;
         i += MAP_BLOCK) {
        const int r = part_row<TURN_STRIP>(i), c = part_col<V, TURN_STRIP>(i);
        uint32_t down[V] = {};

        turn_strip<V>(source, n, to, row + r, col + c, down);
        put_lines<V>(lines, r, c, down);
    }
    __syncthreads();
    write_lines<V>(lines, TURN_COLS, (f8_t *)to.transposed, to.cols, ld, row, col);
    narrow_end(n, to.amax);
}

/* ---- launches -------------------------------------------------------------------- */

/* Makes a transposed copy, and the other one. packed: the addresses of the source allow
 * packs of V. The y of a grid ends at 65535: 4 million columns. */
template <int V, typename SOURCE>
static void turn(struct cuda_state *s, bool packed, SOURCE source,
                 const struct narrow_copy *to)
{
    const dim3 grid((unsigned)((to->rows + LINE - 1) / LINE),
                    (unsigned)((to->cols + TURN_COLS - 1) / TURN_COLS));
    const int64_t ld = narrow_ld(to->rows);

    if (packed && to->cols % V == 0)
        LAUNCH((turn_kernel<V, SOURCE>), grid, MAP_BLOCK, 0, s, source, *to, ld);
    else
        LAUNCH((turn_kernel<1, SOURCE>), grid, MAP_BLOCK, 0, s, source, *to, ld);
}

/* Makes the copies that are wanted. */
template <int V, typename SOURCE>
static void narrow_source(struct cuda_state *s, bool packed, SOURCE source,
                          const struct narrow_copy *to)
{
    const int64_t n = to->rows * to->cols;

    if (to->transposed)
        turn<V>(s, packed, source, to);
    else if (packed)
        LAUNCH((narrow_kernel<V, SOURCE>),
               elements_grid((n + V - 1) / V, 2 * MAP_BLOCK), MAP_BLOCK, 0, s, source,
               n, *to);
    else
        LAUNCH((narrow_kernel<1, SOURCE>), elements_grid(n, 2 * MAP_BLOCK), MAP_BLOCK,
               0, s, source, n, *to);
}

#endif
