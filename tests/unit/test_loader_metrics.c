/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics with loaders are those of one process: 1 to 4 ranks, 1 to 40 samples, every
 * mode of a loader. Each sample counts once, in the order of the loader.
 */
#include <string.h>

#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/ranks_world.h"

enum { MOST = 40, ROOM = 4 * 64 };

struct mode {
    const char *name;
    accel_loader_options_t o;
    /* how the samples come */
    enum { NUMBERED, STREAM, ANNOUNCED } data;
    /* samples in the order of their numbers */
    bool ordered;
};

static int64_t length_of(void *user, int64_t index, void *const *sample)
{
    (void)user, (void)index, (void)sample;
    return index % 3;
}

#define SEQ        .sampler = ACCEL_SAMPLER_SEQUENTIAL
#define JOINED     .uneven = 1, .join = 1
#define DISPATCHED .dispatch_batches = ACCEL_DISPATCH_ON
#define OF_EACH    .dispatch_batches = ACCEL_DISPATCH_OFF

static const struct mode modes[] = {
    { "even", { SEQ }, NUMBERED, true },
    { "even, read ahead", { SEQ, .prefetch = 2 }, NUMBERED, true },
    { "keyed", { .seed = 7 }, NUMBERED, false },
    { "dropped", { SEQ, .drop_last = 1 }, NUMBERED, true },
    { "uneven", { SEQ, .uneven = 1 }, NUMBERED, false },
    { "joined", { SEQ, JOINED }, NUMBERED, true },
    { "split", { SEQ, .split_batches = 1 }, NUMBERED, true },
    { "split and joined", { SEQ, .split_batches = 1, JOINED }, NUMBERED, true },
    { "dispatched", { SEQ, DISPATCHED }, NUMBERED, true },
    { "dispatched and joined", { SEQ, DISPATCHED, JOINED }, NUMBERED, true },
    { "bucketed", { .bucket = 8, .length = length_of }, NUMBERED, false },
    { "stream", { .prefetch = 1 }, STREAM, true },
    { "stream, announced", { .batch = 0 }, ANNOUNCED, true },
    { "stream, split", { .split_batches = 1 }, STREAM, true },
    { "stream, dropped", { .drop_last = 1 }, STREAM, true },
    { "stream of every rank", { OF_EACH }, STREAM, true },
    { "stream of every rank, joined", { OF_EACH, JOINED }, ANNOUNCED, true },
};

/* A loader over so many samples, and the metric so far. */
struct metric {
    const struct mode *mode;
    accel_t *run;
    accel_loader_t *loader;
    int seen[MOST], count;
    /* of ranks that gather at the end only */
    int32_t own[MOST];
    int64_t owned;
};

static void note(struct metric *m, const int32_t *all, int64_t n)
{
    for (int64_t i = 0; i < n; i++, m->count++) {
        m->seen[all[i]]++;
        if (m->mode->ordered)
            ranks_check(m->run, all[i] == m->count, "sample %d is number %d", all[i],
                        m->count);
    }
}

static bool gather(struct metric *m, int32_t *values, int64_t rows,
                   const accel_batch_end_t *end)
{
    int32_t all[ROOM];
    accel_array_t mine = { ACCEL_I32, 1, { rows }, 0, values };
    accel_array_t to = { .elems = ROOM, .data = all };
    accel_error_t err = { 0 };

    if (!ranks_check(m->run,
                     !accel_gather_for_metrics_array(m->run, &mine, end, &to, &err),
                     "%s", err.text))
        return false;
    note(m, all, to.dims[0]);
    return true;
}

/* Uneven batches: ranks have different numbers of them. */
static bool alone(const struct mode *m)
{
    return m->o.uneven && !m->o.join;
}

/* One batch. False: that was the last. */
static bool measure(struct metric *m)
{
    accel_batch_end_t end;
    accel_tensor_t *batch;
    accel_error_t err = { 0 };
    int got = 0;

    if (!ranks_check(m->run, !accel_loader_next(m->loader, &batch, 1, &got, &err), "%s",
                     err.text) ||
        !got)
        return false;
    end = accel_loader_end(m->loader);
    ranks_check(m->run, end.at_end == accel_loader_at_end(m->loader), "the end");
    if (!alone(m->mode))
        return gather(m, batch->data, batch->dim[0], &end);
    for (int i = 0; i < accel_loader_real(m->loader); i++)
        m->own[m->owned++] = ((int32_t *)batch->data)[i];
    return true;
}

/* Samples of an epoch: what drop_last leaves out is no sample of one process either,
 * whose batches are those of all ranks. */
static int counted(const struct mode *m, int samples, int batch, int ranks)
{
    int each = m->o.split_batches ? batch : batch * ranks;

    return m->o.drop_last ? samples / each * each : samples;
}

static void one_metric(accel_t *run, const struct mode *mode, int samples, int batch)
{
    struct counter c = { .samples = samples,
                         .fails = -1,
                         .announced = mode->data == ANNOUNCED };
    struct metric m = { .mode = mode, .run = run };
    accel_loader_options_t o = mode->o;
    accel_dataset_t *d =
        mode->data == NUMBERED ? counter_numbered(&c, 1) : counter_stream(&c);
    accel_error_t err = { 0 };
    int want, bad = 0;

    o.bytes = sizeof(o);
    o.batch = o.split_batches ? batch * run->boot.size : batch;
    want = counted(mode, samples, o.batch, run->boot.size);
    if (ranks_check(run, !accel_loader_new(&m.loader, run, "valid", d, &o, &err), "%s",
                    err.text)) {
        while (measure(&m))
            ;
        if (alone(mode))
            gather(&m, m.own, m.owned,
                   &(accel_batch_end_t){ .counted = 1, .count = m.owned });
    }
    for (int i = 0; i < samples; i++)
        bad += m.seen[i] > 1 || (m.seen[i] == 0 && m.count == samples);
    ranks_check(run, m.count == want && !bad,
                "%s, %d samples, batch %d: %d of %d counted, %d wrongly", mode->name,
                samples, o.batch, m.count, want, bad);
    accel_loader_close(m.loader);
    accel_dataset_close(d);
}

static void metrics_rank(accel_t *run, void *arg)
{
    (void)arg;
    run->graph.evaluating = true;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(modes); i++)
        for (int samples = 1; samples <= MOST; samples += TAP_SANITIZED ? 3 : 1)
            for (int batch = 1; batch <= 5; batch += 2)
                one_metric(run, &modes[i], samples, batch);
}

/* One rank cannot have a sample in the last step: all gather to the end of the epoch,
 * and end with its message. */
static void failing_rank(accel_t *run, void *arg)
{
    struct counter c = { .samples = 11, .fails = *(int *)arg };
    accel_dataset_t *d = counter_numbered(&c, 1);
    const accel_loader_options_t o = { sizeof(o), .batch = 2, SEQ };
    accel_loader_t *l = NULL;
    accel_tensor_t *batch;
    accel_error_t err = { 0 };
    accel_status_t st;
    int got = 1;

    st = accel_loader_new(&l, run, "valid", d, &o, &err);
    run->graph.evaluating = true;
    while (!st && got) {
        int32_t all[ROOM];
        accel_batch_end_t end;
        accel_array_t mine, to = { .elems = ROOM, .data = all };

        st = accel_loader_next(l, &batch, 1, &got, &err);
        if (st || !got)
            break;
        end = accel_loader_end(l);
        mine = (accel_array_t){ ACCEL_I32, 1, { batch->dim[0] }, 0, batch->data };
        st = accel_gather_for_metrics_array(run, &mine, &end, &to, &err);
        ranks_check(run, !st, "gathered: %s", err.text);
    }
    ranks_check(run, st == ACCEL_EIO && strstr(err.text, "sample"), "%d: %s", st,
                err.text);
    accel_loader_close(l);
    accel_dataset_close(d);
}

int main(void)
{
    for (int n = 1; n <= 4; n++)
        tap_is_int(ranks_world(n, false, metrics_rank, NULL), 0,
                   "every mode on %d ranks", n);
    tap_is_int(ranks_world(2, true, metrics_rank, NULL), 0, "the same with debug");
    for (int fails = 8; fails <= 10; fails++)
        tap_is_int(ranks_world(2, false, failing_rank, &fails), 0, "sample %d fails",
                   fails);
    return tap_done();
}
