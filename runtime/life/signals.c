/* SPDX-License-Identifier: Apache-2.0
 *
 * The stop flag: SIGTERM (preemption, scancel), the warning signal of --signal (time
 * limit) and the first SIGINT (Ctrl-C) set it; the step loop reads it. A handler is a
 * process-wide thing, hence the only global of this library; it is installed for
 * signals that nobody handles yet (or that accel itself had ignored), and taken back by
 * accel_close. SIGINT is ours only while there is something to save, and once: the
 * second one ends the process, as it does without us.
 */
#include <signal.h>
#include <string.h>

#include "run/run.h"

enum { SLOT_TERM, SLOT_WARNING, SLOT_INTERRUPT, SLOTS };

static volatile sig_atomic_t pending_signal;
static int installed[SLOTS];
static struct sigaction previous[SLOTS];
static int on_its_way; /* another rank got it: ours may come when the run is over */
static bool agreed;    /* the ranks stop together, and have saved or will have */

/* What says more about the end that is wanted hides the rest: SIGTERM comes behind a
 * warning, and whoever presses Ctrl-C wants no other end. */
static int weight(int sig)
{
    return sig == 0 ? 0 : sig == SIGTERM ? 1 : sig == SIGINT ? 3 : 2;
}

static void on_signal(int sig)
{
    if (weight(sig) > weight(pending_signal))
        pending_signal = sig;
}

static void on_late_signal(int sig)
{
    (void)sig;
}

static void install(int slot, int sig, int flags)
{
    struct sigaction now, ours;

    if (installed[slot] == sig)
        return;
    if (sigaction(sig, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) ||
        (now.sa_handler != SIG_DFL && now.sa_handler != on_late_signal &&
         !(now.sa_handler == SIG_IGN && warning_is_ours(sig))))
        return;
    memset(&ours, 0, sizeof(ours));
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART | flags;
    sigemptyset(&ours.sa_mask);
    if (sigaction(sig, &ours, NULL) != 0)
        return;
    previous[slot] = now;
    if (now.sa_handler == on_late_signal)
        previous[slot].sa_handler = SIG_DFL;
    installed[slot] = sig;
}

/* What the program put in our place meanwhile stays. A signal that the run has obeyed
 * already must not end this process with another code than that of the other ranks:
 * one is let by. SIGTERM always is: the first rank to end with 75 or 85 makes srun
 * send it to all others (kill-on-bad-exit), which may take longer to leave. SIGKILL
 * follows after KillWait. */
static void restore(int slot)
{
    struct sigaction now, next = previous[slot];
    bool late = on_its_way && on_its_way == installed[slot];

    if ((late || (agreed && slot == SLOT_TERM)) && next.sa_handler == SIG_DFL) {
        next.sa_handler = on_late_signal;
        next.sa_flags = SA_RESTART | (slot == SLOT_TERM ? 0 : (int)SA_RESETHAND);
    }
    if (installed[slot] && sigaction(installed[slot], NULL, &now) == 0 &&
        !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal)
        sigaction(installed[slot], &next, NULL);
    installed[slot] = 0;
}

void signals_agreed(int sig)
{
    agreed = true;
    on_its_way = pending_signal == sig ? 0 : sig;
}

void signals_install(const struct config *cfg)
{
    if (!cfg->preempt_enabled)
        return;
    if (!installed[SLOT_TERM] && !installed[SLOT_WARNING]) {
        pending_signal = on_its_way = 0;
        agreed = false;
    }
    install(SLOT_TERM, SIGTERM, 0);
    install(SLOT_WARNING, cfg->preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1, 0);
    if (installed[SLOT_WARNING])
        warning_arm(installed[SLOT_WARNING]);
}

void signals_take_interrupt(const struct config *cfg)
{
    if (cfg->preempt_enabled)
        install(SLOT_INTERRUPT, SIGINT, SA_RESETHAND);
}

void signals_leave_interrupt(void)
{
    restore(SLOT_INTERRUPT);
}

void signals_restore(void)
{
    warning_disarm();
    for (int slot = 0; slot < SLOTS; slot++)
        restore(slot);
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
