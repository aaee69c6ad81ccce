/* SPDX-License-Identifier: Apache-2.0
 *
 * Accelerate's three loaders: see accelerate_rule.h.
 */
#include <string.h>

#include "tests/unit/accelerate_rule.h"

enum { LIST_MAX = 2048 };

struct list {
    int n;
    int at[LIST_MAX];
};

static void extend(struct list *to, const int *from, int n)
{
    for (int i = 0; i < n && to->n < LIST_MAX; i++)
        to->at[to->n++] = from[i];
}

static void yield_slice(struct rule_batches *out, const struct list *from, int first,
                        int end)
{
    int b = out->count;

    end = end < from->n ? end : from->n;
    if (first >= end || b == RULE_BATCHES)
        return;
    out->size[b] = end - first;
    memcpy(out->sample[b], from->at + first, (size_t)(end - first) * sizeof(int));
    out->count++;
}

/* The base sampler's next batch of 0 .. n-1. False at its end. */
static bool next_batch(const struct rule_case *c, int *cursor, struct list *batch)
{
    int left = c->n - *cursor, size = left < c->batch ? left : c->batch;

    batch->n = 0;
    if (size == 0 || (c->drop_last && size < c->batch))
        return false;
    for (int i = 0; i < size; i++)
        batch->at[batch->n++] = (*cursor)++;
    return true;
}

static void double_up(struct list *l, int at_least)
{
    while (l->n < at_least) {
        struct list once = *l;

        extend(l, once.at, once.n);
    }
}

static void split_batches(const struct rule_case *c, int rank, struct rule_batches *out)
{
    struct list initial = { 0 }, batch = { 0 }, last = { 0 };
    int cursor = 0, piece = c->batch / c->ranks;

    for (int i = 0; next_batch(c, &cursor, &batch); i++) {
        if (i == 0)
            initial = batch;
        if (batch.n == c->batch)
            yield_slice(out, &batch, piece * rank, piece * (rank + 1));
        last = batch;
    }
    if (c->drop_last || initial.n == 0 || last.n == c->batch)
        return;
    if (c->even) {
        double_up(&initial, c->batch);
        extend(&last, initial.at, initial.n);
    }
    yield_slice(out, &last, piece * rank, piece * (rank + 1));
}

/* Whole batches go round; the round that is not full is completed at the end. */
static void whole_batches(const struct rule_case *c, int rank, struct rule_batches *out)
{
    struct list initial = { 0 }, batch = { 0 }, mine = { 0 };
    int cursor = 0, i = 0, cycle = 0, last = 0;

    for (; next_batch(c, &cursor, &batch); i++) {
        if (!c->drop_last && i < c->ranks)
            extend(&initial, batch.at, batch.n);
        if (i % c->ranks == rank)
            mine = batch;
        if (i % c->ranks == c->ranks - 1 && batch.n == c->batch) {
            yield_slice(out, &mine, 0, mine.n);
            mine.n = 0;
        }
        last = batch.n;
    }
    if (c->drop_last || initial.n == 0)
        return;
    if (!c->even || mine.n == c->batch)
        yield_slice(out, &mine, 0, mine.n);
    if (!c->even)
        return;
    double_up(&initial, c->ranks * c->batch);
    /* The last batch seen, if it is short, is completed in its own place. */
    i -= last < c->batch;
    batch.n = 0;
    for (int k = c->n - last; last < c->batch && k < c->n; k++)
        batch.at[batch.n++] = k;
    while (i % c->ranks != 0 || batch.n > 0) {
        int lacks = c->batch - batch.n;

        extend(&batch, initial.at + cycle, lacks);
        cycle += lacks;
        if (i % c->ranks == rank)
            yield_slice(out, &batch, 0, batch.n);
        batch.n = 0;
        i++;
    }
}

void rule_sharded(const struct rule_case *c, int rank, struct rule_batches *out)
{
    out->count = 0;
    if (c->split)
        split_batches(c, rank, out);
    else
        whole_batches(c, rank, out);
}

void rule_iterable(const struct rule_case *c, int rank, struct rule_batches *out)
{
    int real = c->split ? c->batch : c->batch * c->ranks;
    int each = c->split ? c->batch / c->ranks : c->batch;
    struct list first = { 0 }, current = { 0 };

    out->count = 0;
    for (int i = 0; i < c->n; i++) {
        current.at[current.n++] = i;
        if (current.n < real)
            continue;
        yield_slice(out, &current, rank * each, (rank + 1) * each);
        if (first.n == 0)
            first = current;
        current.n = 0;
    }
    if (c->drop_last || current.n == 0)
        return;
    if (first.n == 0)
        first = current;
    while (current.n < real)
        extend(&current, first.at, first.n);
    yield_slice(out, &current, rank * each, (rank + 1) * each);
}

/* What one read of rank 0 gives: a batch, or as many as there are ranks. */
static bool fetch_batches(const struct rule_case *c, int *cursor, struct list *joined)
{
    struct list batch = { 0 };

    joined->n = 0;
    for (int i = 0; i < (c->split ? 1 : c->ranks); i++) {
        if (!next_batch(c, cursor, &batch))
            return joined->n > 0 && !c->drop_last;
        extend(joined, batch.at, batch.n);
    }
    return true;
}

bool rule_dispatched(const struct rule_case *c, int rank, struct rule_batches *out)
{
    struct list batch = { 0 }, following = { 0 }, first = { 0 };
    int cursor = 0;
    bool more = fetch_batches(c, &cursor, &following), whole = true;

    out->count = 0;
    while (more) {
        int observed, size;

        batch = following;
        observed = batch.n;
        size = observed / c->ranks;
        if (first.n == 0)
            extend(&first, batch.at, batch.n < c->ranks ? batch.n : c->ranks);
        more = fetch_batches(c, &cursor, &following);
        if (!more && !c->drop_last && observed % c->ranks != 0) {
            extend(&batch, first.at, first.n);
            size++;
        }
        whole = batch.n >= size * c->ranks;
        yield_slice(out, &batch, rank * size, (rank + 1) * size);
    }
    return whole;
}
