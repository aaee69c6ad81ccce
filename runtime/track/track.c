/* SPDX-License-Identifier: Apache-2.0
 *
 * The sinks of a run: opened, written to, flushed and closed together. In: clean items.
 * Out: calls of sinks, and two warnings per outage of one. Never an error once a sink
 * is added.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "track/track.h"

/* ---- outages --------------------------------------------------------------------- */

/* Warns when a sink begins to fail. One of the program may have filled nothing. */
static void sink_failed(const struct track *t, struct track_sink *s, const char *what,
                        const accel_error_t *e)
{
    if (!s->failing)
        accel_logf(t->writer.log, ACCEL_LOG_WARN,
                   "tracker %s: cannot %s (%s%s%s); training continues without it",
                   s->name, what, e->where, e->where[0] ? ": " : "",
                   e->text[0] ? e->text : "it does not say why");
    s->failing = true;
}

/* Warns that it is over. */
static void sink_works(const struct track *t, struct track_sink *s)
{
    if (s->failing)
        accel_logf(t->writer.log, ACCEL_LOG_WARN,
                   "tracker %s works again; %lld items are lost", s->name,
                   (long long)s->lost);
    s->failing = false;
    s->lost = 0;
}

/* A function of a sink begins, and ends with what this has returned. */
static const char *sink_enter(struct track *t)
{
    const char *outer = t->inside ? *t->inside : NULL;

    t->busy = true;
    if (t->inside)
        *t->inside = "a function of a sink";
    return outer;
}

static void sink_leave(struct track *t, const char *outer)
{
    t->busy = false;
    if (t->inside)
        *t->inside = outer;
}

static void sink_open(struct track *t, struct track_sink *s)
{
    const char *outer = sink_enter(t);
    accel_error_t e = { 0 };

    s->open = !s->sink.open ||
              s->sink.open(s->sink.user, t->directory, t->first_step, &e) == ACCEL_OK;
    sink_leave(t, outer);
    if (s->open)
        sink_works(t, s);
    else
        sink_failed(t, s, "begin", &e);
}

/* ---- the list -------------------------------------------------------------------- */

bool track_add(struct track *t, const accel_sink_t *sink)
{
    struct track_sink *s = &t->sink[t->sinks];

    if (t->sinks == TRACK_MAX_SINKS)
        return false;
    *s = (struct track_sink){ .sink = *sink };
    snprintf(s->name, sizeof(s->name), "%s", sink->name);
    t->sinks++;
    if (t->open)
        sink_open(t, s);
    return true;
}

accel_status_t track_add_formats(struct track *t, unsigned formats, accel_error_t *err)
{
    static const struct {
        unsigned format;
        accel_status_t (*make)(const struct track *t, accel_sink_t *sink_out,
                               accel_error_t *err);
    } kinds[] = {
        { TRACK_JSONL, track_jsonl },
        { TRACK_CSV, track_csv },
        { TRACK_TENSORBOARD, track_tensorboard },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(kinds); i++) {
        accel_sink_t sink;
        accel_status_t st;

        if (!(formats & kinds[i].format))
            continue;
        ACCEL_CHECK(st, kinds[i].make(t, &sink, err));
        track_add(t, &sink);
    }
    return ACCEL_OK;
}

void track_open(struct track *t, const char *directory, int64_t first_step)
{
    snprintf(t->directory, sizeof(t->directory), "%s", directory);
    t->first_step = first_step;
    t->open = true;
    for (int i = 0; i < t->sinks; i++)
        sink_open(t, &t->sink[i]);
}

void track_write(struct track *t, int64_t step, const accel_item_t *items, int n)
{
    const double now = track_now();

    for (int i = 0; i < t->sinks && n > 0; i++) {
        struct track_sink *s = &t->sink[i];
        const char *outer = sink_enter(t);
        accel_error_t e = { 0 };
        bool written;

        written =
            s->open && s->sink.write(s->sink.user, step, now, items, n, &e) == ACCEL_OK;
        sink_leave(t, outer);
        if (written) {
            sink_works(t, s);
        } else {
            s->lost += n;
            sink_failed(t, s, "write", &e);
        }
    }
}

void track_flush(struct track *t)
{
    for (int i = 0; i < t->sinks; i++) {
        struct track_sink *s = &t->sink[i];
        accel_error_t e = { 0 };
        const char *outer;
        bool flushed;

        if (!s->open)
            sink_open(t, s);
        outer = sink_enter(t);
        flushed =
            !s->open || !s->sink.flush || s->sink.flush(s->sink.user, &e) == ACCEL_OK;
        sink_leave(t, outer);
        if (!flushed)
            sink_failed(t, s, "flush", &e);
    }
}

void track_close(struct track *t)
{
    for (int i = 0; i < t->sinks; i++) {
        struct track_sink *s = &t->sink[i];
        const char *outer;

        if (s->lost > 0)
            accel_logf(t->writer.log, ACCEL_LOG_WARN, "tracker %s: %lld items are lost",
                       s->name, (long long)s->lost);
        outer = sink_enter(t);
        if (s->sink.close)
            s->sink.close(s->sink.user);
        sink_leave(t, outer);
    }
    t->sinks = 0;
}
