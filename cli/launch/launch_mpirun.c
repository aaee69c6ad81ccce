/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of mpirun. By itself mpirun answers Ctrl-C and SIGTERM by killing the processes
 * one second later, which is no time to save. In: mpirun's command line and the signals that
 * this process gets. Out: the same signals to the processes themselves, which decide what
 * they mean; mpirun's exit code.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"

/* mpirun never sees these: it has inherited them blocked. */
static const int ours[] = { SIGINT, SIGTERM, SIGHUP };
static const int passed_on[] = { SIGUSR1, SIGUSR2 };

static void set_of(sigset_t *set, const int *signals, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sigaddset(set, signals[i]);
}

/* Sends `sig` to the processes that the thread of mpirun at `path` has started; their number. */
static int signal_children(const char *path, int sig)
{
    FILE *f = fopen(path, "re");
    int n = 0;
    long pid;

    while (f && fscanf(f, "%ld", &pid) == 1)
        n += kill((pid_t)pid, sig) == 0;
    if (f)
        fclose(f);
    return n;
}

static bool signal_ranks(pid_t mpirun, int sig)
{
    char path[300];
    struct dirent *e;
    DIR *d;
    int n = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)mpirun);
    d = opendir(path);
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)mpirun,
                 e->d_name);
        n += signal_children(path, sig);
    }
    if (d)
        closedir(d);
    return n > 0;
}

/* Without us nobody tells the processes to end: they get the warning, as mpirun passes it on. */
static void run_child(pid_t parent, const sigset_t *mask, char **argv)
{
    accel_error_t err;

    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    accel_fail(&err, errno == ENOENT ? A0305 : A0306,
               "check that it is a program for this machine", "cannot run '%s': %s",
               argv[0], strerror(errno));
    _exit(cli_fail(&err));
}

/* What comes before there are processes waits for them. */
static int wait_for(pid_t mpirun, const sigset_t *set)
{
    int status = 0, sig = 0;

    for (;;) {
        const struct timespec wait = { .tv_sec = sig ? 0 : 3600, .tv_nsec = 100000000 };
        int next = sigtimedwait(set, NULL, &wait);

        if (waitpid(mpirun, &status, WNOHANG) == mpirun)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (next > 0 && next != SIGCHLD)
            sig = next;
        if (sig && signal_ranks(mpirun, sig))
            sig = 0;
    }
}

int launch_mpirun(char **argv)
{
    pid_t parent = getpid(), mpirun;
    sigset_t set, before, mask;
    accel_error_t err;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    set_of(&set, ours, ACCEL_ARRAY_SIZE(ours));
    set_of(&set, passed_on, ACCEL_ARRAY_SIZE(passed_on));
    sigprocmask(SIG_BLOCK, &set, &before);
    mask = before;
    set_of(&mask, ours, ACCEL_ARRAY_SIZE(ours));
    fflush(NULL);
    mpirun = fork();
    if (mpirun == 0)
        run_child(parent, &mask, argv);
    if (mpirun < 0) {
        accel_fail(&err, A0325, "see ulimit -u", "mpirun cannot be started: %s",
                   strerror(errno));
        return cli_fail(&err);
    }
    return wait_for(mpirun, &set);
}

void launch_mpirun_task(void)
{
    sigset_t set;

    sigemptyset(&set);
    set_of(&set, ours, ACCEL_ARRAY_SIZE(ours));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}
