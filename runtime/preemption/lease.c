/* SPDX-License-Identifier: Apache-2.0
 *
 * One run at a time per checkpoint directory. Rank 0 holds a lock on DIR/.lock from
 * accel_prepare to accel_close; the file names the holder. In: the directory. Out: the
 * lock, or an error that names the holder. A dead holder's lock is free at once,
 * because the kernel drops it. Only a later attempt of the same job may displace a live
 * holder: Slurm requeues a job while tasks of it still run on a node that it lost.
 * Locks need not work across nodes: at every commit the contents of the file decide,
 * and the directory of a save under way is taken away. A file without contents
 * (removed, emptied, unreadable) ends no run: the holder of the lock writes it again,
 * or a warning is given.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "accel_ckpt.h"
#include "common/plain_file.h"

#define LEASE_FILE   ".lock"
#define LEASE_WAIT_S 5   /* for a run that is ending */
#define LEASE_READ_S 1   /* for a new holder to write its line */
#define LEASE_TOOL_S 600 /* for `accel ckpt repair` and the like to end */
#define LEASE_LINE   sizeof(((struct lease *)0)->line)

/* "job 12 (restart 1) on n1, process 77, since 2026-01-01 12:00:00", one line; with
 * "(restart 1 of job 11)" when srun asked for a new allocation. */
static void describe_us(const struct incarnation *us, char *buf, size_t len)
{
    char host[128] = "?", since[32] = "?", who[96] = "a process without a job";
    time_t now = time(NULL);
    struct tm tm;

    gethostname(host, sizeof(host) - 1);
    if (localtime_r(&now, &tm))
        strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S", &tm);
    if (us->job > 0 && us->first_job != us->job)
        snprintf(who, sizeof(who), "job %ld (restart %ld of job %ld)", us->job,
                 us->restart, us->first_job);
    else if (us->job > 0)
        snprintf(who, sizeof(who), "job %ld (restart %ld)", us->job, us->restart);
    snprintf(buf, len, "%s on %s, process %ld, since %s", who, host, (long)getpid(),
             since);
}

/* Reads the first line of the file. Somebody else wrote it, and it goes to the log, so
 * it is made printable. Returns 0, or errno with an empty line. */
static int read_holder(int fd, char *buf, size_t len)
{
    ssize_t n = pread(fd, buf, len - 1, 0);
    int rc = n < 0 ? errno : 0;

    buf[n > 0 ? n : 0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    for (char *c = buf; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
    return rc;
}

/* Writes our line. From here on an earlier holder finds on every node that it lost the
 * lock. The line is written before the file is cut to its length: nobody ever reads an
 * empty file. Returns 0, or errno. EINVAL of fsync: a file system that cannot sync. */
static int write_holder(int fd, const char *text)
{
    char line[LEASE_LINE + 1];
    int len = snprintf(line, sizeof(line), "%s\n", text);

    errno = ENOSPC; /* of a write that is too short */
    if (pwrite(fd, line, (size_t)len, 0) != len || ftruncate(fd, len) != 0)
        return errno;
    return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

/* What the line in the file says of its writer. */
enum holder {
    NOBODY,  /* no such line */
    US,      /* this very run */
    EARLIER, /* an earlier attempt of our job */
    ANOTHER, /* a later attempt, or another run */
};

/* Is it a complete line as describe_us writes it? Half a line (a full disk, a reader in
 * between) names nobody. *job_out: the job in it, zeroed if it has none. */
static bool is_whole(const char *line, struct incarnation *job_out)
{
    static const char *const forms[] = {
        "job %ld (restart %ld of job %ld) on %*s process %*d, since %*10c %*8c%n",
        "job %ld (restart %ld) on %*s process %*d, since %*10c %*8c%n",
        "a process without a job on %*s process %*d, since %*10c %*8c%n",
    };
    int n[3] = { 0 };
    struct incarnation a = { 0 }, b = { 0 };

    sscanf(line, forms[0], &a.job, &a.restart, &a.first_job, &n[0]);
    sscanf(line, forms[1], &b.job, &b.restart, &n[1]);
    sscanf(line, forms[2], &n[2]);
    b.first_job = b.job;
    *job_out = n[0] ? a : n[1] ? b : (struct incarnation){ 0 };
    return (n[0] && !line[n[0]]) || (n[1] && !line[n[1]]) || (n[2] && !line[n[2]]);
}

/* An attempt is earlier if it belongs to the same first job and has a smaller number.
 * Without a job there are no attempts: any other line is another run. */
static enum holder who_holds(const char *line, const char *ours,
                             const struct incarnation *us)
{
    struct incarnation h;

    if (strcmp(line, ours) == 0)
        return US;
    if (!is_whole(line, &h))
        return NOBODY;
    return us->job > 0 && h.first_job == us->first_job && h.restart < us->restart
               ? EARLIER
               : ANOTHER;
}

/* Takes the lock, waiting some seconds: the next incarnation may start while the last
 * rank 0 is still on its way out. Returns 0, EWOULDBLOCK if somebody holds it, or errno
 * if the file system has no locks. */
static int lock_within(int fd, int seconds)
{
    int64_t deadline = clock_ns() + seconds * INT64_C(1000000000);
    struct timespec pause = { .tv_nsec = 50000000 };

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno;
        if (clock_ns() >= deadline)
            return EWOULDBLOCK;
        nanosleep(&pause, NULL);
    }
    return 0;
}

static bool is_tool(const char *holder)
{
    return strncmp(holder, ACCEL_CKPT_TOOL, strlen(ACCEL_CKPT_TOOL)) == 0;
}

/* A person's tool holds the lock and ends by itself: a restart that nobody watches must
 * not be lost to it. As lock_within; a stop ends the wait. */
static int lock_behind_tool(struct preemption *p, char *holder, size_t len)
{
    const int64_t deadline = clock_ns() + LEASE_TOOL_S * INT64_C(1000000000);
    bool said = false;
    int rc;

    do {
        rc = lock_within(p->lease.fd, said ? LEASE_READ_S : LEASE_WAIT_S);
        read_holder(p->lease.fd, holder, len);
        if (rc != EWOULDBLOCK || !is_tool(holder))
            return rc;
        if (!said)
            accel_logf(p->log, ACCEL_LOG_INFO, "%s: waiting for %s", p->directory,
                       holder);
        said = true;
    } while (clock_ns() < deadline && signals_pending() == 0);
    return rc;
}

static void lease_path(const struct preemption *p, char *buf, size_t len)
{
    snprintf(buf, len, "%s/%s", p->directory, LEASE_FILE);
}

/* The error when another run holds the directory. `holder`: its line, perhaps empty. */
static accel_status_t lease_refuse(const struct preemption *p, const char *holder,
                                   accel_error_t *err)
{
    return accel_fail_at(
        err, A0822, p->directory,
        "wait for that run or cancel it, or give this run a directory of its own "
        "(--out or accel.checkpoint.dir; in Python that of accel_slurm.job, or the "
        "Trainer's output_dir); in a job array, use one per $SLURM_ARRAY_TASK_ID",
        "%s is using this directory: %s", is_tool(holder) ? "a tool" : "another run",
        holder[0] ? holder : "the lock does not say which");
}

/* In this order: lock, read, judge, write, fence. The lock alone does not decide: an
 * earlier attempt loses although it holds the lock, and without locks (some network
 * file systems) the run continues with a warning. */
accel_status_t lease_take(struct preemption *p, accel_error_t *err)
{
    char path[DIRECTORY_MOST + sizeof(LEASE_FILE) + 1];
    char holder[LEASE_LINE];
    enum holder who;
    int rc;

    lease_path(p, path, sizeof(path));
    p->lease.fd = plain_open(AT_FDCWD, path, O_RDWR | O_CREAT);
    if (p->lease.fd < 0)
        return accel_fail_at(
            err, A0821, path,
            "make the directory writable, or use another --out or accel.checkpoint.dir",
            "cannot open the checkpoint lock: %s", plain_error(errno));
    describe_us(&p->incarnation, p->lease.line, sizeof(p->lease.line));
    rc = lock_behind_tool(p, holder, sizeof(holder));
    if (rc == EWOULDBLOCK && is_tool(holder) && signals_pending()) {
        snprintf(p->declined, sizeof(p->declined), "a tool is using this directory: %s",
                 holder);
        return ACCEL_ERESUME;
    }
    who = who_holds(holder, p->lease.line, &p->incarnation);
    if (rc == EWOULDBLOCK && who != EARLIER)
        return lease_refuse(p, holder, err);
    if (rc == EWOULDBLOCK)
        accel_logf(p->log, ACCEL_LOG_WARN,
                   "%s: an earlier attempt of this job is still running (%s); "
                   "it will save no more",
                   p->directory, holder);
    else if (rc != 0)
        accel_logf(
            p->log, ACCEL_LOG_WARN,
            "%s: the file system has no locks (%s): a second run could write here too",
            path, strerror(rc));
    rc = write_holder(p->lease.fd, p->lease.line);
    if (rc != 0)
        return accel_fail_at(err, A0920, path, "free space, or check the file system",
                             "cannot write the checkpoint lock: %s", strerror(rc));
    /* An earlier attempt in the middle of a save may have read the file before we wrote
     * it: this takes its unfinished save away. */
    return p->fence ? p->fence(p->directory, err) : ACCEL_OK;
}

/* The error of a run that lost the directory to another one. */
static accel_status_t fenced(const struct preemption *p, const char *holder,
                             accel_error_t *err)
{
    const struct incarnation *us = &p->incarnation;
    struct incarnation h;
    bool later = is_whole(holder, &h) && us->job > 0 && h.first_job == us->first_job;

    return accel_fail_at(
        err, A0823, p->directory,
        "do nothing: the other run continues; to continue here instead, cancel it",
        "%s took over: %s", later ? "a later attempt of this job" : "another run",
        holder[0] ? holder : "the lock does not say which");
}

/* The lock file cannot be used: warns once, and the run continues. `error`: errno. */
static accel_status_t go_on(struct preemption *p, const char *path, const char *what,
                            int error)
{
    if (!p->lease.warned)
        accel_logf(p->log, ACCEL_LOG_WARN,
                   "%s: %s (%s): a second run could write here too; training continues",
                   path, what, plain_error(error));
    p->lease.warned = true;
    return ACCEL_OK;
}

/* The lock file was replaced: takes the lock on the new one, `fd`, and drops the old
 * one. False: somebody else holds it who is not an earlier attempt of ours; `holder` is
 * then its line and `fd` closed. */
static bool hold_instead(struct preemption *p, int fd, bool forced, char *holder,
                         size_t len)
{
    int rc = lock_within(fd, LEASE_READ_S);

    read_holder(fd, holder, len);
    if (rc == EWOULDBLOCK && !forced &&
        who_holds(holder, p->lease.line, &p->incarnation) != EARLIER) {
        close(fd);
        return false;
    }
    close(p->lease.fd);
    p->lease.fd = fd;
    return true;
}

/* Nobody took over, but the file does not name us: writes our line again.
 * `forced`: it names an earlier attempt, which must learn of us whether or not it
 * still holds the lock. */
static accel_status_t restore(struct preemption *p, const char *path, bool forced,
                              accel_error_t *err)
{
    int fd = plain_open(AT_FDCWD, path, O_RDWR | O_CREAT);
    struct stat ours = { 0 }, there;
    char holder[LEASE_LINE];
    int rc;

    if (fd < 0)
        return go_on(p, path, "cannot rewrite the lock", errno);
    if (fstat(fd, &there) == 0 && fstat(p->lease.fd, &ours) == 0 &&
        there.st_dev == ours.st_dev && there.st_ino == ours.st_ino) {
        close(fd);
        /* Same file. Our lock is held already, so this changes nothing; without locks
         * it fails and changes nothing either. */
        rc = flock(p->lease.fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (rc == EWOULDBLOCK && !forced)
            return go_on(p, path, "the lock is empty, and another process holds it",
                         rc);
    } else if (!hold_instead(p, fd, forced, holder, sizeof(holder))) {
        return fenced(p, holder, err);
    }
    rc = write_holder(p->lease.fd, p->lease.line);
    if (rc != 0)
        return go_on(p, path, "cannot rewrite the lock", rc);
    accel_logf(p->log, ACCEL_LOG_WARN,
               "%s: the checkpoint lock was changed by another process; rewritten",
               path);
    return ACCEL_OK;
}

accel_status_t lease_keep(struct preemption *p, accel_error_t *err)
{
    char path[DIRECTORY_MOST + sizeof(LEASE_FILE) + 1];
    char holder[LEASE_LINE];
    int fd, rc;

    if (p->lease.fd < 0)
        return ACCEL_OK;
    /* Opened again, not read through lease_fd: on a network file system only an open
     * asks the server for the present contents. */
    lease_path(p, path, sizeof(path));
    fd = plain_open(AT_FDCWD, path, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        return restore(p, path, false, err);
    if (fd < 0)
        return go_on(p, path, "cannot read the lock", errno);
    rc = read_holder(fd, holder, sizeof(holder));
    close(fd);
    if (rc != 0)
        return go_on(p, path, "cannot read the lock", rc);
    switch (who_holds(holder, p->lease.line, &p->incarnation)) {
    case US:
        p->lease.warned = false;
        return ACCEL_OK;
    case ANOTHER:
        return fenced(p, holder, err);
    case EARLIER:
        return restore(p, path, true, err);
    case NOBODY:
        break;
    }
    return restore(p, path, false, err);
}

void lease_drop(struct preemption *p)
{
    if (p->lease.fd >= 0)
        close(p->lease.fd);
    p->lease.fd = -1;
}
