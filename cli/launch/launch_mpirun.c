/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of mpirun. Left alone, mpirun answers Ctrl-C and SIGTERM by killing the
 * processes one second later, which is no time to save. In: mpirun's command line and
 * the signals that this process gets. Out: the same signals to the processes
 * themselves, which decide what they mean; mpirun's exit code.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"

/* mpirun never sees these: it inherits them blocked. Its tasks unblock them
 * (launch_mpirun_task). */
static const int ours[] = { SIGINT, SIGTERM, SIGHUP };
/* Warnings of a preemption: mpirun keeps its own handling of them. */
static const int passed_on[] = { SIGUSR1, SIGUSR2 };

/* Adds signals[n] to *set. */
static void add_signals(sigset_t *set, const int *signals, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sigaddset(set, signals[i]);
}

/* Sends `sig` to the processes that one thread of mpirun (the list at `path`) has
 * started. Returns how many got it. */
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

/* The ranks are the children of mpirun's threads: /proc knows them, mpirun does not
 * tell. False: there are none yet. */
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

/* The child. If we are killed, nothing tells the processes to end: mpirun then gets
 * SIGUSR1, the warning, which it passes on to them. Never returns. */
static void run_mpirun_child(pid_t parent, const sigset_t *mask, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    _exit(launch_become(argv));
}

/* Waits for mpirun and returns its exit code. A signal that comes before there are
 * processes is kept, and tried again every 0.1 s until they are there. */
static int wait_for_mpirun(pid_t mpirun, const sigset_t *set)
{
    int wait_status = 0, sig = 0;

    for (;;) {
        /* Without a pending signal SIGCHLD ends the wait. */
        const struct timespec wait = { .tv_sec = sig ? 0 : 3600, .tv_nsec = 100000000 };
        int next = sigtimedwait(set, NULL, &wait);

        if (waitpid(mpirun, &wait_status, WNOHANG) == mpirun)
            return launch_code_of(wait_status);
        if (next > 0 && next != SIGCHLD)
            sig = next;
        if (sig && signal_ranks(mpirun, sig))
            sig = 0;
    }
}

/* Two masks: everything is blocked here and waited for; mpirun gets
 * only `ours` blocked. */
int launch_mpirun(char **argv)
{
    pid_t parent = getpid(), mpirun;
    sigset_t set, before, mask;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    add_signals(&set, ours, ACCEL_ARRAY_SIZE(ours));
    add_signals(&set, passed_on, ACCEL_ARRAY_SIZE(passed_on));
    sigprocmask(SIG_BLOCK, &set, &before);
    mask = before;
    add_signals(&mask, ours, ACCEL_ARRAY_SIZE(ours));
    fflush(NULL);
    mpirun = fork();
    if (mpirun == 0)
        run_mpirun_child(parent, &mask, argv);
    if (mpirun < 0)
        return cli_error(A0325, NULL, "raise ulimit -u", "mpirun cannot be started: %s",
                         strerror(errno));
    return wait_for_mpirun(mpirun, &set);
}

void launch_mpirun_task(void)
{
    sigset_t set;

    sigemptyset(&set);
    add_signals(&set, ours, ACCEL_ARRAY_SIZE(ours));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}
