/* SPDX-License-Identifier: Apache-2.0
 *
 * The stop flag. SIGTERM (preemption, scancel), the warning signal of --signal (time
 * limit) and the first SIGINT (Ctrl-C) set it; the step loop reads it. A handler is
 * process-wide, hence the only globals of this library. It is installed for signals
 * that nobody handles yet (or that accel itself had ignored) and removed by
 * accel_close. SIGINT is handled only while there is something to save, and only once:
 * the second one ends the process, as it would without accel.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "preemption/preemption.h"

enum { SLOT_TERM, SLOT_WARNING, SLOT_INTERRUPT, SLOTS }; /* the three signals */

/* The signal that asked for a stop; 0: none. This and the next are all that the
 * handler touches. */
static volatile sig_atomic_t pending_signal;
/* clock_ns when the first one came: the time until the kill counts from there. */
static _Atomic int64_t first_came;
/* Signal number of each slot's handler; 0: none installed. */
static int installed[SLOTS];
/* What was there before us, to be put back. */
static struct sigaction previous[SLOTS];
/* A signal that another rank received: ours may arrive when the run is over. */
static int on_its_way;
/* All ranks stop together, and have saved or will do so. */
static bool agreed;

/* Of several signals the one that says more about the wanted end is kept: a warning
 * outweighs the SIGTERM that follows it, and Ctrl-C outweighs both. */
static int weight(int sig)
{
    return sig == 0 ? 0 : sig == SIGTERM ? 1 : sig == SIGINT ? 3 : 2;
}

static void on_signal(int sig)
{
    if (pending_signal == 0)
        atomic_store(&first_came, clock_ns());
    if (weight(sig) > weight(pending_signal))
        pending_signal = sig;
    sample_wait_signal(atomic_load(&first_came));
}

/* Lets a signal pass that comes after the run: see restore. */
static void on_late_signal(int sig)
{
    (void)sig;
}

/* Installs the handler, unless the program has one of its own or ignores the signal.
 * SA_RESTART: the program's system calls do not fail because of us. */
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

/* Puts back what was there before, unless the program has replaced our handler
 * meanwhile. A signal that the run has already obeyed must not end this process
 * with another code than the other ranks', so one of that kind is let pass.
 * SIGTERM is always let pass: the first rank to end with 75 or 85 makes srun send
 * it to all others (kill-on-bad-exit), which may take longer to leave. SIGKILL
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

/* The flags are cleared only by the first call: a second accel_open keeps
 * a pending stop. */
void signals_install(const struct preemption_rules *rules)
{
    if (!rules->enabled)
        return;
    sample_wait_install(!installed[SLOT_TERM] && !installed[SLOT_WARNING]);
    if (!installed[SLOT_TERM] && !installed[SLOT_WARNING]) {
        pending_signal = on_its_way = 0;
        agreed = false;
    }
    install(SLOT_TERM, SIGTERM, 0);
    install(SLOT_WARNING, rules->warning, 0);
    if (installed[SLOT_WARNING])
        warning_arm(installed[SLOT_WARNING]);
}

void signals_take_interrupt(const struct preemption_rules *rules)
{
    if (rules->enabled)
        install(SLOT_INTERRUPT, SIGINT, SA_RESETHAND);
}

void signals_leave_interrupt(void)
{
    restore(SLOT_INTERRUPT);
}

void signals_restore(void)
{
    warning_disarm();
    sample_wait_restore();
    for (int slot = 0; slot < SLOTS; slot++)
        restore(slot);
}

int signals_pending(void)
{
    return pending_signal;
}

int64_t signals_age_ns(void)
{
    return pending_signal ? clock_ns() - atomic_load(&first_came) : 0;
}
