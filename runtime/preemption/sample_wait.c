/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the program that wait for samples: on a pipe, say, that nobody fills. A
 * stop ends the wait, but not at once: a sample that is on its way comes within some
 * seconds, so that its step is finished and saved. After that the system call that the
 * function is in fails (EINTR), again and again, until the function returns. This needs
 * a separate signal, because the program's other system calls are restarted.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preemption/preemption.h"

#define AGAIN_NS 100000000

#ifndef sigev_notify_thread_id /* older glibc */
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Ignored unless a program handles it, so that one which comes late does nothing. */
#define BREAK_SIGNAL SIGURG

static bool installed;
/* Sends it to the thread that owns the run. */
static timer_t timer;
static bool timer_made;
/* The handler of a stop, in any thread, and the thread that owns the run. */
static atomic_bool waiting, armed;
static _Atomic int64_t wait_begun;
/* when the stop was asked for; 0: none was */
static _Atomic int64_t stop_came;

/* A handler, unlike SIG_IGN, ends system calls. */
static void on_break(int sig)
{
    (void)sig;
}

void sample_wait_install(bool first)
{
    struct sigaction now, ours;

    if (first)
        atomic_store(&stop_came, 0);
    if (installed || sigaction(BREAK_SIGNAL, NULL, &now) != 0 ||
        (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL)
        return;
    memset(&ours, 0, sizeof(ours));
    ours.sa_handler = on_break; /* without SA_RESTART */
    sigemptyset(&ours.sa_mask);
    installed = sigaction(BREAK_SIGNAL, &ours, NULL) == 0;
}

void sample_wait_restore(void)
{
    struct sigaction now;

    if (timer_made)
        timer_delete(timer);
    timer_made = false;
    if (installed && sigaction(BREAK_SIGNAL, NULL, &now) == 0 &&
        !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_break)
        signal(BREAK_SIGNAL, SIG_DFL);
    installed = false;
}

/* What is left of the patience, from the stop or the beginning of the wait, whichever
 * came later. */
static int64_t patience_left(int64_t begun)
{
    const int64_t came = atomic_load(&stop_came);

    return SAMPLE_PATIENCE_NS - (clock_ns() - (came > begun ? came : begun));
}

bool sample_wait_over(int64_t begun)
{
    return atomic_load(&stop_came) && patience_left(begun) <= 0;
}

static void disarm(void)
{
    const struct itimerspec never = { 0 };

    atomic_store(&armed, false);
    timer_settime(timer, 0, &never, NULL);
}

/* In a handler, too, and then perhaps beside sample_wait_end: one of them sees the
 * other. */
static void arm(void)
{
    const int64_t left = patience_left(atomic_load(&wait_begun));
    const int64_t from = left > 0 ? left : 1;
    const struct itimerspec when = { .it_interval = { .tv_nsec = AGAIN_NS },
                                     .it_value = { .tv_sec = from / 1000000000,
                                                   .tv_nsec = from % 1000000000 } };

    atomic_store(&armed, true);
    timer_settime(timer, 0, &when, NULL);
    if (!atomic_load(&waiting))
        disarm();
}

void sample_wait_signal(int64_t came)
{
    atomic_store(&stop_came, came);
    if (atomic_load(&waiting))
        arm();
}

int64_t sample_wait_begin(void)
{
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID,
                              .sigev_signo = BREAK_SIGNAL };
    const int64_t now = clock_ns();

    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (installed && !timer_made)
        timer_made = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    if (!timer_made)
        return now;
    atomic_store(&wait_begun, now);
    atomic_store(&waiting, true);
    if (atomic_load(&stop_came))
        arm();
    return now;
}

void sample_wait_end(void)
{
    atomic_store(&waiting, false);
    if (atomic_load(&armed))
        disarm();
}

void sample_wait_break(pthread_t thread)
{
    if (installed)
        pthread_kill(thread, BREAK_SIGNAL);
}
