/* SPDX-License-Identifier: Apache-2.0
 *
 * preemption/: the lease of a checkpoint directory. Two lives at once: the later one goes on,
 * the earlier one saves no more. A lock file that was emptied, removed, replaced or
 * cannot be read ends no run, and keeps the others out as soon as it can.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "accel_ckpt.h"

static char dir[] = "/tmp/accel-lease.XXXXXX", path[64], said[4096];
static bool no_read;
static int64_t slept_ns; /* by which this program's clock is ahead */

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static const struct accel_log log_kept = { keep_line, NULL, ACCEL_LOG_INFO };

/* In place of libc's, as far as this program goes. */
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    if (!no_read)
        return (ssize_t)syscall(SYS_pread64, fd, buf, n, at);
    errno = EIO;
    return -1;
}

/* Waits for a lock move the clock on at once. */
int nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void)left;
    slept_ns += pause->tv_sec * INT64_C(1000000000) + pause->tv_nsec;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    int64_t ns = now->tv_nsec + slept_ns;

    now->tv_sec += ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return rc;
}

/* A life of job `first`; 0: none. */
static void be(struct preemption *run, long job, long first, long restart)
{
    memset(run, 0, sizeof(*run));
    run->lease.fd = -1;
    run->log = &log_kept;
    run->fence = accel_ckpt_fence;
    run->incarnation =
        (struct incarnation){ .job = job, .first_job = first, .restart = restart };
    run->directory = dir;
    said[0] = '\0';
}

static accel_status_t take(struct preemption *run)
{
    accel_error_t err = { 0 };
    accel_status_t st = lease_take(run, &err);

    if (st != ACCEL_OK)
        snprintf(said, sizeof(said), "%s", err.text);
    return st;
}

static accel_status_t keep(struct preemption *run)
{
    accel_error_t err = { 0 };
    accel_status_t st;

    said[0] = '\0';
    st = lease_keep(run, &err);
    if (st != ACCEL_OK)
        snprintf(said, sizeof(said), "%s", err.text);
    return st;
}

static bool says(const char *text)
{
    char line[512] = "";
    FILE *f = fopen(path, "r");

    if (f && fgets(line, sizeof(line), f))
        line[strcspn(line, "\n")] = '\0';
    if (f)
        fclose(f);
    return strcmp(line, text) == 0;
}

static bool is_locked(void)
{
    int fd = open(path, O_RDONLY);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;

    close(fd);
    return locked;
}

#define SINCE " on n2, process 5, since 2026-01-01 12:00:00"

/* The holder of job 7, restart 1; what the file is made to say; what becomes of him. */
static const struct {
    const char *what, *text;
    bool goes_on;
} texts[] = {
    { "nothing", "", true },
    { "a blank line", "\n", true },
    { "noise", "\x01\xff{}\n", true },
    { "half of a later life", "job 7 (restart 2) on n2, process 5, since 2026-01",
      true },
    { "more than a later life", "job 7 (restart 2)" SINCE " or so", true },
    { "an earlier life", "job 7 (restart 0)" SINCE, true },
    { "a later life", "job 7 (restart 2)" SINCE "\n", false },
    { "a later life without a newline", "job 7 (restart 2)" SINCE, false },
    { "a later life of a bare srun", "job 9 (restart 2 of job 7)" SINCE, false },
    { "an earlier life of a bare srun", "job 6 (restart 0 of job 7)" SINCE, true },
    { "the same life elsewhere", "job 7 (restart 1)" SINCE, false },
    { "another job", "job 8 (restart 0)" SINCE, false },
    { "a later life of another job", "job 9 (restart 2 of job 8)" SINCE, false },
    { "a process without a job", "a process without a job" SINCE, false },
};

static void test_texts(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(texts); i++) {
        struct preemption run;

        unlink(path);
        be(&run, 7, 7, 1);
        tap_is_int(take(&run), ACCEL_OK, "taken");
        run_folder_write(path, texts[i].text);
        if (texts[i].goes_on) {
            tap_ok(keep(&run) == ACCEL_OK && says(run.lease.line) &&
                       strstr(said, "rewritten"),
                   "%s: goes on, and the file says who", texts[i].what);
            tap_ok(keep(&run) == ACCEL_OK && !said[0], "%s: all is well then",
                   texts[i].what);
        } else {
            tap_ok(keep(&run) == ACCEL_EUNAVAIL && strstr(said, "took over: ") &&
                       (strstr(said, "process 5")),
                   "%s: saves no more: %s", texts[i].what, said);
            tap_ok(!says(run.lease.line), "%s: and does not take it back",
                   texts[i].what);
        }
        lease_drop(&run);
    }
}

static void test_two_lives(void)
{
    struct preemption old, new, stranger;
    char saving[64];

    snprintf(saving, sizeof(saving), "%s/.tmp-step_00000007.7.0", dir);
    unlink(path);
    be(&old, 7, 7, 0);
    be(&stranger, 8, 8, 3);
    be(&new, 7, 7, 1);
    tap_is_int(take(&old), ACCEL_OK, "the first life");
    tap_ok(keep(&old) == ACCEL_OK && !said[0], "it may save");
    slept_ns = 0;
    tap_is_int(take(&stranger), ACCEL_EUNAVAIL, "another job is refused");
    tap_ok(slept_ns >= 5 * INT64_C(1000000000),
           "after a wait for a run that is ending");
    tap_ok(strstr(said, "using this directory: job 7 (restart 0) on "),
           "and told why: %s", said);
    lease_drop(&stranger);
    said[0] = '\0';
    tap_ok(mkdir(saving, 0700) == 0 && take(&new) == ACCEL_OK,
           "the second life pushes it aside");
    tap_ok(access(saving, F_OK) != 0, "and its save in progress");
    tap_ok(strstr(said,
                  "an earlier attempt of this job is still running (job 7 (restart 0)"),
           "and says so");
    tap_is_int(keep(&old), ACCEL_EUNAVAIL, "the first one saves no more");
    tap_ok(strstr(said, "took over: job 7 (restart 1)"), "it says who does: %s", said);
    tap_is_int(keep(&new), ACCEL_OK, "the second one may");

    /* The first one has the lock still, and the file is emptied under both. */
    run_folder_write(path, "");
    tap_is_int(keep(&old), ACCEL_OK, "nothing tells the first one");
    tap_ok(says(old.lease.line), "it writes itself down");
    tap_is_int(keep(&new), ACCEL_OK, "which does not stop the second one");
    tap_ok(says(new.lease.line), "it takes its place back");
    tap_is_int(keep(&old), ACCEL_EUNAVAIL, "and the first one is out again");
    unlink(path);
    tap_is_int(keep(&old), ACCEL_OK, "the same with a file that is removed");
    tap_is_int(keep(&new), ACCEL_OK, "the second one goes on");
    tap_is_int(keep(&old), ACCEL_EUNAVAIL, "the first one does not");
    lease_drop(&old);
    lease_drop(&new);

    be(&old, 7, 7, 1);
    be(&new, 7, 7, 0);
    tap_is_int(take(&old), ACCEL_OK, "restart 1 is at work");
    tap_is_int(take(&new), ACCEL_EUNAVAIL, "restart 0 does not push it aside");
    lease_drop(&old);
    lease_drop(&new);
}

static void test_replaced(void)
{
    struct preemption run, other;
    int fd;

    unlink(path);
    be(&run, 0, 0, 0);
    tap_is_int(take(&run), ACCEL_OK, "a process without a job");
    unlink(path);
    tap_ok(keep(&run) == ACCEL_OK && says(run.lease.line) && is_locked(),
           "a file that was removed is there again, and locked");
    unlink(path);
    run_folder_write(path, "");
    tap_ok(keep(&run) == ACCEL_OK && says(run.lease.line) && is_locked(),
           "so is one that was replaced");
    unlink(path);
    be(&other, 8, 8, 0);
    tap_is_int(take(&other), ACCEL_OK, "another run finds the file removed");
    tap_is_int(keep(&run), ACCEL_EUNAVAIL, "the first one saves no more");
    tap_is_int(keep(&other), ACCEL_OK, "the second one may");
    lease_drop(&other);
    unlink(path);
    run_folder_write(path, "");
    fd = open(path, O_RDONLY);
    flock(fd, LOCK_EX);
    tap_ok(keep(&run) == ACCEL_EUNAVAIL && strstr(said, "the lock does not say which"),
           "a new file that somebody locks is his: %s", said);
    tap_is_int(take(&other), ACCEL_EUNAVAIL, "and nobody else's");
    tap_ok(strstr(said, "using this directory: the lock does not say which"), "%s",
           said);
    close(fd);
    lease_drop(&run);
    lease_drop(&other);
}

static void test_tool(void)
{
    struct preemption run;
    int fd;

    unlink(path);
    run_folder_write(path, ACCEL_CKPT_TOOL " on n2, process 5\n");
    fd = open(path, O_RDONLY);
    flock(fd, LOCK_EX);
    be(&run, 7, 7, 0);
    slept_ns = 0;
    tap_is_int(take(&run), ACCEL_EUNAVAIL, "a tool at work is not pushed aside: %s",
               said);
    tap_ok(slept_ns >= 600 * INT64_C(1000000000), "it has ten minutes to end");
    close(fd);
    lease_drop(&run);
}

static void test_unusable(void)
{
    struct preemption run;

    unlink(path);
    be(&run, 7, 7, 0);
    take(&run);
    no_read = true;
    tap_ok(keep(&run) == ACCEL_OK && strstr(said, "cannot read the lock (Input/output"),
           "a file that cannot be read: goes on with a warning");
    tap_ok(keep(&run) == ACCEL_OK && !said[0], "said once");
    no_read = false;
    tap_ok(keep(&run) == ACCEL_OK && !said[0], "it can be read again");
    no_read = true;
    tap_ok(keep(&run) == ACCEL_OK && said[0], "the next time it is said again");
    no_read = false;
    unlink(path);
    if (symlink("/tmp/accel-lease-nowhere", path) != 0)
        tap_diag("symlink: %s", strerror(errno));
    tap_ok(keep(&run) == ACCEL_OK && access("/tmp/accel-lease-nowhere", F_OK) != 0,
           "a link: goes on, and makes nothing where it points");
    unlink(path);
    mkdir(path, 0777);
    tap_is_int(keep(&run), ACCEL_OK, "a directory: goes on");
    rmdir(path);
    tap_is_int(mkfifo(path, 0666), 0, "a pipe in its place");
    tap_is_int(keep(&run), ACCEL_OK, "is not waited for");
    unlink(path);
    tap_ok(keep(&run) == ACCEL_OK && says(run.lease.line) && is_locked(),
           "once nothing is in the way the lock is there again");
    lease_drop(&run);
    tap_is_int(keep(&run), ACCEL_OK, "no lease, nothing to keep");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/.lock", dir);
    test_texts();
    test_two_lives();
    test_replaced();
    test_tool();
    test_unusable();
    unlink(path);
    rmdir(dir);
    return tap_done();
}
