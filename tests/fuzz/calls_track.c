/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_track.h: items, sinks, seeds, regions, attempts.
 */
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

static void call_track(struct world *w)
{
    static const float values[] = { 1, -1, 0.5f };
    bool bad = false;
    accel_t *run = calls_run(w, &bad);
    accel_item_t items[2];
    int n = (int)calls_number(w);

    for (int i = 0; i < 2; i++)
        items[i] = (accel_item_t){ .name = calls_name(w),
                                   .kind = (accel_item_kind_t)calls_number(w),
                                   .value = calls_real(w),
                                   .text = calls_name(w),
                                   .values = calls_once_in(w, 10) ? NULL : values,
                                   .count = calls_random(w, 2) ? 3 : -1 };
    if (n > 2)
        n = 2;
    CALL(w, bad || n < 0 || !w->now->prepared,
         accel_track(run, calls_number(w), calls_once_in(w, 20) ? NULL : items, n,
                     calls_error(w)));
}

static void call_track_files(struct world *w)
{
    static const char *const lists[] = { "jsonl",  "jsonl,csv,tensorboard",
                                         "none",   "",
                                         "jsonl,", "xml" };
    bool bad = w->now->prepared;
    accel_t *run = calls_run(w, &bad);

    CALL(w, bad,
         accel_track_files(run, calls_once_in(w, 20) ? NULL : lists[calls_random(w, 6)],
                           calls_error(w)));
}

/* ---- a sink that fails now and then; the run goes on ----------------------------- */

static accel_status_t open_sink(void *user, const char *directory, int64_t first_step,
                                accel_error_t *err)
{
    (void)user, (void)directory, (void)first_step;
    return *(int *)user++ % 3 ? ACCEL_OK : accel_error_set(err, ACCEL_EIO, NULL, NULL);
}

static accel_status_t write_sink(void *user, int64_t step, double time,
                                 const accel_item_t *items, int n, accel_error_t *err)
{
    (void)step, (void)time, (void)items, (void)n;
    if (calls_now->ranks == 1)
        calls_inside(calls_now);
    return ++*(int *)user % 4 ? ACCEL_OK
                              : accel_error_set(err, ACCEL_EIO, "the sink", "\001");
}

static accel_status_t flush_sink(void *user, accel_error_t *err)
{
    (void)err;
    return ++*(int *)user % 5 ? ACCEL_OK : ACCEL_EIO;
}

static void call_sink(struct world *w)
{
    static int counts;
    bool bad = false, empty = calls_once_in(w, 10);
    accel_t *run = calls_run(w, &bad);
    accel_sink_t sink = { sizeof(sink),
                          .name = calls_name(w),
                          .open = calls_once_in(w, 2) ? open_sink : NULL,
                          .write = empty ? NULL : write_sink,
                          .flush = flush_sink,
                          .user = &counts };

    CALL(w, bad || empty || !sink.name,
         accel_track_sink(run, calls_once_in(w, 20) ? NULL : &sink, calls_error(w)));
}

/* ---- helpers --------------------------------------------------------------------- */

static void call_info(struct world *w)
{
    bool bad = false, none = calls_once_in(w, 20);
    accel_t *run = calls_run(w, &bad);
    accel_info_t info = { .bytes = sizeof(info) };
    uint64_t seed;

    CALL(w, bad || none, accel_info(run, none ? NULL : &info, calls_error(w)));
    CALL(w, bad || none || !w->now->prepared,
         accel_seed(run, calls_name(w), calls_number(w), (unsigned)calls_random(w, 3),
                    none ? NULL : &seed, calls_error(w)));
}

static void call_region(struct world *w)
{
    bool bad = false;
    accel_t *run = calls_run(w, &bad);

    if (calls_random(w, 3))
        CALL(w, bad, accel_region_begin(run, calls_name(w), calls_error(w)));
    else
        CALL(w, bad, accel_region_end(run, calls_name(w), calls_error(w)));
}

static accel_status_t attempt_some(void *user, int batch, accel_error_t *err)
{
    struct world *w = user;

    calls_attempt(w);
    if (batch > 2)
        return accel_error_set(err, ACCEL_ENOMEM, "a sentence of the program", NULL);
    return calls_once_in(w, 8)
               ? accel_error_set(err, ACCEL_EIO, "a sentence of the program", NULL)
               : ACCEL_OK;
}

static void call_attempts(struct world *w)
{
    bool bad = !w->now->prepared, none = calls_once_in(w, 20);
    accel_t *run = calls_run(w, &bad);
    int first = (int)calls_number(w), size = 0;

    if (calls_once_in(w, 2))
        calls_train(w);
    if (first > 64)
        first = 64;
    CALL(w, bad || none || first < 1,
         accel_find_batch_size(run, first, attempt_some, w, none ? NULL : &size,
                               calls_error(w)));
}

static void call_free_memory(struct world *w)
{
    bool bad = !w->now->prepared || w->inside > 0;
    accel_t *run = calls_run(w, &bad);
    int64_t bytes;

    if (calls_once_in(w, 2))
        calls_train(w);
    CALL(w, bad,
         accel_free_memory(run, calls_once_in(w, 2) ? NULL : &bytes, calls_error(w)));
}

const struct calls_action calls_of_track[] = {
    { call_track, 3, true },        { call_track_files, 1, false },
    { call_sink, 1, false },        { call_info, 1, true },
    { call_region, 2, true },       { call_attempts, 1, false },
    { call_free_memory, 1, false }, { NULL, 0, false },
};
