/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over several nodes (node_chain.h) on the device: each tick is one group of
 * NCCL's sends and receives, and the kernels that add and round. Everything is queued;
 * nothing waits for the device. The workspace is that of the direct form, so the plan
 * does not depend on the nodes.
 */
#include "comm/nccl/nccl.h"
#include "comm/node_chain.h"
#include "comm/reduce.h"
#include "plan/exchange.h"

/* A chain of NCCL's. */
struct nccl_chain {
    struct chain chain; /* first: the schedule passes its address */
    int rc;             /* of the group under way */
    float *out;         /* of a reduce_scatter */
    float scale;
    bool accumulate;
};

static const struct backend *device_of(const struct chain *w)
{
    return ((const struct nccl_state *)w->c->impl)->be;
}

static void chain_group(struct chain *w)
{
    ((struct nccl_chain *)w)->rc = nccl_group_start(w->c);
}

static void chain_send(struct chain *w, int peer, const void *buf, size_t bytes)
{
    nccl_group_send(w->c, &((struct nccl_chain *)w)->rc, peer, buf, bytes);
}

static void chain_recv(struct chain *w, int peer, void *buf, size_t bytes)
{
    nccl_group_recv(w->c, &((struct nccl_chain *)w)->rc, peer, buf, bytes);
}

static accel_status_t chain_queue(struct chain *w, accel_error_t *err)
{
    return nccl_group_end(w->c, ((struct nccl_chain *)w)->rc, err);
}

static void chain_copy(struct chain *w, void *dst, const void *src, size_t bytes)
{
    device_of(w)->copy(device_of(w), dst, src, bytes);
}

static void chain_add(struct chain *w, float *out, const float *first,
                      const void *parts, int count, size_t elems)
{
    device_of(w)->sum_parts(device_of(w), out, false, first, parts, w->c->args.dtype,
                            count, (int64_t)elems, 1.0f);
}

static void chain_narrow(struct chain *w, void *dst, const float *src, size_t elems)
{
    const accel_dtype_t t = w->c->args.dtype;

    if (t == ACCEL_BF16)
        device_of(w)->narrow(device_of(w), dst, t, src, (int64_t)elems);
    else
        device_of(w)->narrow_parts(device_of(w), dst, t, src, 1, (int64_t)elems);
}

static void finish_scatter(struct chain *w, const float *sum, size_t pos, size_t elems)
{
    const struct nccl_chain *own = (const struct nccl_chain *)w;

    device_of(w)->sum_parts(device_of(w), own->out + pos, own->accumulate, NULL, sum,
                            ACCEL_F32, 1, (int64_t)elems, own->scale);
}

/* bfloat16 is rounded once, here. */
static void finish_reduce(struct chain *w, const float *sum, size_t pos, size_t elems)
{
    const struct comm *c = w->c;
    const size_t es = accel_dtype_bytes(c->args.dtype);
    char *to = w->in + (reduce_slice_begin(c->args.elems, c->size, c->rank) + pos) * es;

    if (c->args.dtype == ACCEL_BF16)
        device_of(w)->narrow(device_of(w), to, ACCEL_BF16, sum, (int64_t)elems);
    else
        device_of(w)->copy(device_of(w), to, sum, elems * es);
}

static accel_status_t run_in_scratch(struct nccl_chain *own, accel_error_t *err)
{
    struct comm *c = own->chain.c;
    void *scratch;
    accel_status_t st =
        nccl_scratch(c, chain_bytes(&own->chain, own->chain.most), &scratch, err);

    ACCEL_TRY(st, chain_run(&own->chain, scratch, err));
    nccl_scratch_done(c);
    return st;
}

bool nccl_chain_scatter(struct comm *c, const void *in, float *out, float scale,
                        bool accumulate, accel_status_t *st_out, accel_error_t *err)
{
    static const struct chain_backend backend = { chain_group,  chain_send,
                                                  chain_recv,   chain_queue,
                                                  chain_copy,   chain_add,
                                                  chain_narrow, finish_scatter };
    const struct nccl_state *n = c->impl;
    struct nccl_chain own;
    const size_t room = exchange_scatter_bytes(c->args.elems, c->args.dtype,
                                               (size_t)c->size, n->scratch_most);

    /* the array is only read: nothing is spread */
    if (!chain_fits(&own.chain, c, (void *)(uintptr_t)in, false, room))
        return false;
    own.chain.backend = &backend;
    own.out = out;
    own.scale = scale;
    own.accumulate = accumulate;
    *st_out = run_in_scratch(&own, err);
    return true;
}

bool nccl_chain_reduce(struct comm *c, void *buf, accel_status_t *st_out,
                       accel_error_t *err)
{
    static const struct chain_backend backend = { chain_group,  chain_send,
                                                  chain_recv,   chain_queue,
                                                  chain_copy,   chain_add,
                                                  chain_narrow, finish_reduce };
    const struct nccl_state *n = c->impl;
    struct nccl_chain own;
    const size_t room =
        exchange_reduce_bytes(c->args.elems, accel_dtype_bytes(c->args.dtype),
                              (size_t)c->size, n->scratch_most);

    if (!chain_fits(&own.chain, c, buf, true, room))
        return false;
    own.chain.backend = &backend;
    *st_out = run_in_scratch(&own, err);
    return true;
}
