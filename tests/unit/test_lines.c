/* SPDX-License-Identifier: Apache-2.0
 *
 * observe/: a file of lines where the disk does not play along. Writes that stop at
 * every length, a part of a line that cannot be cut off, more lines than are kept, a
 * file or directory that is removed, fsync that fails: whole lines in their order, and
 * one warning.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "observe/observe.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static char dir[] = "/tmp/accel-lines.XXXXXX", path[64], said[4096];
static bool no_cut, no_sync;
/* bytes that the disk has for a file; -1: no end */
static off_t disk = -1;
/* writes that took part of what they were given */
static int parts;

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    if (level == ACCEL_LOG_WARN)
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static const struct accel_log log_to_test = { keep_line, NULL, ACCEL_LOG_INFO };

/* In place of libc's, as far as this program goes. */
int ftruncate(int fd, off_t at)
{
    if (!no_cut)
        return (int)syscall(SYS_ftruncate, fd, at);
    errno = EIO;
    return -1;
}

int fsync(int fd)
{
    if (!no_sync)
        return (int)syscall(SYS_fsync, fd);
    errno = EIO;
    return -1;
}

static off_t disk_left(int fd)
{
    struct stat sb;

    return fstat(fd, &sb) == 0 && disk > sb.st_size ? disk - sb.st_size : 0;
}

ssize_t write(int fd, const void *buf, size_t len)
{
    if (disk < 0 || (off_t)len <= disk_left(fd))
        return syscall(SYS_write, fd, buf, len);
    len = (size_t)disk_left(fd);
    parts += len > 0;
    if (len > 0)
        return syscall(SYS_write, fd, buf, len);
    errno = ENOSPC;
    return -1;
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
    if (disk < 0 || at + len <= disk)
        return (int)syscall(SYS_fallocate, fd, mode, at, len);
    errno = ENOSPC;
    return -1;
}

/* Files may be so long. The test's own output may be one: nothing is printed
 * meanwhile. */
static void set_room(rlim_t bytes)
{
    struct rlimit r;

    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    setrlimit(RLIMIT_FSIZE, &r);
}

static void start(struct lines *l)
{
    const struct lines_writer by = { .log = &log_to_test };
    accel_error_t err = { 0 };

    unlink(path);
    said[0] = '\0';
    if (lines_open(l, path, &by, &err) != ACCEL_OK)
        tap_diag("%s", err.text);
}

static void add(struct lines *l, int number, const char *mark)
{
    char line[64];
    int n = snprintf(line, sizeof(line), "{\"n\":%d%s}\n", number, mark);

    lines_add(l, line, (size_t)n, "mark");
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

struct found {
    int whole, last, marked;
    bool torn, ordered;
};

/* Whole lines with growing numbers, and perhaps a part of one behind them. */
static struct found look(void)
{
    struct found f = { .ordered = true };
    FILE *in = fopen(path, "r");
    char line[256];
    int number;

    while (in && fgets(line, sizeof(line), in)) {
        size_t n = strlen(line);

        if (line[n - 1] != '\n') {
            f.torn = true;
            continue;
        }
        f.ordered &= !f.torn && sscanf(line, "{\"n\":%d", &number) == 1 &&
                     number > f.last && line[n - 2] == '}' && count(line, "{") == 1;
        f.last = number;
        f.whole++;
        f.marked += strstr(line, "mark") != NULL;
    }
    if (in)
        fclose(in);
    return f;
}

/* So many whole lines in their order, and a part of another one or none. */
static bool holds(int whole, bool torn)
{
    const struct found f = look();

    return f.whole == whole && f.torn == torn && f.ordered;
}

/* The write that does not fit stops after 0, 1, 2 ... of its bytes. */
static void test_every_length(void)
{
    const char line[] = "{\"n\":1}\n";
    const int bytes = 5 * (int)(sizeof(line) - 1);
    int bad = 0;

    for (int room = 0; room <= bytes; room++) {
        struct lines l;
        bool fits = room == bytes;

        start(&l);
        set_room((rlim_t)room);
        for (int i = 1; i <= 5; i++)
            add(&l, i, "");
        bad += !holds(room / 8, false) ||
               count(said, "cannot write the log (File too large)") != !fits;
        set_room(RLIM_INFINITY);
        add(&l, 6, "");
        bad += !holds(6, false) || count(said, "has all waiting records") != !fits;
        lines_close(&l);
        bad += count(said, "\n") != (fits ? 0 : 2);
        if (bad) {
            tap_diag("room for %d bytes: %d lines, torn %d; said:\n%s", room,
                     look().whole, look().torn, said);
            break;
        }
    }
    tap_is_int(bad, 0,
               "no part of a line at any length, all lines once there is room, one "
               "warning each");
}

/* A disk that is full, has room again, and is full again. */
static void test_full_again(void)
{
    struct lines l;

    start(&l);
    parts = 0;
    disk = 12;
    add(&l, 1, "");
    add(&l, 2, "");
    tap_is_int(parts, 1, "a full disk takes part of a line before it fails");
    disk = -1;
    add(&l, 3, "");
    disk = 3 * 8 + 4;
    add(&l, 4, "");
    add(&l, 5, "");
    tap_is_int(parts, 1, "from then on it is asked for room before each line");
    tap_ok(holds(3, false) && count(said, "cannot write the log") == 2,
           "and the lines wait");
    disk = -1;
    add(&l, 6, "");
    tap_ok(holds(6, false), "until they can be written");
    lines_close(&l);
}

static void test_no_cut(void)
{
    struct lines l;

    start(&l);
    add(&l, 1, "");
    set_room(12);
    no_cut = true;
    add(&l, 2, "");
    set_room(RLIM_INFINITY);
    tap_ok(holds(1, true), "a part that cannot be cut off is the end of the file");
    add(&l, 3, "");
    tap_ok(holds(1, true), "nothing is written behind it");
    no_cut = false;
    add(&l, 4, "");
    tap_ok(holds(4, false), "once it is cut off, all lines come");
    lines_close(&l);

    start(&l);
    add(&l, 1, "");
    set_room(12);
    no_cut = true;
    add(&l, 2, "");
    no_cut = false;
    set_room(RLIM_INFINITY);
    tap_ok(truncate(path, 0) == 0, "emptied");
    add(&l, 3, "");
    tap_ok(holds(2, false),
           "somebody emptied the file meanwhile: it begins with a whole line");
    lines_close(&l);
}

/* More than is kept: every second one stays, those with the mark all. */
static void test_bound(bool all_marked)
{
    enum { COUNT = 120000 };
    struct lines l;
    struct found f;
    char want[64];
    int marked = 0;

    start(&l);
    set_room(0);
    for (int i = 1; i <= COUNT; i++) {
        bool mark = all_marked || i % 1000 == 0;

        marked += mark;
        add(&l, i, mark ? ",\"mark\":1" : "");
    }
    set_room(RLIM_INFINITY);
    tap_ok(l.kept_bytes <= LINES_KEPT_BYTES && l.kept_bytes > LINES_KEPT_BYTES / 4,
           "%zu bytes wait", l.kept_bytes);
    add(&l, COUNT + 1, "");
    f = look();
    tap_ok(f.ordered && !f.torn && f.last == COUNT + 1, "the rest is in order");
    if (!all_marked)
        tap_is_int(f.marked, marked, "marked ones are all there");
    snprintf(want, sizeof(want), "; %d of the waiting records", COUNT + 1 - f.whole);
    tap_ok(count(said, want) == 1 && count(said, "\n") == 2,
           "the number of the others is said");
    tap_diag("%s", said);
    set_room(0);
    add(&l, COUNT + 2, "");
    set_room(RLIM_INFINITY);
    add(&l, COUNT + 3, "");
    tap_ok(count(said, "has all waiting records") == 1, "the next outage counts again");
    lines_close(&l);
}

static void test_end(void)
{
    struct lines l;

    start(&l);
    add(&l, 1, "");
    set_room(8);
    add(&l, 2, "");
    add(&l, 3, "");
    lines_close(&l);
    set_room(RLIM_INFINITY);
    tap_ok(count(said, ": 2 records of the log are lost: File too large") == 1,
           "what is lost at the end is said");
    tap_ok(holds(1, false), "the file is whole");
    start(&l);
    set_room(0);
    add(&l, 1, "");
    set_room(RLIM_INFINITY);
    lines_close(&l);
    tap_ok(holds(1, false) && count(said, "lost") == 0,
           "at the end it is tried once more");
}

static void test_removed(void)
{
    char away[96];
    struct lines l;

    snprintf(away, sizeof(away), "%s.away", dir);
    start(&l);
    add(&l, 1, "");
    unlink(path);
    add(&l, 2, "");
    tap_ok(holds(1, false) && look().last == 2 && !said[0],
           "a file that was removed is made again");
    unlink(path);
    if (rename(dir, away) != 0)
        tap_diag("rename: %s", strerror(errno));
    add(&l, 3, "");
    add(&l, 4, "");
    tap_ok(count(said, "cannot write the log (No such file or directory)") == 1,
           "a directory that is gone is said once");
    if (rename(away, dir) != 0)
        tap_diag("rename: %s", strerror(errno));
    add(&l, 5, "");
    tap_ok(holds(3, false) && count(said, "all waiting records") == 1,
           "once it is back, so are the lines");
    lines_close(&l);
}

static bool answer(void *ours)
{
    return *(bool *)ours;
}

/* Two lives: the second one opens the log while the first one still writes. */
static void test_replaced(void)
{
    struct observe second = { .file = { .fd = -1 } };
    accel_error_t err = { 0 };
    bool ours = false;
    struct lines l;

    start(&l);
    l.writer.ours = answer;
    l.writer.ours_user = &ours;
    add(&l, 1, "");
    add(&l, 2, "");
    tap_is_int(observe_open(&second, path, 2, &err), ACCEL_OK, "a second life");
    add(&l, 3, "");
    add(&second.file, 3, "");
    add(&l, 4, "");
    tap_ok(holds(1, false) && look().last == 3 && !said[0],
           "lines of the first do not get into its log");
    lines_close(&second.file);
    ours = true;
    add(&l, 4, "");
    tap_ok(holds(2, false) && look().last == 4, "unless the log is its own again");
    lines_close(&l);
}

static void test_sync(void)
{
    struct lines l;

    start(&l);
    add(&l, 1, "");
    no_sync = true;
    lines_sync(&l);
    lines_sync(&l);
    no_sync = false;
    tap_ok(count(said, "may lose records if this machine stops now: Input/output") == 1,
           "fsync that fails is said once");
    set_room(8);
    add(&l, 2, "");
    set_room(RLIM_INFINITY);
    lines_sync(&l);
    tap_is_int(look().whole, 2, "a sync brings what waited");
    lines_close(&l);
}

static void is_log(const char *text, const char *what)
{
    char got[256] = "";
    FILE *f = fopen(path, "r");

    got[f ? fread(got, 1, sizeof(got) - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    tap_is_str(got, text, "%s", what);
}

/* A resumed run shortens its log where there is no room for another one. */
static void test_resume_full(void)
{
    struct observe o = { .total_steps = 9, .every = 9, .writer.log = &log_to_test };
    accel_error_t err = { 0 };
    accel_status_t st;

    /* the last line is torn */
    run_folder_write(path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n"
                           "{\"step\":5}\n{\"step\":2");
    set_room(0);
    st = observe_open(&o, path, 3, &err);
    lines_close(&o.file);
    set_room(RLIM_INFINITY);
    tap_is_int(st, ACCEL_OK, "a log on a full disk is opened %s", err.text);
    is_log("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n",
           "is cut behind the step that was resumed");
}

/* What is to go stands between what is to stay. */
static void test_resume_scattered(void)
{
    struct observe o = { .total_steps = 9, .every = 9, .writer.log = &log_to_test };
    accel_error_t err = { 0 };
    accel_status_t st;
    struct stat sb;

    run_folder_write(path,
                     "{\"step\":1}\nnoise\n{\"step\":5}\n{\"step\":2}\n{\"step\":6}\n");
    set_room(0);
    st = observe_open(&o, path, 3, &err);
    set_room(RLIM_INFINITY);
    tap_is_int(st, ACCEL_EIO, "a log out of order needs room: %s", err.text);
    stat(path, &sb);
    tap_is_int(sb.st_size, 50, "and stays as it is");
    tap_is_int(observe_open(&o, path, 3, &err), ACCEL_OK, "a log out of order");
    lines_close(&o.file);
    is_log("{\"step\":1}\n{\"step\":2}\n", "keeps every step up to it");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/log.jsonl", dir);
    test_every_length();
    test_full_again();
    test_no_cut();
    test_bound(false);
    test_bound(true);
    test_end();
    test_removed();
    test_replaced();
    test_sync();
    test_resume_full();
    test_resume_scattered();
    unlink(path);
    rmdir(dir);
    return tap_done();
}
