/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient of an embedding on a CUDA device without float atomics: rows are sorted by
 * id, equal ids by row number, and one block adds the rows of each id. Tiles are sorted
 * alone first; a row's final place is the sum, over all tiles, of how many of their
 * rows come before it.
 */
#include "backend/cuda/vector.h"

enum { SORT_TILE = 512, GATHER_BLOCK = 128, GATHER_WARPS = GATHER_BLOCK / WARP };

/* Arrays of `rows`: sorted within tiles (tile_id, tile_row), the final places, and all
 * sorted (id, row). Equal ids keep the order of their rows: then the order of every sum
 * is that of the batch. */
struct id_order {
    int64_t rows;
    int32_t *tile_id, *tile_row, *place, *id, *row;
};

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

/* Number of places from `at` on with the id of the first; every warp counts for
 * itself. */
static __device__ inline int64_t run_length(const struct id_order &o, int64_t at)
{
    const int lane = (int)threadIdx.x % WARP;
    int64_t n = 0;
    int more;

    do {
        const int64_t i = at + n + lane;

        /* 32 places at a time, until one of them has another id */
        more = __popc(__ballot_sync(WARP_MASK, i < o.rows && o.id[i] == o.id[at]));
        n += more;
    } while (more == WARP);
    return n;
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

/* One block per place at which an id starts. Does nothing after a forward with ids out
 * of range. With few rows the warps share the columns; with many they take rows in turn
 * and their sums are added in order. */
template <int V, typename T>
static __global__ void __launch_bounds__(GATHER_BLOCK)
    gather_kernel(struct id_order o, float *dtable, const T *dy, int64_t cols,
                  const struct cuda_fault *fault)
{
    __shared__ float room[GATHER_WARPS][WARP * V];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

    /* an id out of range would be an address out of range */
    if (fault->embed.row != INT32_MAX)
        return;
    ROW_STRIDE(at, o.rows)
    {
        int64_t end;
        bool shared;

        /* not the first of its id: another block has it */
        if (at > 0 && o.id[at - 1] == o.id[at])
            continue;
        end = at + run_length(o, at);
        /* a frequent token: its rows are many and its columns few */
        shared = end - at >= 4 * GATHER_WARPS;
        for (int64_t left = shared ? 0 : warp * WARP * V; left < cols;
             left += shared ? WARP * V : GATHER_BLOCK * V) {
            const int64_t col = left + lane * V;
            float *const to = dtable + o.id[at] * cols + col;
            float sum[V] = { 0 };

            if (col < cols)
                add_rows<V>(sum, dy, o.row, at + (shared ? warp : 0),
                            shared ? GATHER_WARPS : 1, end, cols, col);
            if (!shared) {
                if (col < cols)
                    store<V>(to, true, sum);
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
                store<V>(to, true, sum);
            __syncthreads();
        }
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

    /* five per row: the ids sorted by tiles, their rows and places, and all sorted */
    o.tile_id = (int32_t *)cuda_scratch(s, (size_t)o.rows * 5 * sizeof(int32_t));
    o.tile_row = o.tile_id + o.rows;
    o.place = o.tile_row + o.rows;
    o.id = o.place + o.rows;
    o.row = o.id + o.rows;
    LAUNCH(sort_tiles_kernel, grid, SORT_TILE, 0, s, o, ids);
    LAUNCH(place_kernel, dim3(grid, grid), SORT_TILE, 0, s, o);
    LAUNCH(spread_kernel, elements_grid(o.rows, SORT_TILE), SORT_TILE, 0, s, o);
    if (on_16(dtable, dy) && cols % size == 0)
        LAUNCH((gather_kernel<pack_size<T>, T>), rows_grid(o.rows), GATHER_BLOCK, 0, s,
               o, dtable, dy, cols, s->fault);
    else
        LAUNCH((gather_kernel<1, T>), rows_grid(o.rows), GATHER_BLOCK, 0, s, o, dtable,
               dy, cols, s->fault);
    cuda_scratch_free(s, o.tile_id);
}

void cuda_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                     const int32_t *ids, const void *dy, accel_dtype_t type,
                     int64_t rows, int64_t time, int64_t cols)
{
    /* a short batch has fewer rows than positions */
    const int64_t each = least(rows, time) * cols;
    struct cuda_state *s = cuda_state_of(be);
    const struct id_order o = { rows, NULL, NULL, NULL, NULL, NULL };

    if (dtable && rows > 0)
        BY_TYPE(type, T, gather<T>(s, o, dtable, ids, (const T *)dy, cols));
    if (dpositions)
        BY_TYPE(type, T,
                map<pack_size<T>>(s, on_16(dpositions, dy) && cols % pack_size<T> == 0,
                                  each,
                                  position_op<T>{ dpositions, (const T *)dy,
                                                  time * cols, rows * cols }));
}
