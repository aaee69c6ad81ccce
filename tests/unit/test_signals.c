/* SPDX-License-Identifier: Apache-2.0
 *
 * preemption/: the signals that ask a run to stop, which of several counts, and whose
 * handlers stay. What ends a process is tried in a child.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "tests/tap.h"
#include "handle/run.h"

static struct preemption_rules on = { .enabled = true, .warning = SIGUSR1 };
static volatile sig_atomic_t own_seen;

static void own(int sig)
{
    own_seen = sig;
}

/* Runs `f` in a child: the signal that ended it, or its exit code + 1000. */
static int child(int (*f)(void))
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGINT, SIG_DFL); /* prove may have been started in the background */
        _exit(f());
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

static int once(void)
{
    signals_install(&on);
    signals_take_interrupt(&on);
    raise(SIGINT);
    return signals_pending() == SIGINT && accel_should_stop(NULL) ? 0 : 1;
}

static int twice(void)
{
    return once() == 0 ? raise(SIGINT) : 1;
}

static int before(void)
{
    signals_install(&on);
    return raise(SIGINT);
}

static int left(void)
{
    signals_install(&on);
    signals_take_interrupt(&on);
    signals_leave_interrupt();
    return raise(SIGINT);
}

static int restored(void)
{
    signals_install(&on);
    signals_take_interrupt(&on);
    signals_restore();
    return raise(SIGINT);
}

/* Another rank got the first one: the own one, which comes when all is over, ends
 * nothing. */
static int late(void)
{
    signals_install(&on);
    signals_take_interrupt(&on);
    signals_agreed(SIGINT);
    signals_restore();
    return raise(SIGINT);
}

static int late_twice(void)
{
    return late() == 0 ? raise(SIGINT) : 1;
}

static int late_term(void)
{
    signals_install(&on);
    signals_agreed(SIGTERM);
    signals_restore();
    return raise(SIGTERM);
}

/* The first rank that ends makes srun send SIGTERM to those that take longer. */
static int slow_end(void)
{
    int failed = once();

    signals_agreed(SIGINT);
    signals_restore();
    return failed || raise(SIGTERM) || raise(SIGTERM);
}

static int run_again(void)
{
    if (slow_end() || late())
        return 1;
    signals_install(&on);
    signals_take_interrupt(&on);
    if (signals_pending())
        return 2;
    raise(SIGTERM);
    return signals_pending() == SIGTERM ? 0 : 3;
}

/* The second run failed before any stop was agreed on. */
static int run_again_failed(void)
{
    if (slow_end())
        return 1;
    signals_install(&on);
    signals_restore();
    return raise(SIGTERM);
}

/* Nothing more is to come where it came in time. */
static int in_time(void)
{
    int failed = once();

    signals_agreed(SIGINT);
    signals_restore();
    return failed ? 1 : raise(SIGINT);
}

static int warned_in_time(void)
{
    signals_install(&on);
    raise(SIGUSR1);
    signals_agreed(SIGUSR1);
    signals_restore();
    return raise(SIGUSR1);
}

static int switched_off(void)
{
    struct preemption_rules off = { .enabled = false };

    signals_install(&off);
    signals_take_interrupt(&off);
    return raise(SIGINT);
}

static int programs_own(void)
{
    signal(SIGINT, own);
    signals_install(&on);
    signals_take_interrupt(&on);
    raise(SIGINT);
    raise(SIGINT);
    return own_seen == SIGINT && signals_pending() == 0 ? 0 : 1;
}

static int programs_later(void)
{
    signals_install(&on);
    signals_take_interrupt(&on);
    signal(SIGINT, own);
    signal(SIGTERM, own);
    signals_restore();
    raise(SIGINT);
    if (own_seen != SIGINT)
        return 1;
    raise(SIGTERM);
    return own_seen == SIGTERM ? 0 : 2;
}

static int ignored(void)
{
    signal(SIGINT, SIG_IGN);
    signals_install(&on);
    signals_take_interrupt(&on);
    raise(SIGINT);
    return signals_pending() == 0 ? 0 : 1;
}

static const struct {
    const char *what;
    int (*f)(void);
    int want;
} lives[] = {
    { "the first SIGINT is noted", once, 1000 },
    { "the second one ends the process", twice, SIGINT },
    { "before there is something to save the first one does", before, SIGINT },
    { "after that, too", left, SIGINT },
    { "and after the run", restored, SIGINT },
    { "one that another rank obeyed already ends nothing", late, 1000 },
    { "but the next one does", late_twice, SIGINT },
    { "nor does such a SIGTERM", late_term, 1000 },
    { "after a stop that all agreed on SIGTERM ends no rank that is slow", slow_end,
      1000 },
    { "a second run of the process takes its signals again", run_again, 1000 },
    { "and leaves SIGTERM as it was before the first one", run_again_failed, SIGTERM },
    { "one that came in time leaves no other", in_time, SIGINT },
    { "nor does a warning", warned_in_time, SIGUSR1 },
    { "SIGINT is left alone without accel.preemption.enabled", switched_off, SIGINT },
    { "a handler of the program's stays", programs_own, 1000 },
    { "one that it installs later stays, too", programs_later, 1000 },
    { "SIGINT that is ignored stays ignored", ignored, 1000 },
};

static const struct {
    int first, second, want;
} pairs[] = {
    { SIGTERM, SIGTERM, SIGTERM }, { SIGTERM, SIGUSR1, SIGUSR1 },
    { SIGUSR1, SIGTERM, SIGUSR1 }, { SIGTERM, SIGINT, SIGINT },
    { SIGINT, SIGTERM, SIGINT },   { SIGUSR1, SIGINT, SIGINT },
    { SIGINT, SIGUSR1, SIGINT },
};

int main(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lives); i++)
        tap_is_int(child(lives[i].f), lives[i].want, "%s", lives[i].what);
    signal(SIGINT, SIG_DFL);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(pairs); i++) {
        signals_install(&on);
        signals_take_interrupt(&on);
        raise(pairs[i].first);
        raise(pairs[i].second);
        tap_is_int(signals_pending(), pairs[i].want,
                   "SIG%s, then SIG%s: the one that counts",
                   sigabbrev_np(pairs[i].first), sigabbrev_np(pairs[i].second));
        signals_restore();
    }
    return tap_done();
}
