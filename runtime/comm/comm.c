/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator: checks arguments, counts calls and keeps the first failure. In: the
 * caller's buffers. Out: what the backend's table does with them. Never touches data
 * itself. comm_open.c chooses the backend.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "comm/comm_impl.h"
#include "numbers/wire.h"

/* ---- made and freed --------------------------------------------------------- */

/* Nodes are copied: b may be freed before c, and splits need them. */
accel_status_t comm_new(struct comm **comm_out, const struct boot *b, int timeout_ms,
                        accel_error_t *err)
{
    struct comm *c = calloc(1, sizeof(*c));
    const size_t n = (size_t)b->size;

    if (!c)
        return accel_fail_nomem(err, "communicator", sizeof(*c));
    c->rank = b->rank;
    c->size = b->size;
    c->timeout_ns = (int64_t)timeout_ms * 1000000;
    c->src = calloc(n, sizeof(*c->src));
    c->node_of = calloc(n, sizeof(*c->node_of));
    if (!c->src || !c->node_of) {
        comm_close(c);
        return accel_fail_nomem(err, "communicator", n * sizeof(*c->src));
    }
    if (b->node_of)
        memcpy(c->node_of, b->node_of, n * sizeof(*c->node_of));
    *comm_out = c;
    return ACCEL_OK;
}

/* c->ops is NULL if no backend was opened; a backend's close frees c->impl. */
void comm_close(struct comm *c)
{
    struct comm_block *block;

    if (!c)
        return;
    /* peers of a rank that gave up do not come to close */
    c->failed = c->failed || (c->root && c->root->failed);
    if (c->ops && c->ops->close)
        c->ops->close(c);
    while ((block = c->blocks)) {
        c->blocks = block->next;
        munmap(block->mem, block->bytes);
        free(block);
    }
    free(c->net_devices);
    free(c->asked);
    free(c->node_of);
    free(c->src);
    free(c);
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->size;
}

const char *comm_backend(const struct comm *c)
{
    return c->ops->name;
}

accel_status_t comm_private_alloc(struct comm *c, size_t bytes, void **mem_out,
                                  accel_error_t *err)
{
    struct comm_block *block = malloc(sizeof(*block));
    void *p;

    if (!block)
        return accel_fail_nomem(err, "communication buffer", sizeof(*block));
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(block);
        return accel_fail_nomem(err, "communication buffer", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE); /* may fail: it is only a hint */
    *block = (struct comm_block){ c->blocks, p, bytes };
    c->blocks = block;
    *mem_out = p;
    return ACCEL_OK;
}

/* ---- calls ----------------------------------------------------------------------- */

/* The failure of c, or of the root that its ranks have given up. */
accel_status_t comm_refuses(const struct comm *c, accel_error_t *err)
{
    const struct comm *of = c->failed || !c->root ? c : c->root;

    if (!of->failed)
        return ACCEL_OK;
    if (err)
        *err = of->failure;
    return of->failure.code;
}

/* A failed communicator stays failed: the ranks may have stopped at different calls,
 * and a further one would pair up messages that do not belong together. The deadline is
 * set by comm_expired, so that short calls need no clock. */
accel_status_t comm_begin(struct comm *c, struct comm_args args, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, comm_refuses(c, err));
    c->args = args;
    c->seq++;
    c->deadline_ns = 0;
    return ACCEL_OK;
}

/* `failed` is set before fail() runs: nccl walks over all communicators of the device
 * there, this one included, and must find it failed. The peers are told first: ucx
 * closes its connections in fail(). */
accel_status_t comm_end(struct comm *c, accel_status_t st, const accel_error_t *own,
                        accel_error_t *err)
{
    if (st == ACCEL_OK)
        return ACCEL_OK;
    if (!c->failed) {
        c->failed = true;
        c->failure = *own;
        c->failure.code = st;
        comm_tell(c, &c->failure);
        if (c->ops->fail)
            c->ops->fail(c);
    }
    if (err)
        *err = c->failure;
    return c->failure.code;
}

/* The size in bytes of elems numbers of type t, `copies` times over,
 * must not overflow. */
static accel_status_t check_size(size_t elems, accel_dtype_t t, size_t copies,
                                 accel_error_t *err)
{
    size_t size = accel_dtype_bytes(t), bytes;

    if (size == 0)
        return accel_fail(err, A0506, "pass one of accel_dtype_t", "unknown dtype %d",
                          (int)t);
    if (__builtin_mul_overflow(elems, size, &bytes) ||
        __builtin_mul_overflow(bytes, copies, &bytes) || bytes > SIZE_MAX / 2)
        return accel_fail(err, A0506, "split the data into several calls",
                          "too many elements: %zu of %s for %zu ranks", elems,
                          accel_dtype_name(t), copies);
    return ACCEL_OK;
}

static accel_status_t check_root(const struct comm *c, int root, accel_error_t *err)
{
    if (root < 0 || root >= c->size)
        return accel_fail(err, A0506, "pass a rank of the run as root",
                          "root %d is not one of %d ranks", root, c->size);
    return ACCEL_OK;
}

accel_status_t comm_alloc(struct comm *c, enum backend_memory kind, size_t bytes,
                          void **mem_out, accel_error_t *err)
{
    struct comm_args a = { .call = COMM_CALL_ALLOC, .dtype = ACCEL_U8, .elems = bytes };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, check_size(bytes, ACCEL_U8, 2, err));
    ACCEL_CHECK(st, comm_begin(c, a, err));
    c->kind = kind;
    return comm_end(c, c->ops->alloc(c, bytes ? bytes : 1, mem_out, &own), &own, err);
}

/* Not collective, hence no comm_begin: it must not be counted as a call. Only the
 * argument check and the failure are shared with the others. */
accel_status_t comm_reserve(struct comm *c, bool scatter, size_t elems, accel_dtype_t t,
                            accel_error_t *err)
{
    accel_status_t st = check_size(elems, t, (size_t)c->size, err);

    ACCEL_TRY(st, comm_refuses(c, err));
    return st == ACCEL_OK && c->ops->reserve
               ? c->ops->reserve(c, scatter, elems, t, err)
               : st;
}

/* The collectives all go the same way: check the arguments (a mistake here fails this
 * rank only and is not counted), begin, the backend's function, end. */
accel_status_t comm_all_gather(struct comm *c, void *buf, size_t elems, accel_dtype_t t,
                               accel_error_t *err)
{
    struct comm_args a = { .call = COMM_CALL_ALL_GATHER, .dtype = t, .elems = elems };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, check_size(elems, t, (size_t)c->size, err));
    ACCEL_CHECK(st, comm_begin(c, a, err));
    return comm_end(c, c->ops->all_gather(c, buf, &own), &own, err);
}

accel_status_t comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                   size_t elems, accel_dtype_t t, float scale,
                                   bool accumulate, accel_error_t *err)
{
    struct comm_args a = { .call = COMM_CALL_REDUCE_SCATTER,
                           .dtype = t,
                           .elems = elems };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, check_size(elems, t, (size_t)c->size, err));
    if (t != ACCEL_F32 && t != ACCEL_BF16 && !wire_is_scaled(t))
        return accel_fail(err, A0506, "use float32, bfloat16, float16, e4m3 or e5m2",
                          "reduce_scatter does not support %s", accel_dtype_name(t));
    ACCEL_CHECK(st, comm_begin(c, a, err));
    st = c->ops->reduce_scatter(c, in, out, scale, accumulate, &own);
    return comm_end(c, st, &own, err);
}

accel_status_t comm_all_reduce(struct comm *c, void *buf, size_t elems, accel_dtype_t t,
                               enum comm_op op, accel_error_t *err)
{
    struct comm_args a = {
        .call = COMM_CALL_ALL_REDUCE, .dtype = t, .op = op, .elems = elems
    };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, check_size(elems, t, (size_t)c->size, err));
    if ((t != ACCEL_F32 && t != ACCEL_BF16 && t != ACCEL_F64 && t != ACCEL_I64) ||
        (unsigned)op > COMM_MIN)
        return accel_fail(err, A0506, "use float32, bfloat16, float64 or int64",
                          "all_reduce does not support %s with operation %d",
                          accel_dtype_name(t), (int)op);
    ACCEL_CHECK(st, comm_begin(c, a, err));
    return comm_end(c, c->ops->all_reduce(c, buf, &own), &own, err);
}

accel_status_t comm_broadcast(struct comm *c, void *buf, size_t bytes, int root,
                              accel_error_t *err)
{
    struct comm_args a = {
        .call = COMM_CALL_BROADCAST, .dtype = ACCEL_U8, .elems = bytes, .root = root
    };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, check_root(c, root, err));
    ACCEL_CHECK(st, comm_begin(c, a, err));
    return comm_end(c, c->ops->broadcast(c, buf, &own), &own, err);
}

accel_status_t comm_barrier(struct comm *c, accel_error_t *err)
{
    struct comm_args a = { .call = COMM_CALL_BARRIER, .dtype = ACCEL_U8 };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, comm_begin(c, a, err));
    return comm_end(c, c->ops->barrier(c, &own), &own, err);
}

accel_status_t comm_gather(struct comm *c, const void *mine, size_t bytes, int root,
                           void **all_out, size_t *sizes_out, accel_error_t *err)
{
    struct comm_args a = {
        .call = COMM_CALL_GATHER, .dtype = ACCEL_U8, .elems = bytes, .root = root
    };
    accel_error_t own = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, check_root(c, root, err));
    if (c->rank == root && (!all_out || !sizes_out))
        return accel_fail(err, A0506, "pass both on the root",
                          "gather: all or sizes is NULL on the root");
    ACCEL_CHECK(st, comm_begin(c, a, err));
    if (all_out)
        *all_out = NULL;
    return comm_end(c, c->ops->gather(c, mine, all_out, sizes_out, &own), &own, err);
}
