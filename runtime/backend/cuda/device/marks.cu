/* SPDX-License-Identifier: Apache-2.0
 *
 * Which op a failure belongs to. In: the op whose work follows, told by the tape. Out:
 * the place of the first failure, in words. A refused call names its op. A kernel fails
 * long after its launch: then all we know is which ops were complete, from a number
 * that the device writes to the host every few ops, and what was queued last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

enum {
    /* A number is written every few ops, one small kernel each: 16 are half a block
     * of a transformer with its backward, which is near enough for a message, and 14
     * kernels in a step of a model with 12 blocks. It counts ops; no launch's shape
     * matters. */
    OPS_PER_NUMBER = 16,
    /* ops with ids that are remembered: those of 64 micro-batches of a model that has
     * four */
    ID_OPS = 256
};

/* Ops are numbered through the whole run. */
struct cuda_marks {
    struct backend_mark *at; /* of this micro-batch */
    int count, space;
    int64_t base;   /* number of at[0] */
    int64_t waited; /* all ops before this number were waited for */
    /* page-locked: all ops before this number are complete on the device */
    volatile int64_t *over;
    /* first op of the previous micro-batch that was not complete */
    char tail[160];
    /* launches wait for their kernel, so what fails is the last op */
    bool blocking;
    /* the last ones with ids, also of earlier micro-batches: op n is ids[n % ID_OPS] */
    struct cuda_id_op ids[ID_OPS];
    int64_t id_ops;
};

/* Writes to page-locked host memory, which the host reads without a call. */
static __global__ void over_kernel(volatile int64_t *over, int64_t number)
{
    /* the queue runs in order: everything before this kernel is complete */
    *over = number;
}

/* Room for one more mark; doubles. */
static bool room(struct cuda_marks *m)
{
    const int space = m->space ? 2 * m->space : 256;
    struct backend_mark *at;

    if (m->count < m->space)
        return true;
    at = (struct backend_mark *)realloc(m->at, (size_t)space * sizeof(*at));
    if (!at)
        return false;
    m->at = at;
    m->space = space;
    return true;
}

/* "module path: op", with "(backward)" where it is one. */
static void name(char *out, size_t len, const struct backend_mark *m)
{
    if (!m->path)
        snprintf(out, len, "%s", m->op);
    else
        snprintf(out, len, "%s: %s%s", *m->path ? m->path : "model", m->op,
                 m->backward ? " (backward)" : "");
}

/* Names the first op that may not have been complete. */
static void name_open(const struct cuda_marks *m, char *out, size_t len)
{
    int64_t over = m->over ? *m->over : 0;

    over = (over < m->waited ? m->waited : over) - m->base;
    if (over >= m->count)
        over = m->count - 1;
    if (over < 0)
        snprintf(out, len, "%s", m->tail);
    else
        name(out, len, &m->at[over]);
}

/* Starts a micro-batch. Module names may be freed with their ops, so only texts are
 * kept beyond it. */
static void begin(struct cuda_marks *m)
{
    char tail[sizeof(m->tail)];

    name_open(m, tail, sizeof(tail));
    memcpy(m->tail, tail, sizeof(tail));
    m->base += m->count;
    m->count = 0;
}

/* Out of memory, an op stays unnamed: no reason to end a run. */
void cuda_mark(const struct backend *be, const struct backend_mark *mark)
{
    struct cuda_state *s = cuda_state_of(be);
    struct cuda_marks *m = s->marks;
    int at;

    if (!m || s->failed)
        return;
    if (!mark) {
        begin(m);
        return;
    }
    cuda_graph_op(s);
    if (!room(m))
        return;
    at = m->count++;
    m->at[at] = *mark;
    /* in a recorded step, too: the kernel becomes a node of the graph */
    if (m->over && at % OPS_PER_NUMBER == 0)
        LAUNCH(over_kernel, 1, 1, 0, s, m->over, m->base + at);
}

/* All but the last: its kernels may have been queued after the wait began. */
void cuda_marks_waited(struct cuda_state *s)
{
    if (s->marks && s->marks->count > 0)
        s->marks->waited = s->marks->base + s->marks->count - 1;
}

int cuda_mark_now(const struct cuda_state *s)
{
    return s->marks ? (int)(s->marks->base + s->marks->count - 1) : -1;
}

/* Calls of one op, for chunks of its rows, are one. */
uint32_t cuda_mark_ids(struct cuda_state *s, int64_t limit, int64_t time)
{
    const uint32_t mark = (uint32_t)cuda_mark_now(s);
    struct cuda_marks *m = s->marks;
    const struct backend_mark *now;
    struct cuda_id_op *op;

    if (!m)
        return mark;
    now = m->count ? &m->at[m->count - 1] : NULL;
    op = &m->ids[(m->id_ops + ID_OPS - 1) % ID_OPS];
    if (m->id_ops && op->mark == mark && op->limit == limit)
        return mark;
    op = &m->ids[m->id_ops++ % ID_OPS];
    op->mark = mark;
    op->limit = limit;
    op->time = time;
    op->where[0] = '\0';
    if (now)
        name(op->where, sizeof(op->where), now);
    op->micro = now ? now->micro : 0;
    op->micros = now ? now->micros : 0;
    return mark;
}

const struct cuda_id_op *cuda_id_op(const struct cuda_state *s, uint32_t mark)
{
    const struct cuda_marks *m = s->marks;

    for (int i = 0; m && i < ID_OPS && i < m->id_ops; i++)
        if (m->ids[i].mark == mark)
            return &m->ids[i];
    return NULL;
}

void cuda_marks_fail(struct cuda_state *s, bool late)
{
    const struct cuda_marks *m = s->marks;
    char first[sizeof(m->tail)];

    if (!m)
        return;
    if (m->count)
        name(s->last_op, sizeof(s->last_op), &m->at[m->count - 1]);
    /* the op at hand is the one; else name the range between what was complete and what
     * was queued */
    if (!late || m->blocking) {
        snprintf(s->where, sizeof(s->where), "%s", s->last_op);
        s->last_op[0] = '\0';
        return;
    }
    name_open(m, first, sizeof(first));
    if (first[0])
        snprintf(s->where, sizeof(s->where), "in or after %s", first);
}

bool cuda_marks_open(struct cuda_state *s)
{
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    struct cuda_marks *m = (struct cuda_marks *)calloc(1, sizeof(*m));

    if (!m)
        return cuda_fails(s, "open", "cannot allocate the names of ops");
    s->marks = m;
    m->blocking = blocking && !strcmp(blocking, "1");
    m->over = (volatile int64_t *)s->be.host_alloc(&s->be, sizeof(*m->over));
    return !s->failed;
}

void cuda_marks_close(struct cuda_state *s)
{
    if (!s->marks)
        return;
    s->be.host_free(&s->be, (void *)s->marks->over, sizeof(*s->marks->over));
    free(s->marks->at);
    free(s->marks);
    s->marks = NULL;
}
