/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives in shared memory. Small data goes through a slot and is published
 * together with the arrival: one phase per call. Larger data is read where it is: in
 * the windows, or in private memory if the system allows that; otherwise it goes
 * through the slots chunk by chunk. The choice depends only on what all ranks know, so
 * all make the same one.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "comm/shm/shm.h"
#include "numbers/wire.h"

/* Sizes in bytes of one rank's data. Up to `small` all data goes through a slot; up to
 * `pull` only private data does; larger data is read where it is. */
struct limits {
    size_t small, pull;
};

static const struct limits gather_limits = { 4 * 1024, 16 * 1024 };
/* For sums of private data up to a slot, two copies within the caches are faster than
 * fetching it first. */
static const struct limits scatter_limits = { 8 * 1024, SHM_SLOT_BYTES };
static const struct limits reduce_limits = { 16 * 1024, SHM_SLOT_BYTES };

#define BLOCK_BYTES                                                                    \
    ((size_t)4 * 1024 * 1024) /* of an all_reduce: stays in the last cache */

/* memcpy with NULL is undefined even for 0 bytes, and empty buffers may be NULL. */
static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

/* True if all data is in slots or windows after the arrival, so that no second phase is
 * needed to get at it. */
static bool is_quick(const struct comm *c, size_t bytes, const struct limits *limits)
{
    const struct shm *m = c->impl;

    return bytes <= (m->can_pull ? limits->pull : SHM_SLOT_BYTES);
}

/* The place to announce for the `extent` bytes at p, of which `bytes` decide the path.
 * SHM_IN_SLOT means that the caller stages them: before the arrival if is_quick,
 * otherwise chunk by chunk after it. */
static uint64_t choose_place(const struct comm *c, const void *p, size_t extent,
                             size_t bytes, const struct limits *limits)
{
    uint64_t place = bytes > limits->small ? shm_place_of(c, p, extent) : SHM_IN_SLOT;

    return is_quick(c, bytes, limits) && !(place & SHM_IN_WINDOW) ? SHM_IN_SLOT : place;
}

/* Does this rank copy its data to the slot before it arrives? */
static bool stages_first(const struct comm *c, uint64_t place, size_t bytes,
                         const struct limits *limits)
{
    return place == SHM_IN_SLOT && is_quick(c, bytes, limits);
}

/* Can large data be read where it is? Otherwise it goes through the slots, also from
 * ranks that have it in a window: all ranks must take the same phases. */
static bool is_reachable(struct comm *c, bool may_pull)
{
    struct shm *m = c->impl;

    m->slots_only = !(m->can_pull && may_pull) && !shm_all_in_windows(c);
    return !m->slots_only;
}

/* Ends a quick call. A rank whose window was read may write to it again only
 * when all have finished reading, which takes another phase; slots are protected
 * by their alternation. */
static accel_status_t release(struct comm *c, accel_error_t *err)
{
    shm_next_slot(c);
    return shm_any_in_window(c) ? shm_next(c, err) : ACCEL_OK;
}

/* ---- all_gather ------------------------------------------------------------------ */

/* Copies the peers' [pos, pos + n) of their slice into buf. Starts with the next rank,
 * so that the ranks do not all read the same one first. */
static void gather_chunk(struct comm *c, char *buf, size_t slice, size_t pos, size_t n)
{
    for (int i = 1; i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        const char *from = shm_data_of(c, r);

        copy(buf + (size_t)r * slice + pos,
             shm_in_window(c, r) ? from + (size_t)r * slice + pos : from, n);
    }
}

/* One phase per chunk: everybody stages a chunk, then copies those of all others. */
static accel_status_t gather_staged(struct comm *c, char *buf, size_t slice,
                                    accel_error_t *err)
{
    const char *own = buf + (size_t)c->rank * slice;
    accel_status_t st = ACCEL_OK;

    for (size_t pos = 0; st == ACCEL_OK && pos < slice; pos += SHM_SLOT_BYTES) {
        size_t n = slice - pos < SHM_SLOT_BYTES ? slice - pos : SHM_SLOT_BYTES;

        copy(shm_slot_of(c, c->rank), own + pos, n);
        st = shm_next(c, err);
        if (st == ACCEL_OK)
            gather_chunk(c, buf, slice, pos, n);
        shm_next_slot(c);
    }
    return st;
}

static accel_status_t shm_all_gather(struct comm *c, void *buf, accel_error_t *err)
{
    size_t slice = c->args.elems * accel_dtype_bytes(c->args.dtype);
    uint64_t place =
        choose_place(c, buf, slice * (size_t)c->size, slice, &gather_limits);
    accel_status_t st;

    if (stages_first(c, place, slice, &gather_limits))
        copy(shm_slot_of(c, c->rank), (char *)buf + (size_t)c->rank * slice, slice);
    ACCEL_CHECK(st, shm_arrive(c, place, err));
    if (is_quick(c, slice, &gather_limits)) {
        gather_chunk(c, buf, slice, 0, slice);
        return release(c, err);
    }
    if (!is_reachable(c, true))
        return gather_staged(c, buf, slice, err);
    for (int i = 1; st == ACCEL_OK && i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        size_t at = (size_t)r * slice;

        st = shm_fetch(c, r, at, slice, (char *)buf + at, err);
    }
    return st == ACCEL_OK ? shm_next(c, err) : st;
}

/* ---- reduce_scatter -------------------------------------------------------------- */

/* arguments of reduce_scatter; `in` is laid out as on the wire */
struct scatter {
    const char *in;
    float *out;
    float scale;
    bool accumulate;
};

static size_t on_wire(const struct comm *c, size_t elems)
{
    return wire_bytes(elems, c->args.dtype);
}

/* Offset of element pos of part j in a rank's input. */
static size_t part_at(const struct comm *c, size_t j, size_t pos)
{
    return j * on_wire(c, c->args.elems) + on_wire(c, pos);
}

/* Slot layout: [size][n] elements, part j of the chunk at pos. The own part is skipped:
 * it is read in place. */
static void stage_parts(struct comm *c, const struct scatter *w, size_t pos, size_t n)
{
    size_t bytes = on_wire(c, n);
    char *slot = shm_slot_of(c, c->rank);

    for (size_t j = 0; j < (size_t)c->size; j++)
        if ((int)j != c->rank)
            copy(slot + j * bytes, w->in + part_at(c, j, pos), bytes);
}

/* Sums elements [pos, pos + n) of this rank's part over all ranks, from windows where
 * the data is there and otherwise from slots as stage_parts filled them. */
static void sum_parts(struct comm *c, const struct scatter *w, size_t pos, size_t n)
{
    size_t me = (size_t)c->rank;

    for (int r = 0; r < c->size; r++)
        if (shm_in_window(c, r))
            c->src[r] = shm_data_of(c, r) + part_at(c, me, pos);
        else
            c->src[r] = shm_slot_of(c, r) + me * on_wire(c, n);
    c->src[me] = w->in + part_at(c, me, pos);
    reduce_scaled_sum(w->out + pos, c->src, c->size, n, c->args.dtype, w->scale,
                      w->accumulate);
}

/* A chunk is what fits into a slot for all ranks: whole blocks of the wire, and a
 * multiple of 64 elements if there is room for that many. */
static accel_status_t scatter_staged(struct comm *c, const struct scatter *w,
                                     accel_error_t *err)
{
    size_t elems = c->args.elems, step = wire_step(c->args.dtype);
    size_t chunk = SHM_SLOT_BYTES / ((size_t)c->size * on_wire(c, step)) * step;
    accel_status_t st = ACCEL_OK;

    if (chunk == 0)
        return accel_fail(err, A0506, "use bf16",
                          "reduce_scatter of %s: too many ranks on a node (%d)",
                          accel_dtype_name(c->args.dtype), c->size);
    if (chunk >= 64)
        chunk = chunk / 64 * 64;
    for (size_t pos = 0; st == ACCEL_OK && pos < elems; pos += chunk) {
        size_t n = elems - pos < chunk ? elems - pos : chunk;

        stage_parts(c, w, pos, n);
        st = shm_next(c, err);
        if (st == ACCEL_OK)
            sum_parts(c, w, pos, n);
        shm_next_slot(c);
    }
    return st;
}

static accel_status_t shm_reduce_scatter(struct comm *c, const void *in, float *out,
                                         float scale, bool accumulate,
                                         accel_error_t *err)
{
    const struct scatter w = { in, out, scale, accumulate };
    size_t elems = c->args.elems;
    size_t bytes = on_wire(c, elems) * (size_t)c->size;
    uint64_t place = choose_place(c, in, bytes, bytes, &scatter_limits);
    accel_status_t st;

    if (stages_first(c, place, bytes, &scatter_limits))
        stage_parts(c, &w, 0, elems);
    ACCEL_CHECK(st, shm_arrive(c, place, err));
    if (is_quick(c, bytes, &scatter_limits)) {
        sum_parts(c, &w, 0, elems);
        return release(c, err);
    }
    if (!is_reachable(c, false))
        return scatter_staged(c, &w, err);
    sum_parts(c, &w, 0, elems);
    return shm_next(c, err);
}

/* ---- all_reduce ------------------------------------------------------------------ */

/* range_out: begin and end of rank r's slice of n elements, in bytes. */
static void slice_of(const struct comm *c, int r, size_t n, size_t range_out[2])
{
    size_t es = accel_dtype_bytes(c->args.dtype);

    range_out[0] = reduce_slice_begin(n, c->size, r) * es;
    range_out[1] = reduce_slice_begin(n, c->size, r + 1) * es;
}

/* Rank r's block that begins with element pos: at that offset in its window, or alone
 * in its slot. */
static char *block_of(const struct comm *c, int r, size_t pos)
{
    size_t at = shm_in_window(c, r) ? pos * accel_dtype_bytes(c->args.dtype) : 0;

    return shm_data_of(c, r) + at;
}

/* Copies the block at buf to the slot, except the own slice, which only
 * this rank reads. */
static void stage_slices(struct comm *c, const char *buf, size_t n)
{
    size_t es = accel_dtype_bytes(c->args.dtype), own[2];
    char *slot = shm_slot_of(c, c->rank);

    slice_of(c, c->rank, n, own);
    copy(slot, buf, own[0]);
    copy(slot + own[1], buf + own[1], n * es - own[1]);
}

/* On entry n elements of every rank are in its window or slot. This rank reduces its
 * own slice over all ranks and stores the result there; nobody else reads that slice
 * before the next phase. Then all slices are copied from their owners into buf. */
static accel_status_t reduce_slices(struct comm *c, char *buf, size_t pos, size_t n,
                                    accel_error_t *err)
{
    size_t es = accel_dtype_bytes(c->args.dtype), first[2];
    accel_status_t st;

    slice_of(c, c->rank, n, first);
    for (int r = 0; r < c->size; r++)
        c->src[r] = block_of(c, r, pos) + first[0];
    c->src[c->rank] = buf + pos * es + first[0];
    reduce_op(block_of(c, c->rank, pos) + first[0], c->src, c->size,
              (first[1] - first[0]) / es, c->args.dtype, c->args.op);
    st = shm_next(c, err);
    for (int i = 0; st == ACCEL_OK && i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        const char *from = block_of(c, r, pos);

        slice_of(c, r, n, first);
        if (from != buf + pos * es)
            copy(buf + pos * es + first[0], from + first[0], first[1] - first[0]);
    }
    return st;
}

/* Two phases per chunk: one after staging, one after the reduction. */
static accel_status_t all_reduce_staged(struct comm *c, char *buf, accel_error_t *err)
{
    size_t es = accel_dtype_bytes(c->args.dtype), bytes = c->args.elems * es;
    accel_status_t st = ACCEL_OK;

    for (size_t pos = 0; st == ACCEL_OK && pos < bytes; pos += SHM_SLOT_BYTES) {
        size_t n = bytes - pos < SHM_SLOT_BYTES ? bytes - pos : SHM_SLOT_BYTES;

        stage_slices(c, buf + pos, n / es);
        st = shm_next(c, err);
        ACCEL_TRY(st, reduce_slices(c, buf, pos / es, n / es, err));
        shm_next_slot(c);
    }
    return st;
}

/* All buffers are in windows. Goes block by block, so that a peer's results are still
 * in the cache when they are copied. */
static accel_status_t all_reduce_windows(struct comm *c, char *buf, accel_error_t *err)
{
    size_t es = accel_dtype_bytes(c->args.dtype), elems = c->args.elems;
    size_t block = BLOCK_BYTES / es;
    accel_status_t st = ACCEL_OK;

    for (size_t pos = 0; st == ACCEL_OK && pos < elems; pos += block) {
        size_t n = elems - pos < block ? elems - pos : block;

        st = reduce_slices(c, buf, pos, n, err);
    }
    return st == ACCEL_OK ? shm_next(c, err) : st;
}

/* Three paths. Small: every rank reduces everything itself, which needs no second
 * phase. Up to a slot or in windows: each rank reduces a slice. Otherwise in
 * chunks. Private memory of peers is never read: fetching it all to sum it would
 * cost more than staging. */
static accel_status_t shm_all_reduce(struct comm *c, void *buf, accel_error_t *err)
{
    size_t bytes = c->args.elems * accel_dtype_bytes(c->args.dtype);
    uint64_t place = choose_place(c, buf, bytes, bytes, &reduce_limits);
    accel_status_t st;

    if (bytes <= reduce_limits.small)
        copy(shm_slot_of(c, c->rank), buf, bytes);
    else if (stages_first(c, place, bytes, &reduce_limits))
        stage_slices(c, buf, c->args.elems);
    ACCEL_CHECK(st, shm_arrive(c, place, err));
    if (bytes <= reduce_limits.small) {
        for (int r = 0; r < c->size; r++)
            c->src[r] = r == c->rank ? buf : shm_slot_of(c, r);
        reduce_op(buf, c->src, c->size, c->args.elems, c->args.dtype, c->args.op);
        shm_next_slot(c);
        return ACCEL_OK;
    }
    if (is_quick(c, bytes, &reduce_limits)) {
        st = reduce_slices(c, buf, 0, c->args.elems, err);
        return st == ACCEL_OK ? release(c, err) : st;
    }
    return is_reachable(c, false) ? all_reduce_windows(c, buf, err)
                                  : all_reduce_staged(c, buf, err);
}

/* ---- broadcast, barrier, gather -------------------------------------------------- */

static accel_status_t broadcast_staged(struct comm *c, char *buf, accel_error_t *err)
{
    size_t bytes = c->args.elems;
    int root = c->args.root;
    accel_status_t st = ACCEL_OK;

    for (size_t pos = 0; st == ACCEL_OK && pos < bytes; pos += SHM_SLOT_BYTES) {
        size_t n = bytes - pos < SHM_SLOT_BYTES ? bytes - pos : SHM_SLOT_BYTES;

        if (c->rank == root)
            copy(shm_slot_of(c, root), buf + pos, n);
        st = shm_next(c, err);
        if (st == ACCEL_OK && c->rank != root)
            copy(buf + pos, shm_slot_of(c, root), n);
        shm_next_slot(c);
    }
    return st;
}

static accel_status_t shm_broadcast(struct comm *c, void *buf, accel_error_t *err)
{
    size_t bytes = c->args.elems;
    int root = c->args.root;
    uint64_t place = c->rank == root
                         ? choose_place(c, buf, bytes, bytes, &gather_limits)
                         : SHM_IN_SLOT;
    accel_status_t st;

    if (c->rank == root && stages_first(c, place, bytes, &gather_limits))
        copy(shm_slot_of(c, root), buf, bytes);
    ACCEL_CHECK(st, shm_arrive(c, place, err));
    if (is_quick(c, bytes, &gather_limits)) {
        if (c->rank != root)
            copy(buf, shm_data_of(c, root), bytes);
        return release(c, err);
    }
    if (shm_call_of(c, root)->place == SHM_IN_SLOT)
        return broadcast_staged(c, buf, err);
    if (c->rank != root)
        st = shm_fetch(c, root, 0, bytes, buf, err);
    return st == ACCEL_OK ? shm_next(c, err) : st;
}

static accel_status_t shm_barrier(struct comm *c, accel_error_t *err)
{
    return shm_arrive(c, SHM_IN_SLOT, err);
}

/* The sizes are in the ranks' descriptions of the call, so all know how many chunks
 * there are. If the root has no memory for the result, it still takes part to the end:
 * the peers are not to blame and must not wait for it. */
static accel_status_t shm_gather(struct comm *c, const void *mine, void **all_out,
                                 size_t *sizes_out, accel_error_t *err)
{
    bool is_root = c->rank == c->args.root;
    size_t bytes = c->args.elems, longest = 0, total = 0;
    char *result = NULL;
    accel_status_t st;

    copy(shm_slot_of(c, c->rank), mine,
         bytes < SHM_SLOT_BYTES ? bytes : SHM_SLOT_BYTES);
    ACCEL_CHECK(st, shm_arrive(c, SHM_IN_SLOT, err));
    for (int r = 0; r < c->size; r++) {
        size_t n = shm_call_of(c, r)->elems;

        longest = n > longest ? n : longest;
        total += n;
    }
    if (is_root)
        result = malloc(total + 1);
    for (size_t pos = 0; st == ACCEL_OK && (pos == 0 || pos < longest);
         pos += SHM_SLOT_BYTES) {
        size_t before = 0;

        if (pos > 0) {
            if (pos < bytes)
                copy(shm_slot_of(c, c->rank), (const char *)mine + pos,
                     bytes - pos < SHM_SLOT_BYTES ? bytes - pos : SHM_SLOT_BYTES);
            st = shm_next(c, err);
        }
        for (int r = 0; st == ACCEL_OK && result && r < c->size; r++) {
            size_t n = shm_call_of(c, r)->elems, left = n > pos ? n - pos : 0;

            copy(result + before + pos, shm_slot_of(c, r),
                 left < SHM_SLOT_BYTES ? left : SHM_SLOT_BYTES);
            before += n;
        }
        shm_next_slot(c);
    }
    if (st == ACCEL_OK && is_root && !result)
        st = accel_fail_nomem(err, "gather", total);
    if (st != ACCEL_OK || !is_root) {
        free(result);
        return st;
    }
    for (int r = 0; r < c->size; r++)
        sizes_out[r] = shm_call_of(c, r)->elems;
    *all_out = result;
    return ACCEL_OK;
}

/* ---- memory, life ---------------------------------------------------------------- */

/* All ranks allocate in the same order, so the offset is the same in every window; that
 * is what makes them symmetric. Nothing is touched here: pages appear, zeroed, at their
 * first use. Sizes are compared in shm_arrive, so the check against the window fails on
 * all ranks or none. */
static accel_status_t shm_alloc(struct comm *c, size_t bytes, void **mem_out,
                                accel_error_t *err)
{
    struct shm *m = c->impl;
    size_t huge = (size_t)2 * 1024 * 1024, align = bytes >= huge ? huge : 4096;
    size_t at = (m->heap_used + align - 1) / align * align;
    char want[32], have[32];
    accel_status_t st;

    ACCEL_CHECK(st, shm_arrive(c, SHM_IN_SLOT, err));
    if (at > m->window_bytes || bytes > m->window_bytes - at)
        return accel_fail(
            err, A0512,
            "use more nodes or a smaller model; or lift the address space "
            "limit (ulimit -v)",
            "shared memory: %s requested, but only %s of the window is left",
            format_bytes((double)bytes, want, sizeof(want)),
            format_bytes((double)m->window_bytes - (double)m->heap_used, have,
                         sizeof(have)));
    m->heap_used = (at + bytes + 4095) / 4096 * 4096;
    *mem_out = shm_base(m, c->rank) + at;
    return ACCEL_OK;
}

/* Nothing is under way. Peers need not wait for this rank's next call. */
static void shm_fail(struct comm *c)
{
    shm_set_state(c, SHM_CLOSED);
}

/* Never waits: peers keep this rank's window mapped for as long as they need it. */
static void shm_close(struct comm *c)
{
    shm_set_state(c, SHM_CLOSED);
    shm_disconnect(c, c->impl);
}

static const struct comm_ops shm_ops = {
    .name = "shm",
    .alloc = shm_alloc,
    .all_gather = shm_all_gather,
    .reduce_scatter = shm_reduce_scatter,
    .all_reduce = shm_all_reduce,
    .broadcast = shm_broadcast,
    .barrier = shm_barrier,
    .gather = shm_gather,
    .fail = shm_fail,
    .tell = shm_tell,
    .hear = shm_hear,
    .close = shm_close,
};

/* c->ops is set only at the end. Until then comm_close does not call shm_close, and
 * open_shm_or_ucx may open another backend in c. */
accel_status_t comm_shm_open(struct comm *c, struct boot *b, size_t window_bytes,
                             bool *fits_out, char why[128], accel_error_t *err)
{
    struct shm *m = calloc(1, sizeof(*m));
    size_t n = (size_t)c->size;
    accel_status_t st;

    if (!m)
        return accel_fail_nomem(err, "communicator", sizeof(*m));
    m->fd = -1;
    m->ctl = calloc(n, sizeof(*m->ctl));
    m->pidfd = calloc(n, sizeof(*m->pidfd));
    m->pid = calloc(n, sizeof(*m->pid));
    if (!m->ctl || !m->pidfd || !m->pid) {
        shm_disconnect(c, m);
        return accel_fail_nomem(err, "communicator", n * 16);
    }
    for (size_t r = 0; r < n; r++)
        m->pidfd[r] = -1;
    m->spins = shm_choose_spins(b->local_size);
    st = shm_connect(c, m, b, window_bytes, fits_out, why, err);
    if (st != ACCEL_OK || !*fits_out) {
        shm_disconnect(c, m);
        return st;
    }
    m->heap_used = SHM_HEAP_OFFSET;
    c->impl = m;
    c->ops = &shm_ops;
    return ACCEL_OK;
}
