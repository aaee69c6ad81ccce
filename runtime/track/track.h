/* SPDX-License-Identifier: Apache-2.0
 *
 * track/: the sinks of a run, and the items on their way to them. Knows no run: loop/
 * has the calls of accel_track.h, and hands in the trainer's own numbers. Not
 * collective, and nothing here fails a run.
 */
#ifndef ACCEL_TRACK_TRACK_H
#define ACCEL_TRACK_TRACK_H

#include "common/common.h"
#include "observe/lines.h"

/* those of the program, and one per format */
#define TRACK_MAX_OWN   8
#define TRACK_MAX_SINKS (TRACK_MAX_OWN + 3)
#define TRACK_MAX_NAME  255

/* One sink, of a file or of the program. */
struct track_sink {
    accel_sink_t sink;
    char name[64];
    /* open has succeeded; else the next track_flush tries again */
    bool open;
    /* warned of: its last call failed */
    bool failing;
    /* items that did not get there since it failed */
    int64_t lost;
};

/* All sinks of a run; empty when zeroed. Ranks other than 0 stay empty. */
struct track {
    struct track_sink sink[TRACK_MAX_SINKS];
    int sinks;
    struct lines_writer writer;
    char directory[1100];
    /* first step of this life whose items count; set by track_open */
    int64_t first_step;
    /* track_open was called */
    bool open;
    /* a function of a sink is at work */
    bool busy;
    /* what the run calls the function of the program that is at work; NULL: no run */
    const char **inside;
};

/* ---- track.c --------------------------------------------------------------------- */

/* Adds a sink, and opens it if the others are open. False: there is no room. */
bool track_add(struct track *t, const accel_sink_t *sink);
/* Adds the sinks for a set of enum track_format. */
accel_status_t track_add_formats(struct track *t, unsigned formats, accel_error_t *err);
/* Opens all sinks. The caller has set the writer. */
void track_open(struct track *t, const char *directory, int64_t first_step);
/* Hands out items that track_clean_items has made. */
void track_write(struct track *t, int64_t step, const accel_item_t *items, int n);
/* What was written is durable on return, as far as it can be; tries again to open
 * sinks that failed. */
void track_flush(struct track *t);
/* Closes and frees all; warns of what is lost. */
void track_close(struct track *t);

/* ---- track_items.c --------------------------------------------------------------- */

/* Copies of items with their names and texts as they are written. */
struct track_items {
    accel_item_t *item;
    /* the bytes of all names and texts */
    struct strbuf bytes;
};
/* A0950: an item that cannot be. The caller frees *clean_out, also after an error. */
accel_status_t track_clean_items(const accel_item_t *items, int n,
                                 struct track_items *clean_out, accel_error_t *err);
void track_items_free(struct track_items *clean);

/* ---- histogram.c ----------------------------------------------------------------- */

#define TRACK_BUCKETS 30

/* Of the values that are finite. Bucket i holds those from edge[i] up to edge[i + 1],
 * the last one also those on its upper edge. Equal values make one bucket of width 1
 * around them, no values none. */
struct histogram {
    int64_t count, not_finite;
    double min, max, sum, sum_squares;
    int buckets;
    double edge[TRACK_BUCKETS + 1];
    int64_t in[TRACK_BUCKETS];
};
void histogram_of(const float *values, int64_t n, struct histogram *h_out);

/* ---- the sinks of files; their `user` is freed by close -------------------------- */

/* Makes OUT/track, which must not be reached through somebody else's link. */
accel_status_t track_make_directory(const char *directory, accel_error_t *err);
/* Seconds since 1970. */
double track_now(void);
accel_status_t track_jsonl(const struct track *t, accel_sink_t *sink_out,
                           accel_error_t *err);
accel_status_t track_csv(const struct track *t, accel_sink_t *sink_out,
                         accel_error_t *err);
accel_status_t track_tensorboard(const struct track *t, accel_sink_t *sink_out,
                                 accel_error_t *err);

#endif
