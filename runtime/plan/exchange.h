/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch memory of sums that a device computes in rank order (comm/nccl/nccl_sum.c):
 * every rank receives its part of all ranks' arrays, in their own dtype, and adds them
 * up. In: elements. Out: bytes. The collectives and the plan call the same functions,
 * so the plan is exact.
 */
#ifndef ACCEL_PLAN_EXCHANGE_H
#define ACCEL_PLAN_EXCHANGE_H

#include "numbers/wire.h"

/* in bytes, unless the communicator says otherwise */
#define EXCHANGE_MOST ((size_t)64 << 20)
/* in elements: pieces are multiples of it */
#define EXCHANGE_PIECE ((size_t)64)

/* Elements of one rank's part of a piece that needs `each` bytes per element. */
static inline size_t exchange_piece(size_t most, size_t each)
{
    size_t elems = most / each / EXCHANGE_PIECE * EXCHANGE_PIECE;

    return elems ? elems : EXCHANGE_PIECE;
}

/* Elements of each part that a reduce-scatter of parts[ranks][elems] handles at a time.
 * Scaled dtypes are cut only between blocks that share a scale. */
static inline size_t exchange_scatter_elems(size_t elems, accel_dtype_t t, size_t ranks,
                                            size_t most)
{
    size_t step = wire_is_scaled(t) ? WIRE_BLOCK : EXCHANGE_PIECE;
    size_t steps = most / (ranks * wire_bytes(step, t));
    size_t piece = (steps ? steps : 1) * step;

    return piece < elems ? piece : elems;
}

/* Scratch of a reduce-scatter: such a piece from every rank. */
static inline size_t exchange_scatter_bytes(size_t elems, accel_dtype_t t, size_t ranks,
                                            size_t most)
{
    return ranks * wire_bytes(exchange_scatter_elems(elems, t, ranks, most), t);
}

/* Elements that an all-reduce handles at a time. It also needs a float32 sum. */
static inline size_t exchange_reduce_elems(size_t elems, size_t elem_bytes,
                                           size_t ranks, size_t most)
{
    size_t piece = exchange_piece(most, ranks * elem_bytes + sizeof(float)) * ranks;

    return piece < elems ? piece : elems;
}

/* Elements of the longest slice of `at_a_time` elements, cut for all ranks. */
static inline size_t exchange_slice(size_t at_a_time, size_t ranks)
{
    size_t pieces = (at_a_time + EXCHANGE_PIECE - 1) / EXCHANGE_PIECE;

    return (pieces / ranks + 1) * EXCHANGE_PIECE;
}

/* Scratch of an all-reduce: a slice from every rank, and its float32 sum. */
static inline size_t exchange_reduce_bytes(size_t elems, size_t elem_bytes,
                                           size_t ranks, size_t most)
{
    size_t slice =
        exchange_slice(exchange_reduce_elems(elems, elem_bytes, ranks, most), ranks);

    return slice * (ranks * elem_bytes + sizeof(float));
}

#endif
