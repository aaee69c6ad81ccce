/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient of an embedding on a CUDA device without float atomics: rows are sorted by
 * id, equal ids by row number, and one block adds the rows of each id. The rows of a
 * frequent id are added in pieces, by a block each, whose sums are then added in order.
 * Tiles are sorted alone first; a row's final place is the sum, over all tiles, of how
 * many of their rows come before it.
 */
#include "backend/cuda/vector.h"

enum { SORT_TILE = 512, GATHER_BLOCK = 128, GATHER_WARPS = GATHER_BLOCK / WARP };

/* Arrays of `rows`: sorted within tiles (tile_id, tile_row), the final places, and all
 * sorted (id, row). Equal ids keep the order of their rows: then the order of every sum
 * is that of the batch. */
struct id_order {
    int64_t rows;
    int32_t *tile_id, *tile_row, *place, *id, *row;
    /* A run, the places of one id, that is longer than `piece` is added in pieces of
     * that many places; `part` [parts][cols] has their sums (part_of). */
    int64_t piece;
    float *part;
};

/* Places in a piece at least: enough rows to hide the second pass. And pieces at most,
 * which bounds the memory of their sums. */
enum { PIECE_LEAST = 1024, PIECES_MOST = 128 };

/* Sorts each tile of 512 rows by (id, row): tile_id, tile_row, and the place within the
 * tile. */
static __global__ void __launch_bounds__(SORT_TILE)
    sort_tiles_kernel(struct id_order o, const int32_t *ids)
{
    __shared__ int32_t tile[SORT_TILE];
    const int me = (int)threadIdx.x;

    for (int64_t at = (int64_t)blockIdx.x * SORT_TILE; at < o.rows;
         at += (int64_t)gridDim.x * SORT_TILE) {
        const int n = (int)least(o.rows - at, SORT_TILE);
        /* rank by counting: at most 512 comparisons per thread, all in shared memory,
         * and stable */
        int place = 0;

        if (me < n)
            tile[me] = ids[at + me];
        __syncthreads();
        if (me < n) {
            for (int k = 0; k < n; k++)
                place += tile[k] < tile[me] || (tile[k] == tile[me] && k < me);
            o.tile_id[at + place] = tile[me];
            o.tile_row[at + place] = (int32_t)(at + me);
            o.place[at + place] = place;
        }
        __syncthreads();
    }
}

/* How many of the sorted tile[n] are below id or, with `equal`, not above it. */
static __device__ inline int count_before(const int32_t *tile, int n, int32_t id,
                                          bool equal)
{
    int low = 0, high = n;

    while (low < high) {
        /* binary search: the tile is sorted */
        const int middle = (low + high) / 2;
        const bool before = tile[middle] < id || (equal && tile[middle] == id);

        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

/* Adds to each row's place the number of rows in tile blockIdx.y that come before it.
 * Integer atomics: their order does not matter. `other < at` counts equal ids of
 * earlier tiles as before. */
static __global__ void __launch_bounds__(SORT_TILE) place_kernel(struct id_order o)
{
    __shared__ int32_t tile[SORT_TILE];
    const int me = (int)threadIdx.x;

    for (int64_t other = (int64_t)blockIdx.y * SORT_TILE; other < o.rows;
         other += (int64_t)gridDim.y * SORT_TILE) {
        const int n = (int)least(o.rows - other, SORT_TILE);

        if (me < n)
            tile[me] = o.tile_id[other + me];
        __syncthreads();
        for (int64_t at = (int64_t)blockIdx.x * SORT_TILE; at < o.rows;
             at += (int64_t)gridDim.x * SORT_TILE)
            /* within its own tile the place is known already */
            if (at != other && at + me < o.rows)
                atomicAdd(&o.place[at + me],
                          count_before(tile, n, o.tile_id[at + me], other < at));
        __syncthreads();
    }
}

/* Moves each row to its place. */
static __global__ void __launch_bounds__(SORT_TILE) spread_kernel(struct id_order o)
{
    GRID_STRIDE(i, o.rows)
    {
        /* places are a permutation: no two rows write to one place */
        o.id[o.place[i]] = o.tile_id[i];
        o.row[o.place[i]] = o.tile_row[i];
    }
}

/* Is the place `at + by` in the run of `at`? */
static __device__ inline bool same_run(const struct id_order &o, int64_t at, int64_t by)
{
    return at + by >= 0 && at + by < o.rows && o.id[at + by] == o.id[at];
}

/* The first place, from `low` to `high`, whose id is at least `id`, or above it. */
static __device__ inline int64_t place_of(const struct id_order &o, int64_t low,
                                          int64_t high, int32_t id, bool above)
{
    return low + count_before(o.id + low, (int)(high - low), id, above);
}

/* What the block of a place has to add: places [at, end) of a run. */
struct id_piece {
    int64_t end;
    bool whole; /* the run has no other piece */
    bool first;
};

/* False: another block adds the place. A piece begins where its run does and then every
 * `piece` places: one that begins later has its run's id `piece` places before. */
static __device__ inline bool piece_at(const struct id_order &o, int64_t at,
                                       struct id_piece *p)
{
    const int64_t ahead = least(o.rows, at + o.piece);

    p->first = !same_run(o, at, -1);
    if (!p->first) {
        if (!same_run(o, at, -o.piece) ||
            (at - place_of(o, 0, at, o.id[at], false)) % o.piece != 0)
            return false;
    }
    p->whole = p->first && !same_run(o, at, o.piece);
    p->end = place_of(o, at, ahead, o.id[at], true);
    return true;
}

/* Number of the sum of the piece that begins at `at`, if its run has several. Within
 * `piece` places at most one such piece begins its run, and at most one does not. */
static __device__ inline int64_t part_of(const struct id_order &o, int64_t at,
                                         bool first)
{
    return 2 * (at / o.piece) + first;
}

/* Adds dy of the rows row[first], row[first + step] ... below end, V columns from
 * col. */
template <int V, typename T>
static __device__ inline void add_rows(float *sum, const T *dy, const int32_t *row,
                                       int64_t first, int64_t step, int64_t end,
                                       int64_t cols, int64_t col)
{
#pragma unroll 4
    for (int64_t k = first; k < end; k += step) {
        float x[V];

        load<V>(x, dy + row[k] * cols + col);
        for (int i = 0; i < V; i++)
            sum[i] += x[i];
    }
}

/* One block per piece. Does nothing after a forward with ids out of range. With few
 * rows the warps share the columns; with many they take rows in turn and their sums are
 * added in order. */
template <int V, typename T>
static __global__ void __launch_bounds__(GATHER_BLOCK)
    gather_kernel(struct id_order o, float *dtable, const T *dy, int64_t cols,
                  const struct cuda_fault *fault)
{
    __shared__ float room[GATHER_WARPS][WARP * V];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

    /* an id out of range would be an address out of range */
    if (fault->embed != NO_BAD_ID)
        return;
    ROW_STRIDE(at, o.rows)
    {
        struct id_piece p;
        float *row;
        bool shared;

        if (!piece_at(o, at, &p))
            continue;
        /* a piece's sum waits for the rest of its run; that of a whole run is added */
        row = p.whole ? dtable + o.id[at] * cols
                      : o.part + part_of(o, at, p.first) * cols;
        /* a frequent token: its rows are many and its columns few */
        shared = p.end - at >= 4 * GATHER_WARPS;
        for (int64_t left = shared ? 0 : warp * WARP * V; left < cols;
             left += shared ? WARP * V : GATHER_BLOCK * V) {
            const int64_t col = left + lane * V;
            float sum[V] = { 0 };

            if (col < cols)
                add_rows<V>(sum, dy, o.row, at + (shared ? warp : 0),
                            shared ? GATHER_WARPS : 1, p.end, cols, col);
            if (!shared) {
                if (col < cols)
                    store<V>(row + col, p.whole, sum);
                continue;
            }
            for (int i = 0; i < V; i++)
                room[warp][i * WARP + lane] = sum[i];
            __syncthreads();
            /* warp 0 adds the others' sums in order; transposed in `room`, so no bank
             * conflicts */
            for (int from = 1; from < GATHER_WARPS && warp == 0; from++)
                for (int i = 0; i < V; i++)
                    sum[i] += room[from][i * WARP + lane];
            if (warp == 0 && col < cols)
                store<V>(row + col, p.whole, sum);
            __syncthreads();
        }
    }
}

/* Adds the sums of a run's pieces to dtable, in order. A block looks through `piece`
 * places, in which at most one run of several pieces begins. */
static __global__ void __launch_bounds__(GATHER_BLOCK)
    add_pieces_kernel(struct id_order o, float *dtable, int64_t cols,
                      const struct cuda_fault *fault)
{
    __shared__ int64_t found;
    int64_t end;

    if (fault->embed != NO_BAD_ID)
        return;
    if (threadIdx.x == 0)
        found = -1;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < o.piece; i += GATHER_BLOCK) {
        const int64_t at = (int64_t)blockIdx.x * o.piece + i;

        if (at < o.rows && !same_run(o, at, -1) && same_run(o, at, o.piece))
            found = at;
    }
    __syncthreads();
    if (found < 0)
        return;
    end = place_of(o, found, o.rows, o.id[found], true);
    BLOCK_STRIDE(col, cols)
    {
        float sum = o.part[part_of(o, found, true) * cols + col];

        for (int64_t at = found + o.piece; at < end; at += o.piece)
            sum += o.part[part_of(o, at, false) * cols + col];
        dtable[o.id[found] * cols + col] += sum;
    }
}

/* dpositions[t] += dy of row t of every sample, in the order of the samples. */
template <typename T> struct position_op {
    enum { INPUTS = 1 };
    float *dpositions;
    const T *dy;
    int64_t each; /* elements per sample */
    int64_t n;    /* of all samples; the last one may be short */

    template <int V> __device__ void load(int64_t at, float (*sum)[V]) const
    {
        /* t = at / cols in sample 0, then the same place of samples 1, 2, ... */
        ::load<V>(sum[0], dy + at);
#pragma unroll 4
        for (int64_t i = at + each; i < n; i += each) {
            float x[V];

            ::load<V>(x, dy + i);
            for (int k = 0; k < V; k++)
                sum[0][k] += x[k];
        }
    }
    template <int V> __device__ void finish(int64_t at, float (*sum)[V]) const
    {
        store<V>(dpositions + at, true, sum[0]);
    }
};

/* dtable [vocab, cols] += the rows of dy [rows, cols] with each id. */
template <typename T>
static void gather(struct cuda_state *s, struct id_order o, float *dtable,
                   const int32_t *ids, const T *dy, int64_t cols)
{
    const int64_t size = pack_size<T>;
    const int64_t tiles = (o.rows + SORT_TILE - 1) / SORT_TILE;
    const unsigned grid = (unsigned)least(tiles, 65535);
    int64_t windows;

    /* five per row: the ids sorted by tiles, their rows and places, and all sorted */
    o.tile_id = (int32_t *)cuda_scratch(s, (size_t)o.rows * 5 * sizeof(int32_t));
    o.tile_row = o.tile_id + o.rows;
    o.place = o.tile_row + o.rows;
    o.id = o.place + o.rows;
    o.row = o.id + o.rows;
    o.piece = (o.rows + PIECES_MOST - 1) / PIECES_MOST;
    if (o.piece < PIECE_LEAST)
        o.piece = PIECE_LEAST;
    /* a batch of one piece has no run of several */
    windows = o.rows > o.piece ? (o.rows + o.piece - 1) / o.piece : 0;
    o.part = (float *)cuda_scratch(s, (size_t)(2 * windows * cols) * sizeof(float));
    LAUNCH(sort_tiles_kernel, grid, SORT_TILE, 0, s, o, ids);
    LAUNCH(place_kernel, dim3(grid, grid), SORT_TILE, 0, s, o);
    LAUNCH(spread_kernel, elements_grid(o.rows, SORT_TILE), SORT_TILE, 0, s, o);
    if (on_16(dtable, dy) && cols % size == 0)
        LAUNCH((gather_kernel<pack_size<T>, T>), rows_grid(o.rows), GATHER_BLOCK, 0, s,
               o, dtable, dy, cols, s->fault);
    else
        LAUNCH((gather_kernel<1, T>), rows_grid(o.rows), GATHER_BLOCK, 0, s, o, dtable,
               dy, cols, s->fault);
    LAUNCH(add_pieces_kernel, (unsigned)windows, GATHER_BLOCK, 0, s, o, dtable, cols,
           s->fault);
    cuda_scratch_free(s, o.part);
    cuda_scratch_free(s, o.tile_id);
}

void cuda_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                     const int32_t *ids, const void *dy, accel_dtype_t type,
                     int64_t rows, int64_t time, int64_t cols)
{
    /* a short batch has fewer rows than positions */
    const int64_t each = least(rows, time) * cols;
    struct cuda_state *s = cuda_state_of(be);
    const struct id_order o = { rows, NULL, NULL, NULL, NULL, NULL, 0, NULL };

    if (dtable && rows > 0)
        BY_TYPE(type, T, gather<T>(s, o, dtable, ids, (const T *)dy, cols));
    if (dpositions)
        BY_TYPE(type, T,
                map<pack_size<T>>(s, on_16(dpositions, dy) && cols % pack_size<T> == 0,
                                  each,
                                  position_op<T>{ dpositions, (const T *)dy,
                                                  time * cols, rows * cols }));
}
