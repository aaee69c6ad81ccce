/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over several nodes (node_chain.h) with UCP messages: each tick
 * posts its messages and waits for all of them. Before the first tick every rank greets
 * every other one.
 */
#include <string.h>

#include "comm/node_chain.h"
#include "comm/reduce.h"
#include "comm/ucx/ucx.h"
#include "numbers/bf16.h"
#include "numbers/wire.h"

/* Workspace of a chain. */
#define CHAIN_ROOM ((size_t)4 * 1024 * 1024)

/* A chain of UCX's. */
struct ucx_chain {
    struct chain chain; /* first: the schedule passes its address */
    int64_t tick;
    float *out; /* of a reduce_scatter */
    float scale;
    bool accumulate;
};

/* Messages of one tick between two ranks have one tag and keep their order; a rank is
 * at most a few ticks ahead of another. */
static int step_of(const struct chain *w)
{
    return (int)(((const struct ucx_chain *)w)->tick % UCX_STEPS);
}

static void chain_greet(struct chain *w)
{
    if (((const struct ucx_chain *)w)->tick == 0)
        ucx_greet(w->c);
}

static void chain_post_send(struct chain *w, int peer, const void *buf, size_t bytes)
{
    ucx_send(w->c, peer, step_of(w), buf, bytes);
}

static void chain_post_recv(struct chain *w, int peer, void *buf, size_t bytes)
{
    ucx_recv(w->c, peer, step_of(w), buf, bytes);
}

static accel_status_t chain_wait(struct chain *w, accel_error_t *err)
{
    ((struct ucx_chain *)w)->tick++;
    return ucx_wait(w->c, err);
}

static void chain_copy_host(struct chain *w, void *dst, const void *src, size_t bytes)
{
    (void)w;
    memcpy(dst, src, bytes);
}

static void chain_add_host(struct chain *w, float *out, const float *first,
                           const void *parts, int count, size_t elems)
{
    struct comm *c = w->c;
    const size_t row = wire_bytes(elems, c->args.dtype);

    for (int i = 0; i < count; i++)
        c->src[i] = (const char *)parts + (size_t)i * row;
    reduce_go_on(out, first, c->src, count, elems, c->args.dtype);
}

static void chain_narrow_host(struct chain *w, void *dst, const float *src,
                              size_t elems)
{
    if (w->c->args.dtype == ACCEL_BF16)
        bf16_narrow(dst, src, elems);
    else
        wire_narrow(dst, src, elems, w->c->args.dtype);
}

static void finish_scatter_host(struct chain *w, const float *sum, size_t pos,
                                size_t elems)
{
    const struct ucx_chain *own = (const struct ucx_chain *)w;
    const void *src[] = { sum };

    reduce_scaled_sum(own->out + pos, src, 1, elems, ACCEL_F32, own->scale,
                      own->accumulate);
}

/* bfloat16 is rounded once, here. */
static void finish_reduce_host(struct chain *w, const float *sum, size_t pos,
                               size_t elems)
{
    const struct comm *c = w->c;
    const size_t es = accel_dtype_bytes(c->args.dtype);
    char *to = w->in + (reduce_slice_begin(c->args.elems, c->size, c->rank) + pos) * es;

    if (c->args.dtype == ACCEL_BF16)
        bf16_narrow((bf16_t *)(void *)to, sum, elems);
    else
        memcpy(to, sum, elems * es);
}

static accel_status_t run_in_room(struct ucx_chain *own, accel_error_t *err)
{
    struct comm *c = own->chain.c;
    accel_status_t st = ucx_room(c, chain_bytes(&own->chain, own->chain.most), err);

    return st == ACCEL_OK ? chain_run(&own->chain, ((struct ucx *)c->impl)->room, err)
                          : st;
}

bool ucx_chain_scatter(struct comm *c, const void *in, float *out, float scale,
                       bool accumulate, accel_status_t *st_out, accel_error_t *err)
{
    static const struct chain_backend backend = {
        chain_greet,     chain_post_send, chain_post_recv,   chain_wait,
        chain_copy_host, chain_add_host,  chain_narrow_host, finish_scatter_host
    };
    struct ucx_chain own = { .out = out, .scale = scale, .accumulate = accumulate };

    /* the array is only read: nothing is spread */
    if (!chain_fits(&own.chain, c, (void *)(uintptr_t)in, false, CHAIN_ROOM))
        return false;
    own.chain.backend = &backend;
    *st_out = run_in_room(&own, err);
    return true;
}

bool ucx_chain_reduce(struct comm *c, void *buf, accel_status_t *st_out,
                      accel_error_t *err)
{
    static const struct chain_backend backend = {
        chain_greet,     chain_post_send, chain_post_recv,   chain_wait,
        chain_copy_host, chain_add_host,  chain_narrow_host, finish_reduce_host
    };
    struct ucx_chain own = { .tick = 0 };

    if (!chain_fits(&own.chain, c, buf, true, CHAIN_ROOM))
        return false;
    own.chain.backend = &backend;
    *st_out = run_in_room(&own, err);
    return true;
}
