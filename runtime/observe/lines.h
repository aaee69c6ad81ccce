/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of lines, written by one process at a time. A reader never sees part of a
 * line, except at the very end of the file, and a file that cannot be written never
 * stops its writer.
 */
#ifndef ACCEL_OBSERVE_LINES_H
#define ACCEL_OBSERVE_LINES_H

#include "common/common.h"

/* memory for lines that wait for the file, in bytes */
#define LINES_KEPT_BYTES (1 << 20)

/* Who writes: one attempt of a job. */
struct lines_writer {
    /* not owned */
    const struct accel_log *log;
    /* Asked when another file has taken the name: may it still write there? NULL: yes.
     */
    bool (*ours)(void *ours_user);
    void *ours_user;
};

/* An open file of lines. */
struct lines {
    /* -1: not open */
    int fd;
    char path[2048];
    struct lines_writer writer;
    /* where part of a line begins that could not be cut off; -1: none */
    int64_t torn_at;
    /* errno while the file cannot be written; 0: it can */
    int error;
    /* its name is durable */
    bool named;
    /* it could not once: room is asked for before each line */
    bool tight;
    /* warned already */
    bool sync_failed;
    /* What an empty file begins with, a title or the head of a format; set after
     * lines_open, not owned. 0 bytes: nothing. */
    const char *head;
    size_t head_bytes;
    /* [LINES_KEPT_BYTES] lines that wait for the file; NULL: none has so far */
    char *kept;
    size_t kept_bytes;
    /* in this outage */
    int64_t kept_lines, dropped;
};

/* Opens `path` to append to it. This is the only call of lines_* that fails. */
accel_status_t lines_open(struct lines *l, const char *path,
                          const struct lines_writer *writer, accel_error_t *err);
/* Adds one line, newline included, or one record of a binary file. While the file
 * cannot be written (full disk, quota, a directory that is gone), lines are kept in
 * memory and tried again with the next one. Beyond LINES_KEPT_BYTES every second line
 * without `mark` in it is dropped. Logs one warning when this begins and one when it is
 * over, with the number of dropped lines. */
void lines_add(struct lines *l, const char *line, size_t len, const char *mark);
/* All that can be written is durable on return. */
void lines_sync(struct lines *l);
/* Tries once more, and warns of the lines that are lost. Not open: does nothing. */
void lines_close(struct lines *l);

/* Does this line of n > 0 bytes stay? It ends without a newline where it is torn. */
typedef bool (*lines_stay_f)(const void *user, const char *line, size_t n);
/* Removes the other lines. A new file takes the place of the old one, so that an
 * earlier attempt of the job that still runs keeps writing the old one. On a full disk
 * the end of the old file is cut off instead, which needs no room, unless lines that
 * stay follow it. No file: nothing to do. */
accel_status_t lines_trim(const char *path, lines_stay_f stays, const void *user,
                          accel_error_t *err);

#endif
