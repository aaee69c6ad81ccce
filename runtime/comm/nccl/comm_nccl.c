/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of GPUs. In: memory of a device backend. Out: NCCL's work at the end of
 * the queue in use; only barrier and gather wait for it. Errors that show later are
 * found by the device's waits, which call nccl_poll. Never waits past a deadline.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl.h"
#include "numbers/wire.h"

/* ---- calls ----------------------------------------------------------------------- */

static size_t bytes_of(const struct comm *c)
{
    return c->args.elems * accel_dtype_bytes(c->args.dtype);
}

/* Mixes the running call into a hash of all calls so far, which barriers compare. NCCL
 * does not check that ranks make the same calls. The length of a gather is left out: it
 * is each rank's own. */
static void note_call(struct comm *c)
{
    struct nccl_state *n = c->impl;
    uint64_t elems = c->args.call == COMM_CALL_GATHER ? 0 : c->args.elems;
    uint64_t word[] = { comm_args_pack(&c->args), elems, (uint64_t)c->args.root };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(word); i++) {
        n->agreed = (n->agreed ^ word[i]) * 0x9e3779b97f4a7c15u;
        n->agreed ^= n->agreed >> 29;
    }
}

/* Takes the result of the NCCL call that is the whole collective, or its end: waits
 * until it is on the queue, then marks the collective as issued. */
static accel_status_t nccl_put_call(struct comm *c, int rc, const char *what,
                                    accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    accel_status_t st = nccl_settle(c, rc, what, err);

    if (st == ACCEL_OK)
        nccl_issued(c, n->be->queue(n->be));
    return st;
}

/* As bytes: any dtype. NCCL works in place if `own` is the own part of buf. */
static accel_status_t nccl_all_gather(struct comm *c, void *buf, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    size_t bytes = bytes_of(c);
    const char *own = (char *)buf + (size_t)c->rank * bytes;

    note_call(c);
    if (bytes == 0)
        return ACCEL_OK;
    return nccl_put_call(
        c, n->api.all_gather(own, buf, bytes, NCCL_UINT8, n->comm, nccl_stream(n)),
        "ncclAllGather", err);
}

/* Only the types that an all_reduce can have; comm.c refused the others. */
static int type_of(accel_dtype_t t)
{
    return t == ACCEL_F32    ? NCCL_FLOAT32
           : t == ACCEL_BF16 ? NCCL_BFLOAT16
           : t == ACCEL_F64  ? NCCL_FLOAT64
                             : NCCL_INT64;
}

static int op_of(enum comm_op op)
{
    return op == COMM_SUM ? NCCL_SUM : op == COMM_MAX ? NCCL_MAX : NCCL_MIN;
}

/* NCCL sums in the arrays' own type into the workspace; then one kernel scales the sum
 * and stores it in out or adds it there. */
static accel_status_t library_scatter(struct comm *c, const void *in, float *out,
                                      float scale, bool accumulate, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    void *sum;
    accel_status_t st = nccl_scratch(c, bytes_of(c), &sum, err);

    ACCEL_TRY(st, nccl_settle(c,
                              n->api.reduce_scatter(in, sum, c->args.elems,
                                                    type_of(c->args.dtype), NCCL_SUM,
                                                    n->comm, nccl_stream(n)),
                              "ncclReduceScatter", err));
    if (st == ACCEL_OK)
        n->be->sum_parts(n->be, out, accumulate, NULL, sum, c->args.dtype, 1,
                         (int64_t)c->args.elems, scale);
    nccl_scratch_done(c);
    return st;
}

static accel_status_t nccl_reduce_scatter(struct comm *c, const void *in, float *out,
                                          float scale, bool accumulate,
                                          accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    accel_status_t st;

    note_call(c);
    if (c->args.elems == 0)
        return ACCEL_OK;
    /* NCCL cannot add numbers with different scales. */
    if (n->library_sums && !wire_is_scaled(c->args.dtype))
        st = library_scatter(c, in, out, scale, accumulate, err);
    else if (!nccl_chain_scatter(c, in, out, scale, accumulate, &st, err))
        st = nccl_direct_scatter(c, in, out, scale, accumulate, err);
    return st == ACCEL_OK ? nccl_put_call(c, NCCL_SUCCESS, NULL, err) : st;
}

/* Only sums of floats depend on the order: all else goes to NCCL. float64
 * does, too (comm.h). */
static accel_status_t nccl_all_reduce(struct comm *c, void *buf, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    accel_dtype_t t = c->args.dtype;
    bool is_sum = c->args.op == COMM_SUM && (t == ACCEL_F32 || t == ACCEL_BF16);
    accel_status_t st;

    note_call(c);
    if (c->args.elems == 0)
        return ACCEL_OK;
    if (is_sum && !n->library_sums) {
        if (!nccl_chain_reduce(c, buf, &st, err))
            st = nccl_direct_reduce(c, buf, err);
        return st == ACCEL_OK ? nccl_put_call(c, NCCL_SUCCESS, NULL, err) : st;
    }
    return nccl_put_call(c,
                         n->api.all_reduce(buf, buf, c->args.elems, type_of(t),
                                           op_of(c->args.op), n->comm, nccl_stream(n)),
                         "ncclAllReduce", err);
}

static accel_status_t nccl_broadcast(struct comm *c, void *buf, accel_error_t *err)
{
    struct nccl_state *n = c->impl;

    note_call(c);
    if (c->args.elems == 0)
        return ACCEL_OK;
    return nccl_put_call(c,
                         n->api.broadcast(buf, buf, c->args.elems, NCCL_UINT8,
                                          c->args.root, n->comm, nccl_stream(n)),
                         "ncclBroadcast", err);
}

/* Waits for the device and compares the ranks' hashes h with one reduction:
 * max(~h) is ~min(h), so max(h) and max(~h) are complements exactly if h is the
 * same on all ranks. */
static accel_status_t nccl_barrier(struct comm *c, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    int64_t pair[NCCL_WORDS];
    accel_status_t st;

    note_call(c);
    pair[0] = (int64_t)n->agreed;
    pair[1] = (int64_t)~n->agreed;
    n->be->from_host(n->be, n->words, pair, sizeof(pair));
    ACCEL_CHECK(
        st, nccl_put_call(c,
                          n->api.all_reduce(n->words, n->words, NCCL_WORDS, NCCL_INT64,
                                            NCCL_MAX, n->comm, nccl_stream(n)),
                          "ncclAllReduce", err));
    ACCEL_CHECK(st, n->be->sync(n->be, err));
    n->be->to_host_bytes(n->be, pair, n->words, sizeof(pair));
    if (pair[0] != ~pair[1])
        return accel_fail(err, A0503,
                          "every rank must make the same calls in the same order",
                          "the ranks made different calls before barrier #%llu",
                          (unsigned long long)c->seq);
    return ACCEL_OK;
}

/* ---- gather ---------------------------------------------------------------------- */

accel_status_t nccl_gather_words(struct comm *c, int64_t own, int64_t *words_out,
                                 accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    accel_status_t st;

    n->be->from_host(n->be, n->words + c->rank, &own, sizeof(own));
    st = nccl_put_call(c,
                       n->api.all_gather(n->words + c->rank, n->words, 1, NCCL_INT64,
                                         n->comm, nccl_stream(n)),
                       "ncclAllGather", err);
    ACCEL_TRY(st, n->be->sync(n->be, err));
    if (st == ACCEL_OK)
        n->be->to_host_bytes(n->be, words_out, n->words,
                             (size_t)c->size * sizeof(*words_out));
    return st;
}

/* Sends the own bytes to the root; there they arrive in `all` (device memory) one after
 * the other. Sizes of 0 are skipped on both sides. */
static accel_status_t collect(struct comm *c, const void *mine, char *all,
                              const int64_t *sizes, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    int rc = nccl_group_start(c);
    bool is_root = c->rank == c->args.root;
    accel_status_t st;

    if (!is_root)
        nccl_group_send(c, &rc, c->args.root, mine, c->args.elems);
    for (int r = 0; is_root && r < c->size; r++) {
        size_t bytes = (size_t)sizes[r];

        if (r == c->rank)
            n->be->copy(n->be, all, mine, bytes);
        else
            nccl_group_recv(c, &rc, r, all, bytes);
        all += bytes;
    }
    st = nccl_group_end(c, rc, err);
    return st == ACCEL_OK ? nccl_put_call(c, NCCL_SUCCESS, NULL, err) : st;
}

/* `room`: device memory for `total` bytes, on the root only. *all_out: a copy
 * in host memory. */
static accel_status_t gather_all(struct comm *c, const void *mine, int64_t *sizes,
                                 size_t total, void *room, void **all_out,
                                 accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    bool is_root = c->rank == c->args.root;
    char *result = is_root ? malloc(total + 1) : NULL;
    accel_status_t st;

    if (is_root && !result)
        return accel_fail_nomem(err, "gather", total);
    st = collect(c, mine, room, sizes, err);
    ACCEL_TRY(st, n->be->sync(n->be, err));
    if (st == ACCEL_OK && is_root)
        n->be->to_host_bytes(n->be, result, room, total);
    if (st != ACCEL_OK) {
        free(result);
        return st;
    }
    if (is_root)
        *all_out = result;
    return ACCEL_OK;
}

/* The first exchange tells the sizes, the second brings the data. The root's device
 * memory is allocated for this call only: gathers are rare. */
static accel_status_t nccl_gather(struct comm *c, const void *mine, void **all_out,
                                  size_t *sizes_out, accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    int64_t *bytes = calloc((size_t)c->size, sizeof(*bytes));
    bool is_root = c->rank == c->args.root;
    void *room = NULL;
    size_t total = 0;
    accel_status_t st;

    if (!bytes)
        return accel_fail_nomem(err, "gather", (size_t)c->size * sizeof(*bytes));
    note_call(c);
    st = nccl_gather_words(c, (int64_t)c->args.elems, bytes, err);
    for (int r = 0; st == ACCEL_OK && r < c->size; r++)
        total += (size_t)bytes[r];
    if (st == ACCEL_OK && is_root && total > 0)
        st = n->be->alloc(n->be, MEMORY_WORK, total, &room, err);
    ACCEL_TRY(st, gather_all(c, mine, bytes, total, room, all_out, err));
    for (int r = 0; st == ACCEL_OK && is_root && r < c->size; r++)
        sizes_out[r] = (size_t)bytes[r];
    n->be->free(n->be, room);
    free(bytes);
    return st;
}

/* ---- memory ---------------------------------------------------------------------- */

/* An empty entry in the list, so that it is freed whatever happens to its memory. */
static struct nccl_block *new_block(struct nccl_state *n, accel_error_t *err)
{
    struct nccl_block *block = calloc(1, sizeof(*block));

    if (!block) {
        accel_fail_nomem(err, "communication buffer", sizeof(*block));
        return NULL;
    }
    block->next = n->blocks;
    n->blocks = block;
    return block;
}

accel_status_t nccl_keep_block(struct nccl_state *n, void *mem, accel_error_t *err)
{
    struct nccl_block *block = new_block(n, err);

    if (!block) {
        n->be->free(n->be, mem);
        return ACCEL_ENOMEM;
    }
    block->mem = mem;
    return ACCEL_OK;
}

/* Memory from ncclMemAlloc, once registered, can be read by peers directly. If the
 * library or the device does not offer it, other memory will do. */
static accel_status_t nccl_alloc(struct comm *c, size_t bytes, void **mem_out,
                                 accel_error_t *err)
{
    struct nccl_state *n = c->impl;
    struct nccl_block *block = new_block(n, err);
    accel_status_t st = ACCEL_OK;

    note_call(c);
    if (!block)
        return ACCEL_ENOMEM;
    if (n->api.mem_alloc && n->api.mem_alloc(&block->mem, bytes) == NCCL_SUCCESS) {
        block->of_library = bytes;
        block->kind = c->kind;
        n->be->count(n->be, c->kind, (int64_t)bytes);
        n->be->zero(n->be, block->mem, bytes);
        st = nccl_settle(c, n->api.reg(n->comm, block->mem, bytes, &block->handle),
                         "ncclCommRegister", err);
        if (st == ACCEL_OK) /* zeroed before other queues use it */
            st = n->be->sync(n->be, err);
    } else {
        st = n->be->alloc(n->be, c->kind, bytes, &block->mem, err);
    }
    *mem_out = block->mem;
    return st;
}

static void free_blocks(struct nccl_state *n)
{
    while (n->blocks) {
        struct nccl_block *block = n->blocks;

        n->blocks = block->next;
        if (block->of_library) {
            n->api.mem_free(block->mem);
            n->be->count(n->be, block->kind, -(int64_t)block->of_library);
        } else {
            n->be->free(n->be, block->mem);
        }
        free(block);
    }
}

/* ---- life ------------------------------------------------------------------------ */

/* Aborts all communicators of the device. Their kernels wait for each other on the
 * device's queues, so none of them can continue without the others. */
static void give_up(struct comm *c)
{
    struct backend_watch *w = c->device->watch;

    for (; w; w = w->next) {
        struct comm *other = w->user;

        if (!other->failed) {
            other->failed = true;
            other->failure = c->failure;
        }
        nccl_give_up(other->impl);
    }
    nccl_give_up(c->impl);
}

/* At the head of the device's list of watches; the entry is part of the state. */
void nccl_watch(struct comm *c)
{
    struct nccl_state *n = c->impl;

    n->watch = (struct backend_watch){ c->device->watch, nccl_poll, c };
    c->device->watch = &n->watch;
}

static void unwatch(struct comm *c)
{
    struct nccl_state *n = c->impl;
    struct backend_watch **at = &c->device->watch;

    while (*at && *at != &n->watch)
        at = &(*at)->next;
    if (*at)
        *at = n->watch.next;
}

/* The order matters: first NCCL lets go of the buffers and ends, then the device
 * finishes, then memory is freed, and the library goes last. */
static void nccl_close_comm(struct comm *c)
{
    struct nccl_state *n = c->impl;
    struct backend *be = c->device;
    accel_error_t ignored;

    for (struct nccl_block *b = n->blocks; b && n->comm; b = b->next)
        if (b->handle)
            n->api.dereg(n->comm, b->handle);
    nccl_leave(c);
    unwatch(c);
    be->sync(be, &ignored); /* kernels may still read what is freed */
    free_blocks(n);
    be->free(be, n->words);
    be->event_free(be, n->scratch_free);
    if (n->reached)
        be->host_free(be, (float *)(uintptr_t)n->reached,
                      QUEUE_COUNT * sizeof(*n->reached));
    nccl_close(&n->api);
    free(n);
}

static const struct comm_ops nccl_ops = {
    .name = "nccl",
    .alloc = nccl_alloc,
    .reserve = nccl_reserve,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .gather = nccl_gather,
    .split = nccl_split,
    .fail = give_up,
    .close = nccl_close_comm,
};

const struct comm_ops *nccl_operations(void)
{
    return &nccl_ops;
}
