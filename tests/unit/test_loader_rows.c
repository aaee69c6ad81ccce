/* SPDX-License-Identifier: Apache-2.0
 *
 * What was measured with Accelerate, through the calls of accel_loaders.h, each row on
 * its number of ranks: its shards of numbered and iterable datasets, uneven ends, the
 * seedable sampler, skipped batches. The rows of its metrics are in test_ranks_metrics.
 */
#include <jansson.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/ranks_world.h"

enum { ROOM = 64 };

/* What a row says of its loader. */
struct row {
    const char *what;
    int samples;
    bool stream;
    accel_loader_options_t o;
};

static int next_batch(accel_t *run, accel_loader_t *l, int32_t *out)
{
    accel_error_t err = { 0 };
    accel_tensor_t *batch;
    int got = 0;

    if (!ranks_check(run, !accel_loader_next(l, &batch, 1, &got, &err), "%s",
                     err.text) ||
        !got)
        return 0;
    if (!ranks_check(run, batch->dim[0] <= ROOM, "a batch is too large"))
        return 0;
    memcpy(out, batch->data, (size_t)batch->elems * sizeof(*out));
    return (int)batch->dim[0];
}

/* The rest of an epoch: a list of batches, or (`flat`) of the samples in them. */
static void check_epoch(accel_t *run, accel_loader_t *l, const json_t *want, bool flat,
                        const struct row *r)
{
    size_t batches = 0, seen = 0;
    int32_t got[ROOM];
    bool same = true;
    int n;

    while ((n = next_batch(run, l, got)) > 0) {
        const json_t *one = flat ? want : json_array_get(want, batches);

        same = same && (flat || json_array_size(one) == (size_t)n);
        for (int i = 0; i < n; i++, seen++)
            same = same && json_integer_value(
                               json_array_get(one, flat ? seen : (size_t)i)) == got[i];
        batches++;
    }
    ranks_check(run, same && json_array_size(want) == (flat ? seen : batches),
                "%s: %d samples, batch %d, split %d, drop %d: %zu batches of other "
                "samples",
                r->what, r->samples, r->o.batch, r->o.split_batches, r->o.drop_last,
                batches);
}

/* A loader over so many numbers, which fn walks. */
static void with_loader(accel_t *run, const struct row *r,
                        void (*fn)(accel_t *run, accel_loader_t *l, const struct row *r,
                                   const json_t *want),
                        const json_t *want)
{
    struct counter c = { .samples = r->samples, .fails = -1 };
    accel_dataset_t *d = r->stream ? counter_stream(&c) : counter_numbered(&c, 1);
    accel_loader_options_t o = r->o;
    accel_error_t err = { 0 };
    accel_loader_t *l = NULL;

    o.bytes = sizeof(o);
    if (ranks_check(run, !accel_loader_new(&l, run, "rows", d, &o, &err), "%s",
                    err.text))
        fn(run, l, r, want);
    accel_loader_close(l);
    accel_dataset_close(d);
}

/* ---- shards of datasets ---------------------------------------------------------- */

static int number_in(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    return json_is_boolean(v) ? json_is_true(v) : (int)json_integer_value(v);
}

static const json_t *of_rank(accel_t *run, const json_t *row)
{
    return json_array_get(json_object_get(row, "ranks"), (size_t)run->boot.rank);
}

static void walk_shard(accel_t *run, accel_loader_t *l, const struct row *r,
                       const json_t *want)
{
    const int64_t length = accel_loader_length(l);

    ranks_check(run, r->stream || length == (int64_t)json_array_size(want),
                "%s: %d samples: a length of %lld", r->what, r->samples,
                (long long)length);
    check_epoch(run, l, want, r->stream, r);
}

/* Returns how many rows there were. No dataset is empty. */
static int check_shards(accel_t *run, const json_t *rows, bool stream)
{
    int count = 0;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const struct row r = {
            .what = stream ? "stream" : "numbered",
            .samples = number_in(row, "n"),
            .stream = stream,
            .o = { .batch = number_in(row, "batch"),
                   .sampler = stream ? ACCEL_SAMPLER_KEYED : ACCEL_SAMPLER_SEQUENTIAL,
                   .split_batches = number_in(row, "split_batches"),
                   .drop_last = number_in(row, "drop_last"),
                   .dispatch_batches = ACCEL_DISPATCH_OFF },
        };

        if (number_in(row, "procs") != run->boot.size || r.samples == 0)
            continue;
        with_loader(run, &r, walk_shard, of_rank(run, row));
        count++;
    }
    return count;
}

static void shards_rank(accel_t *run, void *arg)
{
    json_t *file = json_load_file(GOLDEN, 0, NULL);
    int numbered, streams;

    (void)arg;
    run->graph.evaluating = true;
    numbered = check_shards(run, json_object_get(file, "batch_sampler_shard"), false);
    streams = check_shards(run, json_object_get(file, "iterable_dataset_shard"), true);
    ranks_check(run, numbered >= 100 && streams >= 20, "%d and %d rows", numbered,
                streams);
    json_decref(file);
}

/* ---- two processes --------------------------------------------------------------- */

/* Text, for json_loads: what both ranks get. */
struct pair_row {
    struct row row;
    /* batches that are skipped first, and the epoch that is set; 0: neither */
    int skip, epoch;
    const char *ranks;
};

#define SEQ        .sampler = ACCEL_SAMPLER_SEQUENTIAL
#define DISPATCHED .dispatch_batches = ACCEL_DISPATCH_ON

/* A skip of Accelerate's dispatching loader counts batches of one rank; ours counts
 * those of all. */
static const struct pair_row pairs[] = {
    { { "uneven", 5, false, { .batch = 2, SEQ, .uneven = 1 } },
      .ranks = "[[[0, 1], [4]], [[2, 3]]]" },
    { { "uneven", 7, false, { .batch = 2, SEQ, .uneven = 1 } },
      .ranks = "[[[0, 1], [4, 5]], [[2, 3], [6]]]" },
    { { "uneven", 10, false, { .batch = 2, SEQ, .uneven = 1 } },
      .ranks = "[[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7]]]" },
    { { "skip", 10, false, { .batch = 2, SEQ } },
      .skip = 1,
      .ranks = "[[[4, 5], [8, 9]], [[6, 7], [0, 1]]]" },
    { { "skip of a stream", 10, true, { .batch = 2 } },
      .skip = 1,
      .ranks = "[[[4, 5], [8]], [[6, 7], [9]]]" },
    { { "skip, dispatched", 10, false, { .batch = 2, SEQ, DISPATCHED } },
      .skip = 1,
      .ranks = "[[[4, 5], [8]], [[6, 7], [9]]]" },
    { { "skip of all", 12, false, { .batch = 2, SEQ } },
      .skip = 5,
      .ranks = "[[], []]" },
    { { "skip of all of a stream", 12, true, { .batch = 2 } },
      .skip = 5,
      .ranks = "[[], []]" },
    { { "seedable", 10, false, { .batch = 2, ACCEL_SAMPLER_TORCH, 42 } },
      .ranks = "[[[2, 6], [4, 5], [3, 7]], [[1, 8], [0, 9], [2, 6]]]" },
    { { "seedable", 10, false, { .batch = 2, ACCEL_SAMPLER_TORCH, 42 } },
      .epoch = 1,
      .ranks = "[[[8, 4], [5, 1], [2, 3]], [[9, 0], [6, 7], [8, 4]]]" },
    { { "seedable", 10, false, { .batch = 2, ACCEL_SAMPLER_TORCH, 42 } },
      .epoch = 2,
      .ranks = "[[[2, 6], [7, 9], [5, 0]], [[3, 8], [1, 4], [2, 6]]]" },
};

static void walk_pair(accel_t *run, accel_loader_t *l, const struct row *r,
                      const json_t *want)
{
    const struct pair_row *p = (const struct pair_row *)(const void *)r;
    accel_error_t err = { 0 };

    if (p->epoch)
        ranks_check(run, !accel_loader_set_epoch(l, p->epoch, &err), "%s", err.text);
    if (p->skip)
        ranks_check(run, !accel_loader_skip(l, p->skip, &err), "%s", err.text);
    check_epoch(run, l, json_array_get(want, (size_t)run->boot.rank), false, r);
}

static void pairs_rank(accel_t *run, void *arg)
{
    (void)arg;
    run->graph.evaluating = true;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(pairs); i++) {
        json_t *want = json_loads(pairs[i].ranks, 0, NULL);

        with_loader(run, &pairs[i].row, walk_pair, want);
        json_decref(want);
    }
}

int main(void)
{
    /* accelerate.prepare leaves the loader of one process as it is */
    for (int n = 2; n <= 4; n++)
        tap_is_int(ranks_world(n, false, shards_rank, NULL), 0,
                   "every row of %d processes", n);
    tap_is_int(ranks_world(2, false, pairs_rank, NULL), 0,
               "uneven ends, skips and seeds of two processes");
    return tap_done();
}
