/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums in rank order on the device. In: an array of every rank. Out: their sum, with
 * the same bits as from the other backends. Each rank receives its part of all arrays
 * in their own type, and one kernel adds them in float32; the order of NCCL's own
 * sums depends on its rings and trees. Arrays longer than the workspace are summed
 * piece by piece. Between nodes nccl_chain.c may send fewer bytes.
 */
#include "comm/nccl/nccl.h"
#include "comm/reduce.h"
#include "numbers/wire.h"
#include "plan/exchange.h"

/* ---- scratch --------------------------------------------------------------------- */

/* Replaces the workspace by one of at least `bytes`. */
static accel_status_t nccl_grow_scratch(struct nccl_state *n, size_t bytes,
                                        accel_error_t *err)
{
    /* nccl_reserve asks for what was planned; that is allocated exactly when it is the
     * first. Unplanned growth doubles, so that it happens seldom. */
    size_t most = 2 * n->scratch_bytes > bytes ? 2 * n->scratch_bytes : bytes;
    void *mem = NULL;
    accel_status_t st;

    /* The old workspace may still be in use on the device, so it stays until close. */
    ACCEL_CHECK(st, n->be->alloc(n->be, MEMORY_REDUCE, most, &mem, err));
    ACCEL_CHECK(st, nccl_keep_block(n, mem, err));
    n->scratch = mem;
    n->scratch_bytes = most;
    return ACCEL_OK;
}

/* One workspace serves all queues: a use on another queue than the last one waits
 * for the event recorded after that. A new workspace needs no wait, since nobody
 * has used it. */
accel_status_t nccl_scratch(struct comm *c, size_t bytes, void **mem_out,
                            accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    enum backend_queue now = n->be->queue(n->be);
    accel_status_t st = ACCEL_OK;

    if (bytes > n->scratch_bytes)
        st = nccl_grow_scratch(n, bytes, err);
    else if (n->scratch_queue != now)
        n->be->wait(n->be, now, n->scratch_free);
    *mem_out = n->scratch;
    return st;
}

void nccl_scratch_done(struct comm *c)
{
    struct nccl_state *n = c->impl;

    n->scratch_queue = n->be->queue(n->be);
    n->be->record(n->be, n->scratch_free, n->scratch_queue);
}

/* The same functions of plan/exchange.h give these sizes, the plan's row and the pieces
 * below, so the plan is what is allocated. */
accel_status_t nccl_reserve(struct comm *c, bool scatter, size_t elems, accel_dtype_t t,
                            accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    size_t es = accel_dtype_bytes(t), size = (size_t)c->size, bytes = 0;

    if (n->library_sums && !wire_is_scaled(t))
        bytes = scatter ? elems * es : 0;
    else if (scatter)
        bytes = exchange_scatter_bytes(elems, t, size, n->scratch_most);
    else
        bytes = exchange_reduce_bytes(elems, es, size, n->scratch_most);
    return bytes > n->scratch_bytes ? nccl_grow_scratch(n, bytes, err) : ACCEL_OK;
}

/* ---- exchange -------------------------------------------------------------------- */

/* What goes to a rank and what comes from it. */
struct parcel {
    const char *to;
    char *from;
    size_t to_bytes, from_bytes;
};

int nccl_group_start(struct comm *c)
{
    return ((struct nccl_state *)c->impl)->api.group_start();
}

/* Within a group a call's own result says nothing yet: it comes with the end. */
static void keep_result(int *rc, int result)
{
    *rc = nccl_going(result) ? NCCL_SUCCESS : result;
}

void nccl_group_send(struct comm *c, int *rc, int peer, const void *buf, size_t bytes)
{
    struct nccl_state *n = c->impl;

    if (*rc == NCCL_SUCCESS && bytes > 0)
        keep_result(rc,
                    n->api.send(buf, bytes, NCCL_UINT8, peer, n->comm, nccl_stream(n)));
}

void nccl_group_recv(struct comm *c, int *rc, int peer, void *buf, size_t bytes)
{
    struct nccl_state *n = c->impl;

    if (*rc == NCCL_SUCCESS && bytes > 0)
        keep_result(rc,
                    n->api.recv(buf, bytes, NCCL_UINT8, peer, n->comm, nccl_stream(n)));
}

/* The end must follow the start even after an error. */
accel_status_t nccl_group_end(struct comm *c, int rc, accel_error_t *err)
{
    int end = ((struct nccl_state *)c->impl)->api.group_end();

    return nccl_settle(c, rc == NCCL_SUCCESS ? end : rc, "ncclSend and ncclRecv", err);
}

/* Exchanges a parcel with every other rank. `with` says what the parcel for a
 * rank is. */
static accel_status_t exchange(struct comm *c, void *arg,
                               struct parcel (*with)(const struct comm *c, void *arg,
                                                     int rank),
                               accel_error_t *err)
{
    int rc = nccl_group_start(c);

    for (int r = 0; r < c->size; r++) {
        struct parcel p = { 0 };

        if (r != c->rank)
            p = with(c, arg, r);
        nccl_group_send(c, &rc, r, p.to, p.to_bytes);
        nccl_group_recv(c, &rc, r, p.from, p.from_bytes);
    }
    return nccl_group_end(c, rc, err);
}

/* ---- reduce_scatter -------------------------------------------------------------- */

/* a reduce_scatter under way */
struct scatter {
    const char *in;
    char *parts;       /* workspace, [size][elems] on the wire */
    size_t pos, elems; /* the running piece of every rank's part */
};

/* Offset in the input of element pos of rank r's part. */
static size_t input_at(const struct comm *c, int r, size_t pos)
{
    return (size_t)r * wire_bytes(c->args.elems, c->args.dtype) +
           wire_bytes(pos, c->args.dtype);
}

/* Rank r gets its part's piece of my array; I get mine of its array. */
static struct parcel scatter_with(const struct comm *c, void *arg, int r)
{
    const struct scatter *w = arg;
    size_t bytes = wire_bytes(w->elems, c->args.dtype);

    return (struct parcel){ w->in + input_at(c, r, w->pos),
                            w->parts + (size_t)r * bytes, bytes, bytes };
}

/* The own part is copied to its row of the workspace, so that one kernel can add the
 * rows in rank order. */
accel_status_t nccl_direct_scatter(struct comm *c, const void *in, float *out,
                                   float scale, bool accumulate, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    const accel_dtype_t t = c->args.dtype;
    size_t elems = c->args.elems, size = (size_t)c->size, bytes;
    size_t most = exchange_scatter_elems(elems, t, size, n->scratch_most);
    struct scatter w = { .in = in };
    accel_status_t st;
    void *parts;

    st = nccl_scratch(c, size * wire_bytes(most, t), &parts, err);
    w.parts = parts;
    for (; st == ACCEL_OK && w.pos < elems; w.pos += w.elems) {
        w.elems = elems - w.pos < most ? elems - w.pos : most;
        bytes = wire_bytes(w.elems, t);
        n->be->copy(n->be, w.parts + (size_t)c->rank * bytes,
                    w.in + input_at(c, c->rank, w.pos), bytes);
        st = exchange(c, &w, scatter_with, err);
        if (st == ACCEL_OK)
            n->be->sum_parts(n->be, out + w.pos, accumulate, NULL, w.parts, t, c->size,
                             (int64_t)w.elems, scale);
    }
    nccl_scratch_done(c);
    return st;
}

/* ---- all_reduce ------------------------------------------------------------------ */

/* an all_reduce under way */
struct reduction {
    char *piece;  /* of the caller's array, summed in place */
    char *parts;  /* workspace, [size][own slice] */
    size_t elems; /* of the piece */
};

/* Where rank r's slice of the piece begins, in elements. */
static size_t slice_begin(const struct comm *c, const struct reduction *w, int r)
{
    return reduce_slice_begin(w->elems, c->size, r);
}

static size_t slice_elems(const struct comm *c, const struct reduction *w, int r)
{
    return slice_begin(c, w, r + 1) - slice_begin(c, w, r);
}

/* First exchange: rank r gets its slice of my array, I get my slice of its array. */
static struct parcel collect_with(const struct comm *c, void *arg, int r)
{
    const struct reduction *w = arg;
    size_t es = accel_dtype_bytes(c->args.dtype);
    size_t own = slice_elems(c, w, c->rank) * es;

    return (struct parcel){ w->piece + slice_begin(c, w, r) * es,
                            w->parts + (size_t)r * own, slice_elems(c, w, r) * es,
                            own };
}

/* Second exchange: rank r gets my slice of the sum, I get its slice. */
static struct parcel spread_with(const struct comm *c, void *arg, int r)
{
    const struct reduction *w = arg;
    size_t es = accel_dtype_bytes(c->args.dtype);

    return (struct parcel){ w->piece + slice_begin(c, w, c->rank) * es,
                            w->piece + slice_begin(c, w, r) * es,
                            slice_elems(c, w, c->rank) * es,
                            slice_elems(c, w, r) * es };
}

/* Sums the parts into the own slice. bfloat16 is summed in float32 in `wide` and
 * rounded once, at the end. */
static void sum_slice(struct comm *c, const struct reduction *w, float *wide)
{
    const struct backend *be = ((struct nccl_state *)c->impl)->be;
    size_t es = accel_dtype_bytes(c->args.dtype);
    int64_t elems = (int64_t)slice_elems(c, w, c->rank);
    char *own = w->piece + slice_begin(c, w, c->rank) * es;

    if (c->args.dtype == ACCEL_F32) {
        be->sum_parts(be, (float *)(void *)own, false, NULL, w->parts, ACCEL_F32,
                      c->size, elems, 1.0f);
        return;
    }
    be->sum_parts(be, wide, false, NULL, w->parts, ACCEL_BF16, c->size, elems, 1.0f);
    be->narrow(be, own, ACCEL_BF16, wide, elems);
}

/* Layout of the workspace: [slice] float32 for `wide`, then the parts. Pieces are cut
 * into slices like whole arrays; where they are cut does not change the bits. */
accel_status_t nccl_direct_reduce(struct comm *c, void *buf, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    size_t es = accel_dtype_bytes(c->args.dtype), elems = c->args.elems, me, slice;
    size_t size = (size_t)c->size;
    size_t most = exchange_reduce_elems(elems, es, size, n->scratch_most);
    struct reduction w = { 0 };
    accel_status_t st;
    void *scratch;

    slice = exchange_slice(most, size); /* the longest slice of a piece */
    st = nccl_scratch(c, slice * (size * es + sizeof(float)), &scratch, err);
    for (size_t pos = 0; st == ACCEL_OK && pos < elems; pos += w.elems) {
        w.piece = (char *)buf + pos * es;
        w.parts = (char *)scratch + slice * sizeof(float);
        w.elems = elems - pos < most ? elems - pos : most;
        me = slice_elems(c, &w, c->rank) * es;
        n->be->copy(n->be, w.parts + (size_t)c->rank * me,
                    w.piece + slice_begin(c, &w, c->rank) * es, me);
        st = exchange(c, &w, collect_with, err);
        if (st == ACCEL_OK)
            sum_slice(c, &w, scratch);
        ACCEL_TRY(st, exchange(c, &w, spread_with, err));
    }
    nccl_scratch_done(c);
    return st;
}
