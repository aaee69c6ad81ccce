/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding lookup on a CUDA device. An id out of range is noted, reported by sync, and
 * read as id 0 meanwhile.
 */
#include "backend/cuda/vector.h"

enum { EMBED_BLOCK = 256 };

/* The call for the kernel. out[r, :] = table[ids[r], :] + positions[r % time, :], all
 * rows of `cols`. */
template <typename T> struct lookup {
    T *out;
    const int32_t *ids;
    const T *table, *positions; /* positions: NULL for none */
    int64_t rows, time, vocab, cols;
    uint32_t mark;
};

/* out [rows, cols] in packs of V; fault takes the lowest bad row. */
template <int V, typename T>
static __global__ void __launch_bounds__(EMBED_BLOCK)
    embed_kernel(struct lookup<T> p, struct cuda_fault *fault)
{
    const int64_t packs = p.cols / V;

    GRID_STRIDE(i, p.rows * packs)
    {
        /* i = r packs + pack: a warp writes adjacent packs of one row */
        int64_t pack, t;
        const int64_t r = divide(i, packs, &pack), at = pack * V;
        int64_t id = p.ids[r];
        float v[V], position[V] = { 0 };

        /* never read outside of the table; the row is wrong, and sync says so */
        if (id < 0 || id >= p.vocab) {
            if (pack == 0)
                note_bad_row(&fault->embed, r, p.mark);
            id = 0;
        }
        load<V>(v, p.table + id * p.cols + at);
        if (p.positions) {
            divide(r, p.time, &t);
            load<V>(position, p.positions + t * p.cols + at);
        }
        for (int k = 0; k < V && p.positions; k++)
            v[k] = v[k] + position[k];
        store<V>(p.out + r * p.cols + at, v);
    }
}

template <typename T> static void embed(struct cuda_state *s, const struct lookup<T> &p)
{
    const int64_t size = pack_size<T>;

    if (on_16(p.out, p.table, p.positions) && p.cols % size == 0)
        LAUNCH((embed_kernel<pack_size<T>, T>),
               elements_grid(p.rows * (p.cols / size), EMBED_BLOCK), EMBED_BLOCK, 0, s,
               p, s->fault);
    else
        LAUNCH((embed_kernel<1, T>), elements_grid(p.rows * p.cols, EMBED_BLOCK),
               EMBED_BLOCK, 0, s, p, s->fault);
}

int64_t cuda_embed(const struct backend *be, void *out, const int32_t *ids,
                   const void *table, const void *positions, accel_dtype_t type,
                   int64_t rows, int64_t time, int64_t vocab, int64_t cols)
{
    BY_TYPE(
        type, T,
        embed<T>(cuda_state_of(be),
                 { (T *)out, ids, (const T *)table, (const T *)positions, rows, time,
                   vocab, cols, cuda_mark_ids(cuda_state_of(be), vocab, time) }));
    return -1;
}
