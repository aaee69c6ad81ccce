/* SPDX-License-Identifier: Apache-2.0
 *
 * The sink tensorboard: an event file of its own for each life of a job. In: clean
 * items. Out: whole records (observe/lines.h). Never changes the file of an earlier
 * life: the head of the new one says from which step on that one does not count.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "track/event_bytes.h"

#define EVENT_FILE "events.out.tfevents."

struct event_file {
    struct lines lines;
    const struct track *track;
    /* the first records, which lines.head points to */
    struct strbuf head;
};

/* A number behind those of all event files in the directory: readers take files by
 * their names, and a clock may be set back between two lives. */
static long long next_number(const char *directory)
{
    long long number = (long long)time(NULL);
    DIR *d = opendir(directory);

    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        long long other;

        if (strncmp(e->d_name, EVENT_FILE, sizeof(EVENT_FILE) - 1) != 0)
            continue;
        other = strtoll(e->d_name + sizeof(EVENT_FILE) - 1, NULL, 10);
        /* ten digits, as names are compared as text */
        if (other >= number && other < 9999999999LL)
            number = other + 1;
    }
    if (d)
        closedir(d);
    return number;
}

static accel_status_t event_file_open(void *user, const char *directory,
                                      int64_t first_step, accel_error_t *err)
{
    struct event_file *f = user;
    char path[sizeof(f->track->directory) + 320], host[256] = "";
    accel_status_t st;

    ACCEL_CHECK(st, track_make_directory(directory, err));
    gethostname(host, sizeof(host) - 1);
    snprintf(path, sizeof(path), "%s/" EVENT_FILE "%010lld.%s.%d", directory,
             next_number(directory), host, (int)getpid());
    f->head.len = 0;
    event_head(&f->head, track_now(), first_step);
    if (f->head.failed)
        return accel_fail_nomem(err, "the head of an event file", 4096);
    /* no later attempt takes that name */
    st = lines_open(&f->lines, path,
                    &(struct lines_writer){ .log = f->track->writer.log }, err);
    f->lines.head = f->head.s;
    f->lines.head_bytes = f->head.len;
    return st;
}

static accel_status_t event_file_write(void *user, int64_t step, double time,
                                       const accel_item_t *items, int n,
                                       accel_error_t *err)
{
    struct event_file *f = user;
    struct strbuf b = { 0 };
    accel_status_t st = ACCEL_OK;

    event_items(&b, step, time, items, n);
    if (b.failed)
        st = accel_fail_nomem(err, "an event", 4096);
    else
        lines_add(&f->lines, b.s, b.len, NULL);
    strbuf_free(&b);
    return st;
}

static accel_status_t event_file_flush(void *user, accel_error_t *err)
{
    (void)err;
    lines_sync(&((struct event_file *)user)->lines);
    return ACCEL_OK;
}

static void event_file_close(void *user)
{
    struct event_file *f = user;

    lines_close(&f->lines);
    strbuf_free(&f->head);
    free(f);
}

accel_status_t track_tensorboard(const struct track *t, accel_sink_t *sink_out,
                                 accel_error_t *err)
{
    struct event_file *f = calloc(1, sizeof(*f));

    if (!f)
        return accel_fail_nomem(err, "a tracker", sizeof(*f));
    f->lines.fd = -1;
    f->track = t;
    *sink_out = (accel_sink_t){ .name = "tensorboard",
                                .open = event_file_open,
                                .write = event_file_write,
                                .flush = event_file_flush,
                                .close = event_file_close,
                                .user = f };
    return ACCEL_OK;
}
