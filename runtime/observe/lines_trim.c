/* SPDX-License-Identifier: Apache-2.0
 *
 * What a resumed run does to a file of lines: those of steps that it will do again go.
 * In: a path and a rule. Out: the file with the lines that stay, whole at every moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/whole_io.h"
#include "common/plain_file.h"
#include "observe/lines.h"

/* a line of a tracker may hold a text; nothing of ours is longer */
#define LINE_MOST ((size_t)64 << 20)
/* of a file; some 80 million records */
#define FILE_MOST ((off_t)16 << 30)

/* Keeps errno: callers look at it to tell a full disk from other failures. */
static accel_status_t io_error(accel_error_t *err, const char *path, const char *what)
{
    int why = errno;
    accel_status_t st = accel_fail_at(
        err, A0711, path, "check free space and permissions, or move it away",
        "cannot %s the log: %s", what, plain_error(why));

    errno = why;
    return st;
}

/* Which part of a file stays. */
struct trim {
    lines_stay_f stays;
    const void *user;
    /* where the part to remove begins; -1: nothing is removed */
    int64_t tail;
    /* a line after `tail` stays */
    bool scattered;
    /* no room for another file beside it */
    bool no_room;
};

/* A full disk, a quota, or a limit of file sizes. */
static bool is_no_room(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* ---- reading --------------------------------------------------------------------- */

struct reader {
    int fd;
    /* [cap] and a NUL; the next line begins at `at` of `have` bytes */
    char *buf;
    size_t cap, at, have;
    /* what was where the NUL after the last line is now */
    char cut;
};

/* The next n bytes, with a NUL after them, which the next call takes back. */
static ssize_t hand_out(struct reader *r, size_t n, char **line_out)
{
    *line_out = r->buf + r->at;
    r->at += n;
    r->cut = r->buf[r->at];
    r->buf[r->at] = '\0';
    return (ssize_t)n;
}

/* Reads more after the start of a line. -1 with errno, 0: there is no more, or the
 * line is too long. */
static ssize_t read_more(struct reader *r)
{
    ssize_t n;

    if (r->at > 0)
        memmove(r->buf, r->buf + r->at, r->have - r->at);
    r->have -= r->at;
    r->at = 0;
    if (r->have == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 1 << 20;
        char *more = cap <= LINE_MOST ? realloc(r->buf, cap + 1) : NULL;

        if (!more)
            return cap <= LINE_MOST ? -1 : 0;
        r->buf = more;
        r->cap = cap;
    }
    n = TEMP_FAILURE_RETRY(read(r->fd, r->buf + r->have, r->cap - r->have));
    r->have += n > 0 ? (size_t)n : 0;
    return n;
}

/* The next line: its length, 0 at the end, -1 with errno. One that is too long comes in
 * pieces, of which only the last ends with a newline. */
static ssize_t next_line(struct reader *r, char **line_out)
{
    size_t seen = 0;

    if (r->buf)
        r->buf[r->at] = r->cut;
    for (;;) {
        char *from = r->buf + r->at;
        const char *end = r->have - r->at > seen
                              ? memchr(from + seen, '\n', r->have - r->at - seen)
                              : NULL;
        ssize_t n;

        if (end)
            return hand_out(r, (size_t)(end + 1 - from), line_out);
        seen = r->have - r->at;
        n = read_more(r);
        if (n < 0)
            return -1;
        if (n == 0)
            return seen > 0 ? hand_out(r, seen, line_out) : 0;
    }
}

/* ---- the rule -------------------------------------------------------------------- */

/* Looks at every line; those that stay go to `out_fd` unless it is -1. */
static accel_status_t walk(int in, struct trim *t, int out_fd, const char *path,
                           accel_error_t *err)
{
    struct reader r = { .fd = in };
    accel_status_t st = ACCEL_OK;
    char *line = NULL;
    int64_t at = 0;
    ssize_t n = 0;

    while (st == ACCEL_OK && (n = next_line(&r, &line)) > 0) {
        bool kept = t->stays(t->user, line, (size_t)n);

        if (!kept && t->tail < 0)
            t->tail = at;
        t->scattered |= kept && t->tail >= 0;
        if (kept && out_fd >= 0 && (errno = line_write(out_fd, line, (size_t)n)) != 0)
            st = io_error(err, path, "write");
        at += n;
    }
    if (n < 0)
        st = io_error(err, path, "read");
    free(r.buf);
    return st;
}

/* Replaces the log by the lines that stay: a new file, synced, then renamed. */
static accel_status_t rewrite(int in, struct trim *t, const char *path,
                              accel_error_t *err)
{
    struct trim again = { .stays = t->stays, .user = t->user, .tail = -1 };
    char part[2060];
    accel_status_t st;
    sigset_t before;
    int fd, why;

    snprintf(part, sizeof(part), "%s.part", path);
    fd = plain_open(AT_FDCWD, part, O_WRONLY | O_CREAT | O_TRUNC);
    t->no_room = fd < 0 && is_no_room(errno);
    if (fd < 0)
        return io_error(err, part, "create");
    file_limit_hold(&before);
    st = lseek(in, 0, SEEK_SET) < 0 ? io_error(err, path, "read") : ACCEL_OK;
    ACCEL_TRY(st, walk(in, &again, fd, part, err));
    if (st == ACCEL_OK && fsync(fd) != 0)
        st = io_error(err, part, "flush");
    if (st == ACCEL_OK && rename(part, path) != 0)
        st = io_error(err, path, "replace");
    why = errno;
    file_limit_release(&before);
    /* all is on disk, or given up */
    close(fd);
    t->no_room = st != ACCEL_OK && is_no_room(why);
    if (st != ACCEL_OK)
        unlink(part);
    return st;
}

accel_status_t lines_trim(const char *path, lines_stay_f stays, const void *user,
                          accel_error_t *err)
{
    struct trim t = { .stays = stays, .user = user, .tail = -1 };
    int fd = plain_open(AT_FDCWD, path, O_RDWR);
    accel_status_t st;
    struct stat sb;

    if (fd < 0)
        return errno == ENOENT ? ACCEL_OK : io_error(err, path, "read");
    errno = fstat(fd, &sb) ? errno : sb.st_size > FILE_MOST ? EFBIG : 0;
    st = errno ? io_error(err, path, "read") : walk(fd, &t, -1, path, err);
    ACCEL_TRY(st, rewrite(fd, &t, path, err));
    if (st != ACCEL_OK && t.no_room && !t.scattered)
        st = t.tail >= 0 && ftruncate(fd, t.tail) != 0 ? io_error(err, path, "shorten")
                                                       : ACCEL_OK;
    close(fd);
    return st;
}
