/* SPDX-License-Identifier: Apache-2.0
 *
 * The requeue of the current batch job by `scontrol`. In: the job's id from the
 * environment, and the job's state as text (the layout of libslurm's structures changes
 * with every release; this text does not). Out: a requeue, at most once per
 * incarnation. Never waits without a deadline, never starts a shell.
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

#include "preemption/requeue.h"

#define ANSWER_MAX    (64 << 10) /* bytes kept of scontrol's output */
#define ANSWER_S      10         /* deadline of one scontrol */
#define LIMIT_SLACK_S 60         /* Slurm checks time limits twice a minute */

extern char **environ;

const char *requeue_result_text(enum requeue_result result)
{
    static const char *const texts[] = {
        [REQUEUE_DONE] = "the job is requeued and will resume automatically",
        [REQUEUE_BY_OTHER] = "the job is already being requeued",
        [REQUEUE_NO_JOB] = "not a Slurm job: run the command again to resume",
        [REQUEUE_NOT_BATCH] =
            "not a batch job: srun requests a new allocation if it is allowed to",
        [REQUEUE_FORBIDDEN] =
            "not requeued: the job was submitted with --no-requeue; submit it again",
        [REQUEUE_NOT_MEANT] =
            "not restarted: the job was cancelled; submit it again to resume",
        [REQUEUE_STOPPED] =
            "not restarted: the run was interrupted; run the same command to resume",
        [REQUEUE_LIMIT] = "not restarted: accel.preemption.max_restarts is reached; "
                          "submit the job again to resume",
        [REQUEUE_LEFT] = "the requeue request failed; srun will try",
        [REQUEUE_SWITCHED_OFF] =
            "not requeued: accel.preemption.requeue is false; submit the job again to "
            "resume",
    };

    return texts[result];
}

const char *stop_reason_text(enum stop_reason reason)
{
    static const char *const texts[] = {
        [STOP_SIGNAL] = "signalled",
        [STOP_PREEMPTED] = "preempted",
        [STOP_TIME_LIMIT] = "near the time limit",
        [STOP_WARNED] = "warned",
        [STOP_REQUEUED] = "requeued",
        [STOP_CANCELLED] = "cancelled",
        [STOP_INTERRUPTED] = "interrupted",
    };

    return texts[reason];
}

/* ---- scontrol -------------------------------------------------------------------- */

/* Starts scontrol with its output on out_fd. The trainer blocks or handles signals, and
 * scontrol must not inherit that: all dispositions are reset. But Slurm signals every
 * process of the step when it ends it, and that must not cut the request off midway, so
 * those signals are blocked. The deadline ends it anyway.  */
static int spawn_scontrol(char *const argv[], int out_fd, pid_t *pid_out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t held, dfl;
    int rc = posix_spawn_file_actions_init(&files);

    if (rc)
        return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc)
        goto out_files;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGUSR1);
    sigaddset(&held, SIGUSR2);
    sigfillset(&dfl);
    sigdelset(&dfl, SIGKILL);
    sigdelset(&dfl, SIGSTOP);
    posix_spawnattr_setsigmask(&attr, &held);
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

/* Collects the child's output until it closes its end; what does not fit into buf is
 * read and dropped, so that the child never blocks. False: the deadline passed or
 * the read failed. */
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

/* It may outlive its output. False: the deadline passed. */
static bool await_end(pid_t pid, int *status, int64_t deadline)
{
    pid_t ended;

    while ((ended = waitpid(pid, status, WNOHANG)) == 0 ||
           (ended < 0 && errno == EINTR)) {
        if (clock_ns() >= deadline)
            return false;
        poll(NULL, 0, 1);
    }
    return true;
}

/* Runs scontrol. Returns its exit status, or -1 if it cannot be run or takes too long.
 * buf: its output, standard error included, or why there is none. */
static int run_scontrol(char *const argv[], int seconds, char *buf, size_t len)
{
    const int64_t deadline = clock_ns() + seconds * INT64_C(1000000000);
    int fd[2], status = -1;
    bool late = false;
    pid_t pid;

    buf[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) != 0)
        return -1;
    int rc = spawn_scontrol(argv, fd[1], &pid);
    close(fd[1]);
    if (rc == 0) {
        late = !read_answer(fd[0], buf, len, deadline) ||
               !await_end(pid, &status, deadline);
        if (late)
            kill(pid, SIGKILL);
        while (late && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(fd[0]);
    if (rc != 0)
        snprintf(buf, len, "cannot run scontrol: %s", strerror(rc));
    else if (late)
        snprintf(buf, len, "scontrol did not answer within %d s", seconds);
    else if (!buf[0])
        snprintf(buf, len, "scontrol ended without an answer");
    return rc == 0 && !late && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- the job's state ------------------------------------------------------------- */

/* Copies the value of the word "NAME=VALUE" in line to out. False: there is no such
 * word. The name must follow a blank: a longer name may end in it. */
static bool field(const char *line, const char *name, char *out, size_t len)
{
    const char *end = line + strcspn(line, "\n");
    size_t n = strlen(name);

    for (const char *p = line; (p = strstr(p, name)) && p < end; p += n) {
        if ((p != line && p[-1] != ' ') || p[n] != '=')
            continue;
        snprintf(out, len, "%.*s", (int)strcspn(p + n + 1, " \n"), p + n + 1);
        return true;
    }
    return false;
}

/* "[DAYS-]HH:MM:SS"; 0 for words such as UNLIMITED. */
static int64_t parse_span(const char *text)
{
    int days = 0, h, m, s;
    const char *dash = strchr(text, '-');

    if (dash && sscanf(text, "%d-", &days) != 1)
        return 0;
    if (sscanf(dash ? dash + 1 : text, "%d:%d:%d", &h, &m, &s) != 3)
        return 0;
    return ((days * INT64_C(24) + h) * 60 + m) * 60 + s;
}

/* "2026-01-31T12:00:00", local time, to seconds since the epoch; 0 for words such as
 * Unknown. */
static int64_t time_field(const char *line, const char *name)
{
    struct tm tm = { .tm_isdst = -1 };
    char v[64] = "";
    const char *end =
        field(line, name, v, sizeof(v)) ? strptime(v, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;

    return end && *end == '\0' ? (int64_t)mktime(&tm) : 0;
}

/* The line of that job; NULL: there is none. */
static const char *line_of(const char *answer, const char *id)
{
    char v[24];

    while (strncmp(answer, "JobId=", 6) != 0 || !field(answer, "JobId", v, sizeof(v)) ||
           strcmp(v, id) != 0) {
        answer = strchr(answer, '\n');
        if (!answer++)
            return NULL;
    }
    return answer;
}

/* Only the name with the element's number means the element alone: to Slurm the number
 * of the last one is the whole array, which would start again. */
static void name_element(const char *line, const char *id, char *buf, size_t len)
{
    char array[24], task[20];

    if (field(line, "ArrayJobId", array, sizeof(array)) &&
        field(line, "ArrayTaskId", task, sizeof(task)))
        snprintf(buf, len, "%s_%s", array, task);
    else
        snprintf(buf, len, "%s", id);
}

bool requeue_parse_job(const char *answer, const char *id,
                       struct requeue_job_facts *facts_out)
{
    const char *line = line_of(answer, id);
    struct requeue_job_facts f = { 0 };
    char v[64];

    if (!line || !field(line, "JobState", v, sizeof(v)))
        return false;
    name_element(line, id, f.job, sizeof(f.job));
    /* While a signal is on its way to the job, Slurm shows this state
     * instead of RUNNING. */
    f.running = !strcmp(v, "RUNNING") || !strcmp(v, "SIGNALING");
    f.cancelled = !strcmp(v, "CANCELLED");
    f.preempted = !strcmp(v, "PREEMPTED");
    if (!field(line, "BatchFlag", v, sizeof(v)))
        return false;
    f.batch = !strcmp(v, "1") || !strcmp(v, "2");
    f.may_requeue = field(line, "Requeue", v, sizeof(v)) && !strcmp(v, "1");
    if (field(line, "Restarts", v, sizeof(v)))
        f.restarts = strtoll(v, NULL, 10);
    if (field(line, "TimeLimit", v, sizeof(v)))
        f.limit_seconds = parse_span(v);
    f.preempt_time = time_field(line, "PreemptTime");
    f.start_time = time_field(line, "StartTime");
    f.end_time = time_field(line, "EndTime");
    *facts_out = f;
    return true;
}

/* The reason for a job that is being killed. Slurm's state is COMPLETING then, whatever
 * the reason was, so times decide. */
static enum stop_reason reason_of_kill(const struct requeue_job_facts *f,
                                       const struct requeue_request *request)
{
    if (f->cancelled)
        return STOP_CANCELLED;
    if (f->preempted)
        return STOP_PREEMPTED;
    /* A batch job that ends before its grace time is over was cancelled within it. For
     * other jobs srun knows more than the state's name. */
    if (f->preempt_time > 0)
        return f->batch && request->grace_seconds > 0 &&
                       f->end_time < f->preempt_time + request->grace_seconds
                   ? STOP_CANCELLED
                   : STOP_PREEMPTED;
    if (f->limit_seconds > 0 && f->end_time - f->start_time >= f->limit_seconds)
        return STOP_TIME_LIMIT;
    return STOP_CANCELLED;
}

enum stop_reason requeue_reason(const struct requeue_job_facts *facts,
                                const struct requeue_request *request, int64_t now)
{
    if (facts->batch && facts->restarts > request->restart)
        return facts->preempt_time > 0 ? STOP_PREEMPTED : STOP_REQUEUED;
    if (!facts->running)
        return reason_of_kill(facts, request);
    if (facts->preempt_time > 0)
        return STOP_PREEMPTED;
    if (facts->end_time > 0 &&
        facts->end_time - now <= request->lead_seconds + LIMIT_SLACK_S)
        return STOP_TIME_LIMIT;
    /* The warning signal means: save and come back. A bare SIGTERM without any other
     * reason is a cancellation. */
    return request->signal == SIGTERM ? STOP_CANCELLED : STOP_WARNED;
}

enum requeue_result requeue_decide(const struct requeue_job_facts *facts,
                                   const struct requeue_request *request,
                                   enum stop_reason reason)
{
    if (facts->batch && facts->restarts > request->restart)
        return REQUEUE_BY_OTHER;
    if (reason == STOP_CANCELLED)
        return REQUEUE_NOT_MEANT;
    if (facts->batch && request->switched_off)
        return REQUEUE_SWITCHED_OFF;
    if (request->restarts >= request->max_restarts)
        return REQUEUE_LIMIT;
    if (!facts->batch)
        return REQUEUE_NOT_BATCH;
    return facts->may_requeue ? REQUEUE_DONE : REQUEUE_FORBIDDEN;
}

/* ---- once ------------------------------------------------------------------------ */

/* Makes the marker with O_EXCL, so that only one process can. 1: it is ours, 0:
 * somebody else's, -1: no marker can be made (then we ask anyway). */
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

/* The id is passed to scontrol and becomes part of a file name: only digits will do. */
static const char *job_id(void)
{
    const char *job = getenv("SLURM_JOB_ID");

    return job && *job && strspn(job, "0123456789") == strlen(job) ? job : NULL;
}

/* Without a buffer there is no answer, and the caller does without one. */
bool requeue_facts(const struct accel_log *log, int seconds,
                   struct requeue_job_facts *facts_out)
{
    const char *job = job_id();
    char *const show[] = { "scontrol", "--oneliner", "show", "job", (char *)job, NULL };
    char *answer = job ? malloc(ANSWER_MAX) : NULL;
    bool known;

    if (!answer)
        return false;
    known = run_scontrol(show, seconds, answer, ANSWER_MAX) == 0 &&
            requeue_parse_job(answer, job, facts_out);
    if (!known) {
        answer[strcspn(answer, "\n")] = '\0';
        accel_logf(log, ACCEL_LOG_WARN, "cannot read the state of job %s: %s", job,
                   answer);
    }
    free(answer);
    return known;
}

struct requeue_ending requeue_look(const struct requeue_request *request,
                                   const struct accel_log *log)
{
    const char *job = job_id();
    struct requeue_ending e = { STOP_SIGNAL, job ? REQUEUE_LEFT : REQUEUE_NO_JOB, "" };
    struct requeue_job_facts facts;

    if (request->signal == SIGINT) { /* no state of the job changes that */
        e.reason = STOP_INTERRUPTED;
        e.result = REQUEUE_STOPPED;
    } else if (requeue_facts(log, ANSWER_S, &facts)) {
        e.reason = requeue_reason(&facts, request, (int64_t)time(NULL));
        e.result = requeue_decide(&facts, request, e.reason);
        snprintf(e.job, sizeof(e.job), "%s", facts.job);
    }
    return e;
}

/* The marker comes before the request: an accepted request may kill this process before
 * it could write anything. If asking fails, the marker is removed again. */
enum requeue_result requeue_ask(const struct requeue_request *request, const char *job,
                                const struct accel_log *log)
{
    const char *id = job_id();
    char *const argv[] = { "scontrol", "requeue", (char *)job, NULL };
    struct strbuf marker = { 0 };
    enum requeue_result result = REQUEUE_LEFT;
    char answer[512];
    int mine = -1;

    if (!id)
        return REQUEUE_NO_JOB;
    if (request->state_dir)
        strbuf_printf(&marker, "%s/requeue.%s.%lld", request->state_dir, id,
                      (long long)request->restart);
    if (marker.s && !marker.failed)
        mine = make_marker(marker.s);
    if (mine == 0) {
        result = REQUEUE_BY_OTHER;
    } else if (run_scontrol(argv, ANSWER_S, answer, sizeof(answer)) == 0) {
        result = REQUEUE_DONE;
    } else {
        answer[strcspn(answer, "\n")] = '\0';
        accel_logf(log, ACCEL_LOG_WARN, "cannot requeue job %s: %s", job, answer);
        if (mine == 1)
            unlink(marker.s); /* nobody asked after all: the srun plugin may */
    }
    strbuf_free(&marker);
    return result;
}
