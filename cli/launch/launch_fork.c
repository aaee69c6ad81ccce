/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of several processes of one program, where no MPI is needed: starts them, hands
 * signals down, ends the others when one fails, and leaves none behind, their own children
 * included. In: the environment list and the command. Out: an exit code.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"

/* From SIGTERM to SIGKILL when the run is over. */
enum { GRACE_SECONDS = 10 };

static const int forwarded[] = { SIGTERM, SIGINT,  SIGHUP, SIGQUIT,
                                 SIGUSR1, SIGUSR2, SIGCONT };

struct children {
    pid_t *pid; /* 0: ended */
    int64_t count, left;
    int code;        /* of the first that failed */
    int64_t kill_at; /* clock_ns(); 0: nobody is being ended */
};

static void signal_all(const struct children *c, int sig)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->pid[i] > 0)
            kill(c->pid[i], sig);
}

static void end_all(struct children *c)
{
    if (c->kill_at)
        return;
    c->kill_at = clock_ns() + GRACE_SECONDS * INT64_C(1000000000);
    signal_all(c, SIGTERM);
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Takes every ended process; ours and those that ours left to us. */
static void reap(struct children *c)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int64_t i = 0; i < c->count; i++) {
            if (c->pid[i] != pid)
                continue;
            c->pid[i] = 0;
            c->left--;
            if (code_of(status) == 0)
                continue;
            if (!c->code)
                c->code = code_of(status);
            end_all(c);
        }
    }
}

/* Signals whatever our processes left behind: it is our child now. False: there is none. */
static bool signal_orphans(int sig)
{
    char path[64], text[4096], *at = text;
    int fd;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    for (;;) {
        char *end;
        long pid = strtol(at, &end, 10);

        /* A number that touches the end of what was read may be cut. */
        if (end == at || !*end)
            return true;
        kill((pid_t)pid, sig);
        at = end;
    }
}

/* The child: a parent that is killed takes it along. Never returns. */
static void run_child(const struct launch_env *env, int64_t i, pid_t parent,
                      const sigset_t *before, char **argv)
{
    accel_error_t err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (launch_env_apply(env, i, &err)) {
        _exit(cli_fail(&err));
    }
    sigprocmask(SIG_SETMASK, before, NULL);
    execvp(argv[0], argv);
    accel_fail(&err, errno == ENOENT ? A0305 : A0306,
               "check that it is a program for this machine", "cannot run '%s': %s",
               argv[0], strerror(errno));
    _exit(cli_fail(&err));
}

static void start_all(const struct launch_env *env, struct children *c,
                      const sigset_t *before, char **argv)
{
    pid_t parent = getpid();
    accel_error_t err;

    fflush(NULL);
    for (; c->count < env->local_world; c->count++, c->left++) {
        c->pid[c->count] = fork();
        if (c->pid[c->count] == 0)
            run_child(env, c->count, parent, before, argv);
        if (c->pid[c->count] > 0)
            continue;
        accel_fail(&err, A0325, "see ulimit -u, or start fewer processes",
                   "process %lld of %lld cannot be started: %s",
                   (long long)c->count + 1, (long long)env->local_world,
                   strerror(errno));
        c->code = cli_fail(&err);
        end_all(c);
        return;
    }
}

/* Until all of ours have ended. What a terminal sends, it sends to them as well. */
static void wait_all(struct children *c, const sigset_t *set)
{
    while (c->left > 0) {
        struct timespec wait = { .tv_sec = c->kill_at ? 1 : 3600 };
        siginfo_t info = { 0 };
        int sig = sigtimedwait(set, &info, &wait);

        reap(c);
        if (sig > 0 && sig != SIGCHLD && info.si_code != SI_KERNEL)
            signal_all(c, sig);
        if (c->kill_at && clock_ns() > c->kill_at)
            signal_all(c, SIGKILL);
    }
}

/* Workers of a data loader and the like, whose parent is gone. */
static void end_orphans(struct children *c, const sigset_t *set)
{
    int64_t kill_at = clock_ns() + GRACE_SECONDS * INT64_C(1000000000);

    reap(c);
    if (!signal_orphans(SIGTERM))
        return;
    for (reap(c); signal_orphans(0); reap(c)) {
        struct timespec wait = { .tv_nsec = 100000000 };

        sigtimedwait(set, NULL, &wait);
        if (clock_ns() > kill_at)
            signal_orphans(SIGKILL);
    }
}

int launch_fork(const struct launch_env *env, char **argv)
{
    struct children c = { .pid = calloc((size_t)env->local_world, sizeof(pid_t)) };
    sigset_t set, before;
    accel_error_t err;

    if (!c.pid) {
        accel_fail_nomem(&err, "the processes", 0);
        return cli_fail(&err);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start_all(env, &c, &before, argv);
    wait_all(&c, &set);
    end_orphans(&c, &set);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(c.pid);
    return c.code;
}
