/* SPDX-License-Identifier: Apache-2.0
 *
 * srun is told to end while its step runs. Left alone it kills the tasks at SIGTERM and
 * SIGHUP, before they can save. The first of these signals comes in; SIGTERM goes out
 * to the tasks, which save and end. srun kills them at the second signal, or when
 * KillWait is over. Ctrl-C is only noted: with SLURM_DISABLE_STATUS srun itself passes
 * each one on. Whoever sent one of these signals does not want a new allocation.
 *
 * srun's own thread takes its signals with sigwait; all other threads block them. The
 * kernel delivers a signal of the process to the main thread if that does not block it.
 * So the main thread unblocks them, until the first one has come.
 */
#include "srun_plugin/step/interrupt.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "common/common.h"
#include "common/thread.h"

/* Slurm's default. */
#define KILL_WAIT_S 30
/* Attempts to signal the tasks: the step may not be up yet. */
#define ASKS 5

/* Signals that are handled; the only ones that are unblocked. */
static const int taken[] = { SIGTERM, SIGHUP, SIGINT };
/* These two are the handler's, which gets no argument of ours and may touch nothing
 * else: the signal that came, and the pipe to the thread (one byte, the signal). */
static volatile sig_atomic_t seen;
static int wake[2] = { -1, -1 };

/* Runs in the main thread, once. Blocks the signals in the interrupted context, so that
 * from the next one on srun is in charge again; Ctrl-C, and a signal that cannot be
 * passed on, srun gets at once. Only async-signal-safe calls. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;
    int before = errno;
    char byte = (char)sig;

    (void)info;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(taken); i++)
        sigaddset(&interrupted->uc_sigmask, taken[i]);
    seen = sig;
    if (sig == SIGINT || write(wake[1], &byte, 1) != 1)
        kill(getpid(), sig);
    errno = before;
}

int interrupt_seen(void)
{
    return seen;
}

/* Sends SIGTERM to the tasks; tries again for 1.5 s. */
static bool tell_tasks(const struct interrupt *i)
{
    const struct timespec pause = { .tv_nsec = 300000000 };

    for (int n = 0; n < ASKS; n++) {
        if (slurm_signal_job_step(i->job, i->step, SIGTERM) == SLURM_SUCCESS)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* A thread of its own, because a handler must not send messages. When the patience is
 * over, SIGTERM makes srun kill the tasks as it always would. */
static void *wait_for_signal(void *interrupt)
{
    const struct interrupt *i = interrupt;
    const struct timespec patience = { .tv_sec = i->kill_wait };
    char sig;

    while (read(wake[0], &sig, 1) != 1)
        if (errno != EINTR)
            return NULL;
    slurm_info("accel: srun received SIG%s: the tasks have %u s to save and end; a "
               "second signal ends them at once",
               sigabbrev_np(sig), i->kill_wait);
    if (tell_tasks(i))
        nanosleep(&patience, NULL);
    kill(getpid(), SIGTERM);
    return NULL;
}

static bool start_thread(struct interrupt *i)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    if (pipe2(wake, O_CLOEXEC) != 0)
        return false;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = thread_start(&thread, &attr, wait_for_signal, i);
    pthread_attr_destroy(&attr);
    return rc == 0;
}

/* The handlers are set before the signals are unblocked. slurm_conf is a symbol of
 * srun's own. */
void interrupt_watch(struct interrupt *i)
{
    const slurm_conf_t *conf = dlsym(RTLD_DEFAULT, "slurm_conf");
    struct sigaction ours = { .sa_sigaction = on_signal,
                              .sa_flags = SA_SIGINFO | SA_RESTART };
    sigset_t set;

    i->kill_wait = conf && conf->kill_wait > 0 ? conf->kill_wait : KILL_WAIT_S;
    /* Outside of the main thread everything stays as srun has it. */
    if (wake[0] >= 0 || getpid() != (pid_t)syscall(SYS_gettid) || !start_thread(i))
        return;
    sigemptyset(&ours.sa_mask);
    sigemptyset(&set);
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(taken); k++) {
        sigaddset(&ours.sa_mask, taken[k]);
        sigaddset(&set, taken[k]);
    }
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(taken); k++)
        if (sigaction(taken[k], &ours, NULL) != 0)
            return;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
