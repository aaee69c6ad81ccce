/* SPDX-License-Identifier: Apache-2.0
 *
 * An attention call in parts. cuDNN's reproducible backward keeps the scores in memory,
 * so a large call is made part by part in one workspace. In: a call without padding or
 * dropout. Out: calls on parts of the same memory, which together make the same bits:
 * nothing is summed over samples, or over key heads.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_PARTS_H
#define ACCEL_BACKEND_CUDA_ATTENTION_PARTS_H

#include <string.h>

#include "backend/operands.h"

/* The size of a part: samples with all their heads, or some key heads of one sample,
 * each with the query heads that read it. Only a call's last parts may be smaller. */
struct attn_split {
    int64_t samples, kv_heads;
};

/* A call, whole or a part of one. The forward uses only out and lse of g. */
struct attn_part {
    struct attention p;
    struct attention_grads g;
    bool backward;
    /* [batch, heads, queries], for the backward's use */
    float *delta;
    /* elements from one row of out to the next: all heads of the whole call */
    int64_t out_row;
};

static inline int64_t attn_quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline struct attn_split attn_unsplit(const struct attention *p)
{
    struct attn_split s = { p->batch, p->kv_heads };

    return s;
}

static inline int64_t attn_parts(const struct attention *p, struct attn_split s)
{
    return attn_quotient_up(p->batch, s.samples) *
           attn_quotient_up(p->kv_heads, s.kv_heads);
}

/* Makes parts smaller: those of s need `needs` bytes, `most` are there. The parts are
 * as even as can be. False: a single key head needs more. */
static inline bool attn_split_further(const struct attention *p, int64_t needs,
                                      int64_t most, struct attn_split *s)
{
    const int64_t now = s->samples * s->kv_heads;
    /* in proportion; at least one less, so that a search ends */
    int64_t fit = (int64_t)((double)now * (double)most / (double)needs);

    fit = fit < now ? fit : now - 1;
    if (fit < 1)
        return false;
    if (fit >= p->kv_heads) {
        s->samples =
            attn_quotient_up(p->batch, attn_quotient_up(p->batch, fit / p->kv_heads));
    } else {
        s->samples = 1;
        s->kv_heads = attn_quotient_up(p->kv_heads, attn_quotient_up(p->kv_heads, fit));
    }
    return true;
}

/* p moved by `elems` elements of the call's type. */
static inline void *attn_moved(const struct attention *p, const void *at, int64_t elems)
{
    return (char *)(uintptr_t)at + elems * (p->type == ACCEL_F32 ? 4 : 2);
}

static inline void attn_move_in(const struct attention *p, struct heads *h,
                                int64_t sample, int64_t head)
{
    h->data = attn_moved(p, h->data, sample * h->sample + head * h->head);
}

static inline void attn_move_out(const struct attention *p, struct heads_out *h,
                                 int64_t sample, int64_t head)
{
    h->data = attn_moved(p, h->data, sample * h->sample + head * h->head);
}

/* Part i of the call `whole`, from 0; heads fastest. */
static inline struct attn_part attn_part_at(const struct attn_part *whole,
                                            struct attn_split s, int64_t i)
{
    const struct attention *p = &whole->p;
    const int64_t across = attn_quotient_up(p->kv_heads, s.kv_heads);
    const int64_t sample = i / across * s.samples, kv = i % across * s.kv_heads;
    const int64_t group = p->heads / p->kv_heads, head = kv * group;
    const int64_t row = (sample * p->heads + head) * p->queries;
    const int64_t out = sample * p->queries * whole->out_row + head * p->head_width;
    struct attn_part part = *whole;

    part.p.batch = p->batch - sample < s.samples ? p->batch - sample : s.samples;
    part.p.kv_heads = p->kv_heads - kv < s.kv_heads ? p->kv_heads - kv : s.kv_heads;
    part.p.heads = part.p.kv_heads * group;
    attn_move_in(p, &part.p.q, sample, head);
    attn_move_in(p, &part.p.k, sample, kv);
    attn_move_in(p, &part.p.v, sample, kv);
    part.g.out = attn_moved(p, part.g.out, out);
    part.g.lse += row;
    if (!part.backward)
        return part;
    part.g.dout = attn_moved(p, part.g.dout, out);
    part.delta += row;
    attn_move_out(p, &part.g.dq, sample, head);
    attn_move_out(p, &part.g.dk, sample, kv);
    attn_move_out(p, &part.g.dv, sample, kv);
    return part;
}

/* A whole call: the forward to out and lse, and the backward. */
static inline struct attn_part attn_forward_part(const struct attention *p, void *out,
                                                 float *lse)
{
    struct attn_part part;

    memset(&part, 0, sizeof(part));
    part.p = *p;
    part.g.out = out;
    part.g.lse = lse;
    part.out_row = p->heads * p->head_width;
    return part;
}

static inline struct attn_part attn_backward_part(const struct attention *p,
                                                  const struct attention_grads *g,
                                                  float *delta)
{
    struct attn_part part;

    part.p = *p;
    part.g = *g;
    part.backward = true;
    part.delta = delta;
    part.out_row = p->heads * p->head_width;
    return part;
}

/* Bytes that a reproducible backward keeps in memory: a score in bfloat16 for each
 * query and key, and of grouped heads dk and dv of every query head, which are then
 * summed. */
static inline int64_t attn_kept_bytes(const struct attention *p)
{
    const int64_t heads = p->batch * p->heads;
    int64_t elems = heads * p->queries * p->keys;

    if (p->heads != p->kv_heads)
        elems += 2 * heads * p->keys * p->head_width;
    return 2 * elems;
}

#endif
