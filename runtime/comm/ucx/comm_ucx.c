/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over UCP tagged messages, for ranks on any nodes. Direct algorithms:
 * every rank talks to every other one, so a silent rank is recognised by its own
 * silence and not by that of a chain of others. Over several nodes long sums go from
 * node to node (ucx_chain.c), and what is long goes to each node once (ucx_spread.c).
 * Sums use the kernels of rank_order.c in rank order, as in shared memory.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "comm/ucx/ucx.h"
#include "numbers/wire.h"

/* Up to this size an all_reduce sends everything to everybody: one message
 * time, not two. */
#define SMALL_BYTES ((size_t)16 * 1024)
/* Workspace for what is received and not yet summed, from all ranks together. */
#define CHUNK_BYTES ((size_t)4 * 1024 * 1024)

static size_t dtype_bytes(const struct comm *c)
{
    return accel_dtype_bytes(c->args.dtype);
}

/* ---- all_gather, broadcast, barrier ---------------------------------------------- */

/* Sends the own slice of buf to all ranks and receives theirs; slice r is [begin[r],
 * begin[r + 1]) in bytes. In step i rank r sends to r + i and receives from r - i, so
 * that not all send to one rank at the same time. Receives are posted first: a message
 * that finds none is buffered and copied. */
static accel_status_t swap_slices(struct comm *c, char *buf, const size_t *begin,
                                  int step, accel_error_t *err)
{
    char *own = buf + begin[c->rank];
    size_t own_bytes = begin[c->rank + 1] - begin[c->rank];

    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;

        ucx_recv(c, from, step, buf + begin[from], begin[from + 1] - begin[from]);
        ucx_send(c, to, step, own, own_bytes);
    }
    return ucx_wait(c, err);
}

static accel_status_t ucx_all_gather(struct comm *c, void *buf, accel_error_t *err)
{
    struct ucx *u = c->impl;
    accel_status_t st;

    if (ucx_spread_gather(c, buf, &st, err))
        return st;
    for (int r = 0; r <= c->size; r++)
        u->begin[r] = (size_t)r * c->args.elems * dtype_bytes(c);
    return swap_slices(c, buf, u->begin, 0, err);
}

static accel_status_t ucx_broadcast(struct comm *c, void *buf, accel_error_t *err)
{
    accel_status_t st;

    if (ucx_spread_broadcast(c, buf, &st, err))
        return st;
    if (c->rank != c->args.root) {
        ucx_recv(c, c->args.root, 0, buf, c->args.elems);
        return ucx_wait(c, err);
    }
    for (int i = 1; i < c->size; i++)
        ucx_send(c, (c->rank + i) % c->size, 0, buf, c->args.elems);
    return ucx_wait(c, err);
}

/* A message of 0 bytes from everybody to everybody. */
static accel_status_t ucx_barrier(struct comm *c, accel_error_t *err)
{
    struct ucx *u = c->impl;

    memset(u->begin, 0, ((size_t)c->size + 1) * sizeof(*u->begin));
    return swap_slices(c, NULL, u->begin, 0, err);
}

/* ---- reductions ------------------------------------------------------------------ */

/* A rank's input of a reduction, cut into one part per rank. */
struct parts {
    const char *in;
    const size_t *begin; /* [size + 1] in elements: part of rank r */
    size_t stride;       /* bytes from one part to the next; 0: parts are contiguous */
    size_t chunk;        /* elements of a part that travel at a time */
};

/* Bytes of `elems` elements that start where a part or a chunk starts. */
static size_t on_wire(const struct comm *c, size_t elems)
{
    return wire_bytes(elems, c->args.dtype);
}

/* This rank's input for rank r, from element pos of that part on. */
static const char *part_at(const struct comm *c, const struct parts *p, int r,
                           size_t pos)
{
    return p->in + (p->stride ? (size_t)r * p->stride : on_wire(c, p->begin[r])) +
           on_wire(c, pos);
}

/* Elements of rank's part in the chunk at pos; 0 beyond the end of a shorter part. */
static size_t chunk_of(const struct parts *p, int rank, size_t pos)
{
    size_t n = p->begin[rank + 1] - p->begin[rank];

    n = n > pos ? n - pos : 0;
    return n < p->chunk ? n : p->chunk;
}

/* Posts the messages of chunk k: to every rank its part's chunk, from every rank that
 * of the own part. These arrive in half k & 1 of the workspace, as [size][chunk]; the
 * chunk's number is the step of the tag. Chunk 0 is sent even if it is empty, so that a
 * peer in another call is noticed. */
static void start_chunk(struct comm *c, const struct parts *p, size_t k)
{
    struct ucx *u = c->impl;
    size_t pos = k * p->chunk, n = chunk_of(p, c->rank, pos);
    size_t row = on_wire(c, p->chunk);
    char *half = u->room + (k & 1) * (size_t)c->size * row;

    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
        size_t m = chunk_of(p, to, pos);

        if (n > 0 || k == 0)
            ucx_recv(c, from, (int)k, half + (size_t)from * row, on_wire(c, n));
        if (m > 0 || k == 0)
            ucx_send(c, to, (int)k, part_at(c, p, to, pos), on_wire(c, m));
    }
}

/* Points c->src[] at all ranks' elements of chunk k of the own part. */
static void point_at_chunk(struct comm *c, const struct parts *p, size_t k)
{
    struct ucx *u = c->impl;
    size_t row = on_wire(c, p->chunk);
    const char *half = u->room + (k & 1) * (size_t)c->size * row;

    for (int r = 0; r < c->size; r++)
        c->src[r] = half + (size_t)r * row;
    c->src[c->rank] = part_at(c, p, c->rank, k * p->chunk);
}

/* What to do with a chunk of the own part (elements [pos, pos + n)) once all ranks'
 * elements have arrived and c->src points at them. */
struct sink {
    void (*fn)(struct comm *c, const struct sink *sink, size_t pos, size_t n);
    char *out;
    float scale;
    bool accumulate;
};

/* for reduce_scatter */
static void sink_scaled(struct comm *c, const struct sink *k, size_t pos, size_t n)
{
    reduce_scaled_sum((float *)(void *)k->out + pos, c->src, c->size, n, c->args.dtype,
                      k->scale, k->accumulate);
}

/* for all_reduce */
static void sink_op(struct comm *c, const struct sink *k, size_t pos, size_t n)
{
    reduce_op(k->out + pos * dtype_bytes(c), c->src, c->size, n, c->args.dtype,
              c->args.op);
}

/* Elements of a chunk: whole blocks of the wire, as many as half the workspace holds
 * from all ranks; not more than the longest part. */
static size_t choose_chunk(const struct comm *c, size_t longest)
{
    size_t step = wire_step(c->args.dtype);
    size_t row = (size_t)c->size * on_wire(c, step), steps = CHUNK_BYTES / 2 / row + 1;

    /* The number of the chunk must fit into the tag's step; the last step is kept for
     * all_reduce's second half. */
    if (longest / (steps * step) >= UCX_STEPS - 1)
        steps = longest / step / (UCX_STEPS - 1) + 1;
    return steps * step < longest ? steps * step : longest ? longest : 1;
}

/* Every rank receives its own part from all others, chunk by chunk. One chunk is in
 * flight while the one before it is summed, hence two halves of the workspace. All
 * ranks go through the same number of chunks, that of the longest part. */
static accel_status_t reduce_parts(struct comm *c, struct parts *p,
                                   const struct sink *sink, accel_error_t *err)
{
    size_t longest = 0, chunks;
    accel_status_t st;

    for (int r = 0; r < c->size; r++)
        if (p->begin[r + 1] - p->begin[r] > longest)
            longest = p->begin[r + 1] - p->begin[r];
    p->chunk = choose_chunk(c, longest);
    chunks = longest ? (longest + p->chunk - 1) / p->chunk : 1;
    ACCEL_CHECK(st, ucx_room(c, 2 * (size_t)c->size * on_wire(c, p->chunk), err));
    start_chunk(c, p, 0);
    for (size_t k = 0; k < chunks; k++) {
        ACCEL_CHECK(st, ucx_wait(c, err));
        if (k + 1 < chunks)
            start_chunk(c, p, k + 1);
        point_at_chunk(c, p, k);
        sink->fn(c, sink, k * p->chunk, chunk_of(p, c->rank, k * p->chunk));
    }
    return ACCEL_OK;
}

static accel_status_t ucx_reduce_scatter(struct comm *c, const void *in, float *out,
                                         float scale, bool accumulate,
                                         accel_error_t *err)
{
    struct ucx *u = c->impl;
    struct parts p = { .in = in,
                       .begin = u->begin,
                       .stride = on_wire(c, c->args.elems) };
    struct sink sink = { sink_scaled, (char *)out, scale, accumulate };

    accel_status_t st;

    if (ucx_chain_scatter(c, in, out, scale, accumulate, &st, err))
        return st;
    for (int r = 0; r <= c->size; r++)
        u->begin[r] = (size_t)r * c->args.elems;
    return reduce_parts(c, &p, &sink, err);
}

/* Every rank gets all data and reduces all of it. buf may be overwritten at the end:
 * its sends are complete by then. */
static accel_status_t all_reduce_small(struct comm *c, void *buf, size_t bytes,
                                       accel_error_t *err)
{
    struct ucx *u = c->impl;
    accel_status_t st;

    ACCEL_CHECK(st, ucx_room(c, bytes * (size_t)c->size, err));
    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;

        ucx_recv(c, from, 0, u->room + (size_t)from * bytes, bytes);
        ucx_send(c, to, 0, buf, bytes);
    }
    ACCEL_CHECK(st, ucx_wait(c, err));
    for (int r = 0; r < c->size; r++)
        c->src[r] = r == c->rank ? buf : (void *)(u->room + (size_t)r * bytes);
    reduce_op(buf, c->src, c->size, c->args.elems, c->args.dtype, c->args.op);
    return ACCEL_OK;
}

static accel_status_t ucx_all_reduce(struct comm *c, void *buf, accel_error_t *err)
{
    struct ucx *u = c->impl;
    size_t es = dtype_bytes(c);
    struct parts p = { .in = buf, .begin = u->begin };
    struct sink sink = { .fn = sink_op };
    bool is_float = c->args.dtype == ACCEL_F32 || c->args.dtype == ACCEL_BF16;
    accel_status_t st;

    if (c->args.elems * es <= SMALL_BYTES)
        return all_reduce_small(c, buf, c->args.elems * es, err);
    if (c->args.op == COMM_SUM && is_float && ucx_chain_reduce(c, buf, &st, err))
        return st;
    for (int r = 0; r <= c->size; r++)
        u->begin[r] = reduce_slice_begin(c->args.elems, c->size, r);
    /* In place: reduce_parts does not send the own slice to anybody, and the others'
     * slices of buf are overwritten only after their sends are complete. */
    sink.out = (char *)buf + u->begin[c->rank] * es;
    ACCEL_CHECK(st, reduce_parts(c, &p, &sink, err));
    for (int r = 0; r <= c->size; r++)
        u->begin[r] *= es;
    return swap_slices(c, buf, u->begin, UCX_STEPS - 1, err);
}

/* ---- gather ---------------------------------------------------------------------- */

/* First the sizes (step 0), then the data (step 1) right into its place in the result.
 * One byte more is allocated, because malloc(0) may return NULL. */
static accel_status_t gather_at_root(struct comm *c, const void *mine, void **all_out,
                                     size_t *sizes_out, accel_error_t *err)
{
    size_t own = c->args.elems, total = 0, at = 0;
    uint64_t *said = calloc((size_t)c->size, sizeof(*said));
    char *result = NULL;
    accel_status_t st;

    if (!said)
        return accel_fail_nomem(err, "gather", (size_t)c->size * sizeof(*said));
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            ucx_recv(c, r, 0, &said[r], sizeof(said[r]));
    st = ucx_wait(c, err);
    said[c->rank] = own;
    for (int r = 0; r < c->size; r++)
        total += said[r];
    if (st == ACCEL_OK && !(result = malloc(total + 1)))
        st = accel_fail_nomem(err, "gather", total);
    for (int r = 0; st == ACCEL_OK && r < c->size; r++) {
        if (r == c->rank && own > 0)
            memcpy(result + at, mine, own);
        else if (r != c->rank && said[r] > 0)
            ucx_recv(c, r, 1, result + at, said[r]);
        at += said[r];
    }
    ACCEL_TRY(st, ucx_wait(c, err));
    for (int r = 0; st == ACCEL_OK && r < c->size; r++)
        sizes_out[r] = said[r];
    if (st == ACCEL_OK)
        *all_out = result;
    else
        free(result);
    free(said);
    return st;
}

static accel_status_t ucx_gather(struct comm *c, const void *mine, void **all_out,
                                 size_t *sizes_out, accel_error_t *err)
{
    uint64_t own = c->args.elems;

    if (c->rank == c->args.root)
        return gather_at_root(c, mine, all_out, sizes_out, err);
    ucx_send(c, c->args.root, 0, &own, sizeof(own));
    if (own > 0)
        ucx_send(c, c->args.root, 1, mine, own);
    return ucx_wait(c, err);
}

/* ---- life ------------------------------------------------------------------------ */

static const struct comm_ops ucx_ops = {
    .name = "ucx",
    .alloc = comm_private_alloc,
    .all_gather = ucx_all_gather,
    .reduce_scatter = ucx_reduce_scatter,
    .all_reduce = ucx_all_reduce,
    .broadcast = ucx_broadcast,
    .barrier = ucx_barrier,
    .gather = ucx_gather,
    .fail = ucx_fail,
    .tell = ucx_tell,
    .hear = ucx_hear,
    .close = ucx_close,
};

/* The arrays are freed by ucx_close, also after an error here. */
accel_status_t comm_ucx_open(struct comm *c, struct boot *b, accel_error_t *err)
{
    struct ucx *u = calloc(1, sizeof(*u));
    size_t n = (size_t)c->size;
    accel_status_t st;

    if (!u)
        return accel_fail_nomem(err, "communicator", sizeof(*u));
    c->impl = u;
    c->ops = &ucx_ops;
    u->ep = calloc(n, sizeof(*u->ep));
    u->lost = calloc(n, sizeof(*u->lost));
    u->begin = calloc(n + 1, sizeof(*u->begin));
    u->greetings = calloc(n, sizeof(*u->greetings));
    u->nodes.begin = calloc(n + 1, sizeof(*u->nodes.begin));
    u->nodes.rank = calloc(n, sizeof(*u->nodes.rank));
    if (u->ep && u->lost && u->begin && u->greetings && u->nodes.begin &&
        u->nodes.rank) {
        ucx_find_nodes(c);
        st = ucx_connect(c, b, err);
    } else {
        st = accel_fail_nomem(err, "communicator", n * sizeof(*u->ep));
    }
    /* Closing must not wait for peers that may not have connected. */
    c->failed = st != ACCEL_OK;
    return st;
}
