/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of accel_track.h on a run: they choose its sinks and pass items of the
 * program to them. Not collective: rank 0 has the sinks, all ranks check the arguments.
 */
#include <stdio.h>

#include "common/sized.h"
#include "loop/loop.h"
#include "handle/run.h"

/* A sink that is told of its own items would never end. */
static accel_status_t no_sink_busy(const accel_t *run, const char *call,
                                   accel_error_t *err)
{
    accel_status_t st = run_given(run, call, err);

    if (st != ACCEL_OK || !run->track.busy)
        return st;
    return accel_fail(err, A0901, "call it when the function has returned",
                      "%s inside a function of a sink", call);
}

/* The program's choice is kept until accel_prepare, since the config wins. */
accel_status_t accel_track_files(accel_t *run, const char *formats, accel_error_t *err)
{
    char word[64];
    unsigned set;
    accel_status_t st;

    ACCEL_CHECK(st, run_given(run, "accel_track_files", err));
    if (run->prepared)
        return accel_fail(err, A0901, "call it before accel_prepare",
                          "accel_track_files after accel_prepare");
    if (!formats || !config_track_formats(formats, &set, word, sizeof(word)))
        return accel_fail(err, A0950, "use jsonl, csv, tensorboard, or none",
                          "accel_track_files: '%s' is no format of trackers",
                          formats ? word : "(null)");
    run->track_formats = set;
    return ACCEL_OK;
}

accel_status_t accel_track_sink(accel_t *run, const accel_sink_t *sink,
                                accel_error_t *err)
{
    accel_status_t st;
    accel_sink_t own;

    ACCEL_CHECK(st, no_sink_busy(run, "accel_track_sink", err));
    ACCEL_CHECK(st, sized_read(SIZED(accel_sink_t, user), &own, sink, err));
    if (!own.name || !own.name[0] || !own.write)
        return accel_fail(err, A0950, "see struct accel_sink in accel_track.h",
                          "accel_track_sink: the sink has no %s",
                          own.write ? "name" : "write");
    if (run->own_sinks == TRACK_MAX_OWN)
        return accel_fail(err, A0950, "combine several sinks into one",
                          "a run accepts at most %d sinks of the program",
                          TRACK_MAX_OWN);
    run->own_sinks++;
    if (run->boot.rank == 0)
        track_add(&run->track, &own);
    return ACCEL_OK;
}

/* A failed run tracks on: its last numbers may say why it failed. */
accel_status_t accel_track(accel_t *run, int64_t step, const accel_item_t *items, int n,
                           accel_error_t *err)
{
    struct track_items clean = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, no_sink_busy(run, "accel_track", err));
    if (!run->prepared)
        return accel_fail(err, A0901, "call accel_prepare first",
                          "accel_track before accel_prepare");
    if (step < 0 || n < 0 || (n > 0 && !items))
        return accel_fail(err, A0950, "pass items[n] and a step of 0 or more",
                          "accel_track: step %lld, %d items%s", (long long)step, n,
                          items ? "" : " at NULL");
    st = track_clean_items(items, n, &clean, err);
    if (st == ACCEL_OK)
        track_write(&run->track, step, clean.item, n);
    track_items_free(&clean);
    return st;
}

accel_status_t tracking_open(accel_t *run, accel_error_t *err)
{
    char directory[sizeof(run->out_dir) + 16], word[64];
    accel_status_t st;

    if (run->boot.rank != 0)
        return ACCEL_OK;
    run->track.writer = run->observe.writer;
    /* accel_open has checked the words */
    if (run->config.track[0])
        config_track_formats(run->config.track, &run->track_formats, word,
                             sizeof(word));
    ACCEL_CHECK(st, track_add_formats(&run->track, run->track_formats, err));
    snprintf(directory, sizeof(directory), "%s/track", run->out_dir);
    track_open(&run->track, directory,
               run->progress.resumed ? run->progress.step + 1 : 0);
    return ACCEL_OK;
}
