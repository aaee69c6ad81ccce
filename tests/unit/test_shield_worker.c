/* SPDX-License-Identifier: Apache-2.0
 *
 * libacceljob: which signals end a worker of a data loader. A worker is a child, or a
 * child of a keeper, which is one of ours. It answers one byte for one byte, so its
 * answer proves that it has outlived every signal that was sent before.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel_job.h"
#include "tests/tap.h"

/* ---- in place of libc's ---------------------------------------------------------- */

static int no_prctl; /* its errno */
/* The parent, which ends before prctl goes on, and where it waits for the word to do
 * so; 0: it does not. */
static pid_t dies_before;
static int told_to_die;

static void await_orphanhood(void)
{
    const pid_t us = getpid();

    if (write(told_to_die, &us, sizeof(us)) != sizeof(us))
        _exit(2);
    while (getppid() == dies_before)
        sched_yield();
}

#pragma GCC visibility push(default)
int prctl(int option, ...)
{
    unsigned long arg;
    va_list ap;

    va_start(ap, option);
    arg = va_arg(ap, unsigned long);
    va_end(ap);
    if (option == PR_SET_PDEATHSIG && no_prctl) {
        errno = no_prctl;
        return -1;
    }
    if (option == PR_SET_PDEATHSIG && dies_before)
        await_orphanhood();
    return (int)syscall(SYS_prctl, option, arg, 0, 0, 0);
}
#pragma GCC visibility pop

/* ---- a worker -------------------------------------------------------------------- */

/* What a worker does before and with its shield. */
struct job {
    int owner;    /* for accel_shield_worker */
    bool blocked; /* its signals are at first, until 's' is asked for */
};

struct worker {
    pid_t pid;
    int ask, answer; /* descriptors */
};

/* Nothing of the shield is missing: 'k', or what is. */
static char check_shield(void)
{
    static const int ours[] = { SIGTERM, SIGUSR1, SIGUSR2 };
    struct sigaction now;
    sigset_t blocked;

    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        if (sigismember(&blocked, ours[i]))
            return 'b';
        else if (sigaction(ours[i], NULL, &now) != 0 || !(now.sa_flags & SA_RESTART))
            return 'r';
    return 'k';
}

/* Answers each byte: 's': shields itself; 'c': is the shield whole?; 'h': is SIGHUP,
 * which is none of ours, blocked still?; 'q': ends. Without questions it stays. */
static void work(const struct job *job, int ask, int answer)
{
    sigset_t all;
    char c;

    alarm(HANG_S);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    sigfillset(&all);
    if (job->blocked)
        sigprocmask(SIG_BLOCK, &all, NULL);
    else if (accel_shield_worker(job->owner) != 0)
        _exit(2);
    do {
        c = 'k';
        if (write(answer, &c, 1) != 1 || read(ask, &c, 1) != 1)
            break;
        if (c == 'q')
            _exit(0);
        if (c == 's' && accel_shield_worker(job->owner) != 0)
            _exit(3);
        if (c == 'c' && check_shield() != 'k')
            _exit(4);
        sigprocmask(SIG_SETMASK, NULL, &all);
        if (c == 'h' && !sigismember(&all, SIGHUP))
            _exit(5);
    } while (true);
    for (;;)
        pause();
}

/* The worker's next answer. False: it has ended. */
static bool answers(const struct worker *w)
{
    char c = 0;
    ssize_t n;

    while ((n = read(w->answer, &c, 1)) < 0 && errno == EINTR)
        ;
    return n == 1 && c == 'k';
}

static bool asks(const struct worker *w, char c)
{
    return write(w->ask, &c, 1) == 1 && answers(w);
}

static bool lives(const struct worker *w)
{
    return asks(w, '?');
}

/* Starts one; true: it is at work. */
static bool start(struct worker *w, const struct job *job)
{
    int ask[2], answer[2];

    if (pipe(ask) != 0 || pipe(answer) != 0)
        return false;
    w->pid = fork();
    if (w->pid == 0) {
        close(ask[1]);
        close(answer[0]);
        work(job, ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    w->ask = ask[1];
    w->answer = answer[0];
    return w->pid > 0 && answers(w);
}

/* Its end, which is near: 1000 + exit code, or a signal. */
static int end_of(struct worker *w)
{
    int status = 0;

    waitpid(w->pid, &status, 0);
    if (w->ask >= 0)
        close(w->ask);
    close(w->answer);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

/* Sends `sig` from a process that is neither the worker's owner nor its parent. */
static void send_as_stranger(const struct worker *w, int sig)
{
    pid_t stranger = fork();

    if (stranger == 0)
        _exit(kill(w->pid, sig) == 0 ? 0 : 1);
    waitpid(stranger, NULL, 0);
}

/* ---- a child of this process ----------------------------------------------------- */

static void test_signals(void)
{
    struct worker w;

    tap_ok(start(&w, &(struct job){ 0 }), "a worker");
    tap_ok(asks(&w, 'c'), "whose system calls go on after a signal");
    send_as_stranger(&w, SIGTERM);
    tap_ok(lives(&w), "a stranger's SIGTERM does not end it");
    send_as_stranger(&w, SIGUSR1);
    send_as_stranger(&w, SIGUSR2);
    tap_ok(lives(&w), "nor do warnings");
    kill(w.pid, SIGUSR1);
    kill(w.pid, SIGUSR2);
    tap_ok(lives(&w), "from whomever");
    send_as_stranger(&w, SIGTERM);
    tap_ok(lives(&w), "a second SIGTERM does not, either");
    kill(w.pid, SIGTERM);
    tap_is_int(end_of(&w), SIGTERM, "its parent's does, as the default would");
    start(&w, &(struct job){ 0 });
    tap_ok(!asks(&w, 'q'), "it ends by itself");
    tap_is_int(end_of(&w), 1000, "as ever");
    start(&w, &(struct job){ 0 });
    send_as_stranger(&w, SIGKILL);
    tap_is_int(end_of(&w), SIGKILL, "SIGKILL ends it");
}

static void test_blocked(void)
{
    struct worker w;

    tap_ok(start(&w, &(struct job){ .blocked = true }), "a worker that blocks signals");
    send_as_stranger(&w, SIGTERM);
    send_as_stranger(&w, SIGUSR1);
    tap_ok(lives(&w), "has some waiting");
    tap_ok(asks(&w, 's'), "it takes the shield, which is for those, too");
    tap_ok(asks(&w, 'c'), "and none of them is blocked any more");
    tap_ok(asks(&w, 'h'), "others are, as before");
    kill(w.pid, SIGTERM);
    tap_is_int(end_of(&w), SIGTERM, "its parent can end it");
    start(&w, &(struct job){ .blocked = true });
    kill(w.pid, SIGTERM);
    tap_ok(!asks(&w, 's'), "a SIGTERM of its parent's that waited");
    tap_is_int(end_of(&w), SIGTERM, "ends it at once");
}

static void test_owner(void)
{
    struct worker w;

    tap_ok(start(&w, &(struct job){ .owner = getpid() }), "an owner that is named");
    send_as_stranger(&w, SIGTERM);
    tap_ok(lives(&w), "nobody else's SIGTERM ends it");
    kill(w.pid, SIGTERM);
    tap_is_int(end_of(&w), SIGTERM, "the owner's does");
    start(&w, &(struct job){ .owner = 1 });
    kill(w.pid, SIGTERM);
    tap_ok(lives(&w), "a parent that is not the owner is a stranger");
    kill(w.pid, SIGKILL);
    end_of(&w);
    start(&w, &(struct job){ .owner = -1 });
    kill(w.pid, SIGTERM);
    tap_is_int(end_of(&w), SIGTERM, "-1 is nobody: the parent counts");
}

static void test_error(void)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        no_prctl = EPERM;
        _exit(accel_shield_worker(0));
    }
    waitpid(pid, &status, 0);
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == EPERM,
           "what the system refuses is returned as its errno");
}

/* ---- a child of a keeper --------------------------------------------------------- */

/* When a keeper ends, its worker becomes a child of this process, which then sees how
 * the worker ends. */

static struct worker *hired; /* the keeper's */
static bool hired_well;

static void *hire(void *job)
{
    hired_well = start(hired, job);
    return (void *)(intptr_t)syscall(SYS_gettid);
}

/* Until the kernel has done with the thread, its children have their new parent. */
static void await_end(pid_t thread)
{
    while (syscall(SYS_tgkill, getpid(), thread, 0) == 0)
        sched_yield();
}

/* Starts a worker from a thread that ends, and hands it to the test. Then it does what
 * it is told: 't': SIGTERM to the worker; 'e': ends. 'k' for each. */
static void keep(const struct job *job, bool thread_ends, int told, int tells)
{
    struct worker w;
    pthread_t thread;
    void *id = NULL;
    char c;

    alarm(HANG_S);
    hired = &w;
    if (thread_ends) {
        if (pthread_create(&thread, NULL, hire, (void *)job) != 0 ||
            pthread_join(thread, &id) != 0)
            _exit(2);
        await_end((pid_t)(intptr_t)id);
    } else {
        hire((void *)job);
    }
    c = hired_well && lives(&w) ? 'k' : '!';
    if (write(tells, &w.pid, sizeof(w.pid)) != sizeof(w.pid) ||
        write(tells, &c, 1) != 1)
        _exit(3);
    while (read(told, &c, 1) == 1 && c == 't') {
        kill(w.pid, SIGTERM);
        c = lives(&w) ? 'k' : '!';
        if (write(tells, &c, 1) != 1)
            _exit(4);
    }
    _exit(0);
}

/* A keeper and its worker. True: the worker is at work, its thread may have ended. */
static bool start_keeper(struct worker *keeper, pid_t *worker_out,
                         const struct job *job, bool thread_ends)
{
    int told[2], tells[2];

    if (pipe(told) != 0 || pipe(tells) != 0)
        return false;
    fflush(stdout);
    keeper->pid = fork();
    if (keeper->pid == 0) {
        close(told[1]);
        close(tells[0]);
        keep(job, thread_ends, told[0], tells[1]);
    }
    close(told[0]);
    close(tells[1]);
    keeper->ask = told[1];
    keeper->answer = tells[0];
    *worker_out = 0;
    return read(keeper->answer, worker_out, sizeof(*worker_out)) ==
               sizeof(*worker_out) &&
           answers(keeper);
}

/* It ends, as it is told nothing more. */
static int dismiss(struct worker *keeper)
{
    close(keeper->ask);
    keeper->ask = -1;
    return end_of(keeper);
}

static int end_of_orphan(pid_t pid)
{
    int status = 0;

    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

static void test_parent_ends(bool thread_ends)
{
    const char *how = thread_ends ? "a worker whose thread has ended" : "a worker";
    struct worker keeper;
    pid_t worker;

    tap_ok(start_keeper(&keeper, &worker, &(struct job){ 0 }, thread_ends), "%s lives",
           how);
    tap_is_int(dismiss(&keeper), 1000, "its parent ends");
    tap_is_int(end_of_orphan(worker), SIGKILL, "%s ends with its parent", how);
    start_keeper(&keeper, &worker, &(struct job){ 0 }, thread_ends);
    kill(keeper.pid, SIGKILL);
    tap_is_int(end_of(&keeper), SIGKILL, "its parent is killed");
    tap_is_int(end_of_orphan(worker), SIGKILL, "%s ends all the same", how);
    start_keeper(&keeper, &worker, &(struct job){ 0 }, thread_ends);
    tap_ok(!asks(&keeper, 't'), "%s is ended by its parent's SIGTERM", how);
    dismiss(&keeper);
    tap_is_int(end_of_orphan(worker), SIGTERM, "as the default would");
}

/* As a fork server, which starts what another process owns. */
static void test_server(void)
{
    struct worker keeper;
    pid_t worker;

    start_keeper(&keeper, &worker, &(struct job){ .owner = getpid() }, false);
    tap_ok(asks(&keeper, 't'), "the SIGTERM of a fork server is a stranger's");
    kill(worker, SIGTERM);
    tap_ok(!asks(&keeper, 't'), "the owner's ends its worker");
    dismiss(&keeper);
    tap_is_int(end_of_orphan(worker), SIGTERM, "as the default would");
}

/* The parent ends after the worker has looked who it is, and before the kernel knows
 * that the worker is to hear of it. */
static void test_parent_ended(void)
{
    pid_t parent, worker = 0;
    int fd[2];

    if (pipe(fd) != 0)
        tap_skip_all("no pipe");
    fflush(stdout);
    parent = fork();
    if (parent == 0) {
        worker = fork();
        if (worker == 0) {
            alarm(HANG_S);
            dies_before = getppid();
            told_to_die = fd[1];
            _exit(accel_shield_worker(0));
        }
        _exit(read(fd[0], &worker, sizeof(worker)) == sizeof(worker) &&
                      write(fd[1], &worker, sizeof(worker)) == sizeof(worker)
                  ? 0
                  : 1);
    }
    waitpid(parent, NULL, 0);
    if (read(fd[0], &worker, sizeof(worker)) != sizeof(worker))
        tap_diag("no worker");
    tap_is_int(end_of_orphan(worker), SIGKILL,
               "a worker whose parent has just ended does not stay");
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    alarm(HANG_S);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    test_signals();
    test_blocked();
    test_owner();
    test_error();
    test_parent_ends(false);
    test_parent_ends(true);
    test_server();
    test_parent_ended();
    return tap_done();
}
