/* SPDX-License-Identifier: Apache-2.0
 *
 * One run at a time per checkpoint directory. Rank 0 holds a lock on DIR/.lock from
 * accel_prepare to accel_close; the file says who. In: the directory. Out: the lock, or an
 * error that names the holder. A dead holder's lock is free at once: the kernel drops it.
 * Only a later life of the same job pushes a live holder aside: Slurm requeues a job while
 * tasks of it still run on a node that it lost. Locks need not reach over nodes: what the
 * file says decides at every commit, and a save under way loses its directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "train/run.h"

#define LEASE_FILE   ".lock"
#define LEASE_WAIT_S 5

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

/* First line of the file, made printable: somebody else wrote it. */
static void read_holder(int fd, char *buf, size_t len)
{
    ssize_t n = pread(fd, buf, len - 1, 0);

    buf[n > 0 ? n : 0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    for (char *c = buf; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
}

/* From here on whoever held the lock before finds that he lost it, on every node. */
static int write_holder(int fd, const char *text)
{
    size_t len = strlen(text);

    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, len, 0) != (ssize_t)len)
        return errno;
    return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

/* Is `holder` an earlier life of the job that `us` is one of? */
static bool is_earlier(const char *holder, const struct incarnation *us)
{
    struct incarnation h = { 0 };
    int n = sscanf(holder, "job %ld (restart %ld of job %ld)", &h.job, &h.restart,
                   &h.first_job);

    if (n == 2)
        h.first_job = h.job;
    return n >= 2 && us->job > 0 && h.first_job == us->first_job &&
           h.restart < us->restart;
}

/* The next incarnation may start while the last rank 0 is still on its way out. */
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

static void lease_path(const accel_t *run, char *buf, size_t len)
{
    snprintf(buf, len, "%s/%s", run->ckpt_dir, LEASE_FILE);
}

accel_status_t lease_take(accel_t *run, accel_error_t *err)
{
    char path[sizeof(run->ckpt_dir) + sizeof(LEASE_FILE) + 1];
    char holder[sizeof(run->lease)];
    int rc;

    lease_path(run, path, sizeof(path));
    run->lease_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (run->lease_fd < 0)
        return accel_fail_at(err, A0821, path,
                             "make the directory writable, or choose another --out or "
                             "accel.checkpoint.dir",
                             "cannot open the lock of the checkpoints: %s",
                             strerror(errno));
    describe_us(&run->incarnation, run->lease, sizeof(run->lease));
    rc = lock_within(run->lease_fd, LEASE_WAIT_S);
    read_holder(run->lease_fd, holder, sizeof(holder));
    if (rc == EWOULDBLOCK && !is_earlier(holder, &run->incarnation))
        return accel_fail_at(err, A0822, run->ckpt_dir,
                             "wait for it or cancel it, or give this run another --out "
                             "(or accel.checkpoint.dir); in a job array: one for each "
                             "$SLURM_ARRAY_TASK_ID",
                             "another run is at work here: %s", holder);
    if (rc == EWOULDBLOCK)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "%s: an earlier incarnation still runs (%s); it saves no more",
                   run->ckpt_dir, holder);
    else if (rc != 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "%s: no locks here (%s): nothing keeps a second run out", path,
                   strerror(rc));
    rc = write_holder(run->lease_fd, run->lease);
    if (rc != 0)
        return accel_fail_at(err, A0920, path, "free space, or check the file system",
                             "cannot write the lock of the checkpoints: %s",
                             strerror(rc));
    /* Whoever is in the middle of a save and looked at the lock before. */
    return accel_ckpt_fence(run->ckpt_dir, err);
}

accel_status_t lease_keep(const accel_t *run, accel_error_t *err)
{
    char path[sizeof(run->ckpt_dir) + sizeof(LEASE_FILE) + 1];
    char holder[sizeof(run->lease)];
    int fd;

    if (run->lease_fd < 0)
        return ACCEL_OK;
    /* Opened anew: on a network file system that is what asks the server. */
    lease_path(run, path, sizeof(path));
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return ACCEL_OK; /* removed by hand: nobody took it */
    if (fd < 0)
        return accel_fail_at(err, A0924, path, "check the file system",
                             "cannot read the lock of the checkpoints: %s",
                             strerror(errno));
    read_holder(fd, holder, sizeof(holder));
    close(fd);
    if (strcmp(holder, run->lease) == 0)
        return ACCEL_OK;
    return accel_fail_at(
        err, A0823, run->ckpt_dir,
        "nothing to do: the other one goes on; cancel it to go on here",
        "a later incarnation of this job took over: %s", holder);
}

void lease_drop(accel_t *run)
{
    if (run->lease_fd >= 0)
        close(run->lease_fd);
    run->lease_fd = -1;
}
