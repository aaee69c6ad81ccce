/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding of a long word: its bytes as a list of symbols, the pairs that can
 * be merged in a heap. A merge makes at most two new pairs, so the time is n log n.
 * Gives the same ids as bpe.c for short words.
 */
#include <stdlib.h>

#include "data/tokenizer_impl.h"

/* A symbol of the doubly linked list; -1 ends it on both sides. */
struct symbol {
    /* -1: merged into the symbol before it */
    int32_t id;
    int32_t before, after;
};

/* A pair that could be merged when it was pushed. */
struct candidate {
    uint32_t rank;
    /* the left symbol */
    int32_t at;
    /* what the pair becomes */
    int32_t id;
};

/* One word. */
struct work {
    const struct bpe *bpe;
    struct symbol *symbol;
    struct candidate *heap;
    size_t candidates;
};

/* The lowest rank first, then the leftmost pair. */
static bool comes_first(const struct candidate *x, const struct candidate *y)
{
    return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

/* The heap has room for all candidates there can be. */
static void push(struct work *w, struct candidate c)
{
    size_t at = w->candidates++;

    for (; at > 0 && comes_first(&c, &w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = c;
}

/* The last candidate takes the place of the first and sinks. */
static struct candidate pop(struct work *w)
{
    struct candidate first = w->heap[0], last = w->heap[--w->candidates];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < w->candidates) {
        if (child + 1 < w->candidates &&
            comes_first(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!comes_first(&w->heap[child], &last))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return first;
}

/* Pushes the pair of symbol `at` and its right neighbour, if it can be merged. */
static void consider(struct work *w, int32_t at)
{
    const struct bpe_merge *m;

    if (at < 0 || w->symbol[at].after < 0)
        return;
    m = bpe_merge(w->bpe, w->symbol[at].id, w->symbol[w->symbol[at].after].id);
    if (m)
        push(w, (struct candidate){ m->rank, at, m->id });
}

/* Candidates are never taken out of the heap when a symbol changes: a stale one is
 * found when it is popped, because its pair gives another id, or none. */
static void merge_all(struct work *w)
{
    while (w->candidates > 0) {
        struct candidate c = pop(w);
        struct symbol *s = &w->symbol[c.at], *next;
        const struct bpe_merge *m;

        if (s->id < 0 || s->after < 0)
            continue;
        next = &w->symbol[s->after];
        /* One of the two may have been merged since. */
        m = bpe_merge(w->bpe, s->id, next->id);
        if (!m || m->id != c.id)
            continue;
        s->id = c.id;
        next->id = -1;
        s->after = next->after;
        if (s->after >= 0)
            w->symbol[s->after].before = c.at;
        consider(w, s->before);
        consider(w, c.at);
    }
}

/* Symbol 0 is never merged into another one, so the list starts there. */
accel_status_t bpe_encode_long(const struct bpe *b, const uint8_t *p, size_t n,
                               struct id_sink *out, accel_error_t *err)
{
    /* n - 1 pairs at first; each of at most n - 1 merges takes one and adds two. */
    struct work w = { .bpe = b,
                      .symbol = malloc(n * sizeof(*w.symbol)),
                      .heap = malloc(2 * n * sizeof(*w.heap)) };
    accel_status_t st = ACCEL_OK;

    if (!w.symbol || !w.heap) {
        st = accel_fail_nomem(err, "a long word", n * sizeof(*w.symbol));
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        w.symbol[i] = (struct symbol){ b->byte[p[i]], (int32_t)i - 1,
                                       i + 1 < n ? (int32_t)i + 1 : -1 };
    for (size_t i = 0; i + 1 < n; i++)
        consider(&w, (int32_t)i);
    merge_all(&w);
    for (int32_t i = 0; i >= 0; i = w.symbol[i].after)
        sink_add(out, w.symbol[i].id);
out:
    free(w.symbol);
    free(w.heap);
    return st;
}
