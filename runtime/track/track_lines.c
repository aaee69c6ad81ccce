/* SPDX-License-Identifier: Apache-2.0
 *
 * The sinks jsonl and csv: one line per item, so that no new name ever changes a line
 * that is there. In: clean items. Out: whole lines (observe/lines.h). A text takes one
 * line too: in csv its line breaks are written as \n, its backslashes as \\.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "observe/observe.h"
#include "track/track.h"

static const char csv_title[] = "step,time,name,kind,value\n";

/* One file. The track outlives it. */
struct line_file {
    struct lines lines;
    const struct track *track;
    /* of the sink and of the file */
    const char *name, *file;
    /* a line's step stands behind this text, with which it begins */
    const char *before_step;
    /* makes the line of an item */
    void (*put)(struct strbuf *b, int64_t step, double time, const accel_item_t *x);
};

/* ---- values ---------------------------------------------------------------------- */

/* A JSON string of UTF-8. */
static void put_json_text(struct strbuf *b, const char *text)
{
    strbuf_append(b, "\"", 1);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            strbuf_printf(b, "\\%c", *text);
        else if (*text == '\n')
            strbuf_append(b, "\\n", 2);
        else if ((unsigned char)*text < 0x20)
            strbuf_printf(b, "\\u%04x", (unsigned)*text);
        else
            strbuf_append(b, text, 1);
    }
    strbuf_append(b, "\"", 1);
}

/* A JSON object; edges[buckets + 1], counts[buckets]. */
static void put_histogram(struct strbuf *b, const accel_item_t *x)
{
    struct histogram h;

    histogram_of(x->values, x->count, &h);
    strbuf_printf(b, "{\"count\":%lld,\"not_finite\":%lld,\"min\":%.17g,\"max\":%.17g,",
                  (long long)h.count, (long long)h.not_finite, h.min, h.max);
    strbuf_printf(b, "\"sum\":%.17g,\"sum_squares\":%.17g,\"edges\":[", h.sum,
                  h.sum_squares);
    for (int i = 0; h.buckets && i <= h.buckets; i++)
        strbuf_printf(b, "%s%.17g", i ? "," : "", h.edge[i]);
    strbuf_printf(b, "],\"counts\":[");
    for (int i = 0; i < h.buckets; i++)
        strbuf_printf(b, "%s%lld", i ? "," : "", (long long)h.in[i]);
    strbuf_printf(b, "]}");
}

static void put_jsonl(struct strbuf *b, int64_t step, double time,
                      const accel_item_t *x)
{
    char number[32];

    strbuf_printf(b, "{\"step\":%lld,\"time\":%.6f,\"name\":\"%s\",\"value\":",
                  (long long)step, time, x->name);
    if (x->kind == ACCEL_ITEM_SCALAR)
        strbuf_printf(b, "%s", json_number(x->value, number, sizeof(number)));
    else if (x->kind == ACCEL_ITEM_TEXT)
        put_json_text(b, x->text);
    else
        put_histogram(b, x);
    strbuf_append(b, "}\n", 2);
}

/* Between quotes, which are doubled inside (RFC 4180). */
static void put_quoted(struct strbuf *b, const char *text, bool escape)
{
    strbuf_append(b, "\"", 1);
    for (; *text; text++) {
        if (*text == '"')
            strbuf_append(b, "\"\"", 2);
        else if (escape && *text == '\\')
            strbuf_append(b, "\\\\", 2);
        else if (escape && *text == '\n')
            strbuf_append(b, "\\n", 2);
        else if (escape && *text == '\r')
            strbuf_append(b, "\\r", 2);
        else
            strbuf_append(b, text, 1);
    }
    strbuf_append(b, "\"", 1);
}

static void put_csv(struct strbuf *b, int64_t step, double time, const accel_item_t *x)
{
    static const char *const kind[] = { "scalar", "text", "histogram" };
    struct strbuf value = { 0 };

    strbuf_printf(b, "%lld,%.6f,%s,%s,", (long long)step, time, x->name, kind[x->kind]);
    if (x->kind == ACCEL_ITEM_SCALAR) {
        strbuf_printf(b, "%.17g", x->value);
    } else if (x->kind == ACCEL_ITEM_TEXT) {
        put_quoted(b, x->text, true);
    } else {
        put_histogram(&value, x);
        put_quoted(b, value.failed ? "" : value.s, false);
    }
    b->failed |= value.failed;
    strbuf_free(&value);
    strbuf_append(b, "\n", 1);
}

/* ---- the file -------------------------------------------------------------------- */

/* A whole line of a step that this life does not do again; csv's title. */
static bool line_stays(const void *user, const char *line, size_t n)
{
    const struct line_file *f = user;
    const size_t skip = strlen(f->before_step);
    char *end;
    long long step;

    if (f->put == put_csv && strcmp(line, csv_title) == 0)
        return true;
    if (line[n - 1] != '\n' || strncmp(line, f->before_step, skip) != 0)
        return false;
    step = strtoll(line + skip, &end, 10);
    return end > line + skip && *end == ',' && step < f->track->first_step;
}

/* Once it is open it stays so: lines_add has no failure to report. */
static accel_status_t line_file_open(void *user, const char *directory,
                                     int64_t first_step, accel_error_t *err)
{
    struct line_file *f = user;
    const struct track *t = f->track;
    char path[sizeof(t->directory) + 16];
    accel_status_t st = track_make_directory(directory, err);

    (void)first_step; /* the track's */
    snprintf(path, sizeof(path), "%s/%s", directory, f->file);
    ACCEL_TRY(st, lines_trim(path, line_stays, f, err));
    ACCEL_TRY(st, lines_open(&f->lines, path, &t->writer, err));
    if (f->put == put_csv) {
        f->lines.head = csv_title;
        f->lines.head_bytes = sizeof(csv_title) - 1;
    }
    return st;
}

static accel_status_t line_file_write(void *user, int64_t step, double time,
                                      const accel_item_t *items, int n,
                                      accel_error_t *err)
{
    struct line_file *f = user;
    struct strbuf b = { 0 };

    for (int i = 0; i < n; i++) {
        b.len = 0;
        f->put(&b, step, time, &items[i]);
        if (b.failed)
            break;
        lines_add(&f->lines, b.s, b.len, NULL);
    }
    const bool failed = b.failed;
    strbuf_free(&b);
    return failed ? accel_fail_nomem(err, "a line", 4096) : ACCEL_OK;
}

static accel_status_t line_file_flush(void *user, accel_error_t *err)
{
    (void)err;
    lines_sync(&((struct line_file *)user)->lines);
    return ACCEL_OK;
}

static void line_file_close(void *user)
{
    lines_close(&((struct line_file *)user)->lines);
    free(user);
}

static accel_status_t line_file_new(const struct track *t, const struct line_file *kind,
                                    accel_sink_t *sink_out, accel_error_t *err)
{
    struct line_file *f = malloc(sizeof(*f));

    if (!f)
        return accel_fail_nomem(err, "a tracker", sizeof(*f));
    *f = *kind;
    f->lines.fd = -1;
    f->track = t;
    *sink_out = (accel_sink_t){ .name = f->name,
                                .open = line_file_open,
                                .write = line_file_write,
                                .flush = line_file_flush,
                                .close = line_file_close,
                                .user = f };
    return ACCEL_OK;
}

accel_status_t track_jsonl(const struct track *t, accel_sink_t *sink_out,
                           accel_error_t *err)
{
    static const struct line_file kind = { .name = "jsonl",
                                           .file = "track.jsonl",
                                           .before_step = "{\"step\":",
                                           .put = put_jsonl };

    return line_file_new(t, &kind, sink_out, err);
}

accel_status_t track_csv(const struct track *t, accel_sink_t *sink_out,
                         accel_error_t *err)
{
    static const struct line_file kind = {
        .name = "csv", .file = "track.csv", .before_step = "", .put = put_csv
    };

    return line_file_new(t, &kind, sink_out, err);
}

accel_status_t track_make_directory(const char *directory, accel_error_t *err)
{
    size_t failed_len;
    int error = path_make_dirs(directory, &failed_len), fd;
    accel_status_t st = ACCEL_OK;

    if (!error) {
        st = path_open_dir(directory, &fd, err);
        error = fd < 0 ? errno : 0;
    }
    if (st == ACCEL_OK && error)
        return accel_fail_at(err, A0951, directory, "check the permissions of --out",
                             "cannot create or enter the directory of the trackers: %s",
                             strerror(error));
    if (st == ACCEL_OK)
        close(fd);
    return st;
}

double track_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
