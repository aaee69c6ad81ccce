/* SPDX-License-Identifier: Apache-2.0
 *
 * Requeue of the present batch job by `scontrol`. In: the job's id from the environment,
 * the job's state as text (the layout of libslurm's structures changes with every release,
 * these words do not). Out: a requeue, at most once per incarnation. Never waits without
 * a deadline, never starts a shell.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "train/requeue.h"

#define ANSWER_MAX    (64 << 10)
#define DEADLINE_NS   INT64_C(10000000000)
#define LIMIT_SLACK_S 60 /* Slurm scans time limits twice a minute */

extern char **environ;

const char *requeue_result_text(enum requeue_result result)
{
    switch (result) {
    case REQUEUE_DONE:
        return "the job is requeued and goes on by itself";
    case REQUEUE_BY_OTHER:
        return "the job is being requeued already";
    case REQUEUE_NO_JOB:
        return "not a Slurm job: run the command again to go on";
    case REQUEUE_NOT_BATCH:
        return "not a batch job: srun asks for a new allocation if it may";
    case REQUEUE_FORBIDDEN:
        return "not requeued: the job was submitted with --no-requeue; submit it again";
    case REQUEUE_NOT_MEANT:
        return "not requeued: the job was cancelled; submit it again to go on";
    case REQUEUE_LEFT:
        return "could not ask Slurm for a requeue; left to srun";
    }
    return "?";
}

/* ---- scontrol ------------------------------------------------------------------------ */

/* The trainer blocks or handles signals; scontrol must not inherit that. */
static int spawn_scontrol(char *const argv[], int out_fd, pid_t *pid_out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, dfl;
    int rc = posix_spawn_file_actions_init(&files);

    if (rc)
        return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc)
        goto out_files;
    sigemptyset(&none);
    sigfillset(&dfl);
    sigdelset(&dfl, SIGKILL);
    sigdelset(&dfl, SIGSTOP);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &dfl);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY,
                                          0);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&files, out_fd, STDOUT_FILENO);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&files, out_fd, STDERR_FILENO);
    if (!rc)
        rc = posix_spawnp(pid_out, "scontrol", &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
out_files:
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* Collects the child's output until it closes it; false at the deadline. */
static bool read_answer(int fd, char *buf, size_t len, int64_t deadline)
{
    size_t have = 0;
    char rest[512];

    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = (deadline - clock_ns()) / 1000000;
        if (left <= 0)
            return false;
        int rc = poll(&p, 1, (int)left);
        if (rc < 0 && errno != EINTR)
            return false;
        if (rc <= 0)
            continue;
        bool full = have + 1 >= len;
        ssize_t n =
            full ? read(fd, rest, sizeof(rest)) : read(fd, buf + have, len - 1 - have);
        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0;
        if (n > 0 && !full)
            have += (size_t)n;
        buf[have] = '\0';
    }
}

/* Exit status of `scontrol ARG...`; -1 when it cannot be run or takes too long. */
static int run_scontrol(char *const argv[], char *buf, size_t len)
{
    int fd[2], status = -1;
    pid_t pid;

    buf[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) != 0)
        return -1;
    int rc = spawn_scontrol(argv, fd[1], &pid);
    close(fd[1]);
    if (rc == 0) {
        if (!read_answer(fd[0], buf, len, clock_ns() + DEADLINE_NS))
            kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(fd[0]);
    if (rc != 0)
        snprintf(buf, len, "cannot run scontrol: %s", strerror(rc));
    return rc == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- the job's state ------------------------------------------------------------------- */

/* Copies the value of " NAME=VALUE"; false when it is not there. */
static bool field(const char *line, const char *name, char *out, size_t len)
{
    size_t n = strlen(name);

    for (const char *p = line; (p = strstr(p, name)); p += n) {
        if ((p != line && p[-1] != ' ') || p[n] != '=')
            continue;
        snprintf(out, len, "%.*s", (int)strcspn(p + n + 1, " \n"), p + n + 1);
        return true;
    }
    return false;
}

static int64_t parse_time(const char *text)
{
    struct tm tm = { .tm_isdst = -1 };
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

    return end && *end == '\0' ? (int64_t)mktime(&tm) : 0;
}

bool requeue_parse_job(const char *line, struct requeue_job_facts *facts_out)
{
    struct requeue_job_facts f = { 0 };
    char v[64];

    if (strncmp(line, "JobId=", 6) != 0 || !field(line, "JobState", v, sizeof(v)))
        return false;
    f.running = !strcmp(v, "RUNNING");
    f.cancelled = !strcmp(v, "CANCELLED");
    f.preempted = !strcmp(v, "PREEMPTED");
    if (!field(line, "BatchFlag", v, sizeof(v)))
        return false;
    f.batch = !strcmp(v, "1") || !strcmp(v, "2");
    f.may_requeue = field(line, "Requeue", v, sizeof(v)) && !strcmp(v, "1");
    if (field(line, "PreemptTime", v, sizeof(v)) && parse_time(v) > 0)
        f.preempted = true;
    if (field(line, "EndTime", v, sizeof(v)))
        f.end_time = parse_time(v);
    *facts_out = f;
    return true;
}

enum requeue_result requeue_decide(const struct requeue_job_facts *facts,
                                   const struct requeue_request *request, int64_t now)
{
    bool near_limit = facts->end_time > 0 &&
                      facts->end_time - now <= request->lead_seconds + LIMIT_SLACK_S;

    if (!facts->batch)
        return REQUEUE_NOT_BATCH;
    if (facts->cancelled && !facts->preempted)
        return REQUEUE_NOT_MEANT;
    if (!facts->may_requeue)
        return REQUEUE_FORBIDDEN;
    if (!facts->running)
        return REQUEUE_BY_OTHER;
    /* A warning signal was asked for; a bare SIGTERM needs a reason to come back. */
    if (request->signal == SIGTERM && !facts->preempted && !near_limit)
        return REQUEUE_NOT_MEANT;
    return REQUEUE_DONE;
}

/* ---- once ------------------------------------------------------------------------------ */

/* 1: the marker is ours, 0: somebody else's, -1: no marker can be made. */
static int make_marker(const char *path)
{
    char text[256], host[128] = "?";
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd < 0)
        return errno == EEXIST ? 0 : -1;
    gethostname(host, sizeof(host) - 1);
    const char *step = getenv("SLURM_STEP_ID");
    int n =
        snprintf(text, sizeof(text), "rank 0 of step %s on %s, process %ld, at %lld\n",
                 step ? step : "?", host, (long)getpid(), (long long)time(NULL));
    /* The content is for people; the name alone decides. */
    if (write(fd, text, (size_t)n) != n)
        (void)0;
    close(fd);
    return 1;
}

static enum requeue_result ask_once(const char *job, const char *marker,
                                    const struct accel_log *log, char *answer)
{
    char *const argv[] = { "scontrol", "requeue", (char *)job, NULL };
    int mine = marker ? make_marker(marker) : -1;

    if (mine == 0)
        return REQUEUE_BY_OTHER;
    if (run_scontrol(argv, answer, ANSWER_MAX) == 0)
        return REQUEUE_DONE;
    answer[strcspn(answer, "\n")] = '\0';
    accel_logf(log, ACCEL_LOG_WARN, "requeue of job %s: %s", job, answer);
    if (mine == 1)
        unlink(marker); /* nobody asked after all: the srun plugin may */
    return REQUEUE_LEFT;
}

static const char *job_id(void)
{
    const char *job = getenv("SLURM_JOB_ID");

    return job && *job && strspn(job, "0123456789") == strlen(job) ? job : NULL;
}

accel_status_t requeue_job(const struct requeue_request *request,
                           const struct accel_log *log, enum requeue_result *result_out,
                           accel_error_t *err)
{
    const char *job = job_id();
    char *const show[] = { "scontrol", "--oneliner", "show", "job", (char *)job, NULL };
    struct requeue_job_facts facts;
    struct strbuf marker = { 0 };
    enum requeue_result result = REQUEUE_LEFT;

    if (!job) {
        *result_out = REQUEUE_NO_JOB;
        return ACCEL_OK;
    }
    char *answer = malloc(ANSWER_MAX);
    if (!answer)
        return accel_fail_nomem(err, "the answer of scontrol", ANSWER_MAX);
    if (run_scontrol(show, answer, ANSWER_MAX) != 0 ||
        !requeue_parse_job(answer, &facts)) {
        answer[strcspn(answer, "\n")] = '\0';
        accel_logf(log, ACCEL_LOG_WARN, "state of job %s: %s", job, answer);
        goto out;
    }
    result = requeue_decide(&facts, request, (int64_t)time(NULL));
    if (result != REQUEUE_DONE)
        goto out;
    if (request->state_dir)
        strbuf_printf(&marker, "%s/requeue.%s.%ld", request->state_dir, job,
                      env_long("SLURM_RESTART_COUNT", 0));
    result = ask_once(job, marker.failed ? NULL : marker.s, log, answer);
out:
    *result_out = result;
    strbuf_free(&marker);
    free(answer);
    return ACCEL_OK;
}
