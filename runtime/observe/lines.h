/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of lines, written by one process at a time, of which a reader never sees a part of a
 * line but for the very end, and whose writer is never stopped by it.
 */
#ifndef ACCEL_OBSERVE_LINES_H
#define ACCEL_OBSERVE_LINES_H

#include "common/common.h"

#define LINES_KEPT_BYTES (1 << 20)

struct lines {
    int fd; /* -1: not open */
    char path[2048];
    const struct accel_log *log;
    int64_t
        torn_at; /* where a part of a line begins that could not be cut off; -1: none */
    int error;   /* errno while the file cannot be written; 0: it can */
    bool sync_failed;
    /* Is the file of that name still for this process to write, now that it is another one?
     * NULL: yes. */
    bool (*ours)(void *ours_user);
    void *ours_user;
    char
        *kept; /* what waits for the file, LINES_KEPT_BYTES; NULL: nothing did so far */
    size_t kept_bytes;
    int64_t kept_lines, dropped; /* in this outage */
};

/* Writes all of `buf`, in pieces where the system wants it. 0, or errno. */
int line_write(int fd, const char *buf, size_t len);
/* Writes the whole line at the end of `fd`, or nothing of it. 0, or errno; in that case
 * *torn_at is where a part of it begins that could not be taken back, or -1. */
int line_append(int fd, const char *line, size_t len, int64_t *torn_at_out);

/* Opens `path` to append to it; what is wrong is an error here only. */
accel_status_t lines_open(struct lines *l, const char *path,
                          const struct accel_log *log, accel_error_t *err);
/* Adds one line, newline included. While the file cannot be written (full disk, quota, a
 * directory that is gone), lines are kept in memory and tried again with the next one. When
 * they are more than LINES_KEPT_BYTES, every second one of those without `mark` in it is
 * dropped. Says so once when it begins and once when it is over, with the number of those
 * that were dropped. */
void lines_add(struct lines *l, const char *line, size_t len, const char *mark);
/* What can be written is on disk when this returns. */
void lines_sync(struct lines *l);
/* Tries once more; says how many lines are lost. */
void lines_close(struct lines *l);

#endif
