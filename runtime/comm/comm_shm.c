/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives in shared memory. Data inside the windows of all ranks is read where it is;
 * other data goes through the staging slots, chunk by chunk. Small data always goes
 * through a slot, published together with the arrival: one phase per call.
 * The choice depends on what all ranks know, so it is the same everywhere.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "comm/shm.h"

#define SMALL_BYTES ((size_t)16 * 1024) /* up to here one phase beats one copy less */

/* ---- places -------------------------------------------------------------------------- */

static uint64_t offset_of(const struct comm *c, const void *p, size_t bytes)
{
    const struct shm *m = c->impl;
    uintptr_t base = (uintptr_t)shm_base(m, c->rank), at = (uintptr_t)p;

    if (at < base + SHM_HEAP_OFFSET || at + bytes > base + m->heap_used)
        return SHM_NO_OFFSET;
    return at - base;
}

/* Slot of `rank` for the chunk being staged; shm_staged ends the chunk. */
static char *slot_of(const struct comm *c, int rank)
{
    const struct shm *m = c->impl;

    return shm_base(m, rank) + SHM_SLOT_OFFSET + (m->staged & 1) * SHM_SLOT_BYTES;
}

static void next_slot(struct comm *c)
{
    ((struct shm *)c->impl)->staged++;
}

static bool all_in_windows(const struct comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (shm_call_of(c, r)->offset == SHM_NO_OFFSET)
            return false;
    return true;
}

/* The peer's data where it lies; only after all_in_windows. */
static char *data_of(const struct comm *c, int rank)
{
    return shm_base(c->impl, rank) + shm_call_of(c, rank)->offset;
}

static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

/* ---- all_gather ----------------------------------------------------------------------- */

static void gather_chunk(struct comm *c, char *buf, size_t slice, size_t pos, size_t n)
{
    for (int i = 1; i < c->size; i++) {
        int r = (c->rank + i) % c->size;

        copy(buf + (size_t)r * slice + pos, slot_of(c, r), n);
    }
    next_slot(c);
}

static accel_status_t shm_all_gather(struct comm *c, void *buf, accel_error_t *err)
{
    size_t slice = c->args.elems * accel_dtype_bytes(c->args.dtype);
    char *own = (char *)buf + (size_t)c->rank * slice;
    accel_status_t s;

    if (slice <= SMALL_BYTES) {
        copy(slot_of(c, c->rank), own, slice);
        s = shm_arrive(c, SHM_NO_OFFSET, err);
        if (s == ACCEL_OK)
            gather_chunk(c, buf, slice, 0, slice);
        return s;
    }
    s = shm_arrive(c, offset_of(c, buf, slice * (size_t)c->size), err);
    if (s != ACCEL_OK)
        return s;
    if (all_in_windows(c)) {
        for (int i = 1; i < c->size; i++) {
            size_t r = (size_t)((c->rank + i) % c->size);

            copy((char *)buf + r * slice, data_of(c, (int)r) + r * slice, slice);
        }
        return shm_next(c, err);
    }
    for (size_t pos = 0; s == ACCEL_OK && pos < slice; pos += SHM_SLOT_BYTES) {
        size_t n = slice - pos < SHM_SLOT_BYTES ? slice - pos : SHM_SLOT_BYTES;

        copy(slot_of(c, c->rank), own + pos, n);
        s = shm_next(c, err);
        if (s == ACCEL_OK)
            gather_chunk(c, buf, slice, pos, n);
    }
    return s;
}

/* ---- reduce_scatter -------------------------------------------------------------------- */

struct scatter {
    const char *in;
    float *out;
    float scale;
    bool accumulate;
};

/* Slots hold [size][n] elements: part j of the chunk at pos. Own data is read in place. */
static void stage_parts(struct comm *c, const struct scatter *w, size_t pos, size_t n)
{
    size_t es = accel_dtype_bytes(c->args.dtype);
    char *slot = slot_of(c, c->rank);

    for (size_t j = 0; j < (size_t)c->size; j++)
        if ((int)j != c->rank)
            copy(slot + j * n * es, w->in + (j * c->args.elems + pos) * es, n * es);
}

static void sum_parts(struct comm *c, const struct scatter *w, size_t pos, size_t n)
{
    size_t es = accel_dtype_bytes(c->args.dtype), me = (size_t)c->rank;

    for (int r = 0; r < c->size; r++)
        c->src[r] = slot_of(c, r) + me * n * es;
    c->src[me] = w->in + (me * c->args.elems + pos) * es;
    reduce_scaled_sum(w->out + pos, c->src, c->size, n, c->args.dtype, w->scale,
                      w->accumulate);
    next_slot(c);
}

static accel_status_t shm_reduce_scatter(struct comm *c, const void *in, float *out,
                                         float scale, bool accumulate,
                                         accel_error_t *err)
{
    const struct scatter w = { in, out, scale, accumulate };
    size_t elems = c->args.elems, es = accel_dtype_bytes(c->args.dtype);
    size_t ranks = (size_t)c->size, chunk = SHM_SLOT_BYTES / (ranks * es);
    accel_status_t s;

    if (elems * es * ranks <= SMALL_BYTES) {
        stage_parts(c, &w, 0, elems);
        s = shm_arrive(c, SHM_NO_OFFSET, err);
        if (s == ACCEL_OK)
            sum_parts(c, &w, 0, elems);
        return s;
    }
    s = shm_arrive(c, offset_of(c, in, elems * es * ranks), err);
    if (s != ACCEL_OK)
        return s;
    if (all_in_windows(c)) {
        for (int r = 0; r < c->size; r++)
            c->src[r] = data_of(c, r) + (size_t)c->rank * elems * es;
        reduce_scaled_sum(out, c->src, c->size, elems, c->args.dtype, scale,
                          accumulate);
        return shm_next(c, err);
    }
    if (chunk >= 64)
        chunk = chunk / 64 * 64;
    for (size_t pos = 0; s == ACCEL_OK && pos < elems; pos += chunk) {
        size_t n = elems - pos < chunk ? elems - pos : chunk;

        stage_parts(c, &w, pos, n);
        s = shm_next(c, err);
        if (s == ACCEL_OK)
            sum_parts(c, &w, pos, n);
    }
    return s;
}

/* ---- all_reduce ------------------------------------------------------------------------- */

/* base_of(rank) holds n elements of every rank: this rank reduces its slice into its own
 * copy (nobody else reads that slice before the next phase), then all slices are copied
 * from their owners into buf. */
static accel_status_t reduce_slices(struct comm *c,
                                    char *(*base_of)(const struct comm *, int),
                                    char *buf, size_t n, accel_error_t *err)
{
    size_t es = accel_dtype_bytes(c->args.dtype);
    size_t from = reduce_slice_begin(n, c->size, c->rank) * es;
    size_t to = reduce_slice_begin(n, c->size, c->rank + 1) * es;
    accel_status_t s;

    for (int r = 0; r < c->size; r++)
        c->src[r] = base_of(c, r) + from;
    reduce_op(base_of(c, c->rank) + from, c->src, c->size, (to - from) / es,
              c->args.dtype, c->args.op);
    s = shm_next(c, err);
    for (int i = 0; s == ACCEL_OK && i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        const char *src = base_of(c, r);

        from = reduce_slice_begin(n, c->size, r) * es;
        to = reduce_slice_begin(n, c->size, r + 1) * es;
        if (src != buf)
            copy(buf + from, src + from, to - from);
    }
    return s;
}

static accel_status_t all_reduce_staged(struct comm *c, char *buf, accel_error_t *err)
{
    size_t bytes = c->args.elems * accel_dtype_bytes(c->args.dtype);
    accel_status_t s = ACCEL_OK;

    for (size_t pos = 0; s == ACCEL_OK && pos < bytes; pos += SHM_SLOT_BYTES) {
        size_t n = bytes - pos < SHM_SLOT_BYTES ? bytes - pos : SHM_SLOT_BYTES;

        copy(slot_of(c, c->rank), buf + pos, n);
        s = shm_next(c, err);
        if (s == ACCEL_OK)
            s = reduce_slices(c, slot_of, buf + pos,
                              n / accel_dtype_bytes(c->args.dtype), err);
        next_slot(c);
    }
    return s;
}

static accel_status_t shm_all_reduce(struct comm *c, void *buf, accel_error_t *err)
{
    size_t bytes = c->args.elems * accel_dtype_bytes(c->args.dtype);
    accel_status_t s;

    if (bytes <= SMALL_BYTES) {
        copy(slot_of(c, c->rank), buf, bytes);
        s = shm_arrive(c, SHM_NO_OFFSET, err);
        if (s != ACCEL_OK)
            return s;
        for (int r = 0; r < c->size; r++)
            c->src[r] = r == c->rank ? buf : slot_of(c, r);
        reduce_op(buf, c->src, c->size, c->args.elems, c->args.dtype, c->args.op);
        next_slot(c);
        return ACCEL_OK;
    }
    s = shm_arrive(c, offset_of(c, buf, bytes), err);
    if (s != ACCEL_OK)
        return s;
    if (!all_in_windows(c))
        return all_reduce_staged(c, buf, err);
    s = reduce_slices(c, data_of, buf, c->args.elems, err);
    return s == ACCEL_OK ? shm_next(c, err) : s;
}

/* ---- broadcast, barrier, gather ------------------------------------------------------------ */

static accel_status_t shm_broadcast(struct comm *c, void *buf, accel_error_t *err)
{
    size_t bytes = c->args.elems;
    int root = c->args.root;
    bool is_root = c->rank == root, small = bytes <= SMALL_BYTES;
    accel_status_t s;

    if (is_root && small)
        copy(slot_of(c, root), buf, bytes);
    s = shm_arrive(c, is_root ? offset_of(c, buf, bytes) : SHM_NO_OFFSET, err);
    if (s != ACCEL_OK)
        return s;
    if (!small && shm_call_of(c, root)->offset != SHM_NO_OFFSET) {
        if (!is_root)
            copy(buf, data_of(c, root), bytes);
        return shm_next(c, err);
    }
    for (size_t pos = 0; s == ACCEL_OK && pos < bytes; pos += SHM_SLOT_BYTES) {
        size_t n = bytes - pos < SHM_SLOT_BYTES ? bytes - pos : SHM_SLOT_BYTES;

        if (is_root && !small)
            copy(slot_of(c, root), (char *)buf + pos, n);
        if (!small)
            s = shm_next(c, err);
        if (s == ACCEL_OK && !is_root)
            copy((char *)buf + pos, slot_of(c, root), n);
        next_slot(c);
    }
    return s;
}

static accel_status_t shm_barrier(struct comm *c, accel_error_t *err)
{
    return shm_arrive(c, SHM_NO_OFFSET, err);
}

/* The sizes are in the descriptions of the call. Without memory for the result the root
 * still takes part to the end: the peers are not to blame. */
static accel_status_t shm_gather(struct comm *c, const void *mine, void **all,
                                 size_t *sizes, accel_error_t *err)
{
    bool is_root = c->rank == c->args.root;
    size_t bytes = c->args.elems, longest = 0, total = 0;
    char *result = NULL;
    accel_status_t s;

    copy(slot_of(c, c->rank), mine, bytes < SHM_SLOT_BYTES ? bytes : SHM_SLOT_BYTES);
    s = shm_arrive(c, SHM_NO_OFFSET, err);
    if (s != ACCEL_OK)
        return s;
    for (int r = 0; r < c->size; r++) {
        size_t n = shm_call_of(c, r)->elems;

        longest = n > longest ? n : longest;
        total += n;
    }
    if (is_root)
        result = malloc(total + 1);
    for (size_t pos = 0; s == ACCEL_OK && (pos == 0 || pos < longest);
         pos += SHM_SLOT_BYTES) {
        size_t before = 0;

        if (pos > 0) {
            if (pos < bytes)
                copy(slot_of(c, c->rank), (const char *)mine + pos,
                     bytes - pos < SHM_SLOT_BYTES ? bytes - pos : SHM_SLOT_BYTES);
            s = shm_next(c, err);
        }
        for (int r = 0; s == ACCEL_OK && result && r < c->size; r++) {
            size_t n = shm_call_of(c, r)->elems, left = n > pos ? n - pos : 0;

            copy(result + before + pos, slot_of(c, r),
                 left < SHM_SLOT_BYTES ? left : SHM_SLOT_BYTES);
            before += n;
        }
        next_slot(c);
    }
    if (s == ACCEL_OK && is_root && !result)
        s = accel_fail_nomem(err, "gather", total);
    if (s != ACCEL_OK || !is_root) {
        free(result);
        return s;
    }
    for (int r = 0; r < c->size; r++)
        sizes[r] = shm_call_of(c, r)->elems;
    *all = result;
    return ACCEL_OK;
}

/* ---- memory, life ------------------------------------------------------------------------ */

static accel_status_t shm_alloc(struct comm *c, size_t bytes, void **out,
                                accel_error_t *err)
{
    struct shm *m = c->impl;
    size_t huge = (size_t)2 * 1024 * 1024, align = bytes >= huge ? huge : 4096;
    size_t at = (m->heap_used + align - 1) / align * align;
    char want[32], have[32];
    accel_status_t s = shm_arrive(c, SHM_NO_OFFSET, err);

    if (s != ACCEL_OK)
        return s;
    if (at > m->window_bytes || bytes > m->window_bytes - at)
        return accel_fail(
            err, ACCEL_ENOMEM,
            "use more nodes or a smaller model; or lift the address space "
            "limit (ulimit -v)",
            "shared memory: %s asked for, %s of the window left",
            format_bytes((double)bytes, want, sizeof(want)),
            format_bytes((double)m->window_bytes - (double)m->heap_used, have,
                         sizeof(have)));
    m->heap_used = (at + bytes + 4095) / 4096 * 4096;
    *out = shm_base(m, c->rank) + at;
    return ACCEL_OK;
}

static void shm_fail(struct comm *c)
{
    shm_set_state(c, SHM_FAILED);
}

/* Nothing to wait for: peers keep this rank's window mapped as long as they need it. */
static void shm_close(struct comm *c)
{
    if (!c->failed)
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
    .close = shm_close,
};

accel_status_t comm_shm_open(struct comm *c, struct boot *b, size_t window_bytes,
                             bool *fits_out, char why[128], accel_error_t *err)
{
    struct shm *m = calloc(1, sizeof(*m));
    size_t n = (size_t)c->size;
    accel_status_t s;

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
    s = shm_connect(c, m, b, window_bytes, fits_out, why, err);
    if (s != ACCEL_OK || !*fits_out) {
        shm_disconnect(c, m);
        return s;
    }
    m->heap_used = SHM_HEAP_OFFSET;
    c->impl = m;
    c->ops = &shm_ops;
    return ACCEL_OK;
}
