/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines at the end of a file, whole or not at all. In: lines, one at a time; binary
 * records count as lines. Out: the file; while it cannot be written, memory of a
 * bounded size, with a warning. Never an error: the lines are about a run, and the run
 * is worth more.
 */
#include "observe/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "common/plain_file.h"
#include "common/whole_io.h"

#define OPEN_FLAGS (O_WRONLY | O_CREAT | O_APPEND)

accel_status_t lines_open(struct lines *l, const char *path,
                          const struct lines_writer *writer, accel_error_t *err)
{
    *l = (struct lines){ .fd = -1, .writer = *writer, .torn_at = -1 };
    if (strlen(path) >= sizeof(l->path))
        return accel_fail(err, A0712, "use a shorter output directory",
                          "the log's path is too long");
    strcpy(l->path, path);
    l->fd = plain_open(AT_FDCWD, path, OPEN_FLAGS);
    if (l->fd < 0)
        return accel_fail_at(err, A0712, path, "choose a writable --out",
                             "cannot create the log: %s", plain_error(errno));
    return ACCEL_OK;
}

/* Opens the file of that name again where ours was removed or its server has forgotten
 * it: readers look for the lines there. Not where a later attempt of the job has
 * replaced it: that one writes its own. */
static int follow_name(struct lines *l)
{
    const struct lines_writer *by = &l->writer;
    struct stat sb;
    bool known = fstat(l->fd, &sb) == 0;
    int fd;

    if (known && (sb.st_nlink > 0 || (by->ours && !by->ours(by->ours_user))))
        return 0;
    fd = plain_open(AT_FDCWD, l->path, OPEN_FLAGS);
    if (fd < 0)
        return errno;
    close(l->fd);
    l->fd = fd;
    l->named = false;
    /* A new file has no torn line; where fstat failed it may be the same file,
     * with one. */
    if (known)
        l->torn_at = -1;
    return 0;
}

/* ---- lines that wait ------------------------------------------------------------- */

/* A waiting line: its length, then its bytes, since a binary record has no end mark. */
#define KEPT_HEAD sizeof(uint32_t)

static size_t kept_length(const char *at)
{
    uint32_t len;

    memcpy(&len, at, sizeof(len));
    return len;
}

/* Keeps the waiting lines with the mark and every second one of the others; with no
 * mark every second one of all. What is left still spans the whole outage. */
static void thin_out(struct lines *l, const char *mark)
{
    char *to = l->kept, *end = l->kept + l->kept_bytes;
    int64_t kept = 0, ordinary = 0;

    for (char *at = l->kept; at < end;) {
        size_t len = kept_length(at);
        char *next = at + KEPT_HEAD + len;
        bool marked = mark && memmem(at + KEPT_HEAD, len, mark, strlen(mark));

        if (marked || ordinary++ % 2 == 0) {
            memmove(to, at, (size_t)(next - at));
            to += next - at;
            kept++;
        }
        at = next;
    }
    l->dropped += l->kept_lines - kept;
    l->kept_lines = kept;
    l->kept_bytes = (size_t)(to - l->kept);
}

/* Keeps one line in memory. Lines longer than a quarter of the room are dropped. */
static void keep(struct lines *l, const char *line, size_t len, const char *mark)
{
    const uint32_t head = (uint32_t)len;

    if (!l->kept)
        l->kept = malloc(LINES_KEPT_BYTES);
    if (!l->kept || len > LINES_KEPT_BYTES / 4) {
        l->dropped++;
        return;
    }
    if (l->kept_bytes + KEPT_HEAD + len > LINES_KEPT_BYTES) {
        thin_out(l, mark);
        /* nearly all are marked */
        if (l->kept_bytes > LINES_KEPT_BYTES / 4 * 3 - KEPT_HEAD)
            thin_out(l, NULL);
    }
    memcpy(l->kept + l->kept_bytes, &head, KEPT_HEAD);
    memcpy(l->kept + l->kept_bytes + KEPT_HEAD, line, len);
    l->kept_bytes += KEPT_HEAD + len;
    l->kept_lines++;
}

/* Asks for the room of the next `len` bytes: on a full disk a write takes what fits in
 * the last block, and a reader may look before that is cut off. Other errors than those
 * of room are left to the write: not every file system can reserve. 0, or errno. */
static int reserve(int fd, size_t len)
{
    struct stat sb;
    sigset_t before;
    int error = 0;

    if (fstat(fd, &sb) != 0)
        return errno;
    file_limit_hold(&before);
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, sb.st_size, (off_t)len) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        error = errno;
    file_limit_release(&before);
    return error;
}

/* Appends one line; the head first where the file is empty. Room that was missing once
 * may be missing again: checkpoints come and go. */
static int append_line(struct lines *l, const char *line, size_t len)
{
    struct stat sb;
    int error = 0;

    if (l->head_bytes > 0 && fstat(l->fd, &sb) != 0)
        return errno;
    if (l->tight)
        error = reserve(l->fd, l->head_bytes + len);
    if (!error && l->head_bytes > 0 && sb.st_size == 0)
        error = line_append(l->fd, l->head, l->head_bytes, &l->torn_at);
    return error ? error : line_append(l->fd, line, len, &l->torn_at);
}

/* Writes what waits, oldest first, after cutting off a torn line. On an error the lines
 * that are not written stay. */
static int write_kept(struct lines *l)
{
    size_t done = 0;
    int error = follow_name(l);

    if (!error && l->torn_at >= 0)
        error = line_cut(l->fd, l->torn_at);
    if (error)
        return error;
    l->torn_at = -1;
    while (!error && done < l->kept_bytes) {
        const char *line = l->kept + done + KEPT_HEAD;
        size_t n = kept_length(l->kept + done);

        error = append_line(l, line, n);
        if (!error) {
            done += KEPT_HEAD + n;
            l->kept_lines--;
        }
    }
    memmove(l->kept, l->kept + done, l->kept_bytes - done);
    l->kept_bytes -= done;
    return error;
}

/* Warns once; errno of later attempts is kept for lines_close. */
static void begin_outage(struct lines *l, int error)
{
    if (!l->error)
        accel_logf(l->writer.log, ACCEL_LOG_WARN,
                   "%s: cannot write the log (%s); its records are kept in memory, and "
                   "training continues",
                   l->path, plain_error(error));
    l->error = error;
    l->tight = true;
}

/* Warns that it is over, with what was dropped. */
static void end_outage(struct lines *l)
{
    if (l->dropped > 0)
        accel_logf(l->writer.log, ACCEL_LOG_WARN,
                   "%s: the log can be written again; %lld of the waiting records, "
                   "every second one, were dropped for lack of space",
                   l->path, (long long)l->dropped);
    else
        accel_logf(l->writer.log, ACCEL_LOG_WARN,
                   "%s: the log can be written again and has all waiting records",
                   l->path);
    l->error = 0;
    l->dropped = 0;
}

/* ---- the file -------------------------------------------------------------------- */

/* Waiting lines go first, so that the file stays in order. True: none waits
 * any more. */
static bool catch_up(struct lines *l)
{
    int error;

    if (!l->error)
        return true;
    error = write_kept(l);
    if (error)
        l->error = error;
    else
        end_outage(l);
    return !error;
}

void lines_add(struct lines *l, const char *line, size_t len, const char *mark)
{
    int error;

    if (l->fd < 0)
        return;
    if (!catch_up(l)) {
        keep(l, line, len, mark);
        return;
    }
    error = follow_name(l);
    if (!error)
        error = append_line(l, line, len);
    if (error) {
        begin_outage(l, error);
        keep(l, line, len, mark);
    }
}

/* The name, too: the file may be new, or have replaced another one when a run resumed.
 * Files that cannot be synced (EINVAL: a pipe or a terminal) are none to warn of. */
void lines_sync(struct lines *l)
{
    int rc;

    if (l->fd < 0)
        return;
    catch_up(l);
    rc = fsync(l->fd);
    if (rc == 0 && !l->named) {
        errno = path_sync_name(l->path);
        rc = errno ? -1 : 0;
        l->named = rc == 0;
    }
    if (rc != 0 && errno != EINVAL && errno != EROFS && !l->sync_failed)
        accel_logf(l->writer.log, ACCEL_LOG_WARN,
                   "%s: the log may lose records if this machine stops now: %s",
                   l->path, strerror(errno));
    l->sync_failed = rc != 0;
}

void lines_close(struct lines *l)
{
    if (l->fd >= 0 && !catch_up(l))
        accel_logf(l->writer.log, ACCEL_LOG_WARN,
                   "%s: %lld records of the log are lost: %s", l->path,
                   (long long)(l->kept_lines + l->dropped), strerror(l->error));
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    free(l->kept);
    l->kept = NULL;
}
