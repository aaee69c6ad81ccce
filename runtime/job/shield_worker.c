/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker processes of data loaders. Slurm sends its signals to every process of a step,
 * and a worker that dies of one makes its owner fail before it can save. A worker must
 * still end by its owner's SIGTERM, and must not outlive its parent. (A worker that
 * ignored SIGTERM would hang the owner's exit.)
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "accel_job.h"

/* Who may end this process, and who must be alive. */
static pid_t owner_pid, parent_pid;

/* From the owner it ends the process, as the default would. */
static void on_term(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_pid != owner_pid)
        return;
    signal(sig, SIG_DFL);
    raise(sig); /* comes when this handler returns, which unblocks it */
}

/* A warning, which means nothing here, or the kernel's word that the thread which made
 * this process has ended: perhaps without its process. */
static void on_warning(int sig)
{
    (void)sig;
    if (getppid() != parent_pid)
        raise(SIGKILL);
}

/* SA_RESTART: system calls of the program do not fail because of us. */
static int handle(int sig, struct sigaction *action)
{
    action->sa_flags |= SA_RESTART;
    sigemptyset(&action->sa_mask);
    return sigaction(sig, action, NULL);
}

int accel_shield_worker(int owner)
{
    struct sigaction term = { .sa_flags = SA_SIGINFO },
                     warning = { .sa_handler = on_warning };
    sigset_t ours;

    parent_pid = getppid();
    owner_pid = owner > 0 ? owner : parent_pid;
    term.sa_sigaction = on_term;
    if (handle(SIGTERM, &term) != 0 || handle(SIGUSR1, &warning) != 0 ||
        handle(SIGUSR2, &warning) != 0 || prctl(PR_SET_PDEATHSIG, SIGUSR1) != 0)
        return errno;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGUSR1);
    sigaddset(&ours, SIGUSR2);
    if (sigprocmask(SIG_UNBLOCK, &ours, NULL) != 0)
        return errno;
    if (getppid() != parent_pid) /* it died before the kernel was told */
        raise(SIGKILL);
    return 0;
}
