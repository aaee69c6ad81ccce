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

#include "observe/lines.h"

/* Keeps errno: callers look at it to tell a full disk from other failures. */
static accel_status_t io_error(accel_error_t *err, const char *path, const char *what)
{
    int why = errno;
    accel_status_t st =
        accel_fail_at(err, A0711, path, "check free space and permissions",
                      "cannot %s the log: %s", what, strerror(why));

    errno = why;
    return st;
}

/* Which part of a file stays. */
struct trim {
    lines_stay_f stays;
    const void *user;
    /* where the part to remove begins; -1: nothing is removed */
    int64_t tail;
    /* a line behind `tail` stays */
    bool scattered;
    /* no room for another file beside it */
    bool no_room;
};

/* A full disk, a quota, or a limit of file sizes. */
static bool is_no_room(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* Looks at every line; those that stay go to `out_fd` unless it is -1. */
static accel_status_t walk(FILE *in, struct trim *t, int out_fd, const char *path,
                           accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    char *line = NULL;
    size_t cap = 0;
    int64_t at = 0;
    ssize_t n;

    while (st == ACCEL_OK && (n = getline(&line, &cap, in)) > 0) {
        bool kept = t->stays(t->user, line, (size_t)n);

        if (!kept && t->tail < 0)
            t->tail = at;
        t->scattered |= kept && t->tail >= 0;
        if (kept && out_fd >= 0 && (errno = line_write(out_fd, line, (size_t)n)) != 0)
            st = io_error(err, path, "write");
        at += n;
    }
    if (st == ACCEL_OK && ferror(in))
        st = io_error(err, path, "read");
    free(line);
    return st;
}

/* Replaces the log by the lines that stay: a new file, synced, then renamed. */
static accel_status_t rewrite(FILE *in, struct trim *t, const char *path,
                              accel_error_t *err)
{
    struct trim again = { .stays = t->stays, .user = t->user, .tail = -1 };
    char part[2060];
    accel_status_t st;
    sigset_t before;
    int fd, why;

    snprintf(part, sizeof(part), "%s.part", path);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    t->no_room = fd < 0 && is_no_room(errno);
    if (fd < 0)
        return io_error(err, part, "create");
    rewind(in);
    file_limit_hold(&before);
    st = walk(in, &again, fd, part, err);
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
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    accel_status_t st;

    if (!in) {
        st = fd < 0 && errno == ENOENT ? ACCEL_OK : io_error(err, path, "read");
        if (fd >= 0)
            close(fd);
        return st;
    }
    st = walk(in, &t, -1, path, err);
    if (st == ACCEL_OK)
        st = rewrite(in, &t, path, err);
    if (st != ACCEL_OK && t.no_room && !t.scattered)
        st = t.tail >= 0 && ftruncate(fd, t.tail) != 0 ? io_error(err, path, "shorten")
                                                       : ACCEL_OK;
    fclose(in);
    return st;
}
