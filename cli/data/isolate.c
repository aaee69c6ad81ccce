/* SPDX-License-Identifier: Apache-2.0
 *
 * A child with limits on time and memory, no core file, no files to write and no output
 * but a pipe. In: a function. Out: its lines, its status, or how it ended. The parent
 * believes nothing that comes through the pipe except that it is a number and text.
 */
#include "cli/data/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Lines a child may send, so that it cannot fill the parent's table; bytes of each. */
#define LINES_MAX  1000
#define LINE_BYTES 1200

/* A packet is a kind ('L'ine or 'E'nd) and a body of fixed size: there are no lengths
 * that a child could lie about. */
struct packet {
    char kind;
    accel_status_t status;
    accel_error_t err;
    char line[LINE_BYTES];
};

/* ---- the child ------------------------------------------------------------------- */

/* Writes one packet, or ends the child when the parent has gone. */
static void send_packet(int fd, const struct packet *m)
{
    const char *p = (const char *)m;
    size_t left = sizeof(*m);

    while (left > 0) {
        ssize_t n = write(fd, p, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(1); /* the parent has enough */
        p += n;
        left -= (size_t)n;
    }
}

/* isolate_say in the child; `user` points at the pipe. */
static void say_line(void *user, accel_status_t what, const char *line)
{
    struct packet m = { .kind = 'L', .status = what };

    snprintf(m.line, sizeof(m.line), "%s", line);
    send_packet(*(int *)user, &m);
}

/* Bytes this process has mapped: RLIMIT_AS counts them, so the
 * limit starts from here. */
static size_t mapped(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;

    if (f) {
        if (fscanf(f, "%lu", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void set_limit(int what, size_t soft, size_t hard)
{
    setrlimit(what, &(struct rlimit){ soft, hard });
}

/* What the child gives up before it touches the data. The processor time and the memory
 * are hard limits, so the code it runs cannot raise them again. */
static void confine(const struct isolate_limits *l)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0); /* no core file, wherever those go */
    for (int fd = 0; null >= 0 && fd <= 2; fd++)
        dup2(null, fd); /* malloc's last words */
    set_limit(RLIMIT_CORE, 0, 0);
    set_limit(RLIMIT_FSIZE, 0, 0);
    set_limit(RLIMIT_CPU, (size_t)l->cpu_seconds, (size_t)l->cpu_seconds);
    set_limit(RLIMIT_AS, mapped() + l->more_memory, mapped() + l->more_memory);
}

static void run_child_work(isolate_work *work, void *arg,
                           const struct isolate_limits *limits, int fd)
    __attribute__((noreturn));

static void run_child_work(isolate_work *work, void *arg,
                           const struct isolate_limits *limits, int fd)
{
    struct packet m = { .kind = 'E' };

    confine(limits);
    /* _exit below: no destructors of libraries that may be confused by now. */
    m.status = work(arg, say_line, &fd, &m.err);
    send_packet(fd, &m);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------ */

/* Ends the text and replaces control characters: a forged file must not drive
 * the user's terminal. */
static void make_printable(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
}

/* Reads one packet by the deadline (clock_ns). 1: a packet; 0: the other end is closed;
 * -1: out of time. Texts are printable afterwards. */
static int receive_packet(int fd, struct packet *m, int64_t deadline)
{
    char *p = (char *)m;
    size_t left = sizeof(*m);

    while (left > 0) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        int64_t ms = (deadline - clock_ns()) / 1000000;
        ssize_t n;

        if (ms <= 0)
            return -1;
        /* A poll that times out or is interrupted comes round to the deadline above. */
        if (poll(&wait, 1, ms > 60000 ? 60000 : (int)ms) <= 0)
            continue;
        n = read(fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        p += n;
        left -= (size_t)n;
    }
    make_printable(m->line, sizeof(m->line));
    make_printable(m->err.where, sizeof(m->err.where));
    make_printable(m->err.text, sizeof(m->err.text));
    make_printable(m->err.hint, sizeof(m->err.hint));
    return 1;
}

/* Listens until the child is done, gone or out of time. */
static enum isolate_end listen_to(int fd, int64_t deadline, isolate_say *say,
                                  void *user, struct packet *m)
{
    /* The end packet is one more than the lines. */
    for (int lines = 0; lines <= LINES_MAX; lines++) {
        int r = receive_packet(fd, m, deadline);

        if (r <= 0)
            return r ? ISOLATE_TOO_LONG : ISOLATE_CRASHED;
        if (m->kind == 'E')
            return ISOLATE_DONE;
        say(user, m->status, m->line);
    }
    return ISOLATE_TOO_LONG;
}

/* How the child ended. The kernel sends SIGKILL at the hard limit of processor time as
 * well, so it counts as too long. */
static enum isolate_end how_it_ended(enum isolate_end end, int wait_status)
{
    bool killed = WIFSIGNALED(wait_status) && (WTERMSIG(wait_status) == SIGXCPU ||
                                               WTERMSIG(wait_status) == SIGKILL);

    return end == ISOLATE_CRASHED && killed ? ISOLATE_TOO_LONG : end;
}

/* stdio is flushed before the fork, or the child's exit could write the buffers twice.
 * The child is always reaped: the pipe's end alone does not tell how it ended. */
accel_status_t isolate_run(isolate_work *work, void *arg,
                           const struct isolate_limits *limits, isolate_say *say,
                           void *user, enum isolate_end *end_out,
                           accel_status_t *status_out, accel_error_t *err)
{
    int64_t deadline = clock_ns() + limits->wall_seconds * INT64_C(1000000000);
    struct packet *m = calloc(1, sizeof(*m));
    int fd[2], wait_status = 0;
    pid_t pid;

    if (!m)
        return accel_fail_nomem(err, "a packet", sizeof(*m));
    if (pipe2(fd, O_CLOEXEC)) {
        free(m);
        return accel_fail(err, A0844, "free processes and files", "pipe: %m");
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(fd[0]);
        run_child_work(work, arg, limits, fd[1]);
    }
    /* The child has the only writing end: its death ends the parent's reading. */
    close(fd[1]);
    if (pid < 0) {
        close(fd[0]);
        free(m);
        return accel_fail(err, A0844, "free processes and files", "fork: %m");
    }
    *end_out = listen_to(fd[0], deadline, say, user, m);
    close(fd[0]);
    /* It may be running still, or have sent its end and hang in an exit handler. */
    if (*end_out != ISOLATE_CRASHED)
        kill(pid, SIGKILL);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    *end_out = how_it_ended(*end_out, wait_status);
    /* Outputs only where the work returned: a forged status is an integer, no more. */
    if (*end_out == ISOLATE_DONE) {
        *status_out = m->status;
        if (err)
            *err = m->err;
    }
    free(m);
    return ACCEL_OK;
}
