/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_track.h: trackers, which keep a run's numbers, texts and histograms in files or
 * hand them to the program.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_TRACK_H
#define ACCEL_TRACK_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- trackers -----------------------------------------------------------------------
 * What a run measures goes by name and step to every sink: files of the formats in the
 * config's accel.track (else those of accel_track_files), and the program's own sinks.
 * Rank 0 writes; the calls of other ranks check their arguments and do nothing else. A
 * sink that fails never stops a run: a warning says when that begins and when it is
 * over.
 *
 * accel_step tracks train/loss, train/lr, train/grad_norm, train/step_ms,
 * train/tokens_per_s (or train/samples_per_s) and train/mem_peak_bytes, with a GPU also
 * train/gpu_peak_bytes, and after an evaluation eval/loss.
 *
 * Files are in OUT/track: track.jsonl and track.csv with a line per item, and
 * TensorBoard's event files, a new one for each life of a job. A resumed run continues
 * them: items of steps that it does again are removed, in event files superseded. All
 * is on disk before a checkpoint commits. */

/* What an item is. */
typedef enum accel_item_kind {
    ACCEL_ITEM_SCALAR = 0,    /* value */
    ACCEL_ITEM_TEXT = 1,      /* text */
    ACCEL_ITEM_HISTOGRAM = 2, /* values[count] */
} accel_item_kind_t;

/* One measurement: { .name = "eval/accuracy", .value = 0.93 }. */
typedef struct accel_item {
    /* 1 .. 255 bytes. A character that is none of a-z, A-Z, 0-9, '_', '-', '.' and '/'
     * is written as '_', a leading '/' not at all; '/' makes groups. */
    const char *name;
    accel_item_kind_t kind;
    double value;     /* SCALAR */
    const char *text; /* TEXT: UTF-8; TensorBoard shows it as Markdown */
    /* HISTOGRAM: in host memory; files get count, minimum, maximum, sum, sum of
     * squares and 30 equal buckets of those that are finite */
    const float *values;
    int64_t count;
} accel_item_t;

/* Hands items[n] to every sink. `step` counts as accel_steps_done does; 0 is before the
 * first. Arguments are read during the call only. After accel_prepare, also inside a
 * forward. Errors: ACCEL_EINVAL (step, name, text or values that cannot be; a run that
 * is not prepared). */
accel_status_t accel_track(accel_t *run, int64_t step, const accel_item_t *items, int n,
                           accel_error_t *err);

/* Writes files of these formats where accel.track is not set: a list such as
 * "jsonl,tensorboard" of jsonl, csv and tensorboard, or "none". Before accel_prepare.
 * Errors: ACCEL_EINVAL (another word, a run that is prepared). */
accel_status_t accel_track_files(accel_t *run, const char *formats, accel_error_t *err);

/* A sink of the program, called on rank 0 by the thread that calls the library. All but
 * `name` and `write` may be NULL. A function that fails fills `err`, for instance with
 * accel_error_set, and returns a status; the run goes on. */
typedef struct accel_sink {
    const char *name; /* for messages; copied */
    /* Before the first write. `directory` is OUT/track, which may not exist. Items of
     * first_step and later steps that are there from an earlier life are superseded;
     * 0: all. After a failure it is called again before each checkpoint. */
    accel_status_t (*open)(void *user, const char *directory, int64_t first_step,
                           accel_error_t *err);
    /* items[n] of one call of accel_track, names and texts as they are written; `time`
     * in seconds since 1970. */
    accel_status_t (*write)(void *user, int64_t step, double time,
                            const accel_item_t *items, int n, accel_error_t *err);
    /* What was written must be durable on return: a checkpoint is about to commit. */
    accel_status_t (*flush)(void *user, accel_error_t *err);
    /* From accel_close; also of a sink that could not be opened. */
    void (*close)(void *user);
    void *user; /* must outlive the run */
} accel_sink_t;

/* Adds a sink of the program, at most 8; copied. Before accel_prepare or after it, from
 * when on it gets the items. Errors: ACCEL_EINVAL (no name or write, a ninth). */
accel_status_t accel_track_sink(accel_t *run, const accel_sink_t *sink,
                                accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
