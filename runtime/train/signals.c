/* SPDX-License-Identifier: Apache-2.0
 *
 * The preemption flag: SIGTERM (preemption, scancel) and the warning signal of --signal
 * (time limit) set it; the step loop reads it. A handler is a process-wide thing, hence
 * the only global of this library; it is installed by accel_open for signals that nobody
 * handles yet, and taken back by accel_close.
 */
#include <signal.h>
#include <string.h>

#include "train/run.h"

static volatile sig_atomic_t pending_signal;
static int installed[2];
static struct sigaction previous[2];

static void on_signal(int sig)
{
    /* SIGTERM behind a warning must not hide that there was one. */
    if (sig != SIGTERM || pending_signal == 0)
        pending_signal = sig;
}

static void install(int slot, int sig)
{
    struct sigaction now, ours;

    if (installed[slot] == sig)
        return;
    if (sigaction(sig, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) ||
        now.sa_handler != SIG_DFL)
        return;
    memset(&ours, 0, sizeof(ours));
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    if (sigaction(sig, &ours, &previous[slot]) == 0)
        installed[slot] = sig;
}

void signals_install(const struct config *cfg)
{
    if (!cfg->preempt_enabled)
        return;
    if (!installed[0] && !installed[1])
        pending_signal = 0;
    install(0, SIGTERM);
    install(1, cfg->preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1);
}

void signals_restore(void)
{
    for (int i = 0; i < 2; i++) {
        if (installed[i])
            sigaction(installed[i], &previous[i], NULL);
        installed[i] = 0;
    }
}

int signals_pending(void)
{
    return pending_signal;
}

int accel_should_stop(const accel_t *run)
{
    (void)run;
    return pending_signal != 0;
}
