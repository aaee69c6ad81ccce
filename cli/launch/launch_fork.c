/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of several processes of one program, where no MPI is needed. It
 * starts them, passes signals on, ends the others when one fails, and leaves
 * none behind, their own children included. In: the environment list and the
 * command. Out: an exit code.
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

/* Seconds from SIGTERM to SIGKILL when the run is over. */
enum { GRACE_SECONDS = 10 };

/* Blocked in the parent and passed on. SIGUSR1 and SIGUSR2 are
 * warnings of a preemption. */
static const int forwarded[] = { SIGTERM, SIGINT,  SIGHUP, SIGQUIT,
                                 SIGUSR1, SIGUSR2, SIGCONT };

struct children {
    /* [count]; 0: ended. */
    pid_t *pid;
    /* Started, and still running. */
    int64_t count, left;
    /* Exit code of the first that failed. */
    int code;
    /* When to send SIGKILL (clock_ns); 0: nothing is being ended. */
    int64_t kill_at;
};

/* pid 0 stands for a child that has ended: its number may be
 * another process's by now. */
static void signal_all(const struct children *c, int sig)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->pid[i] > 0)
            kill(c->pid[i], sig);
}

/* Asks all children to end. A second call changes nothing: the
 * first deadline stands. */
static void end_children(struct children *c)
{
    if (c->kill_at)
        return;
    c->kill_at = clock_ns() + GRACE_SECONDS * INT64_C(1000000000);
    signal_all(c, SIGTERM);
}

int launch_become(char **argv)
{
    execvp(argv[0], argv);
    return cli_error(errno == ENOENT ? A0305 : A0306, NULL,
                     "check that it is a program for this machine",
                     "cannot run '%s': %s", argv[0], strerror(errno));
}

int launch_code_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

/* Collects every ended process: ours, and orphans of ours that became our children. */
static void reap_children(struct children *c)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        for (int64_t i = 0; i < c->count; i++) {
            if (c->pid[i] != pid)
                continue;
            c->pid[i] = 0;
            c->left--;
            if (launch_code_of(wait_status) == 0)
                continue;
            if (!c->code)
                c->code = launch_code_of(wait_status);
            end_children(c);
        }
    }
}

/* Signals the processes that ours left behind: as a subreaper we are their parent now.
 * `sig` 0 only asks. False: there are none. */
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

        /* A number at the end of what was read may be cut off. The others of the list
         * come in a later call. */
        if (end == at || !*end)
            return true;
        kill((pid_t)pid, sig);
        at = end;
    }
}

/* The child. A parent that is killed takes it along (PDEATHSIG); the check of getppid
 * covers a parent that died before. Never returns. */
static void run_fork_child(const struct launch_env *env, int64_t i, pid_t parent,
                           const sigset_t *before, char **argv)
{
    accel_error_t err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (launch_env_apply(env, i, &err))
        _exit(cli_fail(&err));
    sigprocmask(SIG_SETMASK, before, NULL);
    _exit(launch_become(argv));
}

/* A fork that fails ends what has been started: a part of a world would only wait. */
static void start_children(const struct launch_env *env, struct children *c,
                           const sigset_t *before, char **argv)
{
    pid_t parent = getpid();

    /* Or every child would write the parent's buffers again. */
    fflush(NULL);
    for (; c->count < env->local_world; c->count++, c->left++) {
        c->pid[c->count] = fork();
        if (c->pid[c->count] == 0)
            run_fork_child(env, c->count, parent, before, argv);
        if (c->pid[c->count] > 0)
            continue;
        c->code = cli_error(A0325, NULL, "raise ulimit -u, or start fewer processes",
                            "process %lld of %lld cannot be started: %s",
                            (long long)c->count + 1, (long long)env->local_world,
                            strerror(errno));
        end_children(c);
        return;
    }
}

/* Waits until all of ours have ended, passing signals on. Those from the
 * kernel's terminal driver (SI_KERNEL) reach the whole process group, so they
 * are not passed on twice. */
static void wait_children(struct children *c, const sigset_t *set)
{
    while (c->left > 0) {
        /* SIGCHLD ends the wait early; a second is fine enough for the deadline. */
        struct timespec wait = { .tv_sec = c->kill_at ? 1 : 3600 };
        siginfo_t info = { 0 };
        int sig = sigtimedwait(set, &info, &wait);

        reap_children(c);
        if (sig > 0 && sig != SIGCHLD && info.si_code != SI_KERNEL)
            signal_all(c, sig);
        if (c->kill_at && clock_ns() > c->kill_at)
            signal_all(c, SIGKILL);
    }
}

/* Ends workers of a data loader and the like, whose own parent is gone. */
static void end_orphans(struct children *c, const sigset_t *set)
{
    int64_t kill_at = clock_ns() + GRACE_SECONDS * INT64_C(1000000000);

    reap_children(c);
    if (!signal_orphans(SIGTERM))
        return;
    for (reap_children(c); signal_orphans(0); reap_children(c)) {
        struct timespec wait = { .tv_nsec = 100000000 };

        sigtimedwait(set, NULL, &wait);
        if (clock_ns() > kill_at)
            signal_orphans(SIGKILL);
    }
}

/* Signals are blocked before the first fork, so none is lost between a start and the
 * wait. Children restore the caller's mask. */
int launch_fork(const struct launch_env *env, char **argv)
{
    struct children c = { .pid = calloc((size_t)env->local_world, sizeof(pid_t)) };
    sigset_t set, before;

    if (!c.pid)
        return cli_no_memory("the processes");
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start_children(env, &c, &before, argv);
    wait_children(&c, &set);
    end_orphans(&c, &set);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(c.pid);
    return c.code;
}
